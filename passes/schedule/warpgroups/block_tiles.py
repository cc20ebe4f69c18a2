"""Which tiles of a product a block makes on warpgroup instructions, one after another, and which steps of their k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.bulk_stores import TilePlace
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.ring import StagePlace
from lispgpt.passes.schedule.warpgroups.split_k import TileShare, TileShares
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import Tiling
from lispgpt.passes.tile.tasks import TileOrder


@dataclass(frozen=True)
class TileGrid:
    """A product's tiles.  one_wave: whether there is a block for each of them."""

    product: Product
    tiling: Tiling
    target: Gpu
    one_wave: bool

    @property
    def row_tiles(self) -> int:
        return -(-self.product.rows // (self.tiling.rows * self.tiling.pair))

    @property
    def column_tiles(self) -> int:
        return -(-self.product.columns // self.tiling.outputs)

    @property
    def tiles(self) -> int:
        return self.row_tiles * self.column_tiles * self.product.batches

    @property
    def clusters(self) -> int:
        """Of the launch."""
        if self.tiling.shares is not None:
            return self.tiling.shares.workers
        most = max(1, self.target.cores_for(self.tiling.cluster) // self.tiling.cluster)
        return self.tiles if self.one_wave else min(self.tiles, most)

    @property
    def steps(self) -> int:
        """Of k, that a block has of a tile."""
        return self.tiling.steps(self.product.inner, self.step)

    @property
    def step(self) -> int:
        """Elements of k."""
        assert self.target.warpgroup is not None
        return self.target.warpgroup.inner


@dataclass(frozen=True)
class BlockTiles:
    """cluster, rank: this block's.  shares: its part where blocks share the k of all tiles."""

    grid: TileGrid
    cluster: Index
    rank: Index
    shares: TileShares | None

    @property
    def first(self) -> TileShare:
        """What the block begins with."""
        return self._piece(self.cluster if self.shares is None else 0)

    def is_first(self, number: Index) -> ir.Value:
        """Whether a number that `each` gives is that of `first`."""
        return b.equal(number, 0 if self.shares is not None else self.cluster)

    def each(self, place: StagePlace, body: Callable[[Index, TileShare, StagePlace], StagePlace]) -> None:
        """body(number, what it is of k, where the ring is) for each of this block's tiles or parts of such."""
        if self.grid.one_wave:
            body(self.cluster, self._piece(self.cluster), place)
            return

        def one(number: ir.Value, slot: ir.Value, phase: ir.Value) -> list[ir.Value]:
            return body(number, self._piece(number), StagePlace(slot, phase)).values()

        if self.shares is not None:
            b.loop(0, self.shares.count(), 1, place.values(), one)
        else:
            b.loop(self.cluster, self.grid.tiles, self.grid.clusters, place.values(), one)

    def place_of(self, piece: TileShare) -> TilePlace:
        tile = self._tile(piece.tile)
        return tile if self.shares is None else replace(tile, k=b.mul(piece.first, self.grid.step))

    def _piece(self, number: Index) -> TileShare:
        """A block's number-th where tiles are shared out, else all of the number-th tile."""
        return TileShare(number, 0, self.grid.steps, 0, None) if self.shares is None else self.shares.piece(number)

    def _tile(self, number: Index) -> TilePlace:
        """The number-th tile."""
        grid, t = self.grid, self.grid.tiling
        order = TileOrder(grid.product, t.rows, t.outputs, t.pair, 1, grid.target)
        k = b.mul(self.rank, grid.steps * grid.step) if t.splits > 1 else 0
        return TilePlace(*order.place(number, self.rank), k)
