"""Numbers in device memory by which the blocks of one launch tell each other how far they are.

They are zero before a launch and after it.  Each has a line of the cache to itself.  Who signals has written what it
signals; who has waited sees it: a release by one thread behind a barrier of its block on one side, an acquire by one
thread ahead of a barrier on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.targets import Gpu

LINE = 128
"""Bytes from one signal to the next."""
MONOTONIC, ACQUIRE, RELEASE, ADD = 2, 4, 5, 1
"""LLVM's numbers for orderings of atomic accesses, and for the addition that one of them does."""


def signal_words(count: int) -> int:
    """The i32 that hold so many signals."""
    return count * LINE // 4


@dataclass(frozen=True)
class Wanted:
    """A signal by its number, and how far it has to be."""

    number: Index
    count: Index


class Signals:
    """Signals in `memory`, a memref of i32 in the current kernel, as its `thread` sees them."""

    def __init__(self, target: Gpu, memory: ir.Value, thread: ir.Value) -> None:
        self.target, self.thread = target, thread
        self.base = b.address_of(memory)

    def wait(self, wanted: Sequence[Wanted]) -> None:
        """Let the block go on when all of these are as far as they have to be; every thread comes here."""
        b.if_then(b.less(self.thread, len(wanted)), lambda: self._poll(wanted))
        b.barrier()

    def _poll(self, wanted: Sequence[Wanted]) -> None:
        """One thread for each signal."""
        number, count = (b.as_value(field) for field in (wanted[-1].number, wanted[-1].count))
        for i in range(len(wanted) - 2, -1, -1):
            mine = b.equal(self.thread, i)
            number = b.select(mine, b.as_value(wanted[i].number), number)
            count = b.select(mine, b.as_value(wanted[i].count), count)
        place, count = self._place(number), b.emit("arith.index_cast", [count], [b.i32()])
        b.repeat([], lambda: (b.less(b.emit("llvm.load", [place], [b.i32()], **self._atomic()), count), []))
        self._fence(ACQUIRE)

    def take(self, wanted: Wanted) -> None:
        """By one thread: wait until a signal is as far as it has to be, which it is for nobody else, and make it 0."""
        self._poll([wanted])
        create_op("llvm.store", [b.constant(0, b.i32()), self._place(wanted.number)], [], {"alignment": 4})

    def add(self, number: Index, amount: ir.Value) -> ir.Value:
        """By one thread, when all of its block have written what this signals; how far the signal was before."""
        self._fence(RELEASE)
        fields = self._atomic() | {"bin_op": ADD}
        return create_op("llvm.atomicrmw", [self._place(number), amount], [b.i32()], fields).results[0]

    def clear(self, count: int) -> None:
        """By one thread, when nobody looks at the first `count` signals any more, nor adds to them."""
        self._fence(ACQUIRE)

        def store(number: Index) -> None:
            create_op("llvm.store", [b.constant(0, b.i32()), self._place(number)], [], {"alignment": 4})

        b.each(0, count, 1, store)

    def _fence(self, ordering: int) -> None:
        scope = {"syncscope": self.target.device_scope}
        create_op("llvm.fence", attributes=scope | {"ordering": ordering})

    def _place(self, number: Index) -> ir.Value:
        return b.pointer(b.add(self.base, b.mul(number, LINE)), 1)

    def _atomic(self) -> dict[str, int | str]:
        return {"ordering": MONOTONIC, "syncscope": self.target.device_scope, "alignment": 4}
