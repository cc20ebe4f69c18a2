"""How blocks and subgroups share a product of a few rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """How a block's tile lies in instructions.  tiles: along w's rows.  transposed: whether those are the instruction's
    columns.  size, left_size: rows of w and of x in an instruction.  held, held_left: which of these a lane has,
    counted from its own."""

    tiles: int
    transposed: bool
    size: int
    left_size: int
    held: tuple[int, ...]
    held_left: tuple[int, ...]

    @property
    def outputs(self) -> int:
        return self.tiles * self.size


@dataclass(frozen=True)
class Division:
    """subgroups: of a block, each with `steps` of an instruction along k.  resident: how many blocks share a core and
    loop over tiles; 0: each has one tile.  parts: bf16 numbers that an f32 one is split into.  ahead: the most vectors
    of x that a lane is made to load before the first is multiplied."""

    share: Share
    subgroups: int
    steps: int
    resident: int
    parts: int
    ahead: int
