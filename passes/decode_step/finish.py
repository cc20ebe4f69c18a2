"""The subgroup of a launch of one sequence that finishes what its block's others multiply: rows, and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import added, each, if_there, when
from lispgpt.passes.decode_step.chain import NormWeights
from lispgpt.passes.decode_step.hoisted import make_hoisted
from lispgpt.passes.decode_step.launch import Launch, dealt, moments_of
from lispgpt.passes.decode_step.layout import ATTENDED, GAMMAS, HOISTED, PARTS, RANKS, ROW, SUMS, THREE_ROLES, TWO_ROLES
from lispgpt.passes.decode_step.rows import HiddenUnits, Queries, Row, Rows
from lispgpt.passes.decode_step.sharing import Sharing
from lispgpt.passes.decode_step.softmax_merge import merge
from lispgpt.passes.targets import ptx


class Finisher:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def emit(self) -> None:
        launch, layout = self.launch, self.launch.layout

        def run(number: Number) -> None:
            if launch.chain.hoisted:
                make_hoisted(launch, launch.position + number, None, partial(_by_lanes, launch))
                ptx.arrive_at(HOISTED, TWO_ROLES)
            each(0, layout.layers, lambda layer: self._layer(number, layer))

        when(launch.layered, lambda: each(0, launch.times, run))

    def _moments(self, norm: NormWeights) -> list[Number]:
        """(mean, 1 / deviation) of the residual stream, once it is there."""
        launch, width = self.launch, self.launch.layout.width
        ptx.wait_at(ROW, TWO_ROLES)
        numbers: list[Number] = []
        for first in range(0, width, 128):
            four = ptx.load_reals(launch.place("residual_stream") + first * 4 + launch.lane * 16, 4)
            numbers += four if first + 128 <= width else [(launch.lane * 4 < width - first).where(x, 0.0) for x in four]
        total, square = added(numbers), added([x * x for x in numbers])
        for distance in (16, 8, 4, 2, 1):
            total, square = total + total.from_lane(distance), square + square.from_lane(distance)
        return list(moments_of(launch, total, square, norm.centred, norm.epsilon))

    def _layer(self, run: Number, layer: Number) -> None:
        launch, layout = self.launch, self.launch.layout
        with ExitStack() as stack:
            gammas = [self._gammas(layer, number) for number in layout.gammas]
            queries = Queries(stack, launch, layer, launch.lane, 32)
            if gammas:
                for place, loaded in enumerate(gammas):
                    self._leave_gammas(place, loaded)
                ptx.arrive_at(GAMMAS, TWO_ROLES)
            self._leave(queries, layout.qkv, "qkv_sums")
        nbytes = RANKS * layout.each * (4 * layout.depth + 8)
        when(launch.lane == 0, lambda: ptx.expect(launch.barrier("merged"), nbytes))
        ptx.wait_at(PARTS, TWO_ROLES)
        merge(launch, launch.position + run, launch.at_layer(run, layer))
        ptx.arrive_at(ATTENDED, THREE_ROLES)
        with ExitStack() as stack:
            self._leave(HiddenUnits(stack, launch, layer, launch.lane, 32), layout.up, "up_sums")

    def _leave(self, rows: Rows, sharing: Sharing, name: str) -> None:
        """Of a product of the normed residual stream."""
        moments, there, step = self._moments(rows.norm), self.launch.place("moments"), 4 * 8 * sharing.all
        when(self.launch.lane == 0, lambda: ptx.store_words(there, moments))  # else they are made behind the barrier
        ptx.wait_at(SUMS, TWO_ROLES)
        mean, factor = ptx.load_reals(there, 2)

        def sum_of(row: Row, number: int) -> Number:
            start = self.launch.place(name) + (row.row + number * rows.count) * 4
            return added([ptx.load_reals(start + step * i, 1)[0] for i in range(sharing.slices)])

        rows.leave(sum_of, lambda _: (mean, factor))

    def _gammas(self, layer: Number, number: int) -> list[Number]:
        """A lane's weights of a norm of heads: each 32nd."""
        launch, depth, norm = self.launch, self.launch.layout.depth, self.launch.chain.head_norms[number]
        weights = launch.view(norm.arguments[norm.gamma], layer, ir.MemRefType.get([depth], b.f32()))
        return [Number(b.load(weights, [column.index()], 1)) for column, _ in dealt(launch.lane, 32, depth)]

    def _leave_gammas(self, place: int, loaded: Sequence[Number]) -> None:
        launch, depth = self.launch, self.launch.layout.depth
        for (column, there), weight in zip(dealt(launch.lane, 32, depth), loaded, strict=True):
            to = launch.place("gammas") + 4 * depth * place + column * 4
            if_there(there, partial(ptx.store_words, to, [weight]))


def _by_lanes(launch: Launch, count: int, body: Callable[[Number], None]) -> None:
    each(launch.lane, count, body, 32)
