"""Matrix instructions: D[m, n] += A[m, k] · B[n, k] by one subgroup, bf16 in, f32 out, and who holds what.

Both operands lie in memory with k innermost.  A sum over k may take its terms in any order, so every lane loads `run`
neighbouring elements of k at once, and a unit hands the same ones of A and B to the same place of the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir, numbers


@dataclass(frozen=True)
class LaneRun:
    """Neighbouring results of one lane: how far from the lane's first row, and which of the accumulator's elements."""

    row: int
    elements: tuple[int, ...]


@dataclass(frozen=True)
class MatrixUnit:
    """One kind of matrix instruction.

    rows, columns: of a tile.  run: elements of k in a lane's registers.  groups: lanes that share a row, each with
    another run.  left_rows: which rows, counted from its own, a lane holds of A.  accumulator: shape of a lane's share
    of D.  row_major_lanes: whether neighbouring lanes hold neighbouring runs rather than neighbouring rows.
    padding: elements between rows in shared memory that keep lanes off each other's banks.
    result_as_left: whether what a lane holds of neighbouring tiles of D, row by row, is its run of A for a product over
    D's columns; load_right then reads B with the same order of k.
    """

    rows: int
    columns: int
    run: int
    groups: int
    left_rows: tuple[int, ...]
    accumulator: tuple[int, ...]
    row_major_lanes: bool
    padding: int
    result_as_left: bool = False

    @property
    def block(self) -> int:
        """Elements of k that one step over all lanes covers."""
        return self.run * self.groups

    def lane_row(self) -> tuple[int, int]:
        """(divisor, modulus): a lane's row of A and of B is lane / divisor % modulus."""
        return (self.groups, self.columns) if self.row_major_lanes else (1, 16)

    def lane_group(self) -> tuple[int, int]:
        """(divisor, modulus): a lane's run is lane / divisor % modulus."""
        return (1, self.groups) if self.row_major_lanes else (16, self.groups)

    def accumulator_type(self) -> ir.Type:
        return ir.VectorType.get(list(self.accumulator), ir.F32Type.get())

    def multiply(self, left: Sequence[ir.Value], right: ir.Value, total: ir.Value) -> ir.Value:
        """Emit one step: a lane's run for each of left_rows, its run of B, and the sum so far."""
        raise NotImplementedError

    def multiply_row(
        self, left: Sequence[ir.Value], right: Sequence[ir.Value], totals: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Emit one step for several tiles of B, so that neighbouring instructions do not wait for each other."""
        return [self.multiply(left, run, total) for run, total in zip(right, totals, strict=True)]

    def load_right(self, memory: ir.Value, index: Sequence[ir.Value]) -> ir.Value:
        """Emit the load of a lane's run of B, in the order of results, from shared memory that has k outermost.

        index: where the row of memory starts whose number in the block is the lane's number; B's columns go along it.
        """
        raise NotImplementedError

    def result_lane(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """((divisor, modulus, factor) for the first row of a lane's results, the same for the first column)."""
        raise NotImplementedError

    def pieces(self) -> tuple[LaneRun, ...]:
        """A lane's results, in runs of neighbouring columns."""
        raise NotImplementedError


class MmaSync(MatrixUnit):
    """NVIDIA's mma.sync.m16n8k16."""

    def multiply(self, left: Sequence[ir.Value], right: ir.Value, total: ir.Value) -> ir.Value:
        return self.multiply_row(left, [right], [total])[0]

    def multiply_row(
        self, left: Sequence[ir.Value], right: Sequence[ir.Value], totals: Sequence[ir.Value]
    ) -> list[ir.Value]:
        shape, totals = numbers((16, 8, 16)), list(totals)
        for half in (0, 4):
            a = _rows([_slice(side, half + 2 * j) for j in (0, 1) for side in left])
            for n, run in enumerate(right):
                operands = [a, _rows([_slice(run, half), _slice(run, half + 2)]), totals[n]]
                totals[n] = b.emit("nvgpu.mma.sync", operands, [totals[n].type], mmaShape=shape)
        return totals

    def load_right(self, memory: ir.Value, index: Sequence[ir.Value]) -> ir.Value:
        tiles, run = (ir.VectorType.get(shape, memory.type.element_type) for shape in ([4, 2], [8]))
        loaded = b.emit("nvgpu.ldmatrix", [memory, *index], [tiles], transpose=True, numTiles=_i32(4))
        return b.emit("vector.shape_cast", [loaded], [run])

    def result_lane(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        return (4, 8, 1), (1, 4, 2)

    def pieces(self) -> tuple[LaneRun, ...]:
        return (LaneRun(0, (0, 1)), LaneRun(8, (2, 3)))


class Wmma(MatrixUnit):
    """AMD's v_wmma_f32_16x16x16_bf16: on RDNA 3 both halves of a subgroup hold all of k, on RDNA 4 each its half."""

    def multiply(self, left: Sequence[ir.Value], right: ir.Value, total: ir.Value) -> ir.Value:
        sizes = {name: _i32(16) for name in ("m", "n", "k")} | {"subwordOffset": _i32(0)}
        return b.emit("amdgpu.wmma", [left[0], right, total], [total.type], **sizes)

    def result_lane(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        return ((16, 2, 1) if self.groups == 1 else (16, 2, 8)), (1, 16, 1)

    def pieces(self) -> tuple[LaneRun, ...]:
        return tuple(LaneRun(2 * i if self.groups == 1 else i, (i,)) for i in range(8))


class Mfma(MatrixUnit):
    """AMD's v_mfma_f32_16x16x16_bf16 on CDNA, twice for a run of eight."""

    def multiply(self, left: Sequence[ir.Value], right: ir.Value, total: ir.Value) -> ir.Value:
        sizes = {name: _i32(16) for name in ("m", "n", "k")} | {name: _i32(0) for name in ("abid", "cbsz")}
        sizes |= {"blocks": _i32(1), "blgp": ir.Attribute.parse("#rocdl<mfma_perm_b none>")}
        for half in (0, 4):
            sides = [_slice(left[0], half, 4), _slice(right, half, 4)]
            total = b.emit("amdgpu.mfma", [*sides, total], [total.type], **sizes)
        return total

    def result_lane(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        return (16, 4, 4), (1, 16, 1)

    def pieces(self) -> tuple[LaneRun, ...]:
        return tuple(LaneRun(i, (i,)) for i in range(4))


MMA_SYNC = MmaSync(16, 8, 8, 4, (0, 8), (2, 2), row_major_lanes=True, padding=0, result_as_left=True)
WMMA_RDNA3 = Wmma(16, 16, 16, 1, (0,), (8,), row_major_lanes=False, padding=8)
WMMA_RDNA4 = Wmma(16, 16, 8, 2, (0,), (8,), row_major_lanes=False, padding=8)
MFMA = Mfma(16, 16, 8, 4, (0,), (4,), row_major_lanes=False, padding=8)


def _i32(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


def _slice(vector: ir.Value, start: int, count: int = 2) -> ir.Value:
    return b.shuffled(vector, vector, range(start, start + count))


def _rows(vectors: Sequence[ir.Value]) -> ir.Value:
    """Vectors of two, stacked."""
    shape = ir.VectorType.get([len(vectors), 2], vectors[0].type.element_type)
    return b.emit("vector.shape_cast", [b.joined(vectors)], [shape])
