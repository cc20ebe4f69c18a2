"""Keys and values on their way to shared memory, each lane's in slots of its own, where registers would be too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.attention import Place, cache_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.lane_shares import Share
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import VIEWS, is_in_step
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.model.score_operands import Operand
from lispgpt.passes.targets.thread_copies import ThreadCopies


@dataclass(frozen=True)
class PositionSlots:
    """Room for `stages` times a lane's next `positions`.  widths: numbers of a key and of a value that a lane has."""

    attention: Attention
    copies: ThreadCopies
    stages: int
    positions: int
    threads: int
    widths: Sequence[int]

    @property
    def operands(self) -> tuple[Operand, Operand]:
        return self.attention.keys, self.attention.values

    def shape(self, number: int) -> list[int]:
        """Of the room for keys (0) or values (1): [stage, position and piece; thread; element]."""
        per_copy = self.copies.nbytes // b.item_bytes(self.operands[number].element)
        return [self.stages * self.positions * (self.widths[number] // per_copy), self.threads, per_copy]

    def nbytes(self, number: int) -> int:
        return prod(self.shape(number)) * b.item_bytes(self.operands[number].element)

    def fits(self, aligned: bool) -> bool:
        """Whether a lane's numbers are so many whole copies of what lies in memory as it is."""
        for operand, width in zip(self.operands, self.widths, strict=True):
            per_copy = self.copies.nbytes // b.item_bytes(operand.element)
            if not operand.has_rows or width % per_copy or not self._is_in_memory(operand.tensor, per_copy, aligned):
                return False
        return True

    def _is_in_memory(self, tensor: ir.Value, width: int, aligned: bool) -> bool:
        while tensor not in self.attention.updated:
            op = defining_op(tensor)
            if op is None or op.name not in VIEWS:
                return op is not None and op.name == "bufferization.to_tensor"
            if op.name != "tensor.extract_slice" or not is_in_step(op, width, aligned):
                return False
            tensor = op.operands[0]
        return True


@dataclass(frozen=True)
class CopiedPositions:
    """memory: a block's, in which the slots start at its first byte."""

    slots: PositionSlots
    memory: BlockMemory
    reader: Reader
    place: Place
    shares: Sequence[Share]
    thread: Index

    def start(self, stage: Index, positions: Sequence[tuple[Index, ir.Value]]) -> None:
        """Start to bring, as a group of the thread's copies, the keys and values of those positions that are live."""
        for number, (at, live) in enumerate(positions):
            b.if_then(live, partial(self._start, stage, number, at))
        self.slots.copies.close()

    def _start(self, stage: Index, position: int, at: Index) -> None:
        for number, (operand, share) in enumerate(zip(self.slots.operands, self.shares, strict=True)):
            shared = self._room(number)
            for i, slot in enumerate(self._places(number, stage, position)):
                d = b.add(share.start, i * self.slots.shape(number)[-1])
                memory, index = self._in_memory(operand.tensor, operand.index(self.place, at, d))
                self.slots.copies.start(memory, index, shared, [slot, self.thread, 0])

    def read(self, number: int, stage: Index, position: int) -> ir.Value:
        """A lane's part of a key (0) or a value (1) that has been waited for; anything where it was not live."""
        shared, width = self._room(number), self.slots.shape(number)[-1]
        places = self._places(number, stage, position)
        return b.joined([b.load(shared, [slot, self.thread, 0], width) for slot in places])

    def _room(self, number: int) -> ir.Value:
        start = self.slots.nbytes(0) if number else 0
        return self.memory.view(start, self.slots.shape(number), self.slots.operands[number].element)

    def _places(self, number: int, stage: Index, position: int) -> list[Index]:
        pieces = self.slots.widths[number] // self.slots.shape(number)[-1]
        first = b.add(b.mul(stage, self.slots.positions * pieces), position * pieces)
        return [b.add(first, i) for i in range(pieces)]

    def _in_memory(self, tensor: ir.Value, index: list[Index]) -> tuple[ir.Value, list[Index]]:
        while tensor not in self.slots.attention.updated:
            op = defining_op(tensor)
            if op.name == "bufferization.to_tensor":
                return op.operands[0], index
            index, tensor = VIEWS[op.name](op, index, self.reader), op.operands[0]
        return cache_of(self.slots.attention), index
