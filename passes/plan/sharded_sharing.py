"""How the warps of a sharded launch that multiply share a product's tiles and depth."""

from __future__ import annotations

from dataclasses import dataclass

WARPS = 12
"""Of a block, that multiply."""


@dataclass(frozen=True)
class Sharing:
    """How warps share a product: `tiles` of its rows at once times `slices` of its depth, `steps` of 16 each.  all: the
    tiles that there are, `tiles` at a time."""

    tiles: int
    slices: int
    steps: int
    all: int

    @property
    def workers(self) -> int:
        return self.tiles * self.slices


def held(tiles: int, steps: int, line: int) -> Sharing | None:
    """Over as many warps as there are, all tiles at once.  line: steps that come together, of which a warp takes some
    or several."""
    if tiles > WARPS:
        return None
    whole = [s for s in range(1, WARPS // tiles + 1) if steps % s == 0]
    whole = [s for s in whole if steps // s % line == 0 or line % (steps // s) == 0]
    return Sharing(tiles, whole[-1], steps // whole[-1], tiles)


def walked(tiles: int, steps: int, most: int) -> Sharing:
    """Some of a product's tiles of rows at a time, at most so many, so that most warps work."""
    found = []
    for now in (n for n in range(1, min(most, WARPS) + 1) if tiles % n == 0):
        slices = next(s for s in range(WARPS // now, 0, -1) if steps % s == 0)
        found.append(Sharing(now, slices, steps // slices, tiles))
    return max(found, key=lambda sharing: (sharing.workers, -sharing.tiles))
