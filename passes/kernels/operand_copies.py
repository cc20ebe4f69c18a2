"""Tiles of bf16 operands on their own way to shared memory, in the layout that warpgroup instructions take.

A tile of `count` vectors of an operand has their first 64 numbers in lines of 128 bytes, one below the other, then the
next 64 of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, shape_of
from lispgpt.passes.kernels.attention import Place
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import VIEWS, is_in_step
from lispgpt.passes.model.score_operands import Operand
from lispgpt.passes.targets import Gpu

WIDTH = 8
"""Numbers that a copy takes: 16 bytes."""


def copy_source(operand: Operand, target: Gpu) -> ir.Value | None:
    """The buffer that has an operand's vectors as they are, in aligned runs; None where they are computed."""
    op = defining_op(operand.tensor)
    while op is not None and op.name in VIEWS:
        if op.name == "tensor.extract_slice" and not is_in_step(op, WIDTH, True):
            return None
        if shape_of(op.operands[0])[-1] % WIDTH:
            return None
        op = defining_op(op.operands[0])
    found = op is not None and op.name == "bufferization.to_tensor" and operand.has_rows
    return op.operands[0] if found and operand.depth % WIDTH == 0 else None


def copied_bytes(operand: Operand, count: int) -> int:
    """In shared memory, of a tile of so many vectors."""
    return 2 * count * operand.depth


class CopiedTiles:
    """`stages` tiles of each operand.  view: gives what starts at a byte of the block's memory, from `start` on.

    place: gives the leading indices and the position of what is copied at an index.
    """

    def __init__(
        self,
        operands: Sequence[Operand],
        target: Gpu,
        count: int,
        stages: int,
        view: Callable[[int, list[int], ir.Type], ir.Value],
        start: int,
        thread: Index,
        threads: int,
        place: Callable[[Index], tuple[Place, Index]],
    ) -> None:
        assert target.copies is not None and target.warpgroup is not None
        self.operands, self.count, self.thread, self.threads, self.place = operands, count, thread, threads, place
        self.copies, self.unit, self.reader = target.copies, target.warpgroup, Reader(target)
        self.memories = []
        for operand in operands:
            shape = [stages, operand.depth // self.unit.inner * count, self.unit.inner]
            self.memories.append(view(start, shape, ir.BF16Type.get()))
            start += stages * copied_bytes(operand, count)

    def start(self, at: Index, stage: Index, last: int) -> None:
        """Start to copy this thread's part of the tiles from index `at` on; past the `last` there is, that one."""
        for operand, memory in zip(self.operands, self.memories, strict=True):
            total, per_vector = self.count * operand.depth // WIDTH, operand.depth // WIDTH
            for number in range(-(-total // self.threads)):
                linear = b.add(self.thread, number * self.threads)
                row, d = b.div(linear, per_vector), b.mul(b.mod(linear, per_vector), WIDTH)
                copy = partial(self._copy, operand, memory, at, stage, row, d, last)
                b.if_live(b.less(linear, total) if (number + 1) * self.threads > total else None, copy)

    def _copy(
        self, operand: Operand, memory: ir.Value, at: Index, stage: Index, row: Index, d: Index, last: int
    ) -> None:
        where = b.add(at, row)
        where = b.at_most(where, last) if (last + 1) % self.count else where
        place, position = self.place(where)
        index, op = operand.index(place, position, d), defining_op(operand.tensor)
        while op.name in VIEWS:
            index = VIEWS[op.name](op, index, self.reader)
            op = defining_op(op.operands[0])
        line = b.add(b.mul(b.div(d, self.unit.inner), self.count), row)
        vector = b.div(b.mod(d, self.unit.inner), WIDTH)
        inside = [stage, line, b.mul(self.unit.swizzled(row, vector), WIDTH)]
        self.copies.start(op.operands[0], index, memory, inside, WIDTH)

    def line(self, operand: int, stage: Index, row: Index, block: int) -> ir.Value:
        """A descriptor of the vectors from `row` on, along which k goes, at the block-th 16 of their depth."""
        part, inside = divmod(block * self.unit.block, self.unit.inner)
        start = self._offset(operand, stage, part, row)
        return self.unit.advanced(self.unit.descriptor(self.memories[operand], start), inside // self.unit.block)

    def turned(self, operand: int, stage: Index, block: int, part: int) -> ir.Value:
        """A descriptor of the block-th 16 vectors, across which k goes, and of the part-th 64 of their depth."""
        start = self._offset(operand, stage, part, block * self.unit.block)
        return self.unit.descriptor(self.memories[operand], start)

    def _offset(self, operand: int, stage: Index, part: int, row: Index) -> Index:
        """Bytes from the start of an operand's memory."""
        line_bytes, tile = 2 * self.unit.inner, copied_bytes(self.operands[operand], self.count)
        return b.add(b.mul(stage, tile), b.add(b.mul(row, line_bytes), part * self.count * line_bytes))
