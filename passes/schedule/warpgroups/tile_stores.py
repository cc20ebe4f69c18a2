"""Stores of what a warpgroup instruction's threads hold: each subgroup's 16 rows by way of shared memory, in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.tensor_map import Boxes
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

ROWS = 16
"""Of a subgroup, and of a box."""


@dataclass(frozen=True)
class Line:
    """What a buffer holds.  at: (batch, row, column) of the first element in the tensor of a map."""

    buffer: Index
    map: ir.Value
    boxes: Boxes
    at: Sequence[Index]


@dataclass
class TileStores:
    """memory: address of a subgroup's `buffers` lots of ROWS swizzled lines.  lane: in the subgroup.  results: how many
    tensors lines are filled for in turns.  reused: whether buffers have been stored from before."""

    copies: TensorCopies
    unit: WarpgroupUnit
    memory: Index
    buffers: int
    lane: Index
    results: int
    reused: bool
    started: int = field(default=0, init=False)

    def open(self) -> Index:
        """A buffer whose store, if there was one, has read it."""
        buffer = b.add(self.memory, self.started % self.buffers * ROWS * self.copies.line)
        if self.reused and (self.started == 0 or self.started >= self.buffers):
            # A line may be opened ahead of others and stored after them, as many as there are other results.
            newest = self.buffers - 2 * self.results + 1 if self.started else 0
            b.if_then(b.equal(self.lane, 0), lambda: self.copies.wait_stored(newest))
            self.copies.subgroup_barrier()
        self.started += 1
        return buffer

    def put(self, buffer: Index, first: int, values: Sequence[ir.Value]) -> None:
        """Put columns into a buffer, from the first-th of its lines on.

        values: pairs of neighbours by eight columns, and of those by row and row + 8, as the instruction's results lie.
        """
        (self._put_words if b.is_short(values[0].type) else self._put_pairs)(buffer, first // 8, values)

    def close(self, filled: Sequence[Line]) -> None:
        """Store the lines of some buffers."""
        self.unit.publish()
        self.copies.subgroup_barrier()

        def store() -> None:
            for line in filled:
                self.copies.store(line.map, line.boxes.at(line.at), line.buffer)

        b.if_then(b.equal(self.lane, 0), store)

    def finish(self) -> None:
        """Ahead of a block's end, which would take the memory away."""
        b.if_then(b.equal(self.lane, 0), lambda: self.copies.wait_stored(0))

    def _put_words(self, buffer: Index, block: int, values: Sequence[ir.Value]) -> None:
        """16 columns at a time: four matrices, whose rows' addresses the lanes give."""
        row, across = b.mod(self.lane, 16), b.xor(b.div(self.lane, 16), b.mod(self.lane, 8))
        line = b.add(buffer, b.mul(row, self.copies.line))
        words = words_of(values)
        for start in range(0, len(words), 4):
            address = b.add(line, b.mul(b.xor(across, block + start // 2), 16))
            self.copies.put_matrices(address, words[start : start + 4])

    def _put_pairs(self, buffer: Index, block: int, values: Sequence[ir.Value]) -> None:
        row, pair = b.div(self.lane, 4), b.mod(self.lane, 4)
        line = b.add(b.add(buffer, b.mul(row, self.copies.line)), b.mul(b.mod(pair, 2), 8))
        across = b.xor(b.div(pair, 2), row)
        for number, value in enumerate(values):
            eight, half = divmod(number, 2)
            address = b.add(b.add(line, b.mul(b.xor(across, 2 * (block + eight)), 16)), 8 * half * self.copies.line)
            self.copies.put_pair(address, [b.lane_of(value, i) for i in range(2)])


def words_of(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Pairs of bf16 as words."""
    word = ir.VectorType.get([1], b.i32())
    return [b.lane_of(b.emit("vector.bitcast", [value], [word]), 0) for value in values]
