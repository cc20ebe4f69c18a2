"""A rows kernel that also sums columns: each block takes the rows of one share one after another.

A thread has one vector of every row, and the sums of its columns in registers.  Rows are read some at a time, so that
memory has as much to do as where each block has a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, is_elementwise, operations, shape_of
from lispgpt.passes.kernels.elementwise import only_chooses
from lispgpt.passes.kernels.kernel import coordinates, reschedule
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import note_refusal
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.model.column_sums import ColumnSum
from lispgpt.passes.targets import Gpu

TOGETHER = 2
"""Rows that are read at once."""

MOST_RESIDENT = 4
"""Blocks of a core, for which registers are divided where there are no more of them."""

Result = tuple[ir.Value, ir.Value]
"""A tensor, and the buffer that it goes to."""


class RowRuns:
    """Emits such a kernel.  results: of rows.  sums: with the buffers that they go to; all of the same shares.  write:
    stores a result of one row by a Reader with a team."""

    def __init__(
        self,
        kernel: ir.Operation,
        results: Sequence[Result],
        sums: Sequence[tuple[ColumnSum, ir.Value]],
        target: Gpu,
        write: Callable[[Reader, ir.Value, ir.Value, list[Index], Gpu], None],
    ) -> None:
        self.kernel, self.results, self.sums, self.target, self.write = kernel, results, sums, target, write
        first = sums[0][0]
        self.rows, self.columns, self.shares, self.each = first.rows, first.columns, first.shares, first.each
        self.item = max(_item_bytes(operations(kernel.regions[0].blocks[0]), self.columns))
        self.width = b.largest_width(self.columns, self.item, target.vector_bytes)
        self.threads = -(-self.columns // (self.width * target.subgroup)) * target.subgroup
        self.together = next(n for n in range(TOGETHER, 0, -1) if self.each % n == 0)
        ops = operations(kernel.regions[0].blocks[0])
        summed = {one.result for one, _ in sums}
        self.has_rows = any(
            op.name in ("linalg.reduce", "linalg.softmax") and op.results[0] not in summed for op in ops
        )
        self.constants = [
            op.results[0]
            for op in ops
            if op.name == "bufferization.to_tensor" and shape_of(op.results[0]) == (self.columns,)
        ]

    def emit(self) -> None:
        """Replace the kernel's body; a kernel that cannot be one of these keeps it, with the reason."""
        shape = self.rows, self.columns, self.shares
        alike = all((one.rows, one.columns, one.shares) == shape for one, _ in self.sums)
        if not alike or self.threads > self.target.max_threads:
            return note_refusal(self.kernel, "its sums of columns are not over alike rows of one vector a thread")
        grid = self.shares * prod(self.rows[1:])
        if reschedule(self.kernel, [grid], [self.threads], self.target, self._body):
            resident = -(-grid // self.target.cores)
            if resident <= MOST_RESIDENT:
                self.target.set_residency(self.kernel, resident)
        return None

    def _body(self) -> None:
        inner = prod(self.rows[1:])
        team = Team(b.thread_id(), self.threads, self.target.subgroup, item_bytes=self.item)
        reader = Reader(self.target, team)
        chunk = team.chunk(0, self.columns, self.width)
        share, place = b.div(b.block_id(), inner), b.mod(b.block_id(), inner)
        rest = coordinates(place, self.rows[1:])
        self.target.dependency_passed_on()
        for tensor in self.constants:
            reader.read(tensor, [chunk.start], self.width)

        def some(number: Index, *totals: ir.Value) -> list[ir.Value]:
            first = b.add(b.mul(share, self.each), number)
            with reader.scope():
                rows = [[b.add(first, i), *rest] for i in range(self.together)]
                for row in rows:
                    self._ask(reader, row, chunk.start)
                self.target.loads_started()
                for row in rows:
                    totals = tuple(self._row(reader, row, chunk.start, totals))
            if self.has_rows:
                b.barrier()  # what this round has exchanged is read by all before the next one writes there
            return list(totals)

        zero = b.constant(0.0, b.with_width(b.f32(), self.width))
        totals = b.loop(0, self.each, self.together, [zero] * len(self.sums), some)
        for (one, buffer), total in zip(self.sums, totals, strict=True):
            whole = len(shape_of(one.result)) == len(self.rows) + 1
            at = [*rest, chunk.start] if whole else [b.add(b.mul(place, self.columns), chunk.start)]
            b.if_live(chunk.live, partial(b.store, total, buffer, [share, *at]))

    def _ask(self, reader: Reader, row: list[Index], start: Index) -> None:
        """Read what a row needs of memory."""
        tensors = [tensor for tensor, _ in self.results] + [one.values for one, _ in self.sums]
        for tensor in tensors:
            made, at = defining_op(tensor), [*row, start]
            if len(shape_of(tensor)) < len(at):
                continue
            if is_elementwise(made) and only_chooses(made):
                reader.read(tensor, at, self.width)
            else:
                reader.preload(tensor, at, self.width, lambda _: True)

    def _row(self, reader: Reader, row: list[Index], start: Index, totals: Sequence[ir.Value]) -> list[ir.Value]:
        """Store a row's results; the sums with it."""
        for tensor, buffer in self.results:
            self.write(reader, tensor, buffer, row, self.target)
        values = [reader.read(one.values, [*row, start], self.width) for one, _ in self.sums]
        return [b.binary("arith.addf", total, b.extend(v)) for total, v in zip(totals, values, strict=True)]


def _item_bytes(ops: Sequence[ir.Operation], columns: int) -> list[int]:
    """Of the elements of rows in memory, 4 where they are longer."""
    ends = ("bufferization.to_tensor", "bufferization.materialize_in_destination")
    rows = [(*op.operands, *op.results)[0] for op in ops if op.name in ends]
    return [min(4, b.item_bytes(v.type)) for v in rows if len(shape_of(v)) > 1 and shape_of(v)[-1] == columns] or [4]
