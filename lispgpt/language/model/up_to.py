"""Building an entry for any size of a free dimension up to one: what its code has to be told of the size of a run.

The entry is built for the largest size, and for others that no run has, to see what depends on the size.  All of these
have to be the same ops: else how the entry computes depends on the size, and it is an error at the first form that
differs.  Which dimensions grow with the size is said of each op by `varies`, and a number that does (as the count by
which a mean divides) by `of_size`, the way in which it follows from the size.  The pass mask-rows does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import entry_functions, operations, shape_of, strings
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.model import building
from lispgpt.language.model.table import Entry, Model

FORMS: dict[str, Callable[[float, float], float]] = {
    "times": lambda factor, size: factor * size,
    "plus": lambda factor, size: factor + size,
    "over": lambda factor, size: factor / size,
    "times-root": lambda factor, size: factor * math.sqrt(size),
    "over-root": lambda factor, size: factor / math.sqrt(size),
    "unbiased": lambda factor, size: factor * size / (factor * size - 1.0) if factor * size != 1.0 else math.inf,
}
"""How numbers follow from a size, and one more number."""
FACTORS: dict[str, Callable[[float, float], float]] = {
    "times": lambda value, size: value / size,
    "plus": lambda value, size: value - size,
    "over": lambda value, size: value * size,
    "times-root": lambda value, size: value / math.sqrt(size),
    "over-root": lambda value, size: value * math.sqrt(size),
    "unbiased": lambda value, size: round(value / (value - 1.0)) / size if value > 1.0 else 0.0,
}
"""That number, of a value and its size."""
SIZES_OF_SHAPES = ("static_sizes", "static_output_shape", "function_type", "inputs", "extents", "sym_name")
NEAR = 1e-5


def ladder(most: int) -> list[int]:
    """The sizes to compile for, so that runs of any size up to the largest do at most about twice its work."""
    return [1, *(1 << power for power in range(2, (most - 1).bit_length())), most] if most > 1 else [1]


def _tries(size: int) -> list[int]:
    """A size and others to see what depends on it: such that need as many doublings, where there are some."""
    least, most = (1 << (size - 1).bit_length() - 1) + 1, 1 << (size - 1).bit_length()
    others = [n for n in dict.fromkeys((least, most, most - 1)) if least <= n <= most and n != size][:2]
    return [size, *(others or [size + 1, 2 * size + 1])]


def build(evaluator: Evaluator, entry: Entry, sizes: dict[str, int], name: str) -> list[ir.Operation]:
    """Add the entry's function for any size of the free dimension `name` up to that in sizes, as its attributes say.

    Others are added that are to be erased once nothing is built any more: until then the evaluator knows their values.
    """
    most = sizes[name]
    if most == 1:
        building.build(evaluator, entry, sizes)
        return []
    model = evaluator.states.of(Model)
    states = [state.name for state in model.states.values() if name in model.dimensions(state)]
    tries = _tries(most)
    built = [_built(evaluator, entry, {**sizes, name: size}) for size in tries]
    if kept := [s for s in states if f"state:{s}" in strings(built[0].attributes["arguments"])]:
        evaluator.site.fail(f"the state {kept[0]} has a part for each {name}: {_WHERE}", entry.form)
    _Compared(evaluator, entry, name, tries, built).mark()
    return built[1:]


def _built(evaluator: Evaluator, entry: Entry, sizes: dict[str, int]) -> ir.Operation:
    building.build(evaluator, entry, sizes, any_size=True)
    return entry_functions(evaluator.builder.module)[-1]


_WHERE = "it cannot be compiled for any size up to one, but for one size at a time"


class _Compared:
    """One entry, built for several sizes."""

    def __init__(
        self, evaluator: Evaluator, entry: Entry, name: str, sizes: Sequence[int], built: Sequence[ir.Operation]
    ) -> None:
        self.evaluator, self.entry, self.name, self.sizes, self.built = evaluator, entry, name, sizes, built
        self.same: list[dict[ir.Value, ir.Value]] = [{} for _ in built[1:]]

    def mark(self) -> None:
        """Write into the first function what depends on the size."""
        self._blocks(self.built)
        function = self.built[0]
        function.attributes["up_to"] = ir.StringAttr.get(self.name)
        arguments = function.regions[0].blocks[0].arguments
        function.attributes["varies"] = _numbers([self._varying(v) for v in arguments])

    def _blocks(self, ops: Sequence[ir.Operation]) -> None:
        for regions in zip_longest(*(list(op.regions) for op in ops)):
            for blocks in zip_longest(*(list(region.blocks) for region in regions)):
                if any(block is None for block in blocks) or len({len(block.arguments) for block in blocks}) > 1:
                    self._fail(ops[0])
                self._note(*(block.arguments for block in blocks))
                for each in zip_longest(*(operations(block) for block in blocks)):
                    self._compare(each, ops[0])

    def _compare(self, ops: Sequence[Any], around: ir.Operation) -> None:
        first = next(op for op in ops if op is not None)
        if any(op is None for op in ops) or len({(op.name, len(op.operands), len(op.results)) for op in ops}) > 1:
            self._fail(around if first.name == "func.return" else first)
        for known, op in zip(self.same, ops[1:], strict=True):
            if any(known[a] != b for a, b in zip(first.operands, op.operands, strict=True)):
                self._fail(first)
        self._note(*(op.results for op in ops))
        for attribute in sorted({name for op in ops for name in op.attributes}):
            found = [str(op.attributes[attribute]) if attribute in op.attributes else "" for op in ops]
            if len(set(found)) > 1 and attribute not in SIZES_OF_SHAPES:
                if first.name != "arith.constant":
                    self._fail(first)
                self._number(ops)
        self._blocks(ops)
        varying = [self._varying(value) for value in first.results]
        if any(varying):
            first.attributes["varies"] = _numbers(varying)

    def _note(self, firsts: Any, *others: Any) -> None:
        for known, values in zip(self.same, others, strict=True):
            known.update(zip(firsts, values, strict=True))

    def _varying(self, value: ir.Value) -> list[int]:
        """The dimensions of a value that grow with the size."""
        shapes = [shape_of(v) for v in (value, *(known[value] for known in self.same))]
        if len(set(map(len, shapes))) > 1:
            self._fail(value.owner.operation if not isinstance(value.owner, ir.Block) else self.built[0])
        return [d for d, extents in enumerate(zip(*shapes, strict=True)) if len(set(extents)) > 1]

    def _number(self, ops: Sequence[ir.Operation]) -> None:
        """Say of a constant how it follows from the size."""
        found = [value for op in ops if (value := _value_of(op)) is not None]
        if len(found) < len(ops):
            self._fail(ops[0])
        if len(set(found)) == 1:
            return
        for form, value_of in FORMS.items():
            factor = FACTORS[form](found[0], self.sizes[0])
            factor = round(factor) if isinstance(found[0], int) else factor
            if all(math.isclose(value_of(factor, s), v, rel_tol=NEAR) for s, v in zip(self.sizes, found, strict=True)):
                number = ir.FloatAttr.get(ir.F64Type.get(), float(factor))
                ops[0].attributes["of_size"] = ir.DictAttr.get({"form": ir.StringAttr.get(form), "factor": number})
                return
        self._fail(ops[0])

    def _fail(self, op: ir.Operation) -> NoReturn:
        spans = self.evaluator.site.spans_of(op.location)
        found = f"how `{self.entry.name}` computes this depends on what {self.name} is: {_WHERE}"
        raise UserError(found, spans[-1] if spans else self.entry.form.span)


def _value_of(op: ir.Operation) -> float | int | None:
    """The number of a constant, or the one that all elements of it are; None for others."""
    value = op.attributes["value"]
    if isinstance(value, ir.DenseElementsAttr):
        if not value.is_splat:
            return None
        value = value.get_splat_value()
    if isinstance(value, ir.FloatAttr):
        return float(value.value)
    return int(value.value) if isinstance(value, ir.IntegerAttr) else None


def _numbers(lists: Sequence[Sequence[int]]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(each)) for each in lists])
