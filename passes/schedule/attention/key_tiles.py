"""Tiles of what attention goes along, keys and values or queries, in shared memory and in bf16: how threads bring them
there and how lanes read them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, read_operand
from lispgpt.passes.kernels.matrices import Lanes, split
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.targets import Gpu

LEAST_RUN = 4
"""Neighbouring threads that load along d, whose 16 bytes each are memory's 64 then."""


@dataclass(frozen=True)
class Rows:
    """Rows of `width` bf16 numbers in shared memory, `padding` apart.

    Row r has its columns exchanged by r % turns * run in exclusive or, which puts what lanes read at once on different
    banks where rows have no padding.
    """

    count: int
    width: int
    padding: int
    turns: int = 1
    run: int = 0

    @property
    def stride(self) -> int:
        return self.width + self.padding

    def column(self, row: Index, column: Index) -> Index:
        """Where in its row an aligned run of at most `run` columns starts."""
        if self.turns == 1:
            return column
        shift = b.mul(b.mod(row, self.turns), self.run)
        return b.emit("arith.xori", [b.as_value(column), b.as_value(shift)], [ir.IndexType.get()])


@dataclass(frozen=True)
class Staged:
    """An operand that is staged.  scores, sums: whether it is the right operand of products that make scores, and of
    those in which they weigh it."""

    operand: Operand
    scores: bool
    sums: bool


