"""Attention of a block's rows to tiles of keys and values that bulk copies bring while its teams use others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import operand_a as left_of
from lispgpt.passes.kernels.attention import cache_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.block_rows import BlockRows
from lispgpt.passes.kernels.matrices import Lanes, flat, shaped
from lispgpt.passes.kernels.score_masks import Mask
from lispgpt.passes.kernels.softmax import RunningRows, empty_rows, running_rows
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.score_operands import POSITION
from lispgpt.passes.schedule.attention.copied_tiles import CopiedTiles, MappedOperand, TileRing, mapped_operands
from lispgpt.passes.schedule.attention.staged_queries import StagedQueries, query_bytes
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

BARRIER_BYTES = 1024
CLEARED = 8
"""Numbers of bf16 that a thread clears at once."""


@dataclass(frozen=True)
class AsyncLayout:
    """What a block has in shared memory: its queries, each team's stages of tiles of so many keys and values, and
    barriers.  Behind its teams it has one more warpgroup, a subgroup of which starts each team's copies."""

    attention: Attention
    operands: Sequence[MappedOperand]
    unit: WarpgroupUnit
    copies: TensorCopies
    keys: int
    stages: int

    @classmethod
    def of(cls, attention: Attention, target: Gpu, keys: int, stages: int) -> AsyncLayout | None:
        """None where no copies see keys and values as they lie.  UserError for what is no tile of keys."""
        unit, copies = target.warpgroup, target.copies
        if not keys or unit is None or copies is None or str(attention.keys.element) != "bf16":
            return None
        if keys not in range(unit.block, unit.most_columns + 1, unit.block) or stages < 2:
            raise UserError(
                f"there are no {stages} copied tiles of keys {keys}: at least 2 of multiples of {unit.block} "
                f"up to {unit.most_columns}"
            )
        held = {tensor: cache_of(attention) for tensor in attention.updated}
        found = mapped_operands([attention.keys, attention.values], POSITION, copies, held)
        return None if found is None else cls(attention, found, unit, copies, keys, stages)

    @property
    def query_bytes(self) -> int:
        return query_bytes(self.unit) * left_of.parts_of(self.attention.queries)

    @property
    def stage_bytes(self) -> int:
        """What a tile of keys and one of values take."""
        return 2 * self.keys * self.unit.inner * 2

    def memory_bytes(self, teams: int) -> int:
        return self.query_bytes + teams * self.stages * self.stage_bytes + BARRIER_BYTES


