"""Numbers in device memory by which the blocks of one launch tell each other how far they are.

They are zero before a launch and after it.  Each has a line of the cache to itself.  Who adds has written what the
signal is of; who has taken it sees that: a release by one thread behind a barrier of its team on one side, an acquire
by one thread ahead of a barrier on the other.
"""

from __future__ import annotations

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


class Signals:
    """Signals in `memory`, a memref of i32 in the current kernel."""

    def __init__(self, target: Gpu, memory: ir.Value) -> None:
        self.target, self.base = target, b.address_of(memory)

    def take(self, number: Index, count: Index) -> None:
        """By one thread: wait until a signal is as far as `count`, which it is for nobody else, and make it 0."""
        place, far = self._place(number), b.emit("arith.index_cast", [b.as_value(count)], [b.i32()])
        b.repeat([], lambda: (b.less(b.emit("llvm.load", [place], [b.i32()], **self._atomic()), far), []))
        self._fence(ACQUIRE)
        create_op("llvm.store", [b.constant(0, b.i32()), self._place(number)], [], {"alignment": 4})

    def add(self, number: Index, amount: ir.Value) -> None:
        """By one thread, when all of its team have written what this signals."""
        self._fence(RELEASE)
        fields = self._atomic() | {"bin_op": ADD}
        create_op("llvm.atomicrmw", [self._place(number), amount], [b.i32()], fields)

    def _fence(self, ordering: int) -> None:
        scope = {"syncscope": self.target.device_scope}
        create_op("llvm.fence", attributes=scope | {"ordering": ordering})

    def _place(self, number: Index) -> ir.Value:
        return b.pointer(b.add(self.base, b.mul(number, LINE)), 1)

    def _atomic(self) -> dict[str, int | str]:
        return {"ordering": MONOTONIC, "syncscope": self.target.device_scope, "alignment": 4}
