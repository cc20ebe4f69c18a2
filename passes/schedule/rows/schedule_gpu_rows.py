"""schedule-gpu-rows: one block of threads for each row of a rows kernel, or for some of many short ones.

Before: elementwise ops and reductions over the last dimension of tensors with the same leading dimensions.
After:  a block reads its row in vectors, reduces it with shuffles and shared memory, and writes every result;
        grid = rows, block = as many threads as the row has vectors; where these are a subgroup at most, and the
        rows many, a block has several teams of so many threads, with a row each.  A long row that is read several times
        goes to shared memory first, where that has room.

Requires: what plan-arena ensures.  Ensures: kernels of kind "rows" have only scalar and vector ops, `grid` and `block`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd, prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations, shape_of, unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.kernel import constant_arguments, coordinates, reschedule
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.team import UNROLLED_CHUNKS, Team
from lispgpt.passes.model.column_sums import column_sum
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.schedule.rows.column_sums import RowRuns
from lispgpt.passes.schedule.rows.shared_rows import keep_row, repeated_row
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu

EARLY = 2
"""Vectors of a row that a thread may have before the launches ahead are done."""


@dataclass(frozen=True)
class ScheduleGpuRows(Pass):
    """threads: the most threads of one block; of one with several rows, `shared`, where there are `many` at least.
    beside: the most of one whose row is long, where there are rows enough for several blocks beside each other."""

    starts_from = (PLACED,)
    only_faster = True
    threads: int = 1024
    beside: int = 512
    shared: int = 256
    many: int = 4096

    def run(self, module: ir.Module, target: Gpu) -> None:
        constant = constant_arguments(module)
        for kernel in unscheduled_kernels(module, "rows"):
            found = [(column_sum(defining_op(tensor)), tensor, buffer) for tensor, buffer in outputs_of(kernel)]
            sums = [(one, buffer) for one, _, buffer in found if one is not None]
            if sums:
                results = [(tensor, buffer) for one, tensor, buffer in found if one is None]
                RowRuns(kernel, results, sums, target, _write).emit()
            else:
                self._schedule(kernel, constant(kernel), target)

    def _schedule(self, kernel: ir.Operation, constants: set[ir.Value], target: Gpu) -> None:
        outputs = outputs_of(kernel)
        rows = _row_shape(kernel, [tensor for tensor, _ in outputs])
        longest = _longest_row(kernel, rows)
        teams, count = 1, prod(rows)
        long = longest > self.threads * UNROLLED_CHUNKS * target.vector_bytes // 4
        item = _item_bytes(kernel, longest) if long else 4
        needed = -(-longest // b.largest_width(longest, item, target.vector_bytes))
        beside = long and count >= 2 * target.cores
        most = self.beside if beside else self.threads
        threads = min(most, target.max_threads, -(-needed // target.subgroup) * target.subgroup)
        if needed <= target.subgroup and count >= self.many:
            size = 1 << (needed - 1).bit_length()
            teams = gcd(count, self.shared // size)
            threads = size if teams > 1 else threads

        kept = repeated_row(kernel, rows, longest, target) if beside else None
        memories: list[BlockMemory] = []

        def emit() -> None:
            thread, row, number = b.thread_id(), b.block_id(), None
            if teams > 1:
                number = b.as_value(b.div(thread, threads))
                row = b.add(b.mul(row, teams), number)
            rank = thread if number is None else b.mod(thread, threads)
            reader = Reader(target, Team(rank, threads, target.subgroup, number, item, item if beside else 1))
            where = coordinates(row, rows)
            _wait(reader, [tensor for tensor, _ in outputs], where, constants, target)
            if kept is not None:
                memories.append(keep_row(reader, kept, where, target))
            for tensor, buffer in outputs:
                _write(reader, tensor, buffer, where, target)

        if reschedule(kernel, [count // teams], [threads * teams], target, emit) and memories:
            memories[0].record(kernel)


def _wait(
    reader: Reader, tensors: Sequence[ir.Value], row: list[b.Index], constants: set[ir.Value], target: Gpu
) -> None:
    """Wait for the launches ahead, once what none of them writes has been asked for, where that is little."""
    team = reader.team
    assert isinstance(team, Team)
    target.dependency_release()
    for tensor in tensors:
        if len(shape_of(tensor)) == len(row):
            continue
        extent, width = shape_of(tensor)[-1], _width(tensor, team, target)
        count = team.chunk_count(extent, width)
        for number in range(count if count <= EARLY else 0):
            start = team.chunk(number, extent, width).start
            reader.preload(tensor, [*row, start], width, constants.__contains__)
    target.dependency_wait()


def _row_shape(kernel: ir.Operation, tensors: list[ir.Value]) -> tuple[int, ...]:
    """The leading extents that all results share: a result that a reduction made has nothing else."""
    shapes = [shape_of(t) for t in tensors]
    for tensor in tensors:
        if any(_is_row_value(tensor, op) for op in operations(kernel.regions[0].blocks[0])):
            return shape_of(tensor)
    return max(shapes, key=len)[:-1]


def _is_row_value(tensor: ir.Value, op: ir.Operation) -> bool:
    """Whether a reduction op makes the tensor, or elementwise ops on its result and on what else has its shape."""
    if op.name != "linalg.reduce" or shape_of(tensor) != shape_of(op.results[0]):
        return False
    waiting, seen = [tensor], {tensor}
    while waiting:
        made = defining_op(waiting.pop())
        if made == op:
            return True
        if made is not None and made.name in ("linalg.generic", "tensor.expand_shape"):
            tensors = [v for v in made.operands if v not in seen and isinstance(v.type, ir.RankedTensorType)]
            found = [v for v in tensors if shape_of(v) == shape_of(tensor)]
            waiting += found
            seen.update(found)
    return False


def _longest_row(kernel: ir.Operation, rows: tuple[int, ...]) -> int:
    """The most elements that a row has of what the kernel computes; what has the shape of the rows has one."""
    extents = [1]
    for op in operations(kernel.regions[0].blocks[0]):
        if op.name == "linalg.reduce":
            extents.append(shape_of(op.operands[0])[-1])
        elif not is_inline(op) and op.name in ("linalg.generic", "linalg.softmax") and shape_of(op.results[0]) != rows:
            extents.append((1, *shape_of(op.results[0]))[-1])
    return max(extents)


def _item_bytes(kernel: ir.Operation, longest: int) -> int:
    """Of the shortest elements that a kernel reads or writes rows of, 4 at most."""
    types = [ir.MemRefType(argument.type) for argument in kernel.regions[0].blocks[0].arguments]
    return min([4, *(b.item_bytes(t.element_type) for t in types if t.rank and t.shape[-1] == longest)])


def _write(reader: Reader, tensor: ir.Value, buffer: ir.Value, row: list[b.Index], target: Gpu) -> None:
    """Store one result's row; a result without a row dimension is one value that the first thread stores."""
    team = reader.team
    assert isinstance(team, Team)
    shape = shape_of(tensor)
    if len(shape) == len(row):
        value = reader.read(tensor, row)
        b.if_then(b.equal(team.rank, 0), lambda: b.store(value, buffer, row))
        return
    width = _width(tensor, team, target)
    count = team.chunk_count(shape[-1], width)
    if count > UNROLLED_CHUNKS:
        reader.prepare(tensor, row)
        with reader.scope():
            team.each_chunk(count, [], lambda numbers: _store_chunks(reader, tensor, buffer, row, numbers, width))
    else:
        for number in range(count):
            _store_chunks(reader, tensor, buffer, row, [number], width)


def _width(tensor: ir.Value, team: Team, target: Gpu) -> int:
    """Elements of a result that a thread computes at once."""
    item = b.item_bytes(tensor.type)
    return b.largest_width(shape_of(tensor)[-1], item if item > 4 else team.item_bytes, target.vector_bytes)


def _store_chunks(
    reader: Reader, tensor: ir.Value, buffer: ir.Value, row: list[b.Index], numbers: Sequence[b.Index], width: int
) -> list[ir.Value]:
    """Compute some of the thread's chunks, then store them."""
    team = reader.team
    assert isinstance(team, Team)
    chunks = [team.chunk(number, shape_of(tensor)[-1], width) for number in numbers]
    values = [reader.read(tensor, [*row, chunk.start], width) for chunk in chunks]
    for chunk, value in zip(chunks, values, strict=True):
        b.if_live(chunk.live, partial(b.store, value, buffer, [*row, chunk.start]))
    return []