class AsyncBlock:
    """A block's tiles, before any of them is on its way.  kernel: whose maps they are copied by."""

    def __init__(self, layout: AsyncLayout, teams: int, kernel: ir.Operation, memory: BlockMemory) -> None:
        self.layout, self.teams, self.memory = layout, teams, memory
        self.maps = [one.map(kernel, layout.keys, layout.unit.inner) for one in layout.operands]
        self.base = b.add(b.address_of(memory.memory), memory.start)

    def ring(self, team: Index) -> TileRing:
        """Of one of the teams."""
        layout, bf16_tiles = self.layout, self.layout.stages * self.layout.stage_bytes
        start = b.add(self.base, b.add(b.mul(team, bf16_tiles), layout.query_bytes))
        facts = (layout.operands, self.maps, layout.copies, layout.unit, layout.keys, layout.stages)
        ahead = layout.memory_bytes(self.teams) - BARRIER_BYTES
        own = b.mul(team, 2 * layout.stages * layout.copies.barrier_bytes)
        return TileRing(CopiedTiles(*facts, start), b.add(self.base, b.add(own, ahead)))

    def prepare(self, thread: Index) -> None:
        """Make all barriers and fetch maps, by one thread of the block; then all wait for it."""

        def make() -> None:
            for map_ in self.maps:
                self.layout.copies.prefetch(map_)
            for team in range(self.teams):
                self.ring(team).make(1)
            self.layout.copies.publish_barriers()

        b.if_then(b.equal(thread, 0), make)
        b.barrier()

    def attend(
        self, rows: BlockRows, mask: Mask, seen: tuple[Index, Index], last: Index, thread: Index, threads: int
    ) -> RunningRows:
        """Each team's sums of the block's rows over its share of the tiles of positions from seen[0] to below seen[1].

        last: the largest position that may be read.  threads: of a team; what the threads behind those of all teams
        get is nothing.
        """
        layout, teams = self.layout, self.teams
        first, step = _narrow(seen[0]), layout.keys * teams
        end, last = _narrow(seen[1]), _narrow(last)
        empty = empty_rows(rows.lanes, layout.unit.inner // rows.lanes.unit.columns)
        heights = len(empty.tops)

        def bring() -> list[ir.Value]:
            behind = b.sub(thread, teams * threads)
            team, lane = b.div(behind, rows.target.subgroup), b.mod(behind, rows.target.subgroup)
            ring, place = self.ring(team), rows.place(0)

            def tile(position: ir.Value, number: ir.Value) -> list[ir.Value]:
                with rows.reader.scope():
                    ring.fill((place, _widened(position)), _widened(number))
                return [_next(number)]

            def all_tiles() -> None:
                start = b.add(first, b.mul(team, layout.keys))
                b.loop(_word(start), _word(end), _word(step), [_word(0)], tile)

            b.if_then(b.both(b.equal(lane, 0), b.less(team, teams)), all_tiles)
            return empty.values()

        def sums() -> list[ir.Value]:
            team, own = b.div(thread, threads), b.mod(thread, threads)
            shape = [left_of.parts_of(layout.attention.queries), layout.unit.rows, layout.unit.inner]
            queries = StagedQueries(
                layout.attention.queries, layout.unit, self.memory.view(0, shape, ir.BF16Type.get())
            )
            queries.fill(rows, thread, teams * threads)
            layout.unit.publish()
            rows.target.team_barrier(teams, teams * threads)
            barrier = partial(rows.target.team_barrier, team, threads)
            member = _Member(self, rows, mask, queries, self.ring(team), team, own, barrier)
            start = b.add(first, b.mul(team, layout.keys))
            return member.sums(start, end, step, last).values()

        types = [value.type for value in empty.values()]
        return running_rows(b.choose(b.less(thread, teams * threads), types, sums, bring), heights)


@dataclass(frozen=True)
class _Member:
    """A thread of a team.  thread: its number in the team.  barrier: of the team."""

    block: AsyncBlock
    rows: BlockRows
    mask: Mask
    queries: StagedQueries
    ring: TileRing
    team: Index
    thread: Index
    barrier: Callable[[], None]

    @property
    def layout(self) -> AsyncLayout:
        return self.block.layout

    @property
    def lanes(self) -> Lanes:
        return self.rows.lanes

    def sums(self, start: Index, end: Index, step: int, last: Index) -> RunningRows:
        """The rows' sums over the team's tiles, which are `step` positions apart."""
        layout, unit = self.layout, self.layout.unit
        running, parts = empty_rows(self.lanes, unit.inner // self.lanes.unit.columns), 1
        parts = 2 if layout.attention.exact else 1
        rows, queries, lines = len(running.tops), self.queries.lines(), unit.lower_word(self.ring.tiles.start)

        def body(number: ir.Value, tile: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            position, state = _widened(number), running_rows(list(carried), rows)
            with self.mask.reader.scope():
                slot = self.ring.wait(_widened(tile))
                own = self._stage(lines, slot)
                unit.fence()
                scores = self._scores(own, queries)
                unit.commit()
                scores = self._tiles(unit.done(scores))
                masked = self.mask.rows(scores, position)
                state, weights = state.weigh_unless_risen(masked, self.lanes, self.rows.target, self.mask.factor)
                words = left_of.weight_words(unit, weights, layout.keys, parts)
                self._clear(slot, position, last)
                sums = self._add(own, words, state.sums)
                unit.commit()
                tiles = self._tiles(unit.done(sums))
                self.ring.release(slot, self.thread)
            return [_next(tile), *state.tops, *state.totals, *tiles]

        first = [_word(0), *running.values()]
        return running_rows(b.loop(_word(start), _word(end), _word(step), first, body)[1:], rows)

    def _stage(self, lines: ir.Value, slot: Index) -> ir.Value:
        """The lower word of descriptors of a stage's keys, which its values come after."""
        skipped = b.binary("arith.muli", _word(slot), b.constant(self.layout.stage_bytes // 16, b.i32()))
        return b.binary("arith.addi", lines, skipped)

    def _clear(self, slot: Index, position: Index, last: Index) -> None:
        """Let values past the last position be zero: their weights are, but what lies there may be no number."""
        layout = self.layout
        keys, inner, threads = layout.keys, layout.unit.inner, layout.unit.threads
        shape = [self.block.teams * layout.stages, 2, keys, inner]
        memory = self.block.memory.view(layout.query_bytes, shape, ir.BF16Type.get())
        nothing = b.constant(0.0, ir.VectorType.get([CLEARED], ir.BF16Type.get()))

        def clear() -> None:
            stage, each = b.add(b.mul(self.team, layout.stages), slot), inner // CLEARED
            for skipped in range(0, keys * each, threads):
                linear = b.add(self.thread, skipped)
                row, column = b.div(linear, each), b.mul(b.mod(linear, each), CLEARED)
                past = b.less(last, b.add(position, row))
                if skipped + threads > keys * each:
                    past = b.both(past, b.less(linear, keys * each))
                b.if_then(past, partial(b.store, nothing, memory, [stage, 1, b.at_most(row, keys - 1), column]))
            layout.unit.publish()
            self.barrier()

        b.if_then(b.less(last, b.add(position, keys - 1)), clear)

    def _scores(self, lines: ir.Value, queries: ir.Value) -> list[ir.Value]:
        """Start to make them."""
        sums: list[ir.Value] = []
        unit = self.layout.unit
        for block in range(unit.inner // unit.block):
            skipped = 2 * block * unit.block
            column = unit.with_lower(lines, skipped)
            for part in range(self.queries.parts):
                left = [unit.with_lower(queries, part * query_bytes(unit) + skipped)]
                count = self.layout.keys // 2
                sums = unit.multiply(left, column, sums) if sums else unit.start(left, column, count)
        return sums

    def _add(self, lines: ir.Value, words: left_of.Words, sums: list[ir.Value]) -> list[ir.Value]:
        """Start to add what weights make of values."""
        unit, keys = self.layout.unit, self.layout.keys
        vectors = [flat(tile) for tile in sums]
        plain = [b.lane_of(vector, i) for vector in vectors for i in range(b.width_of(vector))]
        ready = unit.ready([*plain, *(word for parts in words for part in parts for word in part)])
        plain, rest = ready[: len(plain)], iter(ready[len(plain) :])
        for block, parts in enumerate(words):
            rows = unit.with_lower(lines, (keys + block * unit.block) * 2 * unit.inner)
            for part in parts:
                plain = unit.multiply([next(rest) for _ in part], rows, plain, transposed=True)
        return plain

    def _tiles(self, plain: list[ir.Value]) -> list[ir.Value]:
        type_ = self.lanes.unit.accumulator_type()
        return [shaped(b.vector_of(plain[i : i + 4]), type_) for i in range(0, len(plain), 4)]


def _narrow(index: Index) -> Index:
    """An index that is known to be below 2^32, so that half of what is reckoned with it needs no registers."""
    return index if isinstance(index, int) else _widened(_word(index))


def _word(index: Index) -> ir.Value:
    """An index as an i32."""
    return b.constant(index, b.i32()) if isinstance(index, int) else b.emit("arith.index_cast", [index], [b.i32()])


def _widened(word: ir.Value) -> ir.Value:
    return b.emit("arith.index_castui", [word], [ir.IndexType.get()])


def _next(word: ir.Value) -> ir.Value:
    return b.binary("arith.addi", word, b.constant(1, b.i32()))
