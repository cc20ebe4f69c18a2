"""Shared memory whose addresses wrap at 64 KiB.

The emulator computes the address of a shared-memory access for idle lanes too and reads there; an idle lane's register
may hold anything, so the read would leave the process's memory.  With the wrap it stays inside, and its result is
dropped as before.  Every block therefore gets all 64 KiB.
"""

from __future__ import annotations

from typing import Any

BYTES = 64 * 1024


class BoundedMemory:
    """Stands in for the emulator's view of shared memory, of 32-bit words."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.dtype = memory, memory.dtype

    def index(self, word: Any) -> Any:
        inner, live = word.get_idx(), word.get_valid()
        wrapped = inner & inner.const_like(BYTES // 4 - 1)
        return self.memory.index(wrapped if inner is word else wrapped.valid(live))


def extend(emu: Any) -> None:
    """Give the emulator's instruction compiler the bounded view."""
    if not isinstance(emu._Ctx.lds, BoundedMemory):
        emu._Ctx.lds = BoundedMemory(emu._Ctx.lds)
