"""schedule-gpu-column-contractions: products of few rows (or columns) with a matrix that has its columns innermost.

Before: linalg.contract x[n, k] * w[k, o], or another layout whose larger operand lies that way, with what computes x
        ahead of it and elementwise ops behind it.
After:  a block takes some columns: its lanes lie along them in 16-byte vectors, and what lanes are left along k.  x
        goes to shared memory where it fits; sums over k are added up by shuffles, and among subgroups in shared memory.

Requires: what plan-arena and recognise-products ensure.
Ensures: products that had no grid yet have only scalar and vector ops, `grid` and `block`; one whose operands are both
made by reductions has none, and `refused` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.epilogue import store_results
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.products import Product, as_skinny, unscheduled_products
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused, note_refusal
from lispgpt.passes.kernels.team import Team, tree
from lispgpt.passes.schedule.products.vector_time import UNPACKING, nbytes, vector_seconds
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu

SECTOR = 32
"""Bytes of neighbouring columns that a block loads at least: what memory hands out at once."""


@dataclass(frozen=True)
class ScheduleGpuColumnContractions(Pass):
    """rows: the most rows of x that a block takes.  threads: of a block.  loads: vectors of w under way in a thread.
    staged_bytes: the most of x to keep in shared memory."""

    starts_from = (PLACED,)
    only_faster = True
    rows: int = 4
    threads: int = 256
    loads: int = 4
    staged_bytes: int = 16384

    def run(self, module: ir.Module, target: Gpu) -> None:
        for kernel, found in unscheduled_products(module, schedule=self.name):
            product = as_skinny(found)
            if product.right.reduces():
                note_refusal(kernel, "both operands of a product are made by reductions")
            else:
                _ColumnProduct(kernel, product, target, self).emit()

    def time_of(self, kernel: ir.Operation, found: Product, target: Gpu) -> float:
        """Seconds that it should take of a product; Refused where it leaves that to others."""
        product = as_skinny(found)
        if product.right.reduces():
            raise Refused("both operands of a product are made by reductions")
        emitted = _ColumnProduct(kernel, product, target, self)
        passes, weights = product.rows // emitted.rows, nbytes(product.right.tensor)
        apart = SECTOR // b.item_bytes(product.right.tensor.type) if emitted.width == 1 else 1
        elements = product.batches * product.columns * product.inner
        computed = UNPACKING * passes * elements if product.right.is_computed() else 0
        return vector_seconds(product, weights, passes * apart, computed, target)


class _ColumnProduct:
    def __init__(
        self, kernel: ir.Operation, product: Product, target: Gpu, options: ScheduleGpuColumnContractions
    ) -> None:
        self.kernel, self.product, self.target = kernel, product, target
        self.left, self.right = product.left, product.right
        self.threads, self.loads = options.threads, options.loads
        row_bytes = 4 * product.inner
        self.staged = row_bytes <= options.staged_bytes or self.left.reduces()
        most = max(1, min(options.rows, options.staged_bytes // row_bytes)) if self.staged else options.rows
        self.rows = max(n for n in range(1, most + 1) if product.rows % n == 0)
        size = b.item_bytes(self.right.tensor.type)
        self.width = b.largest_width(self.right.along_outer, size, target.vector_bytes)
        self.lanes = self.threads
        while self.lanes * self.width * size > SECTOR and self._blocks() * product.batches < target.cores:
            self.lanes //= 2
        self.k_lanes = self.threads // self.lanes
        self.outputs = outputs_of(kernel)

    def _blocks(self) -> int:
        return -(-self.product.columns // (self.lanes * self.width))

    def emit(self) -> None:
        grid = [self._blocks() * self.product.batches, self.product.rows // self.rows]
        reschedule(self.kernel, grid, [self.threads], self.target, self._body)

    def _body(self) -> None:
        self.thread = b.thread_id()
        self.lane, self.k_lane = b.mod(self.thread, self.lanes), b.div(self.thread, self.lanes)
        self.batch, block = self.product.of_batch(b.block_id(), self._blocks())
        self.first_column = b.mul(block, self.lanes * self.width)
        self.base = 0 if self.rows == self.product.rows else b.mul(b.block_id("y"), self.rows)
        self.team = Team(self.thread, self.threads, self.target.subgroup)
        self.reader = Reader(self.target, self.team)
        self.target.dependency_passed_on()
        self.memory = self._stage() if self.staged else None
        self._finish(self._reduced(self._sums()))

    def _stage(self) -> ir.Value:
        """Put this block's rows of x in shared memory, in f32."""
        inner = self.product.inner
        width = b.largest_width(inner, 4, 16)
        width = width if self.left.along_k % width == 0 else 1
        memory = b.shared([self.rows, inner], b.f32())
        for n in range(self.rows):
            for number in range(self.team.chunk_count(inner, width)):
                chunk = self.team.chunk(number, inner, width)
                row = b.add(self.base, n)
                value = b.extend(self.left.read(self.reader, self.batch, row, chunk.start, width))
                b.if_live(chunk.live, partial(b.store, value, memory, [n, chunk.start]))
        b.barrier()
        return memory

    def _left(self, n: int, k: Index) -> ir.Value:
        if self.memory is not None:
            return b.load(self.memory, [n, k], 1)
        return b.extend(self.left.read(self.reader, self.batch, b.add(self.base, n), k))

    def _sums(self) -> list[ir.Value]:
        """For each row this thread's sums of its columns over its share of k."""
        inner, step = self.product.inner, self.k_lanes * self.loads
        column = b.add(self.first_column, b.mul(self.lane, self.width))
        if self.product.columns % (self.lanes * self.width):
            column = b.at_most(column, self.product.columns - self.width)

        def body(number: Index, *sums: ir.Value) -> list[ir.Value]:
            totals = list(sums)
            with self.reader.scope():
                places = [b.add(b.add(b.mul(number, step), i * self.k_lanes), self.k_lane) for i in range(self.loads)]
                live = [b.less(k, inner) if inner % step else None for k in places]
                places = [b.or_zero(inside, k) for k, inside in zip(places, live, strict=True)]
                columns = [
                    b.extend(self.right.read_across(self.reader, self.batch, column, k, self.width)) for k in places
                ]
                for k, inside, values in zip(places, live, columns, strict=True):
                    for n in range(self.rows):
                        x = b.masked(inside, self._left(n, k))
                        totals[n] = b.fma(b.splat(x, self.width), values, totals[n])
            return totals

        zero = b.constant(0.0, b.with_width(b.f32(), self.width))
        return b.loop(0, -(-inner // step), 1, [zero] * self.rows, body)

    def _reduced(self, sums: list[ir.Value]) -> list[ir.Value]:
        """Each added up over the lanes of its subgroup that share its columns."""
        distance = self.target.subgroup // 2
        while distance >= self.lanes:
            sums = [
                b.vector_of(
                    [
                        b.binary("arith.addf", element, b.shuffle_xor(element, distance, self.target.subgroup))
                        for element in (b.lane_of(total, i) for i in range(self.width))
                    ]
                )
                for total in sums
            ]
            distance //= 2
        return sums

    def _finish(self, sums: list[ir.Value]) -> None:
        """Add up what groups of threads hold of the same columns, and write the results."""
        sharing = max(self.lanes, self.target.subgroup)
        groups, columns = self.threads // sharing, self.lanes * self.width
        partial_sums = b.shared([groups, self.rows, columns], b.f32())

        def publish() -> None:
            for n, total in enumerate(sums):
                at = [b.div(self.thread, sharing), n, b.mul(self.lane, self.width)]
                b.store(total, partial_sums, at)

        if sharing > self.lanes:
            b.if_then(b.less(b.mod(self.thread, sharing), self.lanes), publish)
        else:
            publish()
        b.barrier()
        slots = self.rows * columns
        for number in range(-(-slots // self.threads)):
            slot = b.add(self.thread, number * self.threads)
            inside = b.less(slot, slots) if (number + 1) * self.threads > slots else None
            slot = slot if inside is None else b.at_most(slot, slots - 1)
            n, column = b.div(slot, columns), b.mod(slot, columns)
            value = tree("arith.addf", [b.load(partial_sums, [group, n, column], 1) for group in range(groups)])
            self._write(b.add(self.base, n), b.add(self.first_column, column), value, inside)

    def _write(self, row: Index, column: Index, value: ir.Value, inside: ir.Value | None) -> None:
        """Store a result, if it is inside and is one at all."""
        last = self.product.columns - 1
        if self.product.columns % (self.lanes * self.width):
            inside = b.both(inside, b.less(column, self.product.columns))
            column = b.at_most(column, last)
        where = self.product.place(self.batch, row, column)
        self.reader.bind(self.product.result, lambda index, width: value)
        with self.reader.scope():
            finished = [self.reader.read(tensor, where) for tensor, _ in self.outputs]
        store_results(finished, self.outputs, where, inside)
