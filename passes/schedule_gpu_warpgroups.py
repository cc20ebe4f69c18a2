"""schedule-gpu-warpgroups: products of many rows with a BF16 weight matrix, on matrix instructions of whole warpgroups.

Before: linalg.contract x[n, k] * w[o, k], x in f32 and w in bf16, with elementwise ops around it.
After:  a block computes a tile of rows by outputs.  Asynchronous copies bring x and w to shared memory some steps of k
        ahead; w is multiplied from there, x from registers, as two bf16 parts that add up to it, which are made while
        the step before is still being multiplied.  Where tiles are few, the blocks of a cluster share out k and add up.

Requires: what plan-arena ensures.
Ensures: kernels of kind "contraction" that the target's warpgroup instructions fit have only scalar, vector and
matrix ops, `grid`, `block` and their dynamic `shared_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from lispgpt.errors import UserError
from lispgpt.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.gpu import build as b
from lispgpt.passes.gpu.build import Index
from lispgpt.passes.gpu.epilogue import Epilogue, Piece
from lispgpt.passes.gpu.kernel import constant_arguments, reschedule
from lispgpt.passes.gpu.read import VIEWS, Reader, outputs_of
from lispgpt.passes.gpu.team import tree
from lispgpt.passes.schedule_gpu_contractions import find_product
from lispgpt.passes.structure import defining_op, kernel_functions, shape_of
from lispgpt.passes.targets import Gpu
from lispgpt.passes.warpgroup_tiles import FEWEST_STAGES, MOST_STAGES, PARTS, X_PADDING, Tiling, cost, tilings

Place = Callable[[Index, Index], list[Index]]
"""From a row of a tile and a vector of 16 bytes in it to where that lies in shared memory."""

ALIGNMENT = 1024
"""Of swizzled shared memory."""


@dataclass(frozen=True)
class ScheduleGpuWarpgroups(Pass):
    """least_rows: the fewest rows of x to treat this way.  rows, outputs, splits: of a tile; 0 chooses by cost."""

    name: ClassVar[str] = "schedule-gpu-warpgroups"
    least_rows: int = 64
    rows: int = 0
    outputs: int = 0
    splits: int = 0

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.warpgroup is None:
            return
        for kernel in kernel_functions(module, "contraction"):
            product = find_product(kernel)
            if product is not None and self._fits(product, target):
                tiling = self._tiling(product, target)
                _Schedule(kernel, product, constant_arguments(module, kernel), target, tiling).emit()

    def _fits(self, product: ir.Operation, target: Gpu) -> bool:
        x, w = product.operands[0], product.operands[1]
        types = (str(x.type.element_type), str(w.type.element_type))
        rows, inner = shape_of(x)
        assert target.warpgroup is not None
        return (
            types == ("f32", "bf16")
            and rows >= self.least_rows
            and inner % target.warpgroup.inner == 0
            and _is_in_memory(x)
            and _is_in_memory(w)
        )

    def _tiling(self, product: ir.Operation, target: Gpu) -> Tiling:
        (rows, inner), outputs = shape_of(product.operands[0]), shape_of(product.operands[1])[0]
        wanted = (("rows", self.rows), ("outputs", self.outputs), ("splits", self.splits))
        candidates = [
            tiling for tiling in tilings(target, inner) if all(n in (0, getattr(tiling, name)) for name, n in wanted)
        ]
        if not candidates:
            sizes = ", ".join(f"{name} {n}" for name, n in wanted if n)
            raise UserError(f"schedule-gpu-warpgroups: there is no tile of {sizes} for a product over {inner}")
        return min(candidates, key=lambda tiling: cost(tiling, rows, outputs, inner, target))


def _is_in_memory(tensor: ir.Value) -> bool:
    """Whether rows of a tensor lie in a buffer as they are."""
    op = defining_op(tensor)
    while op is not None and op.name in ("tensor.collapse_shape", "tensor.expand_shape"):
        op = defining_op(op.operands[0])
    return op is not None and op.name == "bufferization.to_tensor"


class _Schedule:
    def __init__(
        self, kernel: ir.Operation, product: ir.Operation, constants: set[ir.Value], target: Gpu, tiling: Tiling
    ) -> None:
        assert target.warpgroup is not None
        self.kernel, self.target, self.unit, self.tiling = kernel, target, target.warpgroup, tiling
        self.x, self.w, self.result = product.operands[0], product.operands[1], product.results[0]
        self.rows, self.inner = shape_of(self.x)
        self.outputs = shape_of(self.w)[0]
        self.results = outputs_of(kernel)
        self.steps = self.inner // self.unit.inner // tiling.splits
        self.threads = tiling.row_parts * tiling.output_parts * self.unit.threads
        self.columns = tiling.outputs // tiling.output_parts
        self.x_row = self.unit.inner + X_PADDING
        self.w_bytes = tiling.outputs * self.unit.inner * 2
        stage = self.w_bytes + tiling.rows * self.x_row * 4
        fit = (target.dynamic_shared_bytes - ALIGNMENT) // stage
        self.stages = max(FEWEST_STAGES, min(self.steps + 1, MOST_STAGES, fit))
        self.shared_bytes = ALIGNMENT + self.stages * stage
        w_buffer = defining_op(self.w)
        self.weights_first = w_buffer is not None and w_buffer.operands[0] in constants

    def emit(self) -> None:
        t = self.tiling
        grid = [t.splits, -(-self.rows // t.rows), -(-self.outputs // t.outputs)]
        reschedule(self.kernel, grid, [self.threads], self.target, self._body)
        i64 = ir.IntegerType.get_signless(64)
        self.kernel.attributes["shared_bytes"] = ir.IntegerAttr.get(i64, self.shared_bytes)
        if t.splits > 1:
            self.target.set_cluster(self.kernel, t.splits)

    def _body(self) -> None:
        t, unit = self.tiling, self.unit
        self.thread = b.thread_id()
        group = b.div(self.thread, unit.threads)
        self.row_part, self.output_part = b.mod(group, t.row_parts), b.div(group, t.row_parts)
        row, self.pair = unit.lane_places(b.mod(self.thread, unit.threads))
        self.row = b.add(b.mul(self.row_part, unit.rows), row)
        self.first_row, self.first_output = b.mul(b.block_id("y"), t.rows), b.mul(b.block_id("z"), t.outputs)
        self.first_k = b.mul(b.block_id("x"), self.inner // t.splits) if t.splits > 1 else 0
        self.reader = Reader(self.target)
        self._place_memory()
        self.target.dependency_release()
        if not self.weights_first:
            self.target.dependency_wait()
        for step in range(self.stages - 1):
            self._copy_w(step, step)
        if self.weights_first:
            self.target.dependency_wait()
        for step in range(self.stages - 1):
            self._copy_x(step, step)
            self.target.commit_copies()
        self._finish(self._walk())

    def _place_memory(self) -> None:
        """Stages of w, swizzled and so aligned, then of x, in the block's dynamic shared memory."""
        i8 = ir.IntegerType.get_signless(8)
        self.dynamic = b.emit("gpu.dynamic_shared_memory", [], [b.shared_type([ir.ShapedType.get_dynamic_size()], i8)])
        index = ir.IndexType.get()
        address = b.emit("memref.extract_aligned_pointer_as_index", [self.dynamic], [index])
        negative = b.emit("arith.subi", [b.as_value(0), address], [index])
        self.aligned = b.emit("arith.andi", [negative, b.as_value(ALIGNMENT - 1)], [index])
        t = self.tiling
        self.w_memory = self._view(0, [self.stages, t.outputs, self.unit.inner], ir.BF16Type.get())
        self.x_memory = self._view(self.stages * self.w_bytes, [self.stages, t.rows, self.x_row], b.f32())

    def _view(self, offset: int, shape: list[int], type_: ir.Type) -> ir.Value:
        return b.emit("memref.view", [self.dynamic, b.add(self.aligned, offset)], [b.shared_type(shape, type_)])

    def _copy_w(self, step: Index, slot: Index) -> None:
        def place(row: Index, vector: Index) -> list[Index]:
            return [slot, row, b.mul(self.unit.swizzled(row, vector), 8)]

        self._copy(self.w, self.tiling.outputs, self.first_output, step, self.w_memory, place)

    def _copy_x(self, step: Index, slot: Index) -> None:
        def place(row: Index, vector: Index) -> list[Index]:
            return [slot, row, b.mul(vector, 4)]

        self._copy(self.x, self.tiling.rows, self.first_row, step, self.x_memory, place)

    def _copy(
        self,
        tensor: ir.Value,
        rows: int,
        first: Index,
        step: Index,
        memory: ir.Value,
        place: Callable[[Index, Index], list[Index]],
    ) -> None:
        """Start this thread's copies of a tile, 16 bytes each; rows past the end are the last one's."""
        if isinstance(step, int) and step >= self.steps:
            return
        width = 16 // b.item_bytes(tensor.type)
        per_row = self.unit.inner // width
        start = b.add(self.first_k, b.mul(step, self.unit.inner))
        extent = shape_of(tensor)[0]
        count = rows * per_row
        for number in range(-(-count // self.threads)):
            vector = b.add(self.thread, number * self.threads)
            row, part = b.div(vector, per_row), b.mod(vector, per_row)
            at = b.add(first, row)
            if extent % rows:
                at = b.at_most(at, extent - 1)

            def copy(row: Index = row, part: Index = part, at: Index = at) -> None:
                buffer, source = self._locate(tensor, [at, b.add(start, b.mul(part, width))])
                self.target.copy_async(buffer, source, memory, place(row, part), width)

            if (number + 1) * self.threads <= count:
                copy()
            else:
                b.if_then(b.less(vector, count), copy)

    def _locate(self, tensor: ir.Value, index: list[Index]) -> tuple[ir.Value, list[Index]]:
        """The buffer that a tensor is a view of, and an element's index there."""
        op = defining_op(tensor)
        while op.name != "bufferization.to_tensor":
            index = VIEWS[op.name](op, index, self.reader)
            op = defining_op(op.operands[0])
        return op.operands[0], index

    def _walk(self) -> list[ir.Value]:
        """The tile's sums.  Two steps at a time, because x's registers of one are made while the other's are in use."""
        unit = self.unit
        self._await(self.stages - 2)
        left = self._left(0)
        sums = [b.constant(0.0, b.f32())] * (self.columns * unit.rows // unit.threads)

        def two_steps(number: Index, *carried: ir.Value) -> list[ir.Value]:
            first = b.mul(number, 2)
            state = list(carried[: len(left)]), list(carried[len(left) :])
            with self.reader.scope():
                state = self._step(first, *state)
                state = self._step(b.add(first, 1), *state)
            return [*state[0], *state[1]]

        carried = b.loop(0, self.steps // 2, 1, [*left, *sums], two_steps)
        left, sums = carried[: len(left)], carried[len(left) :]
        if self.steps % 2:
            sums = self._multiply(left, sums, (self.steps - 1) % self.stages)
        self.unit.wait(0)
        return sums

    def _step(self, number: Index, left: list[ir.Value], sums: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Multiply what is in registers and in shared memory; meanwhile prepare the next step's x."""
        totals = self._multiply(left, sums, b.mod(number, self.stages))
        self.unit.wait(1)
        self._await(self.stages - 3)
        coming = b.add(number, self.stages - 1)
        slot = b.mod(coming, self.stages)

        def copy() -> None:
            self._copy_w(coming, slot)
            self._copy_x(coming, slot)

        b.if_then(b.less(coming, self.steps), copy)
        self.target.commit_copies()
        return self._left(b.mod(b.add(number, 1), self.stages)), totals

    def _await(self, groups: int) -> None:
        """Until all but the newest `groups` batches of copies have arrived, for every thread of the block."""
        self.target.await_copies(groups)
        b.barrier()

    def _left(self, slot: Index) -> list[ir.Value]:
        """This thread's share of x for one step, in the order block of k, part, register."""
        found = []
        for block in range(self.unit.inner // self.unit.block):
            k = b.add(b.mul(self.pair, 2), block * self.unit.block)
            parts: list[list[ir.Value]] = [[], []]
            for column in (0, 8):
                for row in (0, 8):
                    value = b.load(self.x_memory, [slot, b.add(self.row, row), b.add(k, column)], 2)
                    for part, pair in zip(parts, self.unit.split(value), strict=True):
                        part.append(pair)
            found += [*parts[0], *parts[1]]
        return found

    def _multiply(self, left: list[ir.Value], sums: list[ir.Value], slot: Index) -> list[ir.Value]:
        offset = b.add(b.mul(slot, self.w_bytes), b.mul(self.output_part, self.columns * self.unit.inner * 2))
        right = self.unit.descriptor(self.w_memory, offset)
        self.unit.fence()
        for block in range(self.unit.inner // self.unit.block):
            column = self.unit.advanced(right, block)
            for part in range(PARTS):
                at = (block * PARTS + part) * 4
                sums = self.unit.multiply(left[at : at + 4], column, sums)
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
        placed = [Piece(b.add(self.first_row, p.row), b.add(self.first_output, p.output), p.value) for p in pieces]
        Epilogue(self.reader, self.result, self.results, (self.tiling.rows, self.tiling.outputs)).write(placed)

    def _add_splits(self, pieces: list[Piece]) -> list[Piece]:
        """Add what the blocks of a cluster have summed over their parts of k; each gets some rows of it."""
        t, width = self.tiling, 4
        stride = t.outputs + (8 - t.outputs) % 32
        partial = self._view(0, [t.rows, stride], b.f32())
        b.barrier()
        for piece in pieces:
            b.store(piece.value, partial, [piece.row, piece.output])
        self.target.cluster_barrier()
        count = t.rows // t.splits * t.outputs // width
        first = b.mul(b.block_id("x"), count)
        found = []
        for number in range(-(-count // self.threads)):
            vector = b.add(self.thread, number * self.threads)
            if (number + 1) * self.threads > count:
                vector = b.at_most(vector, count - 1)
            place = b.add(first, vector)
            row, column = b.div(place, t.outputs // width), b.mul(b.mod(place, t.outputs // width), width)
            at = b.add(b.mul(row, stride), column)
            shares = [self.target.cluster_load(partial, at, rank, width) for rank in range(t.splits)]
            total = tree("arith.addf", shares)
            found.append(Piece(row, column, total))
        self.target.cluster_barrier()
        return found
