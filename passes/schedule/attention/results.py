"""What a block's teams have summed, joined and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import store_log_sum, store_result
from lispgpt.passes.kernels.block_memory import dynamic_bytes
from lispgpt.passes.kernels.block_rows import BlockRows
from lispgpt.passes.kernels.expand import LOG2_E, exp2
from lispgpt.passes.kernels.matrices import Lanes, flat
from lispgpt.passes.kernels.softmax import RunningRows
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.targets import Gpu

PADDING = 8
"""f32 numbers between rows of sums in shared memory, which keep lanes that hold rows' pairs off each other's banks."""

WIDTH = 4
"""Numbers of a row that a thread adds up and stores."""


@dataclass(frozen=True)
class TeamSums:
    """Where a block's teams put what they have of its rows, for all of their threads to join it: each row's sums, and
    its top and total.

    count: of teams.  rows: of the block.  width: numbers of a row's sums.  ahead: bytes of the block's memory that its
    tiles take.  apart: whether sums lie behind these, and not in their place.
    """

    count: int
    rows: int
    width: int
    ahead: int
    apart: bool

    @classmethod
    def of(cls, count: int, rows: int, width: int, ahead: int, target: Gpu, aligned: bool) -> TeamSums:
        """Apart where as many blocks have room on a core then.  aligned: whether the block's memory is, to 1024."""
        apart, instead = (cls(count, rows, width, ahead, each) for each in (True, False))
        taken = [max(n, dynamic_bytes(target, n, aligned)) for n in (apart.nbytes, instead.nbytes)]
        blocks = [target.dynamic_shared_bytes // nbytes for nbytes in taken]
        return apart if blocks[0] == blocks[1] else instead

    @property
    def _sum_bytes(self) -> int:
        return self.count * self.rows * (self.width + PADDING) * 4

    @property
    def _facts_at(self) -> int:
        """Where tops and totals are, which no tile may have."""
        return self.ahead + self._sum_bytes if self.apart else max(self.ahead, self._sum_bytes)

    @property
    def nbytes(self) -> int:
        """What tiles and sums take of the block's memory."""
        return self._facts_at + self.count * self.rows * 2 * 4

    def join(
        self,
        running: RunningRows,
        block: BlockRows,
        kernel: ir.Operation,
        memory: Callable[[int, Sequence[int], ir.Type], ir.Value],
        member: tuple[Index, Index, Index],
    ) -> None:
        """By all threads of the block.  memory: gives what is at a byte of the block's.

        member: a thread's number, its team, and the first of its subgroup's rows; threads behind those of all teams
        only wait with them.
        """
        lanes, f32 = block.lanes, b.f32()
        thread, team, first = member
        facts = memory(self._facts_at, [self.count, self.rows, 2], f32)
        sums = memory(self.ahead if self.apart else 0, [self.count, self.rows, self.width + PADDING], f32)
        rows = [b.add(first, b.add(lanes.result_row, piece.row)) for piece in lanes.unit.pieces()]
        mine = b.less(team, self.count)

        def tell() -> None:
            for row, top, total in zip(rows, running.tops, running.totals, strict=True):
                b.store(b.vector_of([top, total]), facts, [team, row, 0])

        def put() -> None:
            b.if_then(_is_first(lanes), tell)
            for number, row in enumerate(rows):
                self._put(sums, team, row, lanes, running, number)

        if not self.apart:
            b.barrier()  # others may still read their tiles
        b.if_then(mine, put)
        b.barrier()
        b.if_then(mine, lambda: self._add_up(sums, facts, block, kernel, thread))

    def _shares(self, facts: ir.Value, row: Index, target: Gpu) -> tuple[list[ir.Value], ir.Value, ir.Value]:
        """What each team's sums of a row count in the whole's; the row's largest top, and the total below it."""
        told = [b.load(facts, [team, row, 0], 2) for team in range(self.count)]
        tops, totals = ([b.lane_of(one, i) for one in told] for i in range(2))
        top = tree("arith.maxnumf", tops)
        scales = [exp2(b.binary("arith.subf", each, top), target) for each in tops]
        parts = [b.binary("arith.mulf", total, scale) for total, scale in zip(totals, scales, strict=True)]
        total = tree("arith.addf", parts)
        inverse = b.binary("arith.divf", b.constant(1.0, b.f32()), total)
        return [b.binary("arith.mulf", scale, inverse) for scale in scales], top, total

    def _put(self, memory: ir.Value, team: Index, row: Index, lanes: Lanes, running: RunningRows, number: int) -> None:
        """The sums of the lane's number-th row."""
        elements = lanes.unit.pieces()[number].elements
        for tile, total in enumerate(map(flat, running.sums)):
            value = b.vector_of([b.lane_of(total, e) for e in elements])
            b.store(value, memory, [team, row, b.add(lanes.result_column, tile * lanes.unit.columns)])

    def _add_up(self, sums: ir.Value, facts: ir.Value, block: BlockRows, kernel: ir.Operation, thread: Index) -> None:
        threads = self.count * self.rows // 16 * block.target.subgroup
        each, attention = self.width // WIDTH, block.attention
        vectors = self.rows * each

        def store(row: Index, column: Index) -> None:
            shares, top, total = self._shares(facts, row, block.target)
            place = block.place(b.add(block.first, row))
            if attention.log_sum:
                b.if_then(b.equal(column, 0), lambda: _write_log_sum(kernel, attention, place, top, total))
            own = [b.load(sums, [team, row, column], WIDTH) for team in range(self.count)]
            parts = [b.binary("arith.mulf", x, b.splat(n, WIDTH)) for x, n in zip(own, shares, strict=True)]
            where = attention.out.index(place, None, column)
            store_result(kernel, attention, tree("arith.addf", parts), where)

        for skipped in range(0, vectors, threads):
            vector = b.add(thread, skipped)
            row, column = b.div(vector, each), b.mul(b.mod(vector, each), WIDTH)
            here = None if skipped + threads <= vectors else b.less(vector, vectors)
            b.if_live(b.both(here, block.inside(b.add(block.first, row))), partial(store, row, column))


def _is_first(lanes: Lanes) -> ir.Value:
    """Whether a lane is the first of those that hold a row."""
    return b.equal(lanes.result_column, 0)


def _write_log_sum(
    kernel: ir.Operation, attention: Attention, place: list[Index], top: ir.Value, total: ir.Value
) -> None:
    """top: times log2 e, as rows hold it."""
    natural = b.binary("arith.mulf", top, b.constant(1 / LOG2_E, b.f32()))
    store_log_sum(kernel, attention, place, natural, total)


def write_rows(
    running: RunningRows,
    lanes: Lanes,
    kernel: ir.Operation,
    attention: Attention,
    places: list[list[Index]],
    inside: list[ir.Value] | None,
) -> None:
    """Each row's sums over its total, and its log-sum-exp where the kernel has that.  places: of the lane's rows in the
    scores.  inside: whether they are rows at all."""
    out = attention.out
    for i, piece in enumerate(lanes.unit.pieces()):
        top, total, start = running.tops[i], running.totals[i], out.index(places[i], None, lanes.result_column)
        inverse = b.binary("arith.divf", b.constant(1.0, b.f32()), total)

        def write(elements: tuple[int, ...] = piece.elements, inverse: ir.Value = inverse, start: Any = start) -> None:
            for n, sums in enumerate(running.sums):
                vector = flat(sums)
                value = b.vector_of([b.binary("arith.mulf", b.lane_of(vector, e), inverse) for e in elements])
                where = [*start[:-1], b.add(start[-1], n * lanes.unit.columns)]
                store_result(kernel, attention, value, where)

        live = None if inside is None else inside[i]
        b.if_live(live, write)
        if attention.log_sum:
            write_sum = partial(_write_log_sum, kernel, attention, places[i], top, total)
            b.if_live(b.both(_is_first(lanes), live), write_sum)
