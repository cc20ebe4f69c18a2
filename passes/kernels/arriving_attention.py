"""Attention of a team's rows to tiles that arrive in shared memory while it multiplies by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import attention_left as left_of
from lispgpt.passes.kernels.arriving_tiles import ArrivingTiles, Source, stage_bytes
from lispgpt.passes.kernels.attention_rows import BlockRows
from lispgpt.passes.kernels.attention_scores import Mask
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.matrices import Lanes, flat, shaped
from lispgpt.passes.kernels.softmax import RunningRows, empty_rows, running_rows
from lispgpt.passes.kernels.staged_queries import StagedQueries, query_bytes
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.vector_copies import VectorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit


@dataclass(frozen=True)
class ArrivingLayout:
    """What a block has in shared memory: its queries, then each team's stages of tiles of so many keys."""

    attention: Attention
    sources: tuple[Source, Source]
    unit: WarpgroupUnit
    copies: VectorCopies
    keys: int
    stages: int

    @classmethod
    def of(cls, attention: Attention, target: Gpu, keys: int, stages: int) -> ArrivingLayout | None:
        """None where threads cannot copy keys and values as they lie.  UserError for what is no tile of keys."""
        unit, copies = target.warpgroup, target.vector_copies
        if not keys or unit is None or copies is None or str(attention.keys.element) != "bf16":
            return None
        if keys not in range(unit.block, unit.most_columns + 1, unit.block) or stages < 2:
            raise UserError(
                f"there are no {stages} copied tiles of keys {keys}: at least 2 of multiples of {unit.block} "
                f"up to {unit.most_columns}"
            )
        width = copies.nbytes // 2
        found = [Source.of(operand, attention, width) for operand in (attention.keys, attention.values)]
        first, second = found
        if first is None or second is None:
            return None
        return cls(attention, (first, second), unit, copies, keys, stages)

    @property
    def query_bytes(self) -> int:
        return query_bytes(self.unit) * left_of.parts_of(self.attention.queries)

    def memory_bytes(self, teams: int) -> int:
        return self.query_bytes + teams * self.stages * stage_bytes(self.unit, self.keys)


@dataclass(frozen=True)
class ArrivingTeam:
    """number: of the team among `teams` of the block.  thread: of its `threads`.  barrier: among them."""

    number: Index
    thread: Index
    threads: int
    teams: int
    barrier: Callable[[], None]


def attend(
    layout: ArrivingLayout,
    team: ArrivingTeam,
    rows: BlockRows,
    memory: BlockMemory,
    mask: Mask,
    seen: tuple[Index, Index],
    last: Index,
) -> RunningRows:
    """The sums of a block's rows over the team's share of the tiles of positions from seen[0] to below seen[1].

    last: the largest position that may be read.
    """
    unit, keys, bf16 = layout.unit, layout.keys, ir.BF16Type.get()
    seen, last = (_narrow(seen[0]), _narrow(seen[1])), _narrow(last)
    queries = memory.view(0, [left_of.parts_of(layout.attention.queries), unit.rows, unit.inner], bf16)
    shape = [team.teams * layout.stages, 2, keys, unit.inner]
    tiles = ArrivingTiles(
        layout.sources,
        layout.copies,
        unit,
        rows.reader,
        memory.view(layout.query_bytes, shape, bf16),
        b.mul(team.number, layout.stages),
        keys,
        layout.stages,
        team.thread,
        team.threads,
        rows.place(0),
        last,
    )
    staged = StagedQueries(layout.attention.queries, unit, queries)
    parts = 2 if layout.attention.exact else 1
    attention = ArrivingAttention(rows.target, unit, rows.lanes, tiles, staged, mask, parts, team.barrier)
    start, step = b.add(seen[0], b.mul(team.number, keys)), keys * team.teams
    tiles.begin(start, seen[1], step)
    staged.fill(rows, b.thread_id(), team.teams * team.threads)
    tiles.arrived(layout.stages - 1, b.barrier)
    return attention.sums(start, seen[1], step)


