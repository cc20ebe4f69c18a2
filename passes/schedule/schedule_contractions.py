"""schedule-contractions: x[n, k] · w[o, k] on a CPU, in vectors along k, with what follows it applied to the sums.

Before (inside a kernel = "contraction"):          After:
  %s = linalg.contract ins(%x, %w) …                 %o, %n = gpu.block_id x * 48, y * 16
  %y = linalg.generic ins(%s, %bias) …               scf.for %n … scf.for %o … {
                                                       scf.for %k … iter_args(sums) { loads, arith.extf, math.fma }
                                                       vector.reduction …, memref.store in scratch }
                                                     scf.for … { vector.load scratch, + bias, …, vector.store %y }

Requires: what outline-kernels and destination-passing ensure.
Ensures: the kernel's `grid` is (blocks of w's rows, blocks of x's rows), and nothing else in it depends on how many
blocks of x's rows there are.  A register tile of `rows_tile` x `outputs_tile` sums stays in vector registers.  BF16
weights are widened in registers and sums are F32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import dim_positions, indexing_maps, kernel_functions, shape_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.emit import Emitter, Index, largest_power_of_two
from lispgpt.passes.kernels.kernel import refusable
from lispgpt.passes.kernels.kernel_body import KernelBody
from lispgpt.passes.schedule.schedule_rows import lane_ranges
from lispgpt.passes.states import PLACED, State

if TYPE_CHECKING:
    from lispgpt.passes.targets import Cpu

OPERAND_REGISTERS = 8
"""Vector registers that a tile's sums leave to what is multiplied."""


@dataclass(frozen=True)
class ScheduleContractions(Pass):
    """outputs, rows: rows of w and of x in a block; tiles: sums in registers, as
    far as the target has them; vector_outputs: with one row of x."""

    name: ClassVar[str] = "schedule-contractions"
    starts_from: ClassVar[tuple[State, ...]] = (PLACED,)
    outputs: int = 48
    rows: int = 16
    rows_tile: int = 4
    outputs_tile: int = 6
    vector_outputs: int = 1
    depth_unroll: int = 4

    def run(self, module: ir.Module, target: Cpu) -> None:
        lanes = target.vector_bytes // 4
        for kernel in kernel_functions(module, "contraction"):
            body = KernelBody(kernel, Emitter(kernel))
            if "grid" in kernel.attributes or not _supported(body.compute_ops()):
                continue
            with refusable(kernel):
                _Schedule(self, body, lanes, target.registers).emit()


def _supported(ops: list[ir.Operation]) -> bool:
    root = ops[0]
    if root.name != "linalg.contract":
        return False
    return [dim_positions(m) for m in indexing_maps(root)] == [[0, 2], [1, 2], [0, 1]]


