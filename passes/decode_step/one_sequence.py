"""The roles of a block of one sequence: who multiplies, who finishes rows and attention, and who exchanges.

Where the layout holds weights, subgroups load a product's while they wait for what is ahead of it: those of a layer's
first two while clusters add up the residual stream ahead of it, the others' while they add up what attention gives.
Weights of columns that are to be made BF16, which takes long, are loaded while ranks finish what they are multiplied
by.  Who finishes and who exchanges are subgroups of their own: a token of GPT-2 of 124M on an H200 takes 1.00 to 1.16
of the time where those that multiply finish, too, and 1.3 to 1.6 where they exchange as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import added, each, either, given, loop, real, turns, when, word
from lispgpt.passes.decode_step.attention import NewRow, PastRows, make_hoisted, merge
from lispgpt.passes.decode_step.chain import NormWeights
from lispgpt.passes.decode_step.draw import Draw
from lispgpt.passes.decode_step.fixed_point_sums import part_of_sum
from lispgpt.passes.decode_step.kv_cache import release_rows
from lispgpt.passes.decode_step.largest_logit import Choice, choose, chosen_before, end, leave, publish, report
from lispgpt.passes.decode_step.launch import Launch, Role, dealt, moments_of, over_lanes
from lispgpt.passes.decode_step.layout import (
    ATTENDED,
    GAMMAS,
    HOISTED,
    LINE,
    PARTS,
    RANKS,
    RESIDUAL_STREAM,
    ROW,
    SUBGROUPS,
    SUMS,
    THREE_ROLES,
    TOKEN,
    TWO_ROLES,
    Sharing,
)
from lispgpt.passes.decode_step.lm_head import OneLmHead
from lispgpt.passes.decode_step.products import ColumnProducts, Products, RowProducts
from lispgpt.passes.decode_step.residual import OneResidual
from lispgpt.passes.decode_step.rows import HiddenUnits, Queries, Row, Rows
from lispgpt.passes.decode_step.weight_copies import chunks_ahead
from lispgpt.passes.targets import ptx


class Multipliers:
    def __init__(self, launch: Launch) -> None:
        self.launch, self.lm_head = launch, OneLmHead(launch)

    def emit(self) -> None:
        launch, layout = self.launch, self.launch.layout
        residual, norm = OneResidual(launch), launch.chain.norms[2]
        wide = len(residual.kinds)

        def run(number: Number, chunk: Number, *seen: Number) -> list[Number]:
            def layers() -> list[Number]:
                def layer(n: Number, first: Number, *carried: Number) -> list[Number]:
                    since, *words = carried
                    found = self._layer(number, n, first, since, words[:wide], [words[wide:-wide], words[-wide:]])
                    return [first + layout.layer_chunks, *found]

                none = [real(0.0)] * wide
                after, since, *carried = loop(0, layout.layers, [chunk, word(0), *none, *seen], layer)
                residual_stream, first, second = carried[:wide], carried[wide:-wide], carried[-wide:]
                residual_stream, second = residual.added(
                    1, launch.chain.down, word(layout.layers - 1), residual_stream, second, since
                )
                if layout.others:
                    residual.leave(number, residual_stream)
                return [after, *residual_stream, *first, *second]

            def others() -> list[Number]:
                return [chunk, *residual.final(number), *seen]

            kinds = "r" + residual.kinds + 2 * wide * "l"
            chunk, *found = either(launch.layered, kinds, layers, others)
            self.lm_head.put(residual, residual.normed(found[:wide], norm, residual.weights(norm, 0)))
            launch.synchronize()
            self.lm_head.emit(chunk, number)
            launch.synchronize()
            return [chunk + chunks_ahead(launch), *found[wide:]]

        first, second = residual.before()
        _, *seen = loop(0, launch.times, [word(0), *first, *second], run)
        residual.keep([seen[:wide], seen[wide:]])

    def _layer(
        self,
        run: Number,
        layer: Number,
        chunk: Number,
        since: Number,
        residual_stream: Sequence[Number],
        seen: Sequence[Sequence[Number]],
    ) -> list[Number]:
        """When the layer's second addition began, the residual stream ahead of it, and what was read of the sums of
        both. since, residual stream, seen: the same of the layer ahead."""
        launch = self.launch.again()
        layout, chain, products, residual = launch.layout, launch.chain, Products(launch), OneResidual(launch)
        wide = len(residual_stream)
        qkv = RowProducts(products, "qkv", layout.qkv, "qkv_sums")
        up = RowProducts(products, "up0", layout.up, "up_sums")
        count = layout.attended // LINE
        out_projection = ColumnProducts(
            products, "out_projection", layout.out_projection, count, "attended", "out_projection_sums"
        )
        down = ColumnProducts(products, "down", layout.down, layout.hidden // LINE, "hidden_units", "down_sums")
        past = PastRows(launch, layer, launch.position + run, launch.at_layer(run, layer))
        qkv.prepare(chunk)
        if not out_projection.packed:
            out_projection.prepare(chunk + layout.first_out_projection)
        (gamma, *_) = residual.weights(chain.norms[0], layer)

        def behind_a_layer() -> list[Number]:
            both = residual.added(1, chain.down, layer - 1, residual_stream, seen[1], since)
            return [*both[0], *both[1]]

        def at_first() -> list[Number]:
            ptx.wait_at(TOKEN, TWO_ROLES)
            return [*residual.of_tokens(run), *seen[1]]

        found = either(layer > 0, residual.kinds + wide * "l", behind_a_layer, at_first)
        residual_stream, second = found[:wide], found[wide:]
        self._hand_on(residual, residual_stream, gamma, qkv)
        further = past.load(range(past.near, past.turns))
        qkv.multiply()
        ptx.arrive_at(SUMS, TWO_ROLES)
        if out_projection.packed:
            out_projection.prepare(chunk + layout.first_out_projection)
        rows = past.load_near() + further
        if chain.hoisted:
            when(layer == 0, lambda: ptx.wait_at(HOISTED, TWO_ROLES))
        if layout.gammas:
            ptx.wait_at(GAMMAS, TWO_ROLES)
        launch.await_ranks("own", 4 * layout.head_rows, launch.at_layer(run, layer))
        past.attend(rows)
        with given(launch.subgroup >= SUBGROUPS - layout.kv):
            one = NewRow(launch, layer, launch.position + run)
            when(one.owns, lambda: one.attend(word(SUBGROUPS - 1) - launch.subgroup))
        ptx.arrive_at(PARTS, TWO_ROLES)
        if not layout.near:
            self._fetch(run, (layer + 1) % layout.layers)
        ptx.wait_at(ATTENDED, THREE_ROLES)
        out_projection.multiply()
        ptx.arrive_at(RESIDUAL_STREAM, TWO_ROLES)
        since = ptx.clock()
        if layout.near:  # and no earlier, as copies would be in the way of attention's parts
            release_rows(launch, layer)
        up.prepare(chunk + layout.first_up)
        if not down.packed:
            down.prepare(chunk + layout.first_down)
        (gamma, *_) = residual.weights(chain.norms[1], layer)
        residual_stream, first = residual.added(0, chain.out_projection, layer, residual_stream, seen[0], since)
        self._hand_on(residual, residual_stream, gamma, up)
        up.multiply()
        ptx.arrive_at(SUMS, TWO_ROLES)
        if down.packed:
            down.prepare(chunk + layout.first_down)
        launch.await_ranks("hidden_units", 8 * layout.hidden, launch.at_layer(run, layer))
        down.multiply()
        ptx.arrive_at(RESIDUAL_STREAM, TWO_ROLES)
        return [ptx.clock(), *residual_stream, *first, *second]

    def _hand_on(
        self, residual: OneResidual, numbers: Sequence[Number], gamma: Sequence[Number], product: RowProducts
    ) -> None:
        """The residual stream to a product, times a norm's gamma, and to the finisher, as it is."""
        for piece, own in residual.by_pieces(numbers):
            to = self.launch.place("residual_stream") + piece.number * 8
            when(piece.works, partial(ptx.store_words, to, own))
        product.operand.put(residual, [x * g for x, g in zip(numbers, gamma, strict=True)])
        ptx.arrive_at(ROW, TWO_ROLES)
        self.launch.synchronize()

    def _fetch(self, run: Number, layer: Number) -> None:
        """Bring earlier positions' keys and values of a layer, the next one, to the cache of all cores."""
        launch = self.launch.again()
        PastRows(launch, layer, launch.position + run).fetch()


