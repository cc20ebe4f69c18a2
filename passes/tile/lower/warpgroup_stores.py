"""Tiles of products that warpgroups have, stored by way of shared memory in boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import nested_operations
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.bulk_stores import (
    ROWS,
    BulkResult,
    BulkStores,
    TilePlace,
    boxes_read,
    bulk_boxes,
    bulk_result,
    lanes_store,
    staged_bytes,
)
from lispgpt.passes.kernels.cached_results import cached_results
from lispgpt.passes.kernels.moment_sums import RowMoments
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.tensor_map import Boxes
from lispgpt.passes.kernels.tile_results import OtherResult, TileResults
from lispgpt.passes.model.row_moments import find_moments
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup_tiles import BESIDE_BYTES, STAGING_BYTES, Tiling
from lispgpt.passes.tile.lower.units import WarpgroupSums
from lispgpt.passes.tile.types import WARPGROUP, RegisterTile, register_tile, ring_tiles


@dataclass
class WarpgroupStores:
    """splits: blocks that share out k.  boxes: of each result, if all are stored in such.  read: of what these are made
    of beside sums.  room: bytes of shared memory beside the ring's, for all of a block's only tile; 0: it has several.
    maps, fetched: how copies see both kinds of boxes."""

    kernel: ir.Operation
    product: Product
    target: Gpu
    tile: RegisterTile
    boxes: list[Boxes]
    read: list[Boxes]
    room: int
    splits: int
    maps: list[BulkResult] = field(default_factory=list)
    fetched: list[BulkResult] = field(default_factory=list)

    @staticmethod
    def of(
        kernel: ir.Operation, product: Product, program: Sequence[ir.Operation], target: Gpu
    ) -> WarpgroupStores | None:
        """None where a program has no such sums, of 64 rows each."""
        ops = [inner for op in program for inner in (op, *nested_operations(op))]
        copies, unit = target.copies, target.warpgroup
        stores = [op for op in ops if op.name == "tile.store"]
        if copies is None or unit is None or len(stores) != 1 or all(op.name != "tile.settle" for op in ops):
            return None
        product = product.transposed() if "transposed" in stores[0].attributes else product
        tile = register_tile(stores[0].operands[0])
        splits = ir.IntegerAttr(stores[0].attributes["splits"]).value if "splits" in stores[0].attributes else 1
        boxes = [] if splits > 1 else bulk_boxes(product, product.results_of(kernel), copies) or []
        if tile.unit != WARPGROUP or tile.shape[1] != tile.teams[0] * unit.rows:
            return None
        again = stores[0].operation.parent.name == "scf.for"
        rings = [each for op in ops if op.name == "tile.ring" for each in ring_tiles(op.results[0])]
        ahead = sum(each.slots * each.slot_bytes for each in rings)
        room = 0 if again else target.dynamic_shared_bytes - BESIDE_BYTES - ahead
        read = [] if splits > 1 else boxes_read(kernel, product, copies)
        return WarpgroupStores(kernel, product, target, tile, boxes, read, room, splits)

    @property
    def _copies(self) -> TensorCopies:
        assert self.target.copies is not None
        return self.target.copies

    @property
    def _tiling(self) -> Tiling:
        (_, rows, columns), teams = self.tile.shape, self.tile.teams
        return Tiling(rows, columns, *teams, self.splits)

    @property
    def _subgroups(self) -> int:
        assert self.target.warpgroup is not None
        return self._tiling.warpgroups * self.target.warpgroup.threads // self.target.subgroup

    @property
    def _by_lanes(self) -> list[Boxes]:
        return [x for x in self.boxes if lanes_store(x, self.product, self._tiling.columns, self._copies)]

    @property
    def _whole(self) -> int:
        """Bytes of all lines in which a tile's results are stored."""
        columns, lanes = self._tiling.columns, self._by_lanes
        return self._subgroups * sum(staged_bytes(x, columns, self._copies, x in lanes) for x in self.boxes)

    @property
    def _roomy(self) -> bool:
        return 0 < self._whole <= self.room

    @property
    def nbytes(self) -> int:
        """Of shared memory."""
        return self._whole if self._roomy else STAGING_BYTES * self._subgroups * len(self.boxes)

    def make_maps(self) -> None:
        """Ahead of the roles."""
        lanes = self._by_lanes if self._roomy else []
        self.maps = [bulk_result(self.kernel, x, ROWS, self._copies, x in lanes) for x in self.boxes]
        self.fetched = [bulk_result(self.kernel, x, self._tiling.rows, self._copies) for x in self.read]

    def fetch(self, at: tuple[Index, Index, Index]) -> None:
        """By one thread: have what results are made of beside a tile's sums in the cache by the time that these are
        there."""
        for one in self.fetched:
            for first in range(0, self._tiling.outputs, one.width):
                assert one.map is not None
                self._copies.fetch(one.map, one.boxes.at((*at[:2], b.add(at[2], first))))

    def store(self, sums: WarpgroupSums, memory: BlockMemory, start: int, at: tuple[Index, Index, Index]) -> None:
        """What results are of a tile's sums, at (batch, row, column)."""
        member, tile, bulk = sums.member(), TilePlace(*at, 0), None
        if self.boxes:
            place = b.add(b.add(b.address_of(memory.memory), memory.start), start)
            facts = (self.maps, memory, place, start, self._roomy, member)
            bulk = BulkStores(self.target, self.product, self._tiling, *facts)
        rank = b.mod(b.block_id(), self.splits)
        plain = self.product.results_of(self.kernel)
        results = TileResults(self.target, self.product, self._tiling, plain, self._others, bulk, memory, rank, member)
        results.finish(tile, sums.values, results.begin(tile))

    @property
    def _others(self) -> list[OtherResult]:
        """The kernel's results of other shapes."""
        moments = find_moments(outputs_of(self.kernel))
        of_rows = [] if moments is None else [RowMoments(moments, self.target, self._tiling)]
        return [*cached_results(self.kernel, self.target), *of_rows]

    def finish(self) -> None:
        """By all who store, ahead of the block's end, which would take the memory away."""
        first = b.equal(b.mod(b.thread_id(), self.target.subgroup), 0)
        if self.boxes:
            b.if_then(first, lambda: self._copies.wait_stored(0))
        if self.splits > 1:
            self.target.cluster_leave()  # no block may end while another adds up

    def stand_by(self) -> None:
        """By those who copy, behind all of it: where a cluster adds up, they meet the others."""
        if self.splits > 1:
            self.target.cluster_barrier()
            self.target.cluster_leave()
