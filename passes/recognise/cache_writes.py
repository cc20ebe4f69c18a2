"""Loops that put rows into a tensor, one row a trip: of new keys or values into a cache, or added to what is there.

scf.for %n = 0 to rows step 1 iter_args(%cache) {
  tensor.insert_slice ROW(%n) into %cache[…, position of %n, …]
  scf.yield …
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from lispgpt.base.dtypes import row_bytes
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    RESHAPES,
    VIEWS,
    constant_number,
    defining_op,
    integers,
    kept_dimensions,
    operations,
    shape_of,
    tensor_behind,
    viewed,
)
from lispgpt.passes.recognise.placements import is_same_slice


@dataclass(frozen=True)
class CacheWrite:
    """One such loop: `insert` puts what it makes for row `counter` at the row's place."""

    loop: ir.Operation

    @property
    def counter(self) -> ir.Value:
        return self.loop.regions[0].blocks[0].arguments[0]

    @property
    def insert(self) -> ir.Operation:
        return next(op for op in operations(self.loop.regions[0].blocks[0]) if op.name == "tensor.insert_slice")

    @property
    def source(self) -> ir.Value:
        """The row, without the dimensions in which it is one wide."""
        return self.insert.operands[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.source)

    @property
    def rows(self) -> int:
        rows = constant_number(self.loop.operands[1])
        assert rows is not None
        return rows

    def kept(self) -> list[bool]:
        """For each dimension of the cache, whether it is one of the row's."""
        return kept_dimensions(integers(self.insert.attributes["static_sizes"]), self.shape)


def is_cache_write(op: ir.Operation) -> bool:
    """Whether a loop only puts rows into what it carries, each made without looking at it."""
    return _puts_rows(op, looking=False)


def is_scatter(op: ir.Operation) -> bool:
    """Whether a loop only puts rows into what it carries, each made from what was at its place."""
    return _puts_rows(op, looking=True)


def _puts_rows(op: ir.Operation, looking: bool) -> bool:
    if op.name != "scf.for" or len(op.results) != 1:
        return False
    first, last, step = (constant_number(v) for v in list(op.operands)[:3])
    block = op.regions[0].blocks[0]
    ops = operations(block)
    inserts = [inner for inner in ops if inner.name == "tensor.insert_slice"]
    if first != 0 or last is None or step != 1 or len(inserts) != 1:
        return False
    (insert,) = inserts
    carried = block.arguments[1]
    uses = [(use.owner.operation, use.operand_number) for use in carried.uses]
    strides = set(integers(insert.attributes["static_strides"]))
    if strides != {1} or ops[-1].operands[0] != insert.results[0] or (insert, 1) not in uses:
        return False
    looks = [user for user, number in uses if (user, number) != (insert, 1)]
    if not looking:
        return not looks
    return len(looks) == 1 and is_same_slice(looks[0], insert)


def is_written_in_place(op: ir.Operation, placements: Collection[ir.Operation]) -> bool:
    """Whether a cache write, or the last of a chain of them, goes back to the part of a state that it began with.
    placements: those of the entry's ops."""
    start, result = op, op.results[0]
    while (before := defining_op(start.operands[3])) is not None and is_cache_write(before):
        start = before
    while (after := _only_write(result)) is not None:
        result = after.results[0]
    taken = defining_op(start.operands[3])
    homes = [use.owner.operation for use in result.uses if use.owner.operation in placements]
    return taken is not None and any(is_same_slice(taken, home) for home in homes)


def _only_write(value: ir.Value) -> ir.Operation | None:
    users = [use.owner.operation for use in value.uses]
    return users[0] if len(users) == 1 and is_cache_write(users[0]) else None


# ---- where a row goes


def stored_rows(tensor: ir.Value) -> ir.Value:
    """The bytes of which a tensor is what packed rows stand for, in its dimensions; the tensor itself of others."""
    op = defining_op(viewed(tensor))
    if op is None or "packed" not in op.attributes:
        return tensor
    *outer, row = shape_of(tensor)
    found = tensor_behind(op, (*outer, row_bytes(ir.StringAttr(op.attributes["packed"]).value, row)))
    return tensor if found is None else found