class Finisher(Role):
    def emit(self) -> None:
        launch, layout = self.launch, self.launch.layout
        with given(launch.layered), turns(0, launch.times) as run:
            if launch.chain.hoisted:
                make_hoisted(launch, launch.position + run, None, lambda n, made: each(launch.lane, n, made, 32))
                ptx.arrive_at(HOISTED, TWO_ROLES)
            with turns(0, layout.layers) as layer:
                self._layer(run, layer)

    def _moments(self, norm: NormWeights) -> list[Number]:
        """(mean, 1 / deviation) of the residual stream, once it is there."""
        launch, width = self.launch, self.launch.layout.width
        ptx.wait_at(ROW, TWO_ROLES)
        numbers: list[Number] = []
        for first in range(0, width, 128):
            four = ptx.load_reals(launch.place("residual_stream") + first * 4 + launch.lane * 16, 4)
            numbers += four if first + 128 <= width else [(launch.lane * 4 < width - first).where(x, 0.0) for x in four]
        total, square = added(numbers), added([x * x for x in numbers])
        total, square = over_lanes([total, square])
        return list(moments_of(launch, total, square, norm.centred, norm.epsilon))

    def _layer(self, run: Number, layer: Number) -> None:
        launch, layout = self.launch, self.launch.layout
        gammas = [self._gammas(layer, number) for number in layout.gammas]
        queries = Queries(launch, layer, launch.lane, 32)
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
        self._leave(HiddenUnits(launch, layer, launch.lane, 32), layout.up, "up_sums")

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
            when(there, partial(ptx.store_words, to, [weight]))


