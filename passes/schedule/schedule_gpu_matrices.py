"""schedule-gpu-matrices: products of many rows and columns, on the target's matrix instructions.

Before: linalg.contract of any layout, operands in f32 or bf16, with elementwise ops around it.
After:  a block computes a tile of rows by columns.  Step by step along k it puts both operands in shared memory, with k
        innermost, while the next step's loads are under way; its subgroups multiply tiles from there and sum in f32.
        f32 numbers are split into `parts` bf16 ones that add up to them (two keep about 16 bits, three all), because
        the instructions take only bf16.

Requires: what plan-arena and recognise-products ensure.
Ensures: kernels that are products of at least `rows` rows and columns have only scalar, vector and matrix ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.epilogue import Epilogue, Piece, places
from lispgpt.passes.kernels.kernel import constant_arguments, reschedule
from lispgpt.passes.kernels.matrices import flat, lanes_of
from lispgpt.passes.kernels.products import Operand, Product, unscheduled_products
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.staged_operand import Origin, StagedOperand, Tile, single_loads
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Tiling:
    """A block's tile and how its subgroups share it: `row_parts` by `output_parts` by `inner_parts` of them."""

    rows: int
    outputs: int
    inner: int
    row_parts: int
    output_parts: int
    inner_parts: int

    @property
    def subgroups(self) -> int:
        return self.row_parts * self.output_parts * self.inner_parts


TILINGS = (
    Tiling(128, 128, 32, 2, 4, 1),
    Tiling(64, 128, 32, 1, 8, 1),
    Tiling(64, 64, 32, 2, 4, 1),
    Tiling(16, 32, 256, 1, 1, 8),
    Tiling(16, 32, 128, 1, 1, 4),
    Tiling(16, 32, 64, 1, 2, 2),
)
"""From the one that reuses most to the one that makes most blocks, and the same with shorter steps."""

MOST_SINGLE_PARTS = 60
"""So many bf16 parts of elements that were loaded one by one, each with its address, a thread's registers hold."""

STATIC_SHARED_BYTES = 48 * 1024


@dataclass(frozen=True)
class ScheduleGpuMatrices(Pass):
    """rows: the fewest rows, and columns, to treat this way.  parts: bf16 numbers that an f32 one is split into."""

    rows: int = 8
    parts: int = 2

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        constant = constant_arguments(module)
        for kernel, product in unscheduled_products(module):
            if _fits(product, self.rows):
                _Schedule(kernel, product, constant(kernel), target, self.parts).emit()


def _fits(product: Product, least: int) -> bool:
    operands = (product.left, product.right)
    return min(product.rows, product.columns) >= least and not any(operand.reduces() for operand in operands)


