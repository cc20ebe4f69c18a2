"""schedule-gpu-matrices: products of many rows with a BF16 weight matrix, on the target's matrix instructions.

Before: linalg.contract x[n, k] * w[o, k], x in f32 and w in bf16, with elementwise ops around it.
After:  a block computes a tile of rows by outputs.  Step by step along k it puts x and w in shared memory while the
        next step's loads are under way; its subgroups multiply tiles from there and sum in f32.  x is split into
        `parts` bf16 numbers that add up to it (two keep about 16 bits), because the instructions take only bf16.

Requires: what plan-arena ensures.
Ensures: kernels of kind "contraction" with at least `rows` rows have only scalar, vector and matrix ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, kernel_functions, shape_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.epilogue import Epilogue, Piece, places
from lispgpt.passes.kernels.kernel import constant_arguments, reschedule
from lispgpt.passes.kernels.matrices import flat, joined, lanes_of
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.schedule.schedule_gpu_contractions import find_product
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
)
"""From the one that reuses most to the one that makes most blocks."""

STATIC_SHARED_BYTES = 48 * 1024


@dataclass(frozen=True)
class ScheduleGpuMatrices(Pass):
    """rows: the fewest rows of x to treat this way.  parts: bf16 numbers that each element of x is split into."""

    name: ClassVar[str] = "schedule-gpu-matrices"
    rows: int = 8
    parts: int = 2

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        for kernel in kernel_functions(module, "contraction"):
            product = find_product(kernel)
            if product is not None and "grid" not in kernel.attributes and _fits(product, self.rows):
                _Schedule(kernel, product, constant_arguments(module, kernel), target, self.parts).emit()


def _fits(product: ir.Operation, rows: int) -> bool:
    x, w = product.operands[0], product.operands[1]
    types = (str(x.type.element_type), str(w.type.element_type))
    return shape_of(x)[0] >= rows and types == ("f32", "bf16") and shape_of(x)[1] % 8 == 0 and not _reduces(x)


def _reduces(tensor: ir.Value) -> bool:
    op = defining_op(tensor)
    if op is None or op.name == "bufferization.to_tensor":
        return False
    return op.name in ("linalg.reduce", "linalg.softmax") or any(_reduces(o) for o in op.operands)


def choose_tiling(rows: int, outputs: int, cores: int) -> Tiling:
    """The largest tile that still gives every core a block."""
    for tiling in TILINGS:
        if tiling.rows <= rows and -(-rows // tiling.rows) * -(-outputs // tiling.outputs) >= cores:
            return tiling
    return TILINGS[-1]


class _Schedule:
    def __init__(
        self, kernel: ir.Operation, product: ir.Operation, constants: set[ir.Value], target: Gpu, parts: int
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.target, self.unit, self.parts = kernel, target, target.matrix, parts
        self.x, self.w, self.result = product.operands[0], product.operands[1], product.results[0]
        self.rows, self.inner = shape_of(self.x)
        self.outputs = shape_of(self.w)[0]
        self.tiling = choose_tiling(self.rows, self.outputs, target.cores)
        self.threads = self.tiling.subgroups * target.subgroup
        self.results = outputs_of(kernel)
        w_buffer = defining_op(self.w)
        self.weights_first = w_buffer is not None and w_buffer.operands[0] in constants
        self.tile_rows = self.tiling.rows // self.tiling.row_parts // self.unit.rows
        self.tile_columns = self.tiling.outputs // self.tiling.output_parts // self.unit.columns

    def emit(self) -> None:
        grid = [-(-self.rows // self.tiling.rows), -(-self.outputs // self.tiling.outputs)]
        reschedule(self.kernel, grid, [self.threads], self.target, self._body)
        self.target.set_residency(self.kernel, 2)

    def _body(self) -> None:
        t, unit = self.tiling, self.unit
        self.thread = b.thread_id()
        self.lanes = lanes_of(unit, b.mod(self.thread, self.target.subgroup))
        self.subgroup = b.div(self.thread, self.target.subgroup)
        self.row_part = b.mod(self.subgroup, t.row_parts)
        self.output_part = b.mod(b.div(self.subgroup, t.row_parts), t.output_parts)
        self.inner_part = b.div(self.subgroup, t.row_parts * t.output_parts)
        self.first_row, self.first_output = b.mul(b.block_id("x"), t.rows), b.mul(b.block_id("y"), t.outputs)
        self.reader = Reader(self.target)
        bf16 = ir.BF16Type.get()
        row = t.inner + unit.padding
        one_step = (self.parts * t.rows + t.outputs) * row * 2
        self.buffers = 2 if 2 * one_step <= STATIC_SHARED_BYTES and t.inner_parts == 1 else 1
        self.x_memory = b.shared([self.buffers, self.parts, t.rows, row], bf16)
        self.w_memory = b.shared([self.buffers, t.outputs, row], bf16)
        self.target.dependency_release()
        weights = self._load_w(0) if self.weights_first else []
        self.target.dependency_wait()
        weights = weights or self._load_w(0)
        staged = [*weights, *self._load_x(0)]
        zero = b.constant(0.0, unit.accumulator_type())
        totals = [zero] * (self.tile_rows * self.tile_columns)
        walk = self._walk_two_buffers if self.buffers == 2 else self._walk_one_buffer
        self._finish(walk(staged, len(weights), totals))

    def _walk_one_buffer(self, staged: list[ir.Value], weights: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Along k: fill shared memory, then multiply from it while the next step's loads are under way."""
        t = self.tiling

        def step(number: Index, *carried: ir.Value) -> list[ir.Value]:
            b.barrier()
            self._store(list(carried[: len(staged)]), weights, 0)
            b.barrier()
            with self.reader.scope():
                start = b.mul(b.add(number, 1), t.inner)
                following = [*self._load_w(start), *self._load_x(start)]
                return [*following, *self._multiply(list(carried[len(staged) :]), 0)]

        return b.loop(0, -(-self.inner // t.inner), 1, [*staged, *totals], step)[len(staged) :]

    def _walk_two_buffers(self, staged: list[ir.Value], weights: int, totals: list[ir.Value]) -> list[ir.Value]:
        """Along k: multiply from one buffer while the other is filled, with loads two steps ahead."""
        t = self.tiling
        self._store(staged, weights, 0)
        following = [*self._load_w(t.inner), *self._load_x(t.inner)]
        b.barrier()

        def step(number: Index, *carried: ir.Value) -> list[ir.Value]:
            this = b.mod(number, 2)
            other = b.mod(b.add(number, 1), 2)
            with self.reader.scope():
                self._store(list(carried[: len(staged)]), weights, other)
                start = b.mul(b.add(number, 2), t.inner)
                coming = [*self._load_w(start), *self._load_x(start)]
                sums = self._multiply(list(carried[len(staged) :]), this)
            b.barrier()
            return [*coming, *sums]

        return b.loop(0, -(-self.inner // t.inner), 1, [*following, *totals], step)[len(staged) :]

    def _place(self, number: int, width: int) -> tuple[Index, Index]:
        """(row, k) in the tile of this thread's number-th vector; whole rows go to neighbouring threads."""
        vector = b.add(self.thread, number * self.threads)
        per_row = self.tiling.inner // width
        return b.div(vector, per_row), b.mul(b.mod(vector, per_row), width)

    def _load_w(self, start: Index) -> list[ir.Value]:
        return self._load(self.w, self.tiling.outputs, self.first_output, self.outputs, start, 8)

    def _load_x(self, start: Index) -> list[ir.Value]:
        values = self._load(self.x, self.tiling.rows, self.first_row, self.rows, start, 4)
        if self.inner % self.tiling.inner == 0:
            return values
        inside = [b.less(b.add(start, self._place(i, 4)[1]), self.inner) for i in range(len(values))]
        return [b.select(i, v, b.constant(0.0, v.type)) for i, v in zip(inside, values, strict=True)]

    def _load(self, tensor: ir.Value, rows: int, first: Index, extent: int, start: Index, width: int) -> list[ir.Value]:
        """This thread's vectors of a tile; rows past the end are the last one's, k past the end is the first's."""
        values = []
        for number in range(-(-rows * self.tiling.inner // width // self.threads)):
            row, k = self._place(number, width)
            at = self._within(b.add(first, row), extent, rows)
            values.append(self.reader.read(tensor, [at, self._inner_within(b.add(start, k))], width))
        return values

    def _within(self, index: Index, extent: int, tile: int) -> Index:
        if extent % tile == 0:
            return index
        return b.at_most(index, extent - 1)

    def _inner_within(self, k: Index) -> Index:
        return b.select(b.less(k, self.inner), b.as_value(k), b.as_value(0))

    def _store(self, values: list[ir.Value], weights: int, buffer: Index) -> None:
        """Put the staged vectors in shared memory, x as the sum of its bf16 parts."""
        for number, value in enumerate(values[:weights]):
            row, k = self._place(number, 8)
            b.store(value, self.w_memory, [buffer, row, k])
        for number, value in enumerate(values[weights:]):
            row, k = self._place(number, 4)
            for part in range(self.parts):
                rounded = b.emit("arith.truncf", [value], [ir.VectorType.get([4], ir.BF16Type.get())])
                b.store(rounded, self.x_memory, [buffer, part, row, k])
                value = b.binary("arith.subf", value, b.extend(rounded))

    def _multiply(self, sums: list[ir.Value], buffer: Index) -> list[ir.Value]:
        """One step of every tile of this subgroup, over its part of the k in shared memory."""
        t, unit = self.tiling, self.unit
        row, group = self.lanes.row, self.lanes.group
        share = t.inner // t.inner_parts
        output = b.add(b.mul(self.output_part, t.outputs // t.output_parts), row)
        left = b.add(b.mul(self.row_part, t.rows // t.row_parts), row)
        for block in range(share // unit.block):
            k = b.add(b.add(b.mul(self.inner_part, share), block * unit.block), b.mul(group, unit.run))
            columns = [
                self._run(self.w_memory, [buffer, b.add(output, n * unit.columns), k]) for n in range(self.tile_columns)
            ]
            for part in range(self.parts):
                for m in range(self.tile_rows):
                    rows = [
                        self._run(self.x_memory, [buffer, part, b.add(left, m * unit.rows + r), k])
                        for r in unit.left_rows
                    ]
                    for n, column in enumerate(columns):
                        at = m * self.tile_columns + n
                        sums[at] = unit.multiply(rows, column, sums[at])
        return sums

    def _run(self, memory: ir.Value, index: list[Index]) -> ir.Value:
        """A lane's run of k, in loads of eight."""
        *outer, k = index
        return joined([b.load(memory, [*outer, b.add(k, i)], 8) for i in range(0, self.unit.run, 8)])

    def _finish(self, sums: list[ir.Value]) -> None:
        pieces = self._pieces(sums)
        if self.tiling.inner_parts > 1:
            pieces = self._add_parts(pieces)
        tile, first = (self.tiling.rows, self.tiling.outputs), (self.first_row, self.first_output)
        Epilogue(self.reader, self.result, self.results, tile, first).write(pieces)

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