class Exchanger(Role):
    def emit(self) -> None:
        """All runs of the launch: each begins with the token that the one before has chosen.  One block leaves the last
        one's results."""
        launch = self.launch
        if launch.layout.draws:
            self._drawn(Draw(launch))
        else:
            self._largest()
        when(launch.lane == 0, lambda: ptx.arrive(launch.barrier("ended"), 1))

    def _largest(self) -> None:
        launch = self.launch

        def run(number: Number, token: Number) -> list[Number]:
            def layered() -> list[Number]:
                next_ = either(number > 0, "r", lambda: [chosen_before(launch, number)], lambda: [token])[0]
                self._layers(next_)
                return [next_]

            def other() -> list[Number]:
                if launch.kept:
                    when((number > 0) & launch.reports, lambda: report(launch, number))
                return [token]

            (token,) = either(launch.layered, "r", layered, other)
            ptx.wait_at(RESIDUAL_STREAM, TWO_ROLES)
            publish(launch, launch.before + number + 1)
            return [token]

        loop(0, launch.times, [launch.token], run)
        when(launch.reports, lambda: end(launch, choose(launch, launch.before + launch.times), launch.times - 1))

    def _drawn(self, draw: Draw) -> None:
        """The same where every exchanger draws the token that its next run starts from."""
        launch = self.launch

        def run(number: Number, token: Number, _: Number, round_: Number) -> list[Number]:
            when(launch.layered, lambda: self._layers(token))
            draw.prepare(launch.position + number, round_)
            ptx.wait_at(RESIDUAL_STREAM, TWO_ROLES)
            result, round_ = draw.choose(round_)
            choice = Choice((result < 0).where(0, result), result, [])
            if launch.kept:
                when(launch.reports & (launch.lane == 0), lambda: leave(launch, choice, number))
            return [choice.token, result, round_]

        _, result, round_ = loop(0, launch.times, [launch.token, word(0), draw.round], run)
        with given(launch.reports):
            end(launch, Choice((result < 0).where(0, result), result, []), None)
            when(launch.lane == 0, lambda: b.store(round_.value, launch.exchange, [1]))

    def _layers(self, token: Number) -> None:
        """Tell the token to the subgroups that multiply, and add what they make of it."""
        launch, layout = self.launch, self.launch.layout
        when(launch.lane == 0, lambda: ptx.store_words(launch.place("tokens"), [token]))
        ptx.arrive_at(TOKEN, TWO_ROLES)
        with turns(0, layout.layers):
            ptx.arrive_at(ATTENDED, THREE_ROLES)  # once the sums of the layer ahead are read
            self._add(0, layout.out_projection, "out_projection_sums")
            self._add(1, layout.down, "down_sums")

    def _add(self, number: int, sharing: Sharing, sums: str) -> None:
        """A layer's first or second addition."""
        launch, layout = self.launch, self.launch.layout
        ptx.wait_at(RESIDUAL_STREAM, TWO_ROLES)
        for start in range(0, layout.columns, 32):
            column = launch.lane + start
            there = None if start + 32 <= layout.columns else column < layout.columns
            place = launch.place(sums) + column * 4
            own = added([ptx.load_reals(place + i * (4 * layout.sum_columns), 1)[0] for i in range(sharing.slices)])
            to = (launch.rank * layout.columns + column) * 8 + (layout.lines["sums"] + number * 8 * layout.width)
            when(there, partial(ptx.add, ptx.pointer(launch.exchange, to), part_of_sum(own)))
