"""schedule-rows: run rows kernels (norms, softmax, embeddings, argmax, elementwise chains) row by row in vectors.

Before (inside a kernel = "rows"):                After:
  %s = linalg.reduce {addf} ins(%x) …               %row = gpu.block_id x …
  %y = linalg.generic ins(%x, %s) …                 %s = scf.for … { vector.load, arith.addf }, vector.reduction
                                                    scf.for … { vector.load, …, vector.store %y }

Requires: what outline-kernels and destination-passing ensure.
Ensures: the kernel's `grid` holds one block for every `rows_per_block` rows; reductions run along the last dimension,
in lanes of the target's vectors, and a remainder of single lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, is_elementwise, operations, shape_of, unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import coordinates, reschedule
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.team import Alone, vector_ranges
from lispgpt.passes.model.kernel_groups import is_inline, root_kind, row_shape
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Target

COMPUTED = ("linalg.generic", "linalg.reduce", "linalg.softmax")


@dataclass(frozen=True)
class ScheduleRows(Pass):
    """rows_per_block: rows that one block computes, one after another."""

    starts_from = (PLACED,)
    only_faster = True
    rows_per_block: int = 4

    def run(self, module: ir.Module, target: Target) -> None:
        for kernel in unscheduled_kernels(module, "rows"):
            every = operations(kernel.regions[0].blocks[0])
            ops = [op for op in every if op.name in COMPUTED and not is_inline(op)]
            if ops and all(root_kind(op) == "rows" for op in ops):
                rows = _rows_of(kernel, ops)
                if rows is not None:
                    _RowsOnCpu(kernel, ops, rows, target, self.rows_per_block).run()


def _rows_of(kernel: ir.Operation, ops: list[ir.Operation]) -> tuple[int, ...] | None:
    """The rows that all of a kernel's results, and what it computes row by row, have; None where they differ.  An
    elementwise op of other rows is computed where it is read."""
    written = [defining_op(tensor) for tensor, _ in outputs_of(kernel)]
    costly = [op for op in ops if not is_elementwise(op)]
    found = {row_shape(op) if op in ops else None for op in (*written, *costly)}
    return found.pop() if len(found) == 1 else None


class _RowsOnCpu:
    """One kernel, whose costly ops and results are all over the same rows."""

    def __init__(
        self,
        kernel: ir.Operation,
        ops: list[ir.Operation],
        rows: tuple[int, ...],
        target: Target,
        rows_per_block: int,
    ) -> None:
        self.kernel, self.ops, self.target = kernel, ops, target
        self.each, self.lanes = rows_per_block, target.vector_bytes // 4
        self.extents = rows
        self.outputs = outputs_of(kernel)

    def run(self) -> None:
        rows = prod(self.extents)
        reschedule(self.kernel, [-(-rows // self.each)], [1], self.target, partial(self._block, rows))

    def _block(self, rows: int) -> None:
        first = b.mul(b.block_id(), self.each)
        last = b.add(first, self.each)
        last = last if rows % self.each == 0 else b.at_most(last, rows)

        b.each(first, last, 1, lambda row: self._row(coordinates(row, self.extents)))

    def _row(self, row: list[Index]) -> None:
        """Every op of the kernel at one row: reductions into scalars, results into their buffers."""
        reader = Reader(self.target, Alone())
        for op in self.ops:
            result = op.results[0]
            if op.name == "linalg.reduce":
                reader.bind(result, partial(_everywhere, reader.read(result, row)))
            elif op.name == "linalg.softmax":
                reader.prepare(result, row)
            for tensor, buffer in self.outputs:
                if defining_op(tensor) == op:
                    self._store(reader, tensor, buffer, row)

    def _store(self, reader: Reader, tensor: ir.Value, buffer: ir.Value, row: list[Index]) -> None:
        """Write one row of a result; later reads of it load what was written."""
        if len(shape_of(tensor)) == len(row):
            b.store(reader.read(tensor, row), buffer, row)
            return
        for first, last, width in vector_ranges(shape_of(tensor)[-1], self.lanes):

            def body(i: Index, width: int = width) -> None:
                with reader.scope():
                    where = [*row, i]
                    b.store(reader.read(tensor, where, width), buffer, where, aligned=False)

            b.each(first, last, width, body)
        reader.bind(tensor, partial(b.load, buffer, aligned=False))


def _everywhere(value: ir.Value, index: list[Index], width: int) -> ir.Value:
    return b.splat(value, width)
