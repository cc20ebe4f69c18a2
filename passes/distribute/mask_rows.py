"""mask-rows: have an entry that is compiled for the largest size of a dimension be right for all smaller ones.

Before (up_to = "batch"):                            After:
  func.func @loss(%x: tensor<8x4xf32>) … {             func.func @loss(%x: tensor<8x4xf32>, %size: tensor<i32>) … {
                                                         %own = linalg.generic ins(%x, %size) {i < size ? %in : 0}
    %sum = linalg.reduce {addf} ins(%x) … [0]            %sum = linalg.reduce {addf} ins(%own) … [0]
    %mean = … %sum / 8.0 {of_size = …}                   %mean = … %sum / sitofp(size)

Requires: entries on tensors, whose `varies` says of each op and of the arguments which dimensions grow with the size
that `up_to` names, and whose numbers that do have `of_size`: how they follow from it (see the language's up_to.py).
Ensures: such an entry has one more argument, the size that a run has.  What it makes of the rows that are there is what
it makes of them alone: what combines rows (sums, products, largest and least ones) takes in those that are there, and
numbers that follow from the size follow from the run's.  Other rows hold anything, and `counted` says of the entry's
inputs and results which of their rows are there: of the dimension `at`, those whose number over `inner`, modulo the
largest size, is below the run's.  UserError at the form for what cannot be masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.combiners import COMBINERS, neutral
from lispgpt.ir.diagnostics import users_span
from lispgpt.ir.linalg_ops import generic
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    defining_op,
    entry_arguments,
    entry_functions,
    entry_results,
    everything_in,
    integers,
    kept_dimensions,
    nested_operations,
    operand_loops,
    operations,
    reshape_groups,
    retype,
    shape_of,
    strings,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.distribute.batch_dims import BatchDim, collapsed, expanded
from lispgpt.passes.states import UNPLACED

SIZE = "size"
"""The kind of the argument that says a run's size."""

Dims = Mapping[int, BatchDim]
ANYTHING = ("tensor.empty", "linalg.fill", "arith.constant")
"""Ops that make tensors of no rows in particular."""
RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast", "tensor.extract_slice")


