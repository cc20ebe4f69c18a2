"""What a kernel reads of its arguments and writes to them, from its tensor body.

Bytes are what is read of the kernel's arguments and written to them, each part once, and nothing of what stays inside.
A slice is read as far as it goes, a gather at most once for each point of its loops, a row written into a larger tensor
moves a row.  Parts that overlap without being the same slice count each, up to the whole tensor; a loop whose trips are
not known here counts one.  So bytes are the least where slices are apart, as they are in what this compiler makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    VIEWS,
    defining_op,
    dim_positions,
    element_type,
    indexing_maps,
    loop_extents,
    nested_operations,
    operations,
    shape_of,
    trip_count,
)

TO_TENSOR, FROM_TENSOR = "bufferization.to_tensor", "bufferization.materialize_in_destination"


def tensor_bytes(value: ir.Value) -> int:
    """Bytes of a whole tensor."""
    return find_dtype(str(element_type(value))).nbytes(prod(shape_of(value)))


def moved_bytes(block: ir.Block, counted: set[ir.Operation], skipped: set[tuple[ir.Operation, int]]) -> int:
    """Bytes that the counted ones of a block's ops read and write; skipped: (op, operand) that counts elsewhere."""
    reads, ops = _Reads(block, counted, skipped), operations(block)
    nbytes = sum(reads.of(op.results[0]) * _item_bytes(op.results[0]) for op in ops if op.name == TO_TENSOR)
    for op in ops:
        if op.name == FROM_TENSOR:
            value, place = op.operands
            written = _put(value, counted) if _is_at(value, place) else _made(value, counted)
            nbytes += written * _item_bytes(value)
    return nbytes


def _item_bytes(value: ir.Value) -> int:
    return find_dtype(str(element_type(value))).item_bytes


def memory_of(value: ir.Value) -> ir.Value | None:
    """The memory that a value is in, as a whole or a part of it, but for parts that this kernel puts into it."""
    op = defining_op(value)
    while op is not None and op.name != TO_TENSOR:
        if op.name == "scf.for":
            value = op.operands[3 + ir.OpResult(value).result_number]
        elif op.name in VIEWS or op.name == "tensor.insert_slice":
            value = op.operands[0 if op.name in VIEWS else 1]
        else:
            return None
        op = defining_op(value)
    return None if op is None else op.operands[0]


def _is_at(value: ir.Value, memory: ir.Value) -> bool:
    place = memory_of(value)
    return place is not None and place == memory


def _made(value: ir.Value, counted: set[ir.Operation]) -> int:
    """Elements of a value that goes to memory of its own."""
    op = defining_op(value)
    return prod(shape_of(value)) if op is not None and op in counted else 0


def _put(value: ir.Value, counted: set[ir.Operation]) -> int:
    """Elements that are put into a value in the memory that it came from."""
    op = defining_op(value)
    if op is None or op.name not in ("scf.for", "tensor.insert_slice"):
        return 0
    if op.name == "tensor.insert_slice":
        return prod(shape_of(op.operands[0])) + _put(op.operands[1], counted)
    number = ir.OpResult(value).result_number
    each = _put(operations(op.regions[0].blocks[0])[-1].operands[number], counted) if op in counted else 0
    return each * trip_count(op) + _put(op.operands[3 + number], counted)


@dataclass(frozen=True)
class _Reads:
    """Elements of a tensor that counted ops of a block read."""

    block: ir.Block
    counted: set[ir.Operation]
    skipped: set[tuple[ir.Operation, int]]

    def of(self, value: ir.Value) -> int:
        found = sum(self._by(use.owner.operation, use.operand_number, value) for use in value.uses)
        return min(found, prod(shape_of(value)))

    def _by(self, op: ir.Operation, number: int, value: ir.Value) -> int:
        """How much one use of a tensor reads of it, over all trips of the loops around the use."""
        if op.name in VIEWS:
            return self.of(op.results[0]) * self._repeats(op, value)
        if op.name == "scf.for":
            inside = self.of(op.regions[0].blocks[0].arguments[number - 2]) * trip_count(op)
            return inside * self._repeats(op, value) + self.of(op.results[number - 3])
        if op.name == "tensor.insert_slice" and number == 1:
            return self.of(op.results[0])
        if op.name == "scf.yield" or self._top(op) not in self.counted or (op, number) in self.skipped:
            return 0  # what is yielded is the loop's result, whose uses count by themselves
        if op.name == FROM_TENSOR and _is_at(value, op.operands[1]):
            return 0
        if op.name == "tensor.extract":
            nest = _linalg_around(op)
            return (1 if nest is None else _gathered(op, nest)) * self._repeats(nest or op, value)
        if op.name == "linalg.softmax" and number > 0:
            return 0
        if "inline" in op.attributes:
            whole: int = prod(shape_of(op.results[0]))
            share = -(-self.of(op.results[0]) * prod(shape_of(value)) // whole)
            return share * self._repeats(op, value)
        if op.name.startswith("linalg.") and len(op.regions):
            read = any(True for _ in op.regions[0].blocks[0].arguments[number].uses)
            return prod(shape_of(value)) * self._repeats(op, value) if read else 0
        return prod(shape_of(value))

    def _top(self, op: ir.Operation) -> ir.Operation:
        while op.block != self.block:
            op = op.parent.operation
        return op

    def _repeats(self, op: ir.Operation, value: ir.Value) -> int:
        """Trips of the loops that an op is in and the value that it reads is not."""
        home = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
        trips = 1
        while op.block not in (home, self.block):
            op = op.parent.operation
            trips *= trip_count(op)
        return trips


def _linalg_around(op: ir.Operation) -> ir.Operation | None:
    parent: Any = op.parent
    while parent is not None and not parent.operation.name.startswith("linalg."):
        parent = parent.operation.parent
    return None if parent is None else parent.operation


def _gathered(extract: ir.Operation, nest: ir.Operation) -> int:
    """At most how many elements a tensor.extract in a linalg op's body reads: the points of the loops it depends on."""
    extents, inside = loop_extents(nest), set(nested_operations(nest))
    dims: set[int] = set()
    waiting = list(extract.operands)[1:]
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if op is None and value.owner == nest.regions[0].blocks[0]:
            number = ir.BlockArgument(value).arg_number
            maps = indexing_maps(nest) if "indexing_maps" in nest.attributes else None
            dims |= set(extents) if maps is None else {d for d in dim_positions(maps[number]) if d is not None}
        elif op is None or op not in inside:
            continue
        elif op.name == "linalg.index":
            dims.add(ir.IntegerAttr(op.attributes["dim"]).value)
        else:
            waiting += list(op.operands)
    return prod(extents[d] for d in dims)