def choose_tiling(
    product: Product, shared_bytes: Callable[[Tiling], int], held: Callable[[Tiling], int], target: Gpu
) -> Tiling:
    """The largest tile that still gives every core a block; one that fits in shared memory in any case, and in
    registers what a thread of it has to hold."""
    fitting = [tiling for tiling in TILINGS if shared_bytes(tiling) <= target.shared_bytes]
    small = [tiling for tiling in fitting if tiling.rows == TILINGS[-1].rows]
    for tiling in fitting[: -len(small)]:
        blocks = product.batches * -(-product.rows // tiling.rows) * -(-product.columns // tiling.outputs)
        if tiling.rows <= product.rows and blocks >= target.cores:
            return tiling
    return next((tiling for tiling in small if held(tiling) <= MOST_SINGLE_PARTS), small[-1])


class _Schedule:
    def __init__(
        self, kernel: ir.Operation, product: Product, constants: set[ir.Value], target: Gpu, parts: int
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.target, self.unit, self.product = kernel, target, target.matrix, product
        self.left_parts, self.right_parts = (
            1 if operand.dtype == "bf16" else parts for operand in (product.left, product.right)
        )
        self.tiling = choose_tiling(product, self._shared_bytes, self._single_parts, target)
        self.threads = self.tiling.subgroups * target.subgroup
        self.results = outputs_of(kernel)
        self.right_first = product.right.buffer() in constants
        self.tile_rows = self.tiling.rows // self.tiling.row_parts // self.unit.rows
        self.tile_columns = self.tiling.outputs // self.tiling.output_parts // self.unit.columns
        self.row_tiles = -(-product.rows // self.tiling.rows)

    def _shared_bytes(self, tiling: Tiling) -> int:
        """What a block needs: one step's operands, and the sums of subgroups that share out k."""
        shared_sums = tiling.inner_parts * tiling.rows * tiling.outputs if tiling.inner_parts > 1 else 0
        return self._step_bytes(tiling) + 4 * shared_sums

    def _step_bytes(self, tiling: Tiling) -> int:
        rows = self.left_parts * tiling.rows + self.right_parts * tiling.outputs
        return rows * (tiling.inner + self.unit.padding) * 2

    def _single_parts(self, tiling: Tiling) -> int:
        """What a thread holds of elements that it loads one by one."""
        threads, inner = tiling.subgroups * self.target.subgroup, tiling.inner
        left = single_loads(self.product.left, tiling.rows, inner, threads)
        return self.left_parts * left + self.right_parts * single_loads(
            self.product.right, tiling.outputs, inner, threads
        )

    def emit(self) -> None:
        grid = [self.row_tiles * self.product.batches, -(-self.product.columns // self.tiling.outputs)]
        # What a thread holds of two split operands leaves no registers for a second block of the largest tile.
        alone = self.left_parts > 1 and self.right_parts > 1 and self.tiling == TILINGS[0]
        if reschedule(self.kernel, grid, [self.threads], self.target, self._body) and not alone:
            self.target.set_residency(self.kernel, 2)

    def _body(self) -> None:
        t = self.tiling
        self.thread = b.thread_id()
        self.lanes = lanes_of(self.unit, b.mod(self.thread, self.target.subgroup))
        self.subgroup = b.div(self.thread, self.target.subgroup)
        self.row_part = b.mod(self.subgroup, t.row_parts)
        self.output_part = b.mod(b.div(self.subgroup, t.row_parts), t.output_parts)
        self.inner_part = b.div(self.subgroup, t.row_parts * t.output_parts)
        self.batch, row_tile = self.product.of_batch(b.block_id("x"), self.row_tiles)
        self.first_row, self.first_output = b.mul(row_tile, t.rows), b.mul(b.block_id("y"), t.outputs)
        self.reader = Reader(self.target)
        two = 2 * self._step_bytes(t) <= STATIC_SHARED_BYTES and t.inner_parts == 1
        self.buffers = 2 if two else 1
        self.left = self._staged(self.product.left, t.rows, self.first_row, self.left_parts, clears=True)
        self.right = self._staged(self.product.right, t.outputs, self.first_output, self.right_parts, clears=False)
        self.target.dependency_release()
        right = self.right.load(0) if self.right_first else []
        self.target.dependency_wait()
        right = right or self.right.load(0)
        staged = [*right, *self.left.load(0)]
        zero = b.constant(0.0, self.unit.accumulator_type())
        totals = [zero] * (self.tile_rows * self.tile_columns)
        walk = self._walk_two_buffers if self.buffers == 2 else self._walk_one_buffer
        self._finish(walk(staged, len(right), totals))

    def _staged(self, operand: Operand, outer: int, first: Index, parts: int, clears: bool) -> StagedOperand:
        tile = Tile(outer, self.tiling.inner, self.unit.padding, self.buffers)
        origin = Origin(self.batch, first, self.thread, self.threads)
        return StagedOperand(operand, tile, origin, self.reader, parts, clears)

    def _load(self, start: Index) -> list[ir.Value]:
        return [*self.right.load(start), *self.left.load(start)]

    def _store(self, values: list[ir.Value], rights: int, buffer: Index) -> None:
        self.right.store(values[:rights], buffer)
        self.left.store(values[rights:], buffer)

    def _walk_one_buffer(self, staged: list[ir.Value], rights: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Along k: fill shared memory, then multiply from it while the next step's loads are under way."""
        t = self.tiling

        def step(number: Index, *carried: ir.Value) -> list[ir.Value]:
            b.barrier()
            self._store(list(carried[: len(staged)]), rights, 0)
            b.barrier()
            with self.reader.scope():
                start = b.mul(b.add(number, 1), t.inner)
                following = self._load(start)
                return [*following, *self._multiply(list(carried[len(staged) :]), 0)]

        return b.loop(0, -(-self.product.inner // t.inner), 1, [*staged, *totals], step)[len(staged) :]

    def _walk_two_buffers(self, staged: list[ir.Value], rights: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Along k: multiply from one buffer while the other is filled, with loads two steps ahead."""
        t = self.tiling
        self._store(staged, rights, 0)
        following = self._load(t.inner)
        b.barrier()

        def step(number: Index, *carried: ir.Value) -> list[ir.Value]:
            this = b.mod(number, 2)
            other = b.mod(b.add(number, 1), 2)
            with self.reader.scope():
                self._store(list(carried[: len(staged)]), rights, other)
                start = b.mul(b.add(number, 2), t.inner)
                coming = self._load(start)
                sums = self._multiply(list(carried[len(staged) :]), this)
            b.barrier()
            return [*coming, *sums]

        return b.loop(0, -(-self.product.inner // t.inner), 1, [*following, *totals], step)[len(staged) :]

    def _multiply(self, sums: list[ir.Value], buffer: Index) -> list[ir.Value]:
        """One step of every tile of this subgroup, over its part of the k in shared memory."""
        t, unit = self.tiling, self.unit
        row, group = self.lanes.row, self.lanes.group
        share = t.inner // t.inner_parts
        output = b.add(b.mul(self.output_part, t.outputs // t.output_parts), row)
        left = b.add(b.mul(self.row_part, t.rows // t.row_parts), row)
        for block in range(share // unit.block):
            k = b.add(b.add(b.mul(self.inner_part, share), block * unit.block), b.mul(group, unit.run))
            for right_part in range(self.right_parts):
                columns = [
                    self.right.run(buffer, right_part, b.add(output, n * unit.columns), k, unit.run)
                    for n in range(self.tile_columns)
                ]
                # The products of smaller parts are below what the sum of parts keeps of a number.
                for part in range(min(self.left_parts, max(self.left_parts, self.right_parts) - right_part)):
                    for m in range(self.tile_rows):
                        rows = [
                            self.left.run(buffer, part, b.add(left, m * unit.rows + r), k, unit.run)
                            for r in unit.left_rows
                        ]
                        for n, column in enumerate(columns):
                            at = m * self.tile_columns + n
                            sums[at] = unit.multiply(rows, column, sums[at])
        return sums

    def _finish(self, sums: list[ir.Value]) -> None:
        pieces = self._pieces(sums)
        if self.tiling.inner_parts > 1:
            pieces = self._add_parts(pieces)
        tile, first = (self.tiling.rows, self.tiling.outputs), (self.first_row, self.first_output)
        epilogue = Epilogue(self.reader, self.product, self.results, tile, first, self.batch)
        epilogue.write(epilogue.placed(pieces))

    def _pieces(self, sums: list[ir.Value]) -> list[Piece]:
        """What this lane has summed, by row and output in the block's tile."""
        t, unit = self.tiling, self.unit
        row = b.add(b.mul(self.row_part, t.rows // t.row_parts), self.lanes.result_row)
        column = b.add(b.mul(self.output_part, t.outputs // t.output_parts), self.lanes.result_column)
        found = []
        for at, total in enumerate(sums):
            m, n = divmod(at, self.tile_columns)
            for piece in unit.pieces():
                value = b.vector_of([b.lane_of(flat(total), e) for e in piece.elements])
                found.append(Piece(b.add(row, m * unit.rows + piece.row), b.add(column, n * unit.columns), value))
        return found

    def _add_parts(self, pieces: list[Piece]) -> list[Piece]:
        """Add what the subgroups summed over their parts of k; each thread gets some results."""
        t = self.tiling
        partial = b.shared([t.inner_parts, t.rows, t.outputs], b.f32())
        for piece in pieces:
            b.store(piece.value, partial, [self.inner_part, piece.row, piece.output])
        b.barrier()
        width, found = 2, []
        count = t.rows * t.outputs // width
        for row, column in places(self.thread, self.threads, count, t.outputs, width):
            shares = [b.load(partial, [part, row, column], width) for part in range(t.inner_parts)]
            found.append(Piece(row, column, tree("arith.addf", shares)))
        return found
