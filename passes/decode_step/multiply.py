"""The subgroups of a clustered launch that multiply: a layer's products and its attention, and the lm head.

Where the layout holds weights, subgroups load a product's while they wait for what is ahead of it: those of a layer's
first two while clusters add up the residual stream ahead of it, the others' while they add up what attention gives.
Weights of columns that are to be made BF16, which takes long, are loaded while ranks finish what they are multiplied
by.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import either, if_there, loop, real, when, word
from lispgpt.passes.decode_step.attention import NewRow, PastRows
from lispgpt.passes.decode_step.column_products import ColumnProducts
from lispgpt.passes.decode_step.kv_cache import release_rows
from lispgpt.passes.decode_step.launch import Launch, attention_of_layer
from lispgpt.passes.decode_step.layout import (
    ATTENDED,
    GAMMAS,
    HOISTED,
    LINE,
    PARTS,
    RESIDUAL_STREAM,
    ROW,
    SUMS,
    THREE_ROLES,
    TOKEN,
    TWO_ROLES,
)
from lispgpt.passes.decode_step.lm_head import OneLmHead
from lispgpt.passes.decode_step.products import Products
from lispgpt.passes.decode_step.residual import OneResidual
from lispgpt.passes.decode_step.row_products import RowProducts
from lispgpt.passes.decode_step.sharing import SUBGROUPS
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

            kinds = "r" + residual.kinds + 2 * residual.seen_kinds  # of each as many
            chunk, *found = either(launch.layered, kinds, layers, others)
            self.lm_head.put(residual, residual.normed(found[:wide], norm, residual.weights(norm, 0)))
            launch.meet()
            self.lm_head.emit(chunk, number)
            launch.meet()
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
        with ExitStack() as stack:
            made, normed = attention_of_layer(stack, launch, layer)
            past = PastRows(launch, made, normed, launch.position + run, launch.at_layer(run, layer))
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

            found = either(layer > 0, residual.kinds + residual.seen_kinds, behind_a_layer, at_first)
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

            def own() -> None:
                one = NewRow(launch, made, normed, launch.position + run)
                when(one.owns, lambda: one.attend(word(SUBGROUPS - 1) - launch.subgroup))

            when(launch.subgroup >= SUBGROUPS - layout.kv, own)
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
            if_there(piece.works, partial(ptx.store_words, to, own))
        product.operand.put(residual, [x * g for x, g in zip(numbers, gamma, strict=True)])
        ptx.arrive_at(ROW, TWO_ROLES)
        self.launch.meet()

    def _fetch(self, run: Number, layer: Number) -> None:
        """Bring earlier positions' keys and values of a layer, the next one, to the cache of all cores."""
        launch = self.launch.again()
        with ExitStack() as stack:
            PastRows(launch, *attention_of_layer(stack, launch, layer), launch.position + run).fetch()
