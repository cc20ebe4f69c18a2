"""schedule-gpu-tiled-attention: attention of many rows at once, on the target's matrix instructions.

Before: writes of keys and values into the cache; scores, mask, softmax over all positions, weighted sum, for at least
        `rows` rows of each sequence, of heads small enough for a tile of keys and values to fit in shared memory.
After:  a launch that writes the cache; then a block for 16 rows per subgroup of one head, those that see most positions
        first.  Its teams take turns with tiles of the positions that its rows may see: keys and values to shared memory
        while the next tile is on its way to registers, scores on matrix instructions of subgroups or of warpgroups, a
        running softmax in registers, weights back into matrix instructions, through shared memory where these ask for
        another layout.  In the end the teams' sums are joined.  No score reaches memory, and tiles that all rows see
        are not masked.  f32 operands are split into two bf16 parts, of whose products the smallest is left out.
        Where a bf16 cache is what instructions of warpgroups take, bulk copies bring its tiles, which one more
        warpgroup starts, a subgroup for each team, some ahead of the team.

Requires: what plan-arena ensures.
Ensures: those kernels of kind "attention" have only scalar, vector and matrix ops, a grid and a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm, prod

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass, or_zero
from lispgpt.passes.kernels import block_memory
from lispgpt.passes.kernels import operand_a as left_of
from lispgpt.passes.kernels.block_rows import BlockRows
from lispgpt.passes.kernels.cache_rows import attentions
from lispgpt.passes.kernels.kernel import constant_arguments, coordinates, reschedule
from lispgpt.passes.kernels.matrices import lanes_of
from lispgpt.passes.kernels.products import is_for
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.score_masks import Mask
from lispgpt.passes.kernels.softmax import RunningRows, empty_rows, running_rows
from lispgpt.passes.kernels.views import depends_only_on
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.schedule.attention.async_attention import AsyncBlock, AsyncLayout
from lispgpt.passes.schedule.attention.key_tiles import Staged, TileLayout, Tiles
from lispgpt.passes.schedule.attention.results import TeamSums, write_rows
from lispgpt.passes.schedule.attention.score_products import Products, SubgroupProducts, WarpgroupProducts
from lispgpt.passes.schedule.attention.shared_queries import SharedQueries
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.attention_cost import (
    BY_SUBGROUPS,
    BY_WARPGROUPS,
    Blocks,
    attention_seconds,
    products_of_parts,
)
from lispgpt.passes.tile.attention_rows import AttentionRows

AHEAD_WORDS = 120
"""Registers that queries, sums and a tile under way may take: with more, a tile is loaded when it is its turn."""

KEPT_WORDS = 128
"""Registers that queries and sums may take: with more, queries are read again for every tile."""

ROOM, NEARLY = 0.7, 0.85
"""Of a lane's registers, what there is for queries, sums and what is loaded at once, beside all else; and how much of
them LLVM takes for values that are in shared memory: of more it loads a part at a time."""


@dataclass(frozen=True)
class ScheduleGpuTiledAttention(Pass):
    """rows: the fewest rows of a sequence to treat this way.  subgroups: of a team.  keys: positions of a tile in f32,
    as far as lanes have registers for them.

    teams: of a block, as far as shared memory has room for their tiles.  warpgroups: whether a team uses the chip's
    instructions for these, where it has them.  Their tiles have other extents than the values' depth of 64: with equal
    ones, ptxas of CUDA 12.9 lets weights overwrite the queries' registers.  Raises UserError for keys that no matrix
    instructions divide, and for more threads or teams than a block can have.

    copied_keys: positions of a tile that bulk copies bring; 0: none does, as where a block has more teams than its
    copies' warpgroup subgroups.  stages: such tiles of a team.
    """

    starts_from = (PLACED,)
    only_faster = True

    rows: int = 64
    subgroups: int = 4
    keys: int = 32
    teams: int = 2
    warpgroups: bool = True
    copied_keys: int = or_zero(64)
    stages: int = 4

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        self._check_block(target)
        constant = constant_arguments(module)
        for kernel, attention in attentions(module, target):
            if is_for(kernel, self.name) and self._suits(attention, target.matrix.columns):
                schedule = _TiledAttention(kernel, attention, target, self, constant(kernel))
                if schedule.fits():
                    schedule.emit()

    def time_of(self, kernel: ir.Operation, attention: Attention, target: Gpu) -> float | None:
        """Seconds that it should take; Refused, with the reason, where it leaves the attention."""
        if target.matrix is None or not self._suits(attention, target.matrix.columns):
            raise Refused(f"it takes {self.rows} rows and more, of as many numbers as matrix instructions divide")
        schedule = _TiledAttention(kernel, attention, target, self, set())
        if not schedule.fits():
            raise Refused("its tiles have no room in shared memory")
        parts = [left_of.parts_of(operand) for operand in (attention.queries, attention.keys, attention.values)]
        met = (products_of_parts(*parts[:2]), products_of_parts(2 if attention.exact else 1, parts[2]))
        keys = schedule.keys if schedule.asynchronous is None else schedule.asynchronous.keys
        blocks = Blocks(schedule.rows, keys * schedule.teams, schedule.teams, 1, met)
        rates = BY_SUBGROUPS if schedule.warpgroup is None else BY_WARPGROUPS
        return attention_seconds(AttentionRows(attention), blocks, target, rates)

    def _suits(self, attention: Attention, columns: int) -> bool:
        """Whether there are enough rows, of keys and values that tiles can hold."""
        operands = (attention.keys, attention.values, attention.out)
        types = {str(attention.keys.element), str(attention.values.element)}
        return (
            max((attention.extents[d] for d in attention.query_dims), default=0) >= self.rows
            and attention.depth == attention.width
            and attention.depth % columns == 0
            and all(operand.has_rows for operand in operands)
            and types in ({"f32"}, {"bf16"})
        )

    def _check_block(self, target: Gpu) -> None:
        teams, threads = self.teams, self.teams * self.subgroups * target.subgroup
        if teams < 1 or self.subgroups < 1 or teams > target.most_teams or threads > target.max_threads:
            raise UserError(
                f"there is no block of teams {teams}, subgroups {self.subgroups}: "
                f"{target} has 1 to {target.most_teams} teams and up to {target.max_threads} threads"
            )


class _TiledAttention:
    """constants: arguments that no launch writes."""

    def __init__(
        self,
        kernel: ir.Operation,
        attention: Attention,
        target: Gpu,
        options: ScheduleGpuTiledAttention,
        constants: set[ir.Value],
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.attention, self.target, self.unit = kernel, attention, target, target.matrix
        bounds = [bound for bound in (attention.lower, attention.upper) if bound is not None]
        self.known = all(depends_only_on(tensor, constants) for bound in bounds for tensor in bound.tensors())
        self.row = max(attention.query_dims, key=lambda d: (attention.extents[d], -d))
        self.outer = [d for d in range(len(attention.extents)) if d != self.row]
        self.positions, self.teams = attention.extents[self.row], options.teams
        self.subgroups = min(options.subgroups, -(-self.positions // 16))
        self.threads = self.subgroups * target.subgroup
        self.rows = 16 * self.subgroups
        self.warpgroup = target.warpgroup if options.warpgroups and self._suits_warpgroups(options.keys) else None
        self.keys = self._tile_keys(options.keys)
        staged = (Staged(attention.keys, True, False), Staged(attention.values, False, True))
        self.tile = TileLayout(staged, target, self.keys, self.threads, self.warpgroup is not None)
        self.sum_tiles = attention.depth // self.unit.columns
        self.ahead = self._words() <= AHEAD_WORDS
        self.kept = self._words() - self.tile.words <= KEPT_WORDS
        writers = 0 if self.warpgroup is None else self.warpgroup.threads // target.subgroup
        copied_keys = options.copied_keys if self.teams <= writers else 0
        self.asynchronous = AsyncLayout.of(attention, target, copied_keys, options.stages)
        self.shared_queries = self._shared_queries()
        while self.teams > 1 and not self.fits():
            self.teams -= 1
        if self.shared_queries is not None and not self.fits():
            self._fewer_keys(staged)

    def _shared_queries(self) -> SharedQueries | None:
        """Where lanes do not keep them, or have no registers for all that these are made of, and shared memory has
        room."""
        keeps = self.kept and self.target.makes_room
        by_lanes = self.warpgroup is None and self.asynchronous is None and not keeps
        suits = by_lanes and SharedQueries.suits(self.attention.queries, self.unit)
        return SharedQueries(self.attention.queries, self.unit, self.rows) if suits else None

    def _fewer_keys(self, staged: Sequence[Staged]) -> None:
        """As few of a tile as leave room for the queries; where none do, queries are read again for every tile."""
        keys, tile, step = self.keys, self.tile, lcm(self.unit.block, self.unit.columns)
        while not self.fits() and self.keys % (2 * step) == 0:
            self.keys //= 2
            self.tile = TileLayout(staged, self.target, self.keys, self.threads, False)
        if not self.fits():
            self.keys, self.tile, self.shared_queries = keys, tile, None

    def fits(self) -> bool:
        """Whether the block's shared memory is one that the target has."""
        return block_memory.fits(self.target, self._memory_bytes(), self.warpgroup is not None)

    def _suits_warpgroups(self, keys: int) -> bool:
        unit, depth = self.target.warpgroup, self.attention.depth
        if unit is None or (self.threads, depth) != (unit.threads, unit.inner):
            return False
        return keys in range(unit.block, unit.most_columns + 1, unit.block) and keys != depth

    def _tile_keys(self, keys: int) -> int:
        """Positions of a tile: twice as many of a bf16 cache take no more room, where weights take none of it."""
        if self.warpgroup is not None:
            return keys
        factor = 2 if self.unit.result_as_left and b.item_bytes(self.attention.keys.element) == 2 else 1
        step = lcm(self.unit.block, self.unit.columns) // factor
        if keys < 1 or keys % step:
            raise UserError(
                f"there is no tile of keys {keys}: matrix instructions of {self.target} take multiples of {step} here"
            )
        if self.target.attention_keys and b.item_bytes(self.attention.keys.element) == 4:
            keys = min(keys, max(step, self.target.attention_keys // step * step))
        return factor * keys

    def _words(self) -> int:
        """Registers that a lane's queries and sums take, and a tile on its way."""
        return (
            left_of.words_of(self.attention.queries, self.unit)
            + self.sum_tiles * prod(self.unit.accumulator)
            + self.tile.words
        )

    def _tile_bytes(self) -> int:
        """Of shared memory for tiles, and behind them for queries that are there."""
        if self.asynchronous is not None:
            return self.asynchronous.memory_bytes(self.teams)
        return self._queries_from + (0 if self.shared_queries is None else self.shared_queries.nbytes)

    @property
    def _queries_from(self) -> int:
        weights = 2 * self.teams * self.subgroups * prod(left_of.weight_shape(self.unit, self.keys))
        return self.teams * self.tile.nbytes + weights

    def _memory_bytes(self) -> int:
        return self._tile_bytes() if self.teams == 1 else self._team_sums.nbytes

    @property
    def _team_sums(self) -> TeamSums:
        sizes = (self.teams, self.rows, self.sum_tiles * self.unit.columns, self._tile_bytes())
        return TeamSums.of(*sizes, self.target, self.warpgroup is not None)

    def emit(self) -> None:
        tiles = -(-self.positions // self.rows)
        grid = [prod(self.attention.extents[d] for d in self.outer), tiles]
        more = 0 if self.asynchronous is None else self.asynchronous.unit.threads
        reschedule(self.kernel, grid, [self.teams * self.threads + more], self.target, self._body)
        self.memory.record(self.kernel)

    def _body(self) -> None:
        thread = b.thread_id()
        self.team = 0 if self.teams == 1 else b.div(thread, self.threads)
        self.thread = thread if self.teams == 1 else b.mod(thread, self.threads)
        self.lanes = lanes_of(self.unit, b.mod(thread, self.target.subgroup))
        self.others = coordinates(b.block_id("x"), [self.attention.extents[d] for d in self.outer])
        self.reader = Reader(self.target)
        self.memory = block_memory.BlockMemory(self.target, self._memory_bytes(), self.warpgroup is not None)
        block = None
        if self.asynchronous is not None:
            block = AsyncBlock(self.asynchronous, self.teams, self.kernel, self.memory)
            block.prepare(thread)
        self.target.dependency_release()
        if not self.known:
            self.target.dependency_wait()
        first = b.mul(self._row_tile(), self.rows)
        self.block_rows = BlockRows(
            self.attention, self.reader, self.lanes, self.target, self.row, self.others, first, self.rows
        )
        subgroup = b.div(self.thread, self.target.subgroup)
        own_first = b.add(first, b.mul(subgroup, 16))
        least, last = self.block_rows.last_positions()
        together = self.keys * self.teams if self.asynchronous is None else self.asynchronous.keys
        self.start = self.block_rows.start(together)
        self.end = b.add(last, 1)
        lanes = self.lanes
        rows = [b.add(b.add(own_first, lanes.result_row), piece.row) for piece in self.unit.pieces()]
        places = [self.block_rows.place(row) for row in rows]
        past = self.attention.context % together != 0 or self.asynchronous is not None
        self.mask = Mask(self.attention, self.reader, lanes, places, least, last, past, self.asynchronous is not None)
        if self.known:
            self.target.dependency_wait()
        if self.asynchronous is None:
            place, teams = self.block_rows.place(0), (self.teams, self.team, self.thread)
            self.tiles = Tiles(self.tile, self.reader, lanes, self.memory.view, *teams, lambda t: (place, t), last)
            self.products = self._products(own_first, thread, subgroup)
        if block is None:
            running = self._attend()
        else:
            running = block.attend(self.block_rows, self.mask, (self.start, self.end), last, thread, self.threads)
        running = running.whole(lanes, self.target)
        if self.teams > 1:
            member = (thread, self.team, b.mul(subgroup, 16))
            self._team_sums.join(running, self.block_rows, self.kernel, self.memory.view, member)
            return
        inside = [b.less(row, self.positions) for row in rows] if self.positions % self.rows else None
        facts = (running, lanes, self.kernel, self.attention, places, inside)
        b.if_live(None if block is None else b.less(thread, self.threads), lambda: write_rows(*facts))

    def _products(self, own_first: Index, thread: Index, subgroup: Index) -> Products:
        """thread: of the block.  subgroup: of the team."""
        own, facts = b.add(own_first, self.lanes.row), (self.attention.queries, self.reader, self.lanes)
        places = [(self.block_rows.place(b.add(own, row)), 0) for row in self.unit.left_rows]
        parts = 2 if self.attention.exact else 1
        if self.warpgroup is not None:
            queries = left_of.operand_words(*facts, places, self.warpgroup)
            return WarpgroupProducts(self.warpgroup, self.tiles, queries, parts)

        def memory() -> ir.Value:
            shape = [self.teams * self.subgroups, *left_of.weight_shape(self.unit, self.keys)]
            return self.memory.view(self.teams * self.tile.nbytes, shape, ir.BF16Type.get())

        number = b.add(b.mul(self.team, self.subgroups), subgroup)
        left = self._filled(thread, subgroup) or left_of.operand_blocks(*facts, places, self.kept)
        alone = not self.attention.exact and self.tile.operands[-1].parts == 1
        values = self.keys // self.unit.block * self.sum_tiles * self.unit.run // 2 if alone else 0
        between = self._unless_room_for(values, most=NEARLY)
        return SubgroupProducts(self.tiles, [left], parts, memory, number, self._wait, between)

    def _unless_room_for(self, words: int, most: float) -> Callable[[], None]:
        """What keeps a compiler from loading so many words at once beside queries and sums, where these take more than
        ROOM of a lane's registers, and no more than `most` of them."""
        kept = left_of.words_of(self.attention.queries, self.unit) if self.kept else 0
        all_words = kept + self.sum_tiles * prod(self.unit.accumulator) + words
        share = all_words / self.target.lane_registers(self.teams * self.threads, 1)
        return self.target.keep_order if not self.target.makes_room and ROOM < share <= most else lambda: None

    def _filled(self, thread: Index, subgroup: Index) -> Callable[[int], left_of.Block] | None:
        """Gives blocks of a subgroup's queries from shared memory, where they are filled in here; None elsewhere."""
        queries = self.shared_queries
        if queries is None:
            return None
        memory = self.memory.view(self._queries_from, queries.shape, ir.BF16Type.get())
        queries.fill(memory, self.block_rows, thread, self.teams * self.threads)
        b.barrier()
        read = queries.blocks(memory, b.mul(subgroup, 16), self.lanes)
        return [read(n) for n in range(queries.operand.depth // self.unit.block)].__getitem__ if self.kept else read

    def _row_tile(self) -> Index:
        """The number of the block's rows, longest first."""
        last = b.constant(-(-self.positions // self.rows) - 1, ir.IndexType.get())
        return b.emit("arith.subi", [last, b.block_id("y")], [last.type])

    def _wait(self) -> None:
        self.target.team_barrier(self.team, self.threads)

    def _attend(self) -> RunningRows:
        """The team's share of its rows' sums: it fills its tile, and multiplies from it while the next is under way."""
        own, step = b.mul(self.team, self.keys), self.keys * self.teams
        staged = self.tiles.load(b.add(self.start, own)) if self.ahead else []
        running = empty_rows(self.lanes, self.sum_tiles)
        rows = len(running.tops)

        def body(base: Index, *carried: ir.Value) -> list[ir.Value]:
            start, state = b.add(base, own), running_rows(carried[len(staged) :], rows)
            with self.reader.scope():
                self._wait()
                if self.ahead:
                    self.tiles.store(list(carried[: len(staged)]))
                else:
                    self.tiles.bring(start)
                if self.warpgroup is not None:
                    self.warpgroup.publish()
                self._wait()
                coming = self.tiles.load(b.add(start, step)) if self.ahead else []
                scores = self.mask.rows(self.products.scores(0), start)
                state, weights = state.weigh(scores, self.lanes, self.target, self.mask.factor)
                sums = self.products.add(1, weights, state.sums)
            return [*coming, *state.tops, *state.totals, *sums]

        results = b.loop(self.start, self.end, step, [*staged, *running.values()], body)
        return running_rows(results[len(staged) :], rows)
