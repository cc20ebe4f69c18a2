"""Whether a program treats all parts of a batch alike: then devices may part it otherwise than the program does.

A slice of the batch becomes that slice of each device's sequences, which are others than the program takes.  What is
made of all such slices is nevertheless the same where it is, row by row, one function of the batch, of which the
program adds up the sums over each part, or puts the rows side by side.  So each value has a key, which is equal for
values that are made alike of whatever part; and what has been made of some of the rows is a sum of keys, each over a
span of the batch, until each span is all of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NoReturn, TypeAlias

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    is_elementwise,
    nested_operations,
    operations,
    shape_of,
)
from lispgpt.passes.distribute.batch_dims import ALL, Dims, Span, fail, joined, without
from lispgpt.passes.distribute.linearity import CONVERSIONS, LINEAR, NOTHING, PLAIN, SUMS, is_zero, results_of

Terms: TypeAlias = dict[Hashable, Span]
"""For each key, over which of the batch it is added up, or put side by side."""

SLICES = ("tensor.extract_slice", "tensor.insert_slice")
MADE_OF_NUMBERS = ("arith.constant", "linalg.fill", "linalg.generic")
NOT_UNIFORM = "it takes some of the batch's sequences, and others are not treated as those are"


class Uniformity:
    """What the values of an entry are of, beginning with the first op that is about some of the batch.

    dims, shapes, parts, nothing: as `ShardedValues` has them.
    """

    def __init__(
        self,
        dims: Mapping[ir.Value, Dims],
        shapes: Mapping[ir.Value, tuple[int, ...]],
        parts: set[ir.Value],
        nothing: set[ir.Value],
    ) -> None:
        self._dims, self._shapes, self._parts, self._nothing = dims, shapes, parts, nothing
        self._terms: dict[ir.Value, Terms] = {}
        self._keys: dict[ir.Value, Hashable] = {}
        self._numbers: dict[Hashable, Hashable] = {}
        self._first: ir.Operation | None = None

    def check(self, value: ir.Value) -> None:
        """UserError where a value is of a part of the batch alone."""
        if self._first is not None and (value in self._terms or self._span(value) != ALL):
            fail(self._first, NOT_UNIFORM)

    def note(self, op: ir.Operation) -> None:
        """Find what the results of an op are, which is divided by now."""
        values = [*op.operands, *captured_values(op)]
        if self._first is None:
            if all(self._span(v) == ALL for v in [*values, *op.results]):
                return
            self._first = op
        pending = [v for v in values if v in self._terms]
        if op.name in SLICES and self._numbered(op):
            self._sliced(op)
        elif op.name == "scf.for" and op.results[0] in self._parts:
            self._counted(op, pending)
        elif pending:
            self._summed(op, pending)
        else:
            self._made(op, values)

    def _made(self, op: ir.Operation, values: list[ir.Value]) -> None:
        """An op that reads nothing that is still to be completed."""
        key = self._structure(op, {})
        spans = [span for v in values if (span := self._span(v)) != ALL]
        for number, result in enumerate(op.results):
            if spans and self._span(result) == ALL:
                self._settle(result, {self._number((key, number)): spans[0]})
            else:
                self._keys[result] = self._number((key, number))

    def _counted(self, op: ir.Operation, pending: list[ir.Value]) -> None:
        """A loop that adds something for each row to what it starts with."""
        start = op.operands[3]
        if any(value != start for value in pending):
            self._refuse()
        spans = [span for v in captured_values(op) if (span := self._span(v)) != ALL]
        key = self._structure(op, {start: NOTHING})
        self._settle(op.results[0], self._together([{key: spans[0] if spans else ALL}, self._terms_of(start)]))

    def _summed(self, op: ir.Operation, pending: list[ir.Value]) -> None:
        """Sums of what is still to be completed, and what is linear in it."""
        added = _added(op)
        if added is not None:
            self._settle(op.results[0], self._together([self._terms_of(value) for value in added]))
            return
        if op.name in ("tensor.cast", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"):
            kinds = [LINEAR]
        elif op.name == "tensor.insert_slice":
            kinds = [LINEAR] if op.operands[1] in self._nothing else []
        else:
            kinds = results_of(op, self._kind) or []
        if len(pending) != 1 or kinds != [LINEAR]:
            self._refuse()
        terms = self._terms[pending[0]]
        self._settle(op.results[0], {self._structure(op, {pending[0]: key}): span for key, span in terms.items()})

    def _kind(self, value: ir.Value) -> str:
        return LINEAR if value in self._terms else NOTHING if value in self._nothing else PLAIN

    def _numbered(self, op: ir.Operation) -> bool:
        """Whether a slice takes, or puts, some of the batch."""
        part, whole = _part_and_whole(op)
        return self._span(part) != self._span(whole)

    def _sliced(self, op: ir.Operation) -> None:
        """Rows of what there is, or what is there with other rows in a part of it."""
        result = op.results[0]
        if op.name == "tensor.extract_slice":
            own, source = self._span(result), op.operands[0]
            found = {key for key, span in self._terms_of(source).items() if without(own, span) == ()}
            others = [s for k, s in self._terms_of(source).items() if k not in found and without(s, own) != s]
            if len(found) > 1 or others:
                self._refuse()
            if found:
                self._keys[result] = self._window(op, [found.pop()])
            else:
                self._nothing.add(result)
            return
        part, whole = list(op.operands)[:2]
        own = self._span(part)
        terms = {key: left for key, span in self._terms_of(whole).items() if (left := without(span, own))}
        if part not in self._nothing:
            if part in self._terms:
                self._refuse()
            before = [key for key, span in self._terms_of(whole).items() if without(own, span) == ()]
            terms = self._together([terms, {self._window(op, [self._key(part), *before]): own}])
        self._settle(result, terms)

    def _window(self, op: ir.Operation, keys: list[Hashable]) -> Hashable:
        """The key of rows that are taken or put: that of the rows, where they are whole."""
        part, whole = _part_and_whole(op)
        sizes, shape = integers(op.attributes["static_sizes"]), shape_of(whole)
        along = self._dims[whole]
        if len(shape_of(part)) == len(shape) and all(sizes[d] == n or d in along for d, n in enumerate(shape)):
            return keys[0]
        return self._number((op.name, *(self._attribute(op, f"static_{n}") for n in ("offsets", "sizes")), *keys))

    # ---- keys

    def _terms_of(self, value: ir.Value) -> Terms:
        if value in self._nothing:
            return {}
        return self._terms[value] if value in self._terms else {self._key(value): self._span(value)}

    def _together(self, all_terms: list[Terms]) -> Terms:
        found: Terms = {}
        for terms in all_terms:
            for key, span in terms.items():
                both = joined(found.get(key, ()), span)
                if both is None:
                    self._refuse()
                found[key] = both
        return found

    def _settle(self, result: ir.Value, terms: Terms) -> None:
        """Remember what a value is: complete, where each term is of all of it."""
        self._terms.pop(result, None)
        if any(span != self._span(result) for span in terms.values()):
            self._terms[result] = terms
        elif terms:
            self._keys[result] = next(iter(terms)) if len(terms) == 1 else self._number(frozenset(terms))

    def _refuse(self) -> NoReturn:
        assert self._first is not None
        fail(self._first, NOT_UNIFORM)

    def _span(self, value: ir.Value) -> Span:
        """Of which sequences a value has rows, or is made."""
        for d, dim in self._dims.get(value, {}).items():
            return dim.span(self._shapes[value][d])
        return ALL

    def _key(self, value: ir.Value) -> Hashable:
        if value in self._nothing:
            return NOTHING
        if value not in self._keys:
            op = defining_op(value)
            plain = op is not None and op.name in MADE_OF_NUMBERS and len(op.operands) <= 2
            numbers = plain and not any(shape_of(v) for v in list(op.operands)[:-1])
            self._keys[value] = self._structure(op, {}) if numbers else self._number(value)
        return self._keys[value]

    def _number(self, key: Hashable) -> Hashable:
        return self._numbers.setdefault(key, len(self._numbers))

    def _structure(self, op: ir.Operation, known: Mapping[ir.Value, Hashable]) -> Hashable:
        """What an op does, of which values, whatever part of the batch it is about."""
        if op.name == "tensor.cast" and op.operands[0].type == op.results[0].type:
            return known[op.operands[0]] if known else self._key(op.operands[0])
        nested = [op, *nested_operations(op)]
        inner = [a for one in nested for region in one.regions for block in region.blocks for a in block.arguments]
        inner += [result for one in nested[1:] for result in one.results]
        own = {value: ("inner", number) for number, value in enumerate(inner)} | dict(known)
        found = [
            (
                one.name,
                tuple((name, self._attribute(one, name)) for name in one.attributes if name != "static_output_shape"),
                tuple(own[v] if v in own else self._key(v) for v in one.operands),
                tuple(self._type(v) for v in one.results),
            )
            for one in nested
        ]
        return self._number(tuple(found))

    def _attribute(self, op: ir.Operation, name: str) -> Hashable:
        """An attribute; without the place along the batch, of slices of a part of it."""
        if op.name not in SLICES or name not in ("static_offsets", "static_sizes"):
            return op.attributes[name]
        part, whole = _part_and_whole(op)
        places = self._dims.get(whole, {}) if self._span(part) != ALL else {}
        return tuple(None if d in places else n for d, n in enumerate(integers(op.attributes[name])))

    def _type(self, value: ir.Value) -> Hashable:
        if not isinstance(value.type, ir.RankedTensorType):
            return value.type
        shape = self._shapes.get(value, shape_of(value))
        return value.type.element_type, tuple(
            None if d in self._dims.get(value, {}) else n for d, n in enumerate(shape)
        )


def _part_and_whole(op: ir.Operation) -> tuple[ir.Value, ir.Value]:
    """What a slice takes or puts, and of or into what."""
    return (op.results[0], op.operands[0]) if op.name == "tensor.extract_slice" else (op.operands[0], op.operands[1])


def _added(op: ir.Operation) -> list[ir.Value] | None:
    """The tensors of which an op makes the sum, element by element; None where it makes something else."""
    if not is_elementwise(op) or captured_values(op):
        return None
    shape, block = shape_of(op.results[0]), op.regions[0].blocks[0]
    places = [*range(len(shape))]
    for value, map_ in zip(op.operands, indexing_maps(op), strict=True):
        if shape_of(value) and (shape_of(value) != shape or dim_positions(map_) != places):
            return None
    found: list[ir.Value] = []
    left = [operations(block)[-1].operands[0]]
    while left:
        value = left.pop()
        inner = defining_op(value)
        if inner is None:
            found.append(op.operands[ir.BlockArgument(value).arg_number])
        elif inner.name in SUMS or (inner.name in CONVERSIONS and inner.name != "arith.negf"):
            left += list(inner.operands)
        elif inner.name != "arith.constant" or not is_zero(inner):
            return None
    return found
