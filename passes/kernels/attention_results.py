"""What a block's teams have summed, joined and written."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import store_log_sum, store_result
from lispgpt.passes.kernels.expand import LOG2_E
from lispgpt.passes.kernels.matrices import Lanes, flat, shaped
from lispgpt.passes.kernels.softmax import RunningRows, join_rows, running_rows
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.matrix import MatrixUnit


def share_size(unit: MatrixUnit, tiles: int) -> int:
    """f32 numbers that a lane has of its rows' sums."""
    return 2 * len(unit.pieces()) + tiles * prod(unit.accumulator)


def join_teams(
    running: RunningRows,
    lanes: Lanes,
    target: Gpu,
    memory: ir.Value,
    team: Index,
    thread: Index,
    write: Callable[[RunningRows], None],
) -> None:
    """The first team writes what all have.  memory: [other teams, share_size, threads of a team] f32, tiles' before.

    Threads behind those of all teams only wait with them.
    """
    others, size, _ = memory.type.shape
    sums = [flat(s) for s in running.sums]
    values = [*running.tops, *running.totals, *(b.lane_of(s, i) for s in sums for i in range(b.width_of(s)))]

    def publish() -> None:
        other = b.binary("arith.subi", team, b.as_value(1))
        for number, value in enumerate(values):
            b.store(value, memory, [other, number, thread])

    def join() -> None:
        shares = [running]
        for other in range(others):
            loaded = [b.load(memory, [other, number, thread], 1) for number in range(size)]
            shares.append(_share(loaded, lanes.unit))
        write(join_rows(shares, lanes, target))

    b.barrier()
    b.if_then(b.both(b.less(0, team), b.less(team, others + 1)), publish)
    b.barrier()
    b.if_then(b.equal(team, 0), join)


def _share(values: list[ir.Value], unit: MatrixUnit) -> RunningRows:
    rows, size = len(unit.pieces()), prod(unit.accumulator)
    vectors = [b.vector_of(values[i : i + size]) for i in range(2 * rows, len(values), size)]
    return running_rows([*values[: 2 * rows], *(shaped(v, unit.accumulator_type()) for v in vectors)], rows)


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

        def write_log_sum(place: Any = places[i], top: ir.Value = top, total: ir.Value = total) -> None:
            natural = b.binary("arith.mulf", top, b.constant(1 / LOG2_E, b.f32()))
            store_log_sum(kernel, attention, place, natural, total)

        live = None if inside is None else inside[i]
        b.if_live(live, write)
        if attention.log_sum:
            b.if_live(b.both(b.equal(lanes.result_column, 0), live), write_log_sum)
