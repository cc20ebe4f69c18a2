"""schedule-gpu-warpgroups: products of many rows with a BF16 operand, on matrix instructions of whole warpgroups.

Before: linalg.contract of any layout, one operand in bf16 and the other in bf16 or f32, with elementwise ops around it.
After:  a block computes a tile of rows by columns.  Asynchronous copies bring both operands to shared memory ahead of
        their use, in lines along whichever dimension is innermost.  Those in bf16 are multiplied from there; one in
        f32 from registers, as two bf16 parts that add up to it, which are made while the step before is still being
        multiplied.  Where tiles are few, the blocks of a cluster share out k and add up.

Requires: what plan-arena and recognise-products ensure.
Ensures: kernels of kind "contraction" that the target's warpgroup instructions fit have only scalar, vector and
matrix ops, `grid`, `block` and their dynamic `shared_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.epilogue import Epilogue, Piece, places
from lispgpt.passes.kernels.kernel import constant_arguments, reschedule
from lispgpt.passes.kernels.products import Product, find_product
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.stages import Block, Layout, Side, Stages
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup import WarpgroupUnit
from lispgpt.passes.targets.warpgroup_tiles import LEAST_OUTPUTS, PARTS, Shape, Tiling, cost, tilings

MOST_BLOCKS_Z = 65535
"""Of a grid.  Source: "CUDA C++ Programming Guide", technical specifications per compute capability."""


@dataclass(frozen=True)
class ScheduleGpuWarpgroups(Pass):
    """least_rows: the fewest rows of x to treat this way.  rows, outputs, splits: of a tile; 0 chooses by cost."""

    name: ClassVar[str] = "schedule-gpu-warpgroups"
    least_rows: int = 16
    rows: int = 0
    outputs: int = 0
    splits: int = 0

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.warpgroup is None:
            return
        for kernel in kernel_functions(module, "contraction"):
            product = find_product(kernel)
            if product is not None:
                product = product.turned() if product.right.dtype == "f32" else product
                if self._fits(product, target.warpgroup):
                    tiling = self._tiling(product, target)
                    _Schedule(kernel, product, constant_arguments(module, kernel), target, tiling).emit()

    def _fits(self, product: Product, unit: WarpgroupUnit) -> bool:
        sides = (Side(product.left, unit.rows, unit.inner), Side(product.right, unit.columns, unit.inner))
        return (
            product.left.dtype in ("f32", "bf16")
            and product.right.dtype == "bf16"
            and product.rows >= self.least_rows
            and product.columns >= unit.columns
            and product.batches * product.columns // LEAST_OUTPUTS < MOST_BLOCKS_Z
            and all(side.fits() for side in sides)
        )

    def _tiling(self, product: Product, target: Gpu) -> Tiling:
        right = product.right
        left_bytes = b.item_bytes(product.left.tensor.type)
        shape = Shape(product.rows, product.columns, product.inner, left_bytes, right.along_k == 1)
        wanted = [(name, getattr(self, name)) for name in ("rows", "outputs", "splits")]
        candidates = [
            tiling for tiling in tilings(target, shape) if all(n in (0, getattr(tiling, name)) for name, n in wanted)
        ]
        if not candidates:
            sizes = ", ".join(f"{name} {n}" for name, n in wanted if n)
            raise UserError(f"schedule-gpu-warpgroups: there is no tile of {sizes} for a product over {product.inner}")
        return min(candidates, key=lambda tiling: cost(tiling, shape, target, product.batches))


class _Schedule:
    def __init__(
        self, kernel: ir.Operation, product: Product, constants: set[ir.Value], target: Gpu, tiling: Tiling
    ) -> None:
        assert target.warpgroup is not None
        self.kernel, self.target, self.unit, self.tiling = kernel, target, target.warpgroup, tiling
        self.product = product
        self.results = outputs_of(kernel)
        self.threads = tiling.row_parts * tiling.output_parts * self.unit.threads
        self.columns = tiling.outputs // tiling.output_parts
        self.column_tiles = -(-product.columns // tiling.outputs)
        self.layout = Layout.of(product, tiling, self.unit.inner, target)
        self.right_first = product.right.buffer() in constants

    def emit(self) -> None:
        t = self.tiling
        grid = [t.splits, -(-self.product.rows // t.rows), self.column_tiles * self.product.batches]
        if not reschedule(self.kernel, grid, [self.threads], self.target, self._body):
            return
        self.stages.memory.record(self.kernel)
        if t.splits > 1:
            self.target.set_cluster(self.kernel, t.splits)

    def _body(self) -> None:
        t, unit = self.tiling, self.unit
        thread = b.thread_id()
        group = b.div(thread, unit.threads)
        self.row_part, self.output_part = b.mod(group, t.row_parts), b.div(group, t.row_parts)
        row, self.pair = unit.lane_places(b.mod(thread, unit.threads))
        self.row = b.add(b.mul(self.row_part, unit.rows), row)
        self.split = b.block_id("x") if t.splits > 1 else 0
        batch, column_tile = 0, b.block_id("z")
        if self.product.batches > 1:
            batch, column_tile = b.div(column_tile, self.column_tiles), b.mod(column_tile, self.column_tiles)
        self.block = Block(
            thread,
            self.threads,
            first_row=b.mul(b.block_id("y"), t.rows),
            first_output=b.mul(column_tile, t.outputs),
            first_k=b.mul(self.split, self.layout.steps * unit.inner),
            batch=batch,
        )
        self.stages = Stages(self.layout, self.target, self.block)
        self.target.dependency_release()
        self.stages.start(self.target.dependency_wait, self.right_first)
        self._finish(self._walk_shared() if self.layout.left.swizzled else self._walk())

    def _zeros(self) -> list[ir.Value]:
        return [b.constant(0.0, b.f32())] * (self.columns * self.unit.rows // self.unit.threads)

    def _walk_shared(self) -> list[ir.Value]:
        """The tile's sums, with both operands taken from shared memory."""

        def step(number: Index, *sums: ir.Value) -> list[ir.Value]:
            totals = self._multiply_shared(number, list(sums))
            self.unit.wait(1)
            self.stages.advance(number)
            return totals

        return self.unit.done(b.loop(0, self.layout.steps, 1, self._zeros(), step))

    def _multiply_shared(self, step: Index, sums: list[ir.Value]) -> list[ir.Value]:
        left, right = self._left_descriptor(step), self._right_descriptor(step)
        turned = (self.layout.left.turned, self.layout.right.turned)
        sums = self.unit.ready(sums)
        for block in range(self.unit.inner // self.unit.block):
            row, column = self.unit.advanced(left, block, turned[0]), self.unit.advanced(right, block, turned[1])
            sums = self.unit.multiply_shared(row, column, sums, turned)
        self.unit.commit()
        return sums

    def _left_descriptor(self, step: Index) -> ir.Value:
        offset = b.mul(self.stages.stage(step), self.layout.left.nbytes)
        offset = b.add(offset, b.mul(self.row_part, self.unit.rows * self.unit.inner * 2))
        return self.unit.descriptor(self.stages.left_memory, offset, self.layout.left.turned)

    def _right_descriptor(self, step: Index) -> ir.Value:
        offset = b.mul(self.stages.stage(step), self.layout.right.nbytes)
        offset = b.add(offset, b.mul(self.output_part, self.columns * self.unit.inner * 2))
        return self.unit.descriptor(self.stages.right_memory, offset, self.layout.right.turned)

    def _walk(self) -> list[ir.Value]:
        """The tile's sums.  Two steps at a time, because x's registers of one are made while the other's are in use."""
        unit, steps = self.unit, self.layout.steps
        left = self._left(0)
        sums = self._zeros()

        def two_steps(number: Index, *carried: ir.Value) -> list[ir.Value]:
            first = b.mul(number, 2)
            state = list(carried[: len(left)]), list(carried[len(left) :])
            state = self._step(first, *state)
            state = self._step(b.add(first, 1), *state)
            return [*state[0], *state[1]]

        carried = b.loop(0, steps // 2, 1, [*left, *sums], two_steps)
        left, sums = carried[: len(left)], carried[len(left) :]
        if steps % 2:
            sums = self._multiply(steps - 1, left, sums)
        return unit.done(sums)

    def _step(self, number: Index, left: list[ir.Value], sums: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Multiply what is in registers and in shared memory; meanwhile prepare the next step's x."""
        totals = self._multiply(number, left, sums)
        self.unit.wait(1)
        self.stages.advance(number)
        return self._left(b.add(number, 1)), totals

    def _left(self, step: Index) -> list[ir.Value]:
        """This thread's share of x for one step, in the order block of k, part, register."""
        found, stage = [], self.stages.stage(step)
        for block in range(self.unit.inner // self.unit.block):
            k = b.add(b.mul(self.pair, 2), block * self.unit.block)
            parts: list[list[ir.Value]] = [[], []]
            for column in (0, 8):
                for row in (0, 8):
                    value = self._left_pair(stage, b.add(self.row, row), b.add(k, column))
                    for part, pair in zip(parts, self.unit.split(value), strict=True):
                        part.append(pair)
            found += [*parts[0], *parts[1]]
        return found

    def _left_pair(self, stage: Index, row: Index, k: Index) -> ir.Value:
        """Two neighbours along k of x in shared memory."""
        memory = self.stages.left_memory
        if not self.layout.left.turned:
            return b.load(memory, [stage, row, k], 2)
        return b.vector_of([b.load(memory, [stage, b.add(k, i), row], 1) for i in range(2)])

    def _multiply(self, step: Index, left: list[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
        right, turned = self._right_descriptor(step), self.layout.right.turned
        registers = self.unit.ready([*left, *sums])
        left, sums = registers[: len(left)], registers[len(left) :]
        for block in range(self.unit.inner // self.unit.block):
            column = self.unit.advanced(right, block, turned)
            for part in range(PARTS):
                at = (block * PARTS + part) * 4
                sums = self.unit.multiply(left[at : at + 4], column, sums, turned)
        self.unit.commit()
        return sums

    def _finish(self, sums: list[ir.Value]) -> None:
        column = b.add(b.mul(self.output_part, self.columns), b.mul(self.pair, 2))
        columns = [b.add(column, 8 * n) for n in range(self.columns // 8)]
        pieces = [
            Piece(row, column, b.vector_of(sums[4 * n + 2 * half : 4 * n + 2 * half + 2]))
            for n, column in enumerate(columns)
            for half, row in enumerate([self.row, b.add(self.row, 8)])
        ]
        if self.tiling.splits > 1:
            pieces = self._add_splits(pieces)
        tile, first = (self.tiling.rows, self.tiling.outputs), (self.block.first_row, self.block.first_output)
        Epilogue(Reader(self.target), self.product, self.results, tile, first, self.block.batch).write(pieces)

    def _add_splits(self, pieces: list[Piece]) -> list[Piece]:
        """Add what the blocks of a cluster have summed over their parts of k; each gets some rows of it."""
        t, width = self.tiling, 4
        stride = t.outputs + (8 - t.outputs) % 32
        partial = self.stages.scratch([t.rows, stride])
        b.barrier()
        for piece in pieces:
            b.store(piece.value, partial, [piece.row, piece.output])
        self.target.cluster_barrier()
        count = t.rows // t.splits * t.outputs // width
        first = b.mul(self.split, count)
        found = []
        for row, column in places(self.block.thread, self.threads, count, t.outputs, width, first):
            at = b.add(b.mul(row, stride), column)
            shares = [self.target.cluster_load(partial, at, rank, width) for rank in range(t.splits)]
            found.append(Piece(row, column, tree("arith.addf", shares)))
        self.target.cluster_barrier()
        return found
