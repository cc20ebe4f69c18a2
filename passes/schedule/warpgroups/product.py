"""The kernel of a product on warpgroup instructions: one warpgroup brings steps of k, one or two multiply and finish
tiles."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.bulk_stores import (
    ROWS,
    BulkResult,
    BulkStores,
    boxes_read,
    bulk_boxes,
    bulk_result,
    lanes_store,
    staged_bytes,
)
from lispgpt.passes.kernels.cached_results import cached_results
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.left_registers import LeftRegisters
from lispgpt.passes.kernels.moment_sums import RowMoments
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.ring import Ring, StagePlace, WidenedOperand
from lispgpt.passes.kernels.tile_results import Begun, OtherResult, TileResults, sums_stride
from lispgpt.passes.kernels.warpgroup_sums import Member, TileSums, own_warpgroup
from lispgpt.passes.model.row_moments import find_moments
from lispgpt.passes.schedule.warpgroups.block_tiles import BlockTiles, TileGrid
from lispgpt.passes.schedule.warpgroups.operands import Operands
from lispgpt.passes.schedule.warpgroups.split_k import TileShare, TileShares
from lispgpt.passes.schedule.warpgroups.tile_copies import TileCopies
from lispgpt.passes.schedule.warpgroups.widened_copies import WidenedCopies, buffer_of
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import (
    Tiling,
    one_wave,
    shares_stages,
    stages,
    staging_bytes,
)

WRITER_REGISTERS, READER_REGISTERS = 40, 232
"""Of a thread that starts copies, and of one that multiplies: 128 of those and 256 of these are a core's 65536.  One
warpgroup that multiplies has as many: from fewer ptxas (13.0) makes steps of k twice as long, of descriptors that wait
for each other."""

WIDENER_REGISTERS, BESIDE_REGISTERS = 104, 200
"""The same where those that start copies widen weights in blocks, too: as many in all, since who waits for more than
the launch has been given waits for ever."""

BARRIER_BYTES = 1024


class WarpgroupProduct:
    """Emits a product's kernel.  constants: arguments that no launch writes."""

    def __init__(
        self,
        kernel: ir.Operation,
        product: Product,
        operands: Operands,
        constants: set[ir.Value],
        target: Gpu,
        tiling: Tiling,
    ) -> None:
        assert target.warpgroup is not None and target.copies is not None
        self.kernel, self.product, self.target, self.tiling = kernel, product, target, tiling
        self.unit, self.copies = target.warpgroup, target.copies
        self.operands = operands.of(tiling)
        self.results, moments = product.results_of(kernel), find_moments(outputs_of(kernel))
        self.others: list[OtherResult] = [*cached_results(kernel, target)]
        if moments is not None:
            self.others.append(RowMoments(moments, target, tiling))
        self.warpgroups = tiling.warpgroups
        self.threads = (1 + self.warpgroups) * self.unit.threads
        self.shape = shape = operands.shape(product, 4, len(self.results))
        self.grid = TileGrid(product, tiling, target, one_wave(tiling, shape, target))
        self.shares_stages = shares_stages(tiling, shape, target)
        self.stages = stages(tiling, shape, target)
        if self.grid.one_wave:
            self.stages = min(self.stages, self.grid.steps)
        self.known = buffer_of(product.right, operands.right) in constants
        self.boxes = bulk_boxes(product, self.results, self.copies) if tiling.splits == 1 else None
        self.by_lanes = [x for x in self.boxes or () if lanes_store(x, product, tiling.columns, self.copies)]
        self.read = boxes_read(kernel, product, self.copies) if tiling.splits == 1 else []
        self.widens = isinstance(operands.right, WidenedOperand)

    def emit(self) -> None:
        t = self.tiling
        if not reschedule(self.kernel, [self.grid.clusters * t.cluster], [self.threads], self.target, self._body):
            return
        self.memory.record(self.kernel)
        self.target.set_residency(self.kernel, 1)
        if t.cluster > 1:
            self.target.set_cluster(self.kernel, t.cluster)

    def _body(self) -> None:
        t = self.tiling
        self.thread = b.thread_id()
        cluster, rank = b.div(b.block_id(), t.cluster), b.mod(b.block_id(), t.cluster)
        shares = None
        if t.shares is not None:
            worker = b.sub(self.grid.clusters - 1, cluster)
            shares = TileShares(self.target, t.shares, t.pair, worker, rank)
        self.tiles = BlockTiles(self.grid, cluster, rank, shares)
        self._make_memory()
        self.maps = [operand.maps(self.kernel) for operand in (self.operands.left, self.operands.right)]
        self.bulk: list[BulkResult] | None = None
        if self.boxes is not None:
            by_lanes = self.by_lanes if self.roomy else []
            self.bulk = [bulk_result(self.kernel, x, ROWS, self.copies, x in by_lanes) for x in self.boxes]
        self.fetched = [bulk_result(self.kernel, boxes, t.rows, self.copies) for boxes in self.read]
        b.if_then(b.equal(self.thread, 0), self._prepare)
        (self.target.cluster_barrier if t.cluster > 1 else b.barrier)()
        self.target.dependency_release()
        b.either(b.less(self.thread, self.unit.threads), self._write, self._read)
        if t.pair > 1:
            self.target.cluster_barrier()  # no block may end while another still copies into its memory

    def _prepare(self) -> None:
        """By one thread: the ring's barriers, and maps on their way."""
        for map_ in [*self.maps[0], *self.maps[1], *(x.map for x in self.bulk or () if x.map is not None)]:
            self.copies.prefetch(map_)
        self.ring.make(self.warpgroups)

    def _make_memory(self) -> None:
        """Stages, results on their way to memory, barriers; what a cluster adds up takes the stages' place, and so do
        results where a block has one tile."""
        left, right = self.operands.left, self.operands.right
        staging = 0 if self.boxes is None else staging_bytes(self.tiling, self.shape, self.target)
        nbytes = self.stages * (left.nbytes + right.nbytes)
        if self.tiling.splits > 1:
            nbytes = max(nbytes, self.tiling.rows * sums_stride(self.tiling) * 4)
        whole, room = self._whole_tile(), self.target.dynamic_shared_bytes - 2 * BARRIER_BYTES
        ahead = 0 if self.shares_stages else nbytes
        self.roomy = self.grid.one_wave and 0 < whole <= room - ahead
        staging = whole if self.roomy else staging
        nbytes = max(nbytes, ahead + staging)
        self.memory = BlockMemory(self.target, nbytes + BARRIER_BYTES, aligned=True)
        start = b.add(b.address_of(self.memory.memory), self.memory.start)
        self.staged, self.staging = ahead, b.add(start, ahead)
        barriers = b.add(start, nbytes)
        widening = self.unit.threads // self.target.subgroup if self.widens else 0
        self.ring = Ring(self.copies, left, right, self.stages, start, barriers, self.tiling.pair, widening)

    def _whole_tile(self) -> int:
        """Bytes of all lines in which a tile's results are stored."""
        columns, copies = self.tiling.columns, self.copies
        each = sum(staged_bytes(boxes, columns, copies, boxes in self.by_lanes) for boxes in self.boxes or ())
        return self.warpgroups * self.unit.threads // self.target.subgroup * each

    def _write(self) -> None:
        """The copies' warpgroup."""
        self.copies.registers(WIDENER_REGISTERS if self.widens else WRITER_REGISTERS, more=False)
        facts = (self.target, self.copies, self.operands, self.maps, self.ring, self.tiles, self.fetched, self.known)
        copies = WidenedCopies(*facts, self.product.right) if self.widens else TileCopies(*facts)
        copies.start(self.thread)
        if self.tiling.splits > 1:
            self.target.cluster_barrier()
            self.target.cluster_leave()

    def _read(self) -> None:
        """The other warpgroups: each its part of the tile's rows or columns."""
        self.copies.registers(BESIDE_REGISTERS if self.widens else READER_REGISTERS, more=True)
        t, unit = self.tiling, self.unit
        number, group = b.mod(self.thread, unit.threads), b.sub(own_warpgroup(self.thread, self.target), 1)
        row, pair = unit.lane_places(number)
        row_part = b.mod(group, t.row_parts)
        member = Member(number, row_part, b.div(group, t.row_parts), b.add(b.mul(row_part, unit.rows), row), pair)
        sums = TileSums(unit, self.ring, member, t.columns, self.grid.steps)
        bulk = None
        if self.bulk is not None:
            places = (self.memory, self.staging, self.staged, self.roomy, member)
            bulk = BulkStores(self.target, self.product, t, self.bulk, *places)
        facts = (self.target, self.product, t, self.results, self.others)
        results = TileResults(*facts, bulk, self.memory, self.tiles.rank, member)
        left, registers = self.operands.left, None
        if left.item == 4:
            registers = LeftRegisters(unit, self.copies, left, member.row, pair)
        self.target.dependency_wait()

        def tile(_: Index, piece: TileShare, place: StagePlace) -> StagePlace:
            tile = self.tiles.place_of(piece)
            begun = results.begin(tile)
            place, found = sums.walk(place, registers, piece.steps)
            if self.shares_stages and self.boxes is not None:
                self.target.team_barrier(self.threads - unit.threads)  # results go where others may still read
            if self.tiles.shares is None:
                results.finish(tile, found, begun)
            else:
                self._share(self.tiles.shares, piece, found, results, begun)
            return place

        self.tiles.each(StagePlace(0, 0), tile)
        results.end()

    def _share(
        self, shares: TileShares, piece: TileShare, sums: list[ir.Value], results: TileResults, begun: Begun
    ) -> None:
        """Hand a piece's sums on, or make its tile's results of them and of what others hand on."""
        thread, threads = b.sub(self.thread, self.unit.threads), self.warpgroups * self.unit.threads
        memory = list(self.kernel.regions[0].blocks[0].arguments)[-2:]
        tile = self.tiles.place_of(piece)
        b.either(
            piece.finishes,
            lambda: results.finish(tile, shares.add_up(memory, piece, thread, threads, sums), begun),
            lambda: shares.hand_on(memory, piece, thread, threads, sums),
        )
