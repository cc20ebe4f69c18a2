"""What is done to memory, in words that compiler and plans share, and which of several doings have to keep order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

READ, WRITE, READ_WRITE, ACCUMULATE, SCRATCH = "read", "write", "read_write", "accumulate", "scratch"
ACCESSES = (READ, WRITE, READ_WRITE, ACCUMULATE, SCRATCH)
"""What is done to some bytes: reads what is there; writes all of them, whatever was there; changes what is there; adds
to it, in an order that does not matter among those who do the same; or works in them, when what they held is lost and
what they hold afterwards means nothing."""


@dataclass(frozen=True)
class Region:
    """The `nbytes` from `offset` on in a buffer, and what is done to them."""

    buffer: str
    offset: int
    nbytes: int
    access: str

    @property
    def end(self) -> int:
        return self.offset + self.nbytes

    @property
    def reads(self) -> bool:
        """Whether what the bytes hold before matters."""
        return self.access not in (WRITE, SCRATCH)

    @property
    def writes(self) -> bool:
        return self.access != READ

    def overlaps(self, other: Region) -> bool:
        """Whether some byte is of both."""
        return self.buffer == other.buffer and self.offset < other.end and other.offset < self.end

    def conflicts(self, other: Region) -> bool:
        """Whether steps that do these have to keep their order."""
        harmless = self.access == other.access and self.access in (READ, ACCUMULATE)
        return self.overlaps(other) and not harmless


def dependencies(steps: Sequence[Sequence[Region]]) -> tuple[tuple[int, ...], ...]:
    """For each step, given as what it does, the earlier steps that it has to wait for, in order.

    Steps that touch no common byte, or only read it, or only add to it, are free of each other.  A step that is already
    waited for by one in the list is not in it: the graph is the smallest with the same meaning.
    """
    waits: list[tuple[int, ...]] = []
    before: list[int] = []  # for each step, one bit for each step that it comes after
    for number, step in enumerate(steps):
        found: list[int] = []
        reached = 0
        for earlier in range(number - 1, -1, -1):
            if reached >> earlier & 1:
                continue
            if any(mine.conflicts(theirs) for mine in step for theirs in steps[earlier]):
                found.append(earlier)
                reached |= 1 << earlier | before[earlier]
        waits.append(tuple(sorted(found)))
        before.append(reached)
    return tuple(waits)