@dataclass(frozen=True)
class ArrivingAttention:
    """parts: of weights, in bf16.  barrier: of the team."""

    target: Gpu
    unit: WarpgroupUnit
    lanes: Lanes
    tiles: ArrivingTiles
    queries: StagedQueries
    mask: Mask
    parts: int
    barrier: Callable[[], None]

    def sums(self, start: Index, end: Index, step: int) -> RunningRows:
        """The rows' sums over the tiles from `start` on, each `step` further, of which the first keys have arrived, as
        have the queries.  The next tile's scores are made while weights meet values."""
        running, stages = empty_rows(self.lanes, self.unit.inner // self.lanes.unit.columns), self.tiles.stages
        rows, accumulators = len(running.tops), len(running.sums)
        lines, queries = self.tiles.lines(), self.queries.lines()
        self.unit.fence()
        scores = self._scores(lines, queries)
        self.unit.commit()
        scores = self._tiles(self.unit.done(scores))

        def body(number: ir.Value, stage: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            position, stage = _widened(number), _widened(stage)
            state, scores = running_rows(carried[: len(carried) - len(found)], rows), carried[-len(found) :]
            with self.mask.reader.scope():
                masked = self.mask.rows(list(scores), position)
                state, weights = state.weigh_unless_risen(masked, self.lanes, self.target, self.mask.factor)
                words = left_of.weight_words(self.unit, weights, self.tiles.keys, self.parts)
                following = self._later(stage, 1)
                self.tiles.arrived(stages - 2, self.barrier)
                self.tiles.start(0, b.add(position, stages * step), end, stage)
                self.tiles.start(1, b.add(position, (stages - 1) * step), end, self._later(stage, stages - 1))
                self.tiles.copies.close()
                sums = self._add(self.tiles.at(lines, stage), words, state.sums)
                coming = self._scores(self.tiles.at(lines, following), queries)
                self.unit.commit()
                tiles = self._tiles(self.unit.done([*sums, *coming]))
            return [_word(following), *state.tops, *state.totals, *tiles]

        found = scores
        first = [_word(0), *running.values(), *scores]
        results = b.loop(_word(start), _word(end), _word(step), first, body)
        return running_rows(results[1 : 1 + 2 * rows + accumulators], rows)

    def _later(self, stage: Index, steps: int) -> Index:
        """The stage of so many tiles further on."""
        later, stages = b.add(stage, steps), self.tiles.stages
        if stages & (stages - 1) == 0:
            return b.mod(later, stages)
        return b.select(b.less(later, stages), later, b.sub(later, stages))

    def _scores(self, lines: ir.Value, queries: ir.Value) -> list[ir.Value]:
        """Start to make them."""
        sums: list[ir.Value] = []
        for block in range(self.unit.inner // self.unit.block):
            skipped = 2 * block * self.unit.block
            column = self.unit.with_lower(lines, skipped)
            for part in range(self.queries.parts):
                left = [self.unit.with_lower(queries, part * query_bytes(self.unit) + skipped)]
                if sums:
                    sums = self.unit.multiply(left, column, sums)
                else:
                    sums = self.unit.start(left, column, self.tiles.keys // 2)
        return sums

    def _add(self, lines: ir.Value, words: left_of.Words, sums: list[ir.Value]) -> list[ir.Value]:
        """Start to add what weights make of values."""
        vectors = [flat(tile) for tile in sums]
        plain = [b.lane_of(vector, i) for vector in vectors for i in range(b.width_of(vector))]
        ready = self.unit.ready([*plain, *(word for parts in words for part in parts for word in part)])
        plain, rest = ready[: len(plain)], iter(ready[len(plain) :])
        for block, parts in enumerate(words):
            line_bytes = 2 * self.unit.inner
            rows = self.unit.with_lower(lines, (self.tiles.keys + block * self.unit.block) * line_bytes)
            for part in parts:
                plain = self.unit.multiply([next(rest) for _ in part], rows, plain, turned=True)
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
