"""How blocks share a product's steps of k where there are fewer tiles than blocks: equally, whatever their numbers.

Whole groups of workers, one for each tile, walk through one range of k each, side by side, so that what they read is
read once; the workers that are left do the rest of k, first for as many tiles as they are in each of some rounds, then
together for the tiles that remain.  A tile's sums over one range are a fragment; the first group's workers add them up.
A worker is a block, or a pair of blocks with tiles below each other.

`ceil(rest / parts)` steps end the last round; a fragment costs about FRAGMENT steps more than its products.
"""

from __future__ import annotations

from dataclasses import dataclass

FRAGMENT = 4
"""Steps that take as long as to hand on a fragment, or to add one."""

FEWEST_STEPS = 64
"""Of k, for less than which handing on fragments costs more than idle workers."""

FEWEST_OF_A_PIECE = 8
"""Steps of a fragment: as many as stages of a ring at most."""


@dataclass(frozen=True)
class SharedSteps:
    """tiles, workers: how many.  groups: of as many workers as tiles.  each: steps of a group.  rest: steps of every
    tile that the other `left` workers do, in `rounds` of as many tiles as they are; of the tiles that remain each is
    shared out to `parts`, with `part` steps or, the last one, fewer."""

    tiles: int
    workers: int
    steps: int
    groups: int
    each: int
    rest: int
    rounds: int
    parts: int
    part: int

    @property
    def left(self) -> int:
        """Workers of no group."""
        return self.workers - self.groups * self.tiles

    @property
    def remaining(self) -> int:
        """Tiles after the rounds."""
        return self.tiles - self.rounds * self.left if self.rest else 0

    @property
    def fragments(self) -> int:
        """That are handed on."""
        return (self.groups - 1) * self.tiles + (self.rounds * self.left + self.remaining * self.parts) * (
            self.rest > 0
        )

    @property
    def longest(self) -> int:
        """Steps of the worker that has most to do, with what handing on costs."""
        theirs = self.rounds * (self.rest + FRAGMENT) + (self.part + FRAGMENT) * (self.remaining > 0)
        return max(self.each, theirs * (self.rest > 0)) + FRAGMENT * (self.fragments // self.tiles)


def shared_steps(tiles: int, workers: int, steps: int) -> SharedSteps | None:
    """The division by which the busiest worker has least to do; None where tiles or steps do not fit that."""
    if not 0 < tiles < workers or steps < FEWEST_STEPS:
        return None
    groups = workers // tiles
    found = [
        shares for each in range(1, steps // groups + 1) if (shares := _shares(tiles, workers, steps, groups, each))
    ]
    return min(found, key=lambda shares: shares.longest, default=None)


def _shares(tiles: int, workers: int, steps: int, groups: int, each: int) -> SharedSteps | None:
    """With so many steps for each group; None where some fragment is too short.  Where groups do all of k there are no
    other workers."""
    left, rest = workers - groups * tiles, steps - groups * each
    if each < FEWEST_OF_A_PIECE or (rest and (not left or rest < FEWEST_OF_A_PIECE)):
        return None
    rounds = tiles // left if rest else 0
    remaining = tiles - rounds * left if rest else 0
    parts = min(left // remaining, rest // FEWEST_OF_A_PIECE) if remaining else 1
    part = -(-rest // parts)
    if remaining and (parts - 1) * part >= rest:
        parts = -(-rest // part)
    if remaining and rest - (parts - 1) * part < FEWEST_OF_A_PIECE:
        return None
    workers = workers if rest else groups * tiles
    return SharedSteps(tiles, workers, steps, groups, each, rest, rounds, parts, part)