@dataclass(frozen=True)
class MaskRows(Pass):
    starts_from = (UNPLACED,)

    def run(self, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            if "up_to" in entry.attributes:
                _Entry(entry).mask()


class _Entry:
    """An entry, and which dimensions of its values count rows.

    alike: tensors whose rows are all the same, or nothing yet, with the dimensions that grow: they have their rows
    where what they are read with has them.  trying: in how many loops' rounds it is only found out where rows are.
    """

    def __init__(self, entry: ir.Operation) -> None:
        self.entry, self.name = entry, ir.StringAttr(entry.attributes["up_to"]).value
        sizes = dict(zip(strings(entry.attributes["sizes"]), integers(entry.attributes["extents"]), strict=True))
        self.most: int = sizes[self.name]
        self.dims: dict[ir.Value, Dims] = {}
        self.alike: dict[ir.Value, list[int]] = {}
        self.trying = 0
        self.size: ir.Value

    def mask(self) -> None:
        block = self.entry.regions[0].blocks[0]
        for (name, value), varying in zip(
            entry_arguments(self.entry).items(), self.entry.attributes["varies"], strict=True
        ):
            dims = {d: self._plain(shape_of(value)[d], self.entry, name) for d in integers(varying)}
            if dims:
                self.dims[value] = dims
        kind = ir.RankedTensorType.get([], b.i32())
        self.size = block.add_argument(kind, self.entry.location)
        names = [*strings(self.entry.attributes["arguments"]), f"{SIZE}:{self.name}"]
        self.entry.attributes["arguments"] = _strings(names)
        if "batched" in self.entry.attributes:
            batched = [*integers(self.entry.attributes["batched"]), -1]
            self.entry.attributes["batched"] = ir.DenseI64ArrayAttr.get(batched)
        for op in operations(block):
            self._visit(op)
        self._describe()
        self.dims, self.alike = {}, {}
        self._numbers()
        for op in everything_in(self.entry):
            if "varies" in op.attributes:
                del op.attributes["varies"]
        retype(self.entry, [value.type for value in operations(block)[-1].operands])

    def _describe(self) -> None:
        """Say which rows of inputs and results are there."""
        found = {}
        for name, value in [*entry_arguments(self.entry).items(), *entry_results(self.entry).items()]:
            dims = self.dims.get(value, {})
            if dims and not name.startswith(("input:", "result:", "report:")):
                self._fail(self.entry, f"{name.partition(':')[2]} has another size in each run")
            if len(dims) > 1 and name.startswith("input:"):
                self._fail(self.entry, f"{name.partition(':')[2]} has it twice among its sizes")
            if dims:
                found[name] = ir.ArrayAttr.get(
                    [ir.DenseI64ArrayAttr.get([d, dim.inner]) for d, dim in sorted(dims.items())]
                )
        self.entry.attributes["counted"] = ir.DictAttr.get(found)

    # ---- what ops do with rows

    def _visit(self, op: ir.Operation) -> None:
        moved = op.name in RESHAPES and op.operands[0] in self.alike
        placed = op.name == "tensor.insert_slice" and all(v in self.alike for v in list(op.operands)[:2])
        if op.name in ANYTHING or moved or placed:
            self._are_alike(op)
        elif op.name.startswith("linalg."):
            self._linalg(op)
        elif op.name in _HANDLERS:
            _HANDLERS[op.name](self, op)
        elif op.name != "func.return" and any(v in self.dims or v in self.alike for v in self._read(op)):
            self._fail(op, "nothing says what it does with rows")
        for result, varying in zip(op.results, _varying(op), strict=True):
            if result not in self.alike and set(self.dims.get(result, {})) != set(varying):
                self._fail(op, "its sizes follow from it in a way that is not followed")

    def _are_alike(self, op: ir.Operation) -> None:
        """Note that all rows of what an op makes are the same."""
        for result, varying in zip(op.results, _varying(op), strict=True):
            if varying:
                self.alike[result] = varying

    def _read(self, op: ir.Operation) -> list[ir.Value]:
        return [*op.operands, *(v for inner in nested_operations(op) for v in inner.operands)]

    def _linalg(self, op: ir.Operation) -> None:
        positions = operand_loops(op)
        if positions is None:
            if any(v in self.dims for v in self._read(op)):
                self._fail(op, "nothing says what it does with rows")
            return
        loops = self._loops(op, positions)
        made = positions[len(positions) - len(op.results) :]
        new = {where[d] for where, varying in zip(made, _varying(op), strict=True) for d in varying} - {*loops}
        if new and not loops and None not in new and not new & self._numbered(op):
            self._are_alike(op)
            return
        for result, where, varying in zip(op.results, made, _varying(op), strict=True):
            for d in varying:
                if where[d] is None:
                    self._fail(op, "it makes rows by reckoned numbers")
                if where[d] not in loops:
                    loops[where[d]] = self._plain(shape_of(result)[d], op)
            found = {d: loops[loop] for d, loop in enumerate(where) if loop in loops}
            if found:
                self.dims[result] = found
        combined = {loop: dim for loop, dim in loops.items() if all(loop not in where for where in made)}
        if op.name == "linalg.softmax" and ir.IntegerAttr(op.attributes["dimension"]).value in loops:
            self._fail(op, "it combines rows, and is no sum")
        self._check_numbers(op, loops)
        if combined:
            self._mask(op, positions, combined)

    def _loops(self, op: ir.Operation, positions: list[list[Any]]) -> dict[int, BatchDim]:
        """The loops of a linalg op that count rows."""
        loops: dict[int, BatchDim] = {}
        for value, where in zip(op.operands, positions, strict=True):
            for d, dim in self.dims.get(value, {}).items():
                if where[d] is None:
                    self._fail(op, "it reads rows by reckoned numbers")
                self._same(loops, where[d], dim, op)
        for value, where in zip(op.operands, positions, strict=True):
            for d in self.alike.get(value, ()):
                made = any(where[d] in others for others in positions[len(positions) - len(op.results) :])
                if where[d] not in loops and not made:  # whose rows are the same in any order
                    loops[where[d]] = BatchDim(self.most, shape_of(value)[d] // self.most)
        for inner in nested_operations(op):
            if inner.name == "tensor.extract":
                for d, dim in self.dims.get(inner.operands[0], {}).items():
                    index = defining_op(inner.operands[1 + d])
                    if index is not None and index.name == "linalg.index":
                        self._same(loops, ir.IntegerAttr(index.attributes["dim"]).value, dim, op)
        return loops

    def _same(self, loops: dict[int, BatchDim], loop: int, dim: BatchDim, op: ir.Operation) -> None:
        if loops.setdefault(loop, dim) != dim:
            self._fail(op, "two values that it reads have their rows in different orders")

    def _check_numbers(self, op: ir.Operation, loops: dict[int, BatchDim]) -> None:
        """Rows have the numbers that they have in a run of their own, where these are whole rows one after another."""
        extents = self._extents(op) if loops else {}
        if any(extents.get(loop) != loops[loop].inner * self.most for loop in self._numbered(op) & loops.keys()):
            self._fail(op, "it reckons with the numbers of rows, which others stand between")

    def _numbered(self, op: ir.Operation) -> set[int]:
        """The loops of a linalg op by whose numbers its body does more than to read rows of that number."""
        return {
            ir.IntegerAttr(inner.attributes["dim"]).value
            for inner in nested_operations(op)
            if inner.name == "linalg.index" and not all(map(self._reads_row, inner.results[0].uses))
        }

    def _reads_row(self, use: Any) -> bool:
        owner, dimension = use.owner.operation, use.operand_number - 1
        source = owner.operands[0] if owner.name == "tensor.extract" else None
        return source is not None and dimension in {*self.dims.get(source, ()), *self.alike.get(source, ())}

    def _extents(self, op: ir.Operation) -> dict[int, int]:
        """The extents of a linalg op's loops."""
        found: dict[int, int] = {}
        for value, where in zip(op.operands, operand_loops(op) or [], strict=True):
            found |= {loop: extent for loop, extent in zip(where, shape_of(value), strict=True) if loop is not None}
        return found

    def _mask(self, op: ir.Operation, positions: list[list[Any]], combined: dict[int, BatchDim]) -> None:
        """Have an op combine the rows alone that are there."""
        if self.trying:
            return
        inputs = len(op.operands) - len(op.results)
        body = operations(op.regions[0].blocks[0])
        if op.name == "linalg.generic":
            self._mask_body(op, combined)
            return
        combiner = "arith.addf" if op.name == "linalg.contract" else body[-2].name
        if op.name == "linalg.reduce" and (len(op.results) > 1 or combiner not in COMBINERS):
            self._fail(op, "it combines rows in a way that has no neutral number")
        elif op.name not in ("linalg.contract", "linalg.reduce"):
            self._fail(op, "nothing says how it combines rows")
        for number in range(inputs):
            own = {d: combined[loop] for d, loop in enumerate(positions[number]) if loop in combined}
            if own:
                op.operands[number] = self._masked(op.operands[number], own, combiner, op)

    def _masked(self, value: ir.Value, dims: Dims, combiner: str, op: ir.Operation) -> ir.Value:
        """A tensor with what changes nothing in the rows that are not there."""
        rank, element = len(shape_of(value)), value.type.element_type
        whole = _is_integer(element) and combiner.endswith("f")
        if whole and combiner != "arith.addf":
            self._fail(op, "it combines whole numbers as others")
        nothing = 0 if whole else neutral(combiner, element)
        identity, scalar = ir.AffineMap.get_identity(rank), ir.AffineMap.get(rank, 0, [])

        def body(values: Any) -> ir.Value:
            real = None
            for d, dim in dims.items():
                real = _both(real, self._is_there(_index(d), dim, shape_of(value)[d], values[1]))
            return b.select(real, values[0], b.constant(nothing, element))

        with ir.InsertionPoint(op), op.location:
            empty = b.emit("tensor.empty", [], [value.type])
            masked = generic([value, self.size], empty, [identity, scalar, identity], [], body)
        self.dims[masked] = self.dims[value]
        return masked

    def _mask_body(self, op: ir.Operation, combined: dict[int, BatchDim]) -> None:
        """The same for an op that combines what its body makes."""
        block = op.regions[0].blocks[0]
        end = operations(block)[-1]
        totals = list(block.arguments)[len(block.arguments) - len(op.results) :]
        with ir.InsertionPoint(end), op.location:
            size = b.emit("tensor.extract", [self.size], [b.i32()])
            real, extents = None, self._extents(op)
            for loop, dim in combined.items():
                real = _both(real, self._is_there(_index(loop), dim, extents.get(loop, 0), size))
            for number, total in enumerate(totals):
                end.operands[number] = b.select(real, end.operands[number], total)

    def _is_there(self, index: ir.Value, dim: BatchDim, extent: int, size: ir.Value) -> ir.Value:
        """Whether a row is there, by its number in a dimension."""
        row = b.div(index, dim.inner) if dim.inner > 1 else index
        row = b.as_value(row if extent == dim.inner * self.most else b.mod(row, self.most))
        number = b.emit("arith.index_cast", [row], [b.i32()])
        return create_op("arith.cmpi", [number, size], [b.i1()], {"predicate": _predicate(2)}).results[0]

    # ---- moving

    def _collapse(self, op: ir.Operation) -> None:
        self._reshaped(op, collapsed(self.dims.get(op.operands[0], {}), shape_of(op.operands[0]), reshape_groups(op)))

    def _expand(self, op: ir.Operation) -> None:
        dims = self.dims.get(op.operands[0], {})
        self._reshaped(op, expanded(dims, shape_of(op.results[0]), reshape_groups(op)))

    def _reshaped(self, op: ir.Operation, found: Dims | None) -> None:
        if found is None or any(dim.count != self.most for dim in found.values()):
            self._fail(op, "a dimension that counts rows is parted or joined between them")
        if found:
            self.dims[op.results[0]] = found

    def _cast(self, op: ir.Operation) -> None:
        if op.operands[0] in self.dims:
            self.dims[op.results[0]] = self.dims[op.operands[0]]

    def _extract_slice(self, op: ir.Operation) -> None:
        source, result = op.operands[0], op.results[0]
        kept = kept_dimensions(integers(op.attributes["static_sizes"]), shape_of(result))
        found = {}
        for d, dim in self.dims.get(source, {}).items():
            if not _is_whole(op, d, shape_of(source)[d]):
                if integers(op.attributes["static_offsets"])[d] or integers(op.attributes["static_sizes"])[d] > 1:
                    self._fail(op, "it takes rows by their numbers")
                continue
            found[sum(kept[:d])] = dim
        if found:
            self.dims[result] = found

    def _insert_slice(self, op: ir.Operation) -> None:
        part, whole = list(op.operands)[:2]
        kept = kept_dimensions(integers(op.attributes["static_sizes"]), shape_of(part))
        homes = [d for d, is_kept in enumerate(kept) if is_kept]
        found = dict(self.dims.get(whole, {}))
        for d, dim in self.dims.get(part, {}).items():
            self._same(found, homes[d], dim, op)
        if any(not _is_whole(op, d, shape_of(whole)[d]) for d in found):
            self._fail(op, "it puts rows where numbers say")
        if found:
            self.dims[op.results[0]] = found

    def _loop(self, op: ir.Operation) -> None:
        """A loop whose carried values keep their rows, or that adds rows one by one."""
        block = op.regions[0].blocks[0]
        if "of_size" in (made.attributes if (made := defining_op(op.operands[1])) is not None else ()):
            self._adding(op)
            return
        carried = list(zip(list(block.arguments)[1:], list(op.operands)[3:], _varying(op), strict=True))
        for argument, start, varying in carried:
            if start in self.dims:
                self.dims[argument] = self.dims[start]
            elif varying:
                self.alike[argument] = varying
        while self._learnt(block, [argument for argument, *_ in carried]):
            continue
        self._round(block)
        for (argument, *_), value, result in zip(carried, operations(block)[-1].operands, op.results, strict=True):
            if argument in self.alike:
                self.alike[result] = self.alike[argument]
            elif argument in self.dims:
                self.dims[result] = self.dims[argument]
            if value not in self.alike and dict(self.dims.get(value, {})) != dict(self.dims.get(argument, {})):
                self._fail(op, "what it carries has its rows elsewhere after a round")

    def _round(self, block: ir.Block) -> None:
        for inner in operations(block)[:-1]:
            self._visit(inner)

    def _learnt(self, block: ir.Block, carried: list[ir.Value]) -> bool:
        """Whether a round says where the rows of a carried value are, which begins with all the same."""
        self.trying += 1
        self._round(block)
        self.trying -= 1
        found = {
            argument: self.dims[value]
            for argument, value in zip(carried, operations(block)[-1].operands, strict=True)
            if argument in self.alike and value in self.dims
        }
        inside = {result for op in operations(block) for inner in everything_in(op) for result in inner.results}
        for known in (self.dims, self.alike):
            for value in inside & known.keys():
                del known[value]
        for argument, dims in found.items():
            del self.alike[argument]
            self.dims[argument] = dims
        return bool(found)

    def _adding(self, op: ir.Operation) -> None:
        """A loop over rows that adds each to what it carries, as the gradients of gathers do: zeros of absent ones."""
        block = op.regions[0].blocks[0]
        counter = block.arguments[0]
        made = defining_op(operations(block)[-1].operands[0])
        total = defining_op(made.operands[0]) if made is not None and made.name == "tensor.insert_slice" else None
        if total is None or total.name != "linalg.generic" or not _adds(total) or len(op.results) > 1:
            self._fail(op, "it goes through rows one by one, and is no sum")
        for inner in operations(block):
            source = inner.operands[0] if inner.name.startswith("tensor.extract") else None
            dims = self.dims.get(source, {}) if source is not None else {}
            if not dims:
                continue
            if counter not in list(inner.operands)[1:2] or set(dims) != {0} or self._between(source, dims[0]):
                self._fail(op, "it reads rows by reckoned numbers")
            if inner.name == "tensor.extract_slice" and not self.trying:
                inner.operands[0] = self._masked(source, dims, "arith.addf", op)
        bound = defining_op(op.operands[1])
        del bound.attributes["of_size"]

    def _between(self, value: ir.Value, dim: BatchDim) -> bool:
        """Whether rows that are there have others between them."""
        return bool(shape_of(value)[0] != dim.inner * self.most)

    # ---- numbers that follow from the size

    def _numbers(self) -> None:
        for op in everything_in(self.entry):
            if op.name == "arith.constant" and "of_size" in op.attributes:
                self._follow(op)

    def _follow(self, op: ir.Operation) -> None:
        """Have what reads a number that follows from the size read what it is in a run."""
        fields = ir.DictAttr(op.attributes["of_size"])
        form, factor = ir.StringAttr(fields["form"]).value, ir.FloatAttr(fields["factor"]).value
        kind = op.results[0].type
        if isinstance(kind, ir.RankedTensorType):
            with ir.InsertionPoint.after(op), op.location:
                made = self._spread(kind, form, factor)
            op.results[0].replace_all_uses_with(made)
        else:
            for use in list(op.results[0].uses):
                user = use.owner.operation
                if user.name == "linalg.fill":
                    with ir.InsertionPoint(user), op.location:
                        user.results[0].replace_all_uses_with(self._spread(user.results[0].type, form, factor))
                    user.erase()
                elif user.parent is not None and user.parent.name.startswith("linalg."):
                    with ir.InsertionPoint(user), op.location:
                        size = b.emit("tensor.extract", [self.size], [b.i32()])
                        user.operands[use.operand_number] = _of_size(size, form, factor, kind)
                else:
                    self._fail(user, f"it goes by what {self.name} is")
        if not any(True for _ in op.results[0].uses):
            op.erase()

    def _spread(self, kind: ir.Type, form: str, factor: float) -> ir.Value:
        rank = len(kind.shape)
        maps = [ir.AffineMap.get(rank, 0, []), ir.AffineMap.get_identity(rank)]
        empty = b.emit("tensor.empty", [], [kind])
        return generic([self.size], empty, maps, [], lambda v: _of_size(v[0], form, factor, kind.element_type))

    def _plain(self, extent: int, op: ir.Operation, name: str = "") -> BatchDim:
        """A dimension that counts rows by itself."""
        if extent != self.most:
            what = f"{name.partition(':')[2]}'s size is reckoned from it" if name else "it makes rows of their own"
            self._fail(op, what)
        return BatchDim(self.most)

    def _fail(self, op: ir.Operation, why: str) -> NoReturn:
        raise UserError(
            f"this cannot be compiled for any {self.name} up to {self.most}, but for one at a time: {why} ({op.name})",
            users_span(op.location),
        )


_HANDLERS = {
    "tensor.collapse_shape": _Entry._collapse,
    "tensor.expand_shape": _Entry._expand,
    "tensor.cast": _Entry._cast,
    "tensor.extract_slice": _Entry._extract_slice,
    "tensor.insert_slice": _Entry._insert_slice,
    "scf.for": _Entry._loop,
}


def _of_size(size: ir.Value, form: str, factor: float, kind: ir.Type) -> ir.Value:
    """The number that follows from a size."""
    if _is_integer(kind):
        index = b.emit("arith.index_cast", [size], [ir.IndexType.get()])
        made = b.as_value(b.add(index, int(factor)) if form == "plus" else b.mul(index, int(factor)))
        return made if isinstance(kind, ir.IndexType) else b.emit("arith.index_cast", [made], [kind])
    given, number = b.emit("arith.sitofp", [size], [kind]), b.constant(factor, kind)
    if form == "unbiased":
        count = b.emit("arith.mulf", [number, given], [kind])
        return b.emit("arith.divf", [count, b.emit("arith.subf", [count, b.constant(1.0, kind)], [kind])], [kind])
    if form.endswith("root"):
        given = b.emit("math.sqrt", [given], [kind])
    op = {"plus": "arith.addf", "times": "arith.mulf", "over": "arith.divf"}[form.removesuffix("-root")]
    return b.emit(op, [number, given], [kind])


def _is_integer(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IntegerType, ir.IndexType))


def _index(loop: int) -> ir.Value:
    dim = ir.IntegerAttr.get(b.i64(), loop)
    return create_op("linalg.index", [], [ir.IndexType.get()], {"dim": dim}).results[0]


def _both(one: ir.Value | None, other: ir.Value) -> ir.Value:
    return other if one is None else b.emit("arith.andi", [one, other], [b.i1()])


def _predicate(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(b.i64(), number)


def _adds(op: ir.Operation) -> bool:
    """Whether an op makes sums of two tensors' elements."""
    return [inner.name for inner in operations(op.regions[0].blocks[0])][:-1] == ["arith.addf"]


def _varying(op: ir.Operation) -> list[list[int]]:
    """Of each result, the dimensions that grow with the size."""
    if "varies" not in op.attributes:
        return [[] for _ in op.results]
    return [integers(each) for each in op.attributes["varies"]]


def _is_whole(op: ir.Operation, dimension: int, extent: int) -> bool:
    """Whether a slice has all of a dimension."""
    offset, size = (integers(op.attributes[f"static_{n}"])[dimension] for n in ("offsets", "sizes"))
    return offset == 0 and size == extent


def _strings(names: list[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])