class OperandLayout:
    """What a tile of `count` vectors of an operand takes: in shared memory, in `parts` bf16 parts, and of `threads`
    threads, each of which brings `vectors` times `width` numbers."""

    def __init__(self, staged: Staged, target: Gpu, count: int, threads: int, for_warpgroups: bool) -> None:
        assert target.matrix is not None
        self.staged, self.unit, self.count, self.threads = staged, target.matrix, count, threads
        item_bytes = b.item_bytes(staged.operand.element)
        self.depth, self.parts = staged.operand.depth, 1 if item_bytes == 2 or staged.operand.rounded else 2
        self.width = b.largest_width(self.depth, item_bytes, target.vector_bytes)
        self.vectors = -(-count * self.depth // self.width // threads)
        self.words = self.vectors * self.width * item_bytes // 4
        self.padded = -(-self.depth // self.unit.block) * self.unit.block
        self.for_warpgroups = for_warpgroups
        self.both = staged.scores and staged.sums and self.unit.result_as_left
        self.rows = [*([self._for_scores()] if staged.scores and not self.both else [])]
        self.rows += [self._for_sums()] if staged.sums else []

    def _for_scores(self) -> Rows:
        """Eight lanes read 64 bytes of two neighbouring rows at once."""
        if self.for_warpgroups:
            return Rows(self.count, self.depth, 0, 8, 8)
        turns = self.unit.padding == 0 and self.padded % 64 == 0
        return Rows(self.count, self.padded, self.unit.padding, *((2, 32) if turns else ()))

    def _for_sums(self) -> Rows:
        """As they are where the unit can turn them: it reads 16 bytes of eight neighbouring rows at once."""
        if not self.unit.result_as_left:
            return Rows(self.depth, self.count, self.unit.padding)
        width = self.padded if self.both else self.depth
        if width % 64 == 0:
            return Rows(self.count, width, 0, 8, 8)
        return Rows(self.count, width, 8 if width % 16 == 0 else 0)

    @property
    def is_transposed(self) -> bool:
        """Whether sums read it with neighbouring vectors' numbers side by side."""
        return self.staged.sums and not self.unit.result_as_left

    def part_bytes(self, which: int) -> int:
        return 2 * self.rows[which].count * self.rows[which].stride

    @property
    def nbytes(self) -> int:
        """In shared memory."""
        return sum(self.part_bytes(which) for which in range(len(self.rows))) * self.parts

    def live(self, thread: Index, number: int, count: int) -> ir.Value | None:
        """Whether a thread's number-th of `count` tasks is one; None where it always is."""
        linear = b.add(thread, number * self.threads)
        return b.less(linear, count) if (number + 1) * self.threads > count else None

    def place(self, thread: Index, number: int) -> tuple[Index, Index]:
        """(vector, d) of a thread's number-th load: neighbouring threads go along d, or where shared memory only holds
        them transposed along the vectors.  Where it can be each load is as far from the first for all threads: else
        lanes need registers for the places of all of them."""
        per_row, transposed = self.depth // self.width, self.is_transposed and not self.staged.scores
        inner, outer = (self.count, per_row) if transposed else (per_row, self.count)
        along = gcd(inner, self.threads)
        if along >= min(LEAST_RUN, inner) and outer % (self.threads // along) == 0:
            step = self.threads // along
            first, run = divmod(number, inner // along)
            i, o = b.add(b.mod(thread, along), run * along), b.add(b.div(thread, along), first * step)
        else:
            linear = b.add(thread, number * self.threads)
            i, o = b.mod(linear, inner), b.mod(b.div(linear, inner), outer)
        return (i, b.mul(o, self.width)) if transposed else (o, b.mul(i, self.width))


class TileLayout:
    """Of all operands that are staged together."""

    def __init__(
        self, staged: Sequence[Staged], target: Gpu, count: int, threads: int, for_warpgroups: bool = False
    ) -> None:
        """for_warpgroups: whether all are right operands of warpgroup instructions, in their layout."""
        assert target.matrix is not None
        self.operands = [OperandLayout(one, target, count, threads, for_warpgroups) for one in staged]
        self.unit, self.count, self.threads = target.matrix, count, threads

    @property
    def words(self) -> int:
        """Registers of a thread that one tile takes on its way."""
        return sum(one.words for one in self.operands)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.operands)


class Tiles:
    """Each team's tile.

    memory: gives what starts at a byte of the block's shared memory, with its shape and type.  thread: of the team.
    place: gives the leading indices and the position of what is staged at an index.  last: the largest of these.
    """

    def __init__(
        self,
        layout: TileLayout,
        reader: Reader,
        lanes: Lanes,
        memory: Callable[[int, list[int], ir.Type], ir.Value],
        teams: int,
        team: Index,
        thread: Index,
        place: Callable[[Index], tuple[Place, Index]],
        last: Index,
    ) -> None:
        self.layout, self.unit = layout, layout.unit
        self.reader, self.lanes, self.team, self.thread = reader, lanes, team, thread
        self.place, self.last = place, last
        self.memories: list[list[ir.Value]] = []
        start = 0
        for one in layout.operands:
            views = []
            for which, rows in enumerate(one.rows):
                views.append(memory(start, [teams, one.parts, rows.count, rows.stride], ir.BF16Type.get()))
                start += teams * one.parts * one.part_bytes(which)
            self.memories.append(views)

    def offset(self, number: int, part: int) -> Index:
        """Bytes from the start of an operand's first memory to a part of the team's tile."""
        one = self.layout.operands[number]
        return b.mul(b.add(b.mul(self.team, one.parts), part), one.part_bytes(0))

    def load(self, start: Index) -> list[ir.Value]:
        """This thread's vectors of each operand from the `start`-th on; past the last, the last's."""
        return [self._load(one, number, start) for one in self.layout.operands for number in range(one.vectors)]

    def _load(self, one: OperandLayout, number: int, start: Index) -> ir.Value:
        t, d = one.place(self.thread, number)
        place, position = self.place(b.at_most(b.add(start, t), self.last))
        return read_operand(self.reader, one.staged.operand, place, position, d, one.width)

    def store(self, loaded: list[ir.Value]) -> None:
        """Put what load gave in shared memory."""
        rest = iter(loaded)
        self._fill(lambda one, number: next(rest))

    def bring(self, start: Index) -> None:
        """Load and store vector by vector, where registers are too few for all of a tile at once."""
        self._fill(lambda one, number: self._load(one, number, start))

    def _fill(self, given: Callable[[OperandLayout, int], ir.Value]) -> None:
        for one, memories in zip(self.layout.operands, self.memories, strict=True):
            for number in range(one.vectors):
                value, live = given(one, number), one.live(self.thread, number, one.count * one.depth // one.width)
                b.if_live(live, partial(self._store, one, memories, value, *one.place(self.thread, number)))
            if one.staged.scores:
                self._clear_padding(one, memories[0])

    def _store(self, one: OperandLayout, memories: list[ir.Value], value: ir.Value, t: Index, d: Index) -> None:
        pieces = [b.shortened(value, ir.BF16Type.get())] if one.parts == 1 else split(value)
        for part, piece in enumerate(pieces):
            for which, memory in enumerate(memories):
                if one.is_transposed and which == len(memories) - 1:
                    for i in range(one.width):
                        b.store(b.lane_of(piece, i), memory, [self.team, part, b.add(d, i), t])
                else:
                    b.store(piece, memory, [self.team, part, t, one.rows[which].column(t, d)])

    def _clear_padding(self, one: OperandLayout, memory: ir.Value) -> None:
        """Zero what lies past the depth, which matrix instructions multiply too."""
        excess = one.padded - one.depth
        zero, count = b.constant(0.0, ir.BF16Type.get()), one.count * excess

        def clear(place: Index) -> None:
            t, d = b.div(place, excess), b.add(one.depth, b.mod(place, excess))
            for part in range(one.parts):
                b.store(zero, memory, [self.team, part, t, one.rows[0].column(t, d)])

        for number in range(-(-count // one.threads)):
            place = b.add(self.thread, number * one.threads)
            b.if_live(one.live(self.thread, number, count), partial(clear, place))

    def score_run(self, operand: int, part: int, number: int, block: int) -> ir.Value:
        """The lane's run, in block `block` of the depth, of the number-th tile of an operand's vectors."""
        t = b.add(self.lanes.row, number * self.unit.columns)
        d = b.add(block * self.unit.block, b.mul(self.lanes.group, self.unit.run))
        rows = self.layout.operands[operand].rows[0]
        memory = self.memories[operand][0]
        runs = [[self.team, part, t, rows.column(t, b.add(d, i))] for i in range(0, self.unit.run, 8)]
        return b.joined([b.load(memory, place, 8) for place in runs])

    def sum_run(self, operand: int, part: int, number: int, block: int) -> ir.Value:
        """The lane's run, in block `block` of the vectors, of the number-th columns of what is weighed."""
        rows, memory = self.layout.operands[operand].rows[-1], self.memories[operand][-1]
        if self.unit.result_as_left:
            t = b.add(self.lanes.lane, block * self.unit.block)
            d = rows.column(self.lanes.lane, number * self.unit.columns)
            return self.unit.load_right(memory, [b.as_value(i) for i in (self.team, part, t, d)])
        d = b.add(self.lanes.row, number * self.unit.columns)
        t = b.add(block * self.unit.block, b.mul(self.lanes.group, self.unit.run))
        return b.joined([b.load(memory, [self.team, part, d, b.add(t, i)], 8) for i in range(0, self.unit.run, 8)])