class _Schedule:
    """One kernel: x (rows, depth) f32, w (outputs, depth) f32 or bf16, sums (rows, outputs) f32."""

    def __init__(self, options: ScheduleContractions, body: KernelBody, lanes: int, registers: int) -> None:
        self.body, self.emitter, self.lanes = body, body.emitter, lanes
        self.root = body.compute_ops()[0]
        self.x, self.w = self.root.operands[0], self.root.operands[1]
        self.rows, self.depth = shape_of(self.x)
        self.outputs = shape_of(self.w)[0]
        self.depth_unroll = options.depth_unroll
        self.rows_block = _largest_divisor(self.rows, options.rows)
        self.rows_tile = _largest_divisor(self.rows_block, options.rows_tile)
        room = min(options.rows_tile * options.outputs_tile, registers - OPERAND_REGISTERS)
        self.outputs_tile = options.vector_outputs if self.rows_tile == 1 else max(1, min(room // self.rows_tile, 6))
        self.outputs_block = _block_of(self.outputs, options.outputs, self.outputs_tile)
        self.sums = self.emitter.scratch([self.rows_block, self.outputs_block], self.emitter.f32)

    def emit(self) -> None:
        emitter, body = self.emitter, self.body
        with ir.InsertionPoint(body.ops[-1]), body.function.location:
            first = emitter.mul(emitter.block_id("x"), self.outputs_block)
            row = emitter.mul(emitter.block_id("y"), self.rows_block) if self.rows > 1 else 0
            whole = self.outputs % self.outputs_block == 0
            count = self.outputs_block if whole else emitter.min(self.outputs_block, emitter.sub(self.outputs, first))
            with body.scope():
                self._sums(row, first, count)
                self._results(row, first, count)
        body.finish([-(-self.outputs // self.outputs_block), self.rows // self.rows_block, 1])

    def _sums(self, row: Index, output: Index, count: Index) -> None:
        """Fill the scratch with the sums of rows row… and outputs output…"""
        emitter = self.emitter
        tiled = emitter.mul(emitter.div(count, self.outputs_tile), self.outputs_tile)
        for first, last, tile in ((0, tiled, self.outputs_tile), (tiled, count, 1)):
            if isinstance(first, int) and first == last:
                continue
            with emitter.loop(first, last, tile) as o, emitter.loop(0, self.rows_block, self.rows_tile) as n:
                self._tile(row, n.index, output, o.index, tile)

    def _tile(self, row: Index, n: Index, output: Index, o: Index, tile: int) -> None:
        emitter = self.emitter
        rows = [emitter.add(n, i) for i in range(self.rows_tile)]
        outputs = [emitter.add(o, j) for j in range(tile)]
        x_rows = [emitter.add(row, r) for r in rows]
        w_rows = [emitter.add(output, c) for c in outputs]
        totals: list[ir.Value] = []
        for first, last, lanes in lane_ranges(self.depth, self.lanes):
            unroll = largest_power_of_two(self.depth_unroll, (last - first) // lanes) if len(rows) * tile < 4 else 1
            zero = emitter.constant(0.0, emitter.lanes_type(emitter.f32, lanes))
            sums = [zero] * (len(rows) * tile * unroll)
            with emitter.loop(first, last, lanes * unroll, sums) as k, self.body.scope():
                loop_sums = iter(k.carried)
                k.yielded = []
                for step in range(unroll):
                    at = emitter.add(k.index, step * lanes)
                    ws = [emitter.to_f32(self.body.read(self.w, [w, at], lanes)) for w in w_rows]
                    for x_row in x_rows:
                        x = emitter.to_f32(self.body.read(self.x, [x_row, at], lanes))
                        k.yielded += [emitter.fma(x, w, next(loop_sums)) for w in ws]
            parts = [self._add(k.results[i :: len(rows) * tile]) for i in range(len(rows) * tile)]
            parts = [emitter.reduce_lanes("add", part) for part in parts]
            totals = [self._add([a, b]) for a, b in zip(totals, parts, strict=True)] if totals else parts
        for i, r in enumerate(rows):
            for j, c in enumerate(outputs):
                emitter.store(totals[i * tile + j], self.sums, [r, c])

    def _add(self, values: list[ir.Value]) -> ir.Value:
        """The sum of values, pairwise."""
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            odd = values[-1:] if len(values) % 2 else []
            values = [self.emitter.op("arith.addf", [a, b], [a.type]) for a, b in pairs] + odd
        return values[0]

    def _results(self, row: Index, output: Index, count: Index) -> None:
        """Apply what follows the contraction and write every result of the kernel."""
        emitter, body = self.emitter, self.body

        def read_sum(indices: list[Index], lanes: int) -> ir.Value:
            n, o = emitter.sub(indices[0], row), emitter.sub(indices[1], output)
            return emitter.load(self.sums, [n, o], lanes)

        body.readings[self.root.results[0]] = read_sum
        whole = emitter.mul(emitter.div(count, self.lanes), self.lanes)
        with emitter.loop(0, self.rows_block) as n:
            for first, last, lanes in ((0, whole, self.lanes), (whole, count, 1)):
                if isinstance(first, int) and first == last:
                    continue
                with emitter.loop(first, last, lanes) as o, body.scope():
                    place = [emitter.add(row, n.index), emitter.add(output, o.index)]
                    for tensor, destination in body.destinations.items():
                        emitter.store(body.read(tensor, place, lanes), destination, place)


def _largest_divisor(extent: int, limit: int) -> int:
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)


def _block_of(extent: int, limit: int, tile: int) -> int:
    """Outputs in a block: a multiple of the tile that divides the extent where there is one, else as many as fit."""
    best = [d for d in range(tile, limit + 1, tile) if extent % d == 0]
    return max(best) if best else min(max(limit - limit % tile, tile), extent)