@dataclass(frozen=True)
class CacheView:
    """The part of a cache that holds keys or values.  places: for each dimension of the cache, the dimension of the
    view that it is, whole, or the offset at which the view is one wide."""

    cache: ir.Value
    places: tuple[tuple[str, int], ...]


def cache_view(value: ir.Value) -> CacheView | None:
    """None where a value is no slice with known offsets that has each of its dimensions whole."""
    op = defining_op(value)
    if op is None or op.name != "tensor.extract_slice" or len(op.operands) != 1:
        return None
    offsets, sizes, strides = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
    if set(strides) != {1}:
        return None
    places: list[tuple[str, int]] = []
    dimensions = iter([number for number, extent in enumerate(shape_of(value)) if extent > 1])
    for offset, size, extent in zip(offsets, sizes, shape_of(op.operands[0]), strict=True):
        if size > 1 and size != extent:
            return None
        places.append(("dimension", next(dimensions)) if size > 1 else ("offset", offset))
    return CacheView(op.operands[0], tuple(places))


@dataclass(frozen=True)
class RowPlace:
    """What says where rows go.  positions: the tensor whose element is a row's position in its sequence.
    sequence: the view's dimension in which each `each` rows have a place of their own; None where all have the same."""

    positions: ir.Value
    sequence: int | None
    each: int


def row_place(write: CacheWrite, view: CacheView, position: int) -> RowPlace | None:
    """Where a write puts its rows in a view's dimensions, of which `position` is the one of positions.

    None where rows go anywhere else than to the view, or to a place that is not their own in this sense.
    """
    insert = write.insert
    offsets, sizes = (integers(insert.attributes[name]) for name in ("static_offsets", "static_sizes"))
    dynamic = iter(list(insert.operands)[2:])
    positions = None
    sequence: tuple[int, int] | None = None
    whole = shape_of(insert.operands[1])
    for (kind, where), offset, size, extent in zip(view.places, offsets, sizes, whole, strict=True):
        start = next(dynamic) if offset == ir.ShapedType.get_dynamic_size() else offset
        if kind == "offset":
            if size != 1 or (extent > 1 and start != where):
                return None
        elif where == position:
            positions = None if isinstance(start, int) or size != 1 else _element_of_row(start, write)
            if positions is None:
                return None
        elif size == extent:
            if start != 0:
                return None
        elif size != 1 or sequence is not None or isinstance(start, int):
            return None
        else:
            each = _rows_of_a_sequence(start, write)
            if each is None or each * extent != write.rows:
                return None
            sequence = where, each
    if positions is None or shape_of(positions) != (write.rows,):
        return None
    return RowPlace(positions, *(sequence or (None, write.rows)))


def _element_of_row(value: ir.Value, write: CacheWrite) -> ir.Value | None:
    """The tensor of which an index is the element that has the row's number."""
    op = defining_op(viewed(value, ["arith.index_cast"]))
    if op is None or op.name != "tensor.extract" or list(op.operands)[1:] != [write.counter]:
        return None
    return op.operands[0]


def _rows_of_a_sequence(value: ir.Value, write: CacheWrite) -> int | None:
    """n where a value is the row's number divided by n."""
    if value == write.counter:
        return 1
    op = defining_op(value)
    divided = op is not None and op.name in ("arith.divui", "arith.divsi") and op.operands[0] == write.counter
    return constant_number(op.operands[1]) if divided else None


def readers_of(value: ir.Value) -> list[ir.Operation]:
    """The ops that read a value, directly or through views."""
    return _readers(value, lambda op: op.name in VIEWS)


def readers_of_numbers(value: ir.Value) -> list[ir.Operation]:
    """The same where the value may be packed rows: those that read what they stand for."""
    return list(dict.fromkeys(_readers(value, lambda op: op.name in VIEWS or "inline" in op.attributes)))


def _readers(value: ir.Value, passes_on: Callable[[ir.Operation], bool]) -> list[ir.Operation]:
    found = []
    for use in value.uses:
        op = use.owner.operation
        found += _readers(op.results[0], passes_on) if passes_on(op) else [op]
    return found


def same_tensor(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are one tensor in two shapes."""
    return bool(viewed(a, RESHAPES) == viewed(b, RESHAPES))
