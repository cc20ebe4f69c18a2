"""How subgroups that multiply share a product's tiles and depth, and blocks the lm head."""

from __future__ import annotations

from dataclasses import dataclass

SUBGROUPS = 12
"""Of a block, that multiply."""
THREADS = 32 * SUBGROUPS
LATER = 80_000
"""Bytes of the lm head that a block without layers has less than others: the residual comes 0.6 us later."""


@dataclass(frozen=True)
class Sharing:
    """How subgroups share a product: `tiles` of its rows at once times `slices` of its depth, `steps` of 16 each.  all:
    the tiles that there are, `tiles` at a time."""

    tiles: int
    slices: int
    steps: int
    all: int

    @property
    def workers(self) -> int:
        return self.tiles * self.slices


def held(tiles: int, steps: int, line: int, together: int = 1) -> Sharing | None:
    """Over as many subgroups as there are, all tiles at once.  line: steps that come together, of which a subgroup
    takes some or several.  together: steps of an instruction."""
    if tiles > SUBGROUPS:
        return None
    steps //= together
    whole = [s for s in range(1, SUBGROUPS // tiles + 1) if steps % s == 0]
    whole = [s for s in whole if steps // s % line == 0 or line % (steps // s) == 0]
    return Sharing(tiles, whole[-1], steps // whole[-1] * together, tiles)


def walked(tiles: int, steps: int, most: int, together: int = 1) -> Sharing:
    """Some of a product's tiles of rows at a time, at most so many, so that most subgroups work."""
    steps //= together
    found = []
    for now in (n for n in range(1, min(most, SUBGROUPS) + 1) if tiles % n == 0):
        slices = next(s for s in range(SUBGROUPS // now, 0, -1) if steps % s == 0)
        found.append(Sharing(now, slices, steps // slices * together, tiles))
    return max(found, key=lambda sharing: (sharing.workers, -sharing.tiles))


@dataclass(frozen=True)
class LmHeadShare:
    """How many of the lm head's chunks each block has whose cluster has layers, and how many all others have."""

    each: int
    rest: int
    others: int

    @staticmethod
    def of(chunks: int, nbytes: int, layered: int, others: int) -> LmHeadShare:
        """nbytes: of a chunk.  layered, others: blocks."""
        if not others:
            return LmHeadShare(-(-chunks // layered), 0, 0)
        blocks = layered + others
        each = (chunks + min(LATER // nbytes, chunks // blocks // 4) * others) // blocks
        return LmHeadShare(each, chunks - each * layered, others)

    @property
    def most(self) -> int:
        """Of the block that has most."""
        return max(self.each, -(-self.rest // self.others)) if self.others else self.each

    @property
    def rows(self) -> int:
        """Of these chunks."""
        return 8 * self.most
