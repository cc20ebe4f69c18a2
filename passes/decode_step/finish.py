"""The finisher of a clustered launch: a subgroup that makes results of subgroups' sums, and sends them to the cluster's
ranks.

With x·gamma for a product's operand, sums S of its weights with it, G with gamma and B with beta, the product of the
normed residual stream is (S - mean · G) / deviation + B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import added, each, if_there, lesser, when, word
from lispgpt.passes.decode_step.chain import NormWeights
from lispgpt.passes.decode_step.deferred_norms import load_sums, normed
from lispgpt.passes.decode_step.hoisted import make_hoisted
from lispgpt.passes.decode_step.launch import Copied, Launch, finished, moments_of, preload
from lispgpt.passes.decode_step.layout import (
    ATTENDED,
    GAMMAS,
    HOISTED,
    PARTS,
    RANKS,
    ROW,
    SUMS,
    THREE_ROLES,
    TWO_ROLES,
)
from lispgpt.passes.decode_step.products import PAIR, parts_of_pair
from lispgpt.passes.decode_step.residual import sums_across
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
        total, square = sums_across(numbers)
        return list(moments_of(launch, total, square, norm.centred, norm.epsilon))

    def _layer(self, run: Number, layer: Number) -> None:
        launch, chain = self.launch, self.launch.chain
        position = launch.position + run
        with finished(launch, chain.qkv, layer) as made:
            self._queries(layer, made)
        nbytes = RANKS * launch.layout.each * (4 * launch.layout.depth + 8)
        when(launch.lane == 0, lambda: ptx.expect(launch.barrier("merged"), nbytes))
        ptx.wait_at(PARTS, TWO_ROLES)
        merge(launch, position, launch.at_layer(run, layer))
        ptx.arrive_at(ATTENDED, THREE_ROLES)
        with ExitStack() as stack:
            self._hidden(layer, [stack.enter_context(finished(launch, up, layer)) for up in chain.gate_up])

    def _row_sums(
        self, sharing: Sharing, name: str, rows: Sequence[Number], norm: NormWeights, known: Sequence[Sequence[Number]]
    ) -> list[Number]:
        """Rows of a product of the normed residual stream.  known: of each, sums of the norm's own weights."""
        moments, there = self._moments(norm), self.launch.place("moments")
        when(self.launch.lane == 0, lambda: ptx.store_words(there, moments))  # else they are made behind the barrier
        ptx.wait_at(SUMS, TWO_ROLES)
        mean, factor = ptx.load_reals(there, 2)
        place = self.launch.place(name)
        totals = [self._sum(sharing, place + row * 4) for row in rows]
        return [normed(norm, total, sums, mean, factor) for total, sums in zip(totals, known, strict=True)]

    @staticmethod
    def _sum(sharing: Sharing, start: Number) -> Number:
        step = 4 * 8 * sharing.all
        return added([ptx.load_reals(start + step * i, 1)[0] for i in range(sharing.slices)])

    def _finished(self, made: Copied, place: Sequence[object], value: Number) -> Number:
        """What the ops behind a product make of a sum."""
        made.hold_product(value.value, place)
        return Number(made.reader.read(made.result, list(place)))

    def _queries(self, layer: Number, made: Copied) -> None:
        """A lane's rows of queries, keys or values, to all ranks."""
        launch, layout = self.launch, self.launch.layout
        count = 8 * layout.qkv_tiles
        lanes_ = [launch.lane + 32 * turn for turn in range(-(-count // 32))]
        rows = [lesser(row, word(count - 1)) for row in lanes_]
        numbers = [(row // 8) * (8 * RANKS) + launch.rank * 8 + row % 8 for row in rows]
        last = word(launch.chain.qkv.rows - 1)
        columns = [lesser(launch.row_of_heads(number), last) for number in numbers]
        places = [[0, column.index()] for column in columns]
        gammas = [self._gammas(layer, number) for number in layout.gammas]
        for place in places:
            preload(made, place, 1)
        known = [load_sums(launch, launch.chain.qkv, layer, column) for column in columns]
        if gammas:
            for turn, loaded in enumerate(gammas):
                self._leave_gammas(turn, loaded)
            ptx.arrive_at(GAMMAS, TWO_ROLES)
        sums = self._row_sums(layout.qkv, "qkv_sums", rows, launch.chain.norms[0], known)
        for lane, number, place, value in zip(lanes_, numbers, places, sums, strict=True):
            value = self._finished(made, place, value)
            there = (lane < count).where(number, layout.head_rows) < layout.head_rows
            four = (number - launch.lane % 4) * 4, launch.of_neighbours([value], 4)
            if_there(there, partial(launch.send, "own", [four], 4))

    def _gammas(self, layer: Number, number: int) -> list[Number]:
        """A lane's weights of a norm of heads: each 32nd."""
        launch, depth, norm = self.launch, self.launch.layout.depth, self.launch.chain.head_norms[number]
        weights = launch.view(norm.arguments[norm.gamma], layer, ir.MemRefType.get([depth], b.f32()))
        columns = [lesser(launch.lane + first, word(depth - 1)) for first in range(0, depth, 32)]
        return [Number(b.load(weights, [column.index()], 1)) for column in columns]

    def _leave_gammas(self, place: int, loaded: Sequence[Number]) -> None:
        launch, depth = self.launch, self.launch.layout.depth
        for turn, weight in enumerate(loaded):
            column = launch.lane + 32 * turn
            to = launch.place("gammas") + 4 * depth * place + column * 4
            there = None if 32 * turn + 32 <= depth else column < depth
            if_there(there, partial(ptx.store_words, to, [weight]))

    def _hidden(self, layer: Number, made: Sequence[Copied]) -> None:
        """A lane's hidden units, as parts of the next product's operand, to all ranks."""
        launch, layout, chain = self.launch, self.launch.layout, self.launch.chain
        own = launch.cluster * layout.hidden + launch.rank * layout.hidden_rows
        count = layout.hidden_rows
        lanes_ = [launch.lane + 32 * turn for turn in range(-(-count // 32))]
        numbers = [lesser(number, word(count - 1)) if count % 32 else number for number in lanes_]
        last = word(chain.down.depth - 1)
        columns = [lesser(own + number, last) for number in numbers]
        places = [[0, column.index()] for column in columns]
        for one in made:
            for place in places:
                preload(one, place, 1)
        rows = [number + i * count for i in range(len(made)) for number in numbers]
        known = [load_sums(launch, up, layer, column) for up in chain.gate_up for column in columns]
        sums = self._row_sums(layout.up, "up_sums", rows, chain.norms[1], known)
        for turn, (lane, number, place) in enumerate(zip(lanes_, numbers, places, strict=True)):
            unit = self._finished(made[0], place, sums[turn])
            if len(made) > 1:
                before = chain.gate_up[1].residual_stream
                assert before is not None
                made[1].hold(before, unit.value, place)
                unit = self._finished(made[1], place, sums[len(numbers) + turn])
            k = number + launch.rank * count
            there = lane < count if count % 32 and turn == len(lanes_) - 1 else None
            pair = k // 2 * PAIR, parts_of_pair(*launch.of_neighbours([unit], 2))
            if_there(there, partial(launch.send, "hidden_units", [pair], 2))


def _by_lanes(launch: Launch, count: int, body: Callable[[Number], None]) -> None:
    each(launch.lane, count, body, 32)
