"""A block's part of a product's weights on its way to shared memory, from before the block waits for what is computed.

Each thread brings the vectors that it will multiply itself, each in slots of its own beside those of its neighbours, so
that no bank is asked twice and no barrier needed: a thread waits for its own copies.  Registers would hold them from
the first load on, and leave no room on a core for blocks of the launches behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.targets.thread_copies import ThreadCopies


@dataclass(frozen=True)
class Slots:
    """Room for a thread's vectors of `run` elements, in copies of so many.  stages: tiles that are there at once."""

    stages: int
    vectors: int
    threads: int
    run: int
    copied: int

    @property
    def shape(self) -> list[int]:
        return [self.stages * self.vectors * (self.run // self.copied), self.threads, self.copied]


class CopiedWeights:
    """offset: of the slots in a block's memory."""

    def __init__(
        self, copies: ThreadCopies, operand: Operand, slots: Slots, memory: BlockMemory, offset: int, thread: Index
    ) -> None:
        self.copies, self.operand, self.slots, self.thread = copies, operand, slots, thread
        self.source = operand.memory()
        self.shared = memory.view(offset, slots.shape, operand.tensor.type.element_type)

    def start(self, stage: Index, batch: Index, places: Iterable[tuple[Index, Index]]) -> None:
        """Start to bring a thread's vectors, each of which begins at a (row of w, k)."""
        for number, (row, k) in enumerate(places):
            for i, slot in enumerate(self._slots(stage, number)):
                at = self.operand.index(batch, row, b.add(k, i * self.slots.copied))
                self.copies.start(self.source, at, self.shared, [slot, self.thread, 0])

    def vector(self, stage: Index, number: int) -> ir.Value:
        """A thread's number-th vector, which has been waited for."""
        at = ([slot, self.thread, 0] for slot in self._slots(stage, number))
        return b.joined([b.load(self.shared, index, self.slots.copied) for index in at])

    def _slots(self, stage: Index, number: int) -> list[Index]:
        pieces = self.slots.run // self.slots.copied
        first = b.mul(stage, self.slots.vectors * pieces)
        return [b.add(first, number * pieces + i) for i in range(pieces)]
