"""The warps of a sharded launch that multiply: a layer's four products and its attention, and the head."""

from __future__ import annotations

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, either, loop, when, word
from lispgpt.passes.plan.sharded_attention import Earlier
from lispgpt.passes.plan.sharded_head import Head
from lispgpt.passes.plan.sharded_launch import Launch, copied
from lispgpt.passes.plan.sharded_layout import ATTENDED, MULTIPLIERS, PARTS, STREAM, SUMS, TWO_ROLES, WARPS
from lispgpt.passes.plan.sharded_products import Products


class Multipliers:
    def __init__(self, launch: Launch) -> None:
        self.launch, self.products = launch, Products(launch)
        self.head = Head(self.products)

    def emit(self) -> None:
        launch, layout = self.launch, self.launch.layout

        def run(number: Word, chunk: Word) -> list[Word]:
            def layers() -> list[Word]:
                def layer(n: Word, first: Word) -> list[Word]:
                    self._layer(number, n, first)
                    return [first + layout.layer_chunks]

                return loop(0, layout.layers, [chunk], layer)

            (chunk,) = either(launch.layered, "r", layers, lambda: [chunk])
            last = launch.layered.where(launch.exchanged(number, word(2 * layout.layers)), number & 1)
            self._await("x", 4 * layout.width, last)
            c.wait(launch.barrier("statistics"), last)
            self.head.norm()
            self.head.emit(chunk)
            c.pass_by(STREAM, TWO_ROLES)
            c.meet(MULTIPLIERS, 32 * WARPS)
            return [chunk + launch.heads]

        loop(0, launch.times, [word(0)], run)

    def _await(self, name: str, nbytes: int, parity: Word) -> None:
        """What ranks send: one warp says how much."""
        launch = self.launch

        def say() -> None:
            when(launch.lane == 0, lambda: c.expect(launch.barrier(name), nbytes))

        when(launch.warp == 0, say)
        c.wait(launch.barrier(name), parity)

    def _layer(self, run: Word, layer: Word, chunk: Word) -> None:
        launch, layout, chain, products = self.launch, self.launch.layout, self.launch.chain, self.products
        with copied(launch, chain.attention, chain.attended, layer) as made:
            earlier = Earlier(launch, made, launch.position + run)
            into = products.load_rows(chunk, layout.into, chain.norms[0], layer, "into_sums", run)
            out = products.load_columns(chunk + layout.first_out, layout.out)
            rows = earlier.load()
            self._await("x", 4 * layout.width, launch.exchanged(run, layer * 2))
            products.split_up("stream", "x", layout.width)
            products.rows(into, "into_sums")
            c.pass_by(SUMS, TWO_ROLES)
            self._await("own", 12 * layout.depth, launch.at_layer(run, layer))
            earlier.attend(rows)

            def own() -> None:
                when(earlier.owns, earlier.own)

            when(launch.warp == WARPS - 1, own)
        c.pass_by(PARTS, TWO_ROLES)
        c.meet(ATTENDED, TWO_ROLES)
        products.columns(out, "attended", "out_sums")
        c.pass_by(STREAM, TWO_ROLES)
        up = products.load_rows(chunk + layout.first_up, layout.up, chain.norms[1], layer, "up_sums", run)
        down = products.load_columns(chunk + layout.first_down, layout.down)
        self._await("x", 4 * layout.width, launch.exchanged(run, layer * 2 + 1))
        products.split_up("stream", "x", layout.width)
        products.rows(up, "up_sums")
        c.pass_by(SUMS, TWO_ROLES)
        self._await("hidden_units", 4 * layout.hidden, launch.at_layer(run, layer))
        products.split_up("units", "hidden_units", layout.hidden)
        products.columns(down, "hidden_units", "down_sums")
        c.pass_by(STREAM, TWO_ROLES)
