"""The warps of a sharded launch that multiply: a layer's products and its attention, and the head.

While clusters exchange the stream ahead of attention, rows of earlier positions are loaded, and the weights of the
products before and behind it where the layout holds them; while they exchange the one behind it, the others' weights.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, either, loop, when, word
from lispgpt.passes.plan.sharded_attention import Earlier
from lispgpt.passes.plan.sharded_cache import release_rows
from lispgpt.passes.plan.sharded_columns import ColumnProducts
from lispgpt.passes.plan.sharded_head import Head
from lispgpt.passes.plan.sharded_launch import Copied, Launch, copied
from lispgpt.passes.plan.sharded_layout import AHEAD, ATTENDED, LINE, MULTIPLIERS, PARTS, STREAM, SUMS, TWO_ROLES
from lispgpt.passes.plan.sharded_own import Own
from lispgpt.passes.plan.sharded_products import Products, Source
from lispgpt.passes.plan.sharded_sharing import WARPS, Sharing
from lispgpt.passes.plan.sharded_weights import Weights, weights_of


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
        launch = self.launch.again()
        layout, chain, products = launch.layout, launch.chain, Products(launch)
        weights = partial(weights_of, launch)
        into = Rows(products, layout.into, (chain.norms[0], layer, "into_sums", run), weights("into"))
        up = Rows(products, layout.up, (chain.norms[1], layer, "up_sums", run), weights("up0"))
        out = Columns(products, layout.out, layout.attended // LINE, "attended", "out_sums", weights("out"))
        down = Columns(products, layout.down, layout.hidden // LINE, "hidden_units", "down_sums", weights("down"))
        with ExitStack() as stack:
            made, normed = self._attention(stack, launch, layer)
            earlier = Earlier(launch, made, normed, launch.position + run, launch.at_layer(run, layer))
            into.load(chunk)
            out.load(chunk + layout.first_out)
            middle = earlier.load(range(earlier.near, earlier.early))
            self._await("x", 4 * layout.width, launch.exchanged(run, layer * 2))
            products.split_up("stream", "x", layout.width)
            further = middle + earlier.load(range(earlier.early, earlier.turns))
            into.multiply()
            c.pass_by(SUMS, TWO_ROLES)
            rows = earlier.load_near() + further
            if chain.aheads:
                when(layer == 0, lambda: c.meet(AHEAD, TWO_ROLES))
            self._await("own", 4 * layout.head_rows, launch.at_layer(run, layer))
            earlier.attend(rows)

            def own() -> None:
                one = Own(launch, made, normed, launch.position + run)
                when(one.owns, lambda: one.attend(word(WARPS - 1) - launch.warp))

            when(launch.warp >= WARPS - layout.kv, own)
        c.pass_by(PARTS, TWO_ROLES)
        c.meet(ATTENDED, TWO_ROLES)
        out.multiply()
        c.pass_by(STREAM, TWO_ROLES)
        if layout.near:  # and no earlier, as copies would be in the way of attention's parts
            release_rows(launch, layer)
        else:
            self._fetch(run, (layer + 1) % layout.layers)
        up.load(chunk + layout.first_up)
        down.load(chunk + layout.first_down)
        self._await("x", 4 * layout.width, launch.exchanged(run, layer * 2 + 1))
        products.split_up("stream", "x", layout.width)
        up.multiply()
        c.pass_by(SUMS, TWO_ROLES)
        self._await("hidden_units", 4 * layout.hidden, launch.at_layer(run, layer))
        products.split_up("units", "hidden_units", layout.hidden)
        down.multiply()
        c.pass_by(STREAM, TWO_ROLES)

    def _attention(self, stack: ExitStack, launch: Launch, layer: Word) -> tuple[Copied, list[Copied]]:
        """A layer's attention, and what norms its heads' rows."""
        chain = launch.chain
        made = stack.enter_context(copied(launch, chain.attention, chain.attended, layer))
        norms = [copied(launch, one.kernel, one.arguments, layer) for one in chain.head_norms]
        return made, [stack.enter_context(one) for one in norms]

    def _fetch(self, run: Word, layer: Word) -> None:
        """Bring earlier positions' keys and values of a layer, the next one, to the cache of all cores."""
        launch = self.launch.again()
        with ExitStack() as stack:
            Earlier(launch, *self._attention(stack, launch, layer), launch.position + run).fetch()


class Rows:
    """A product of rows: its weights are loaded ahead where the layout holds them, or on the way."""

    def __init__(self, products: Products, sharing: Sharing, source: Source, weights: Weights) -> None:
        self.products, self.sharing, self.source, self.weights = products, sharing, source, weights
        self.whole = products.launch.layout.whole

    def load(self, chunk: Word) -> None:
        self.chunk = chunk
        if self.whole:
            self.loaded = self.products.load_rows(chunk, self.sharing, self.source, self.weights)

    def multiply(self) -> None:
        if self.whole:
            self.products.rows(self.loaded, self.source[2])
        else:
            self.products.walk_rows(self.chunk, self.sharing, self.source, self.weights)


class Columns:
    """A product that sums over what a cluster has, in the same two ways.  count: of its chunks."""

    def __init__(
        self, products: Products, sharing: Sharing, count: int, source: str, sums: str, weights: Weights
    ) -> None:
        self.products, self.sharing, self.count = ColumnProducts(products), sharing, count
        self.source, self.sums, self.weights = source, sums, weights
        self.whole = products.launch.layout.whole

    def load(self, chunk: Word) -> None:
        self.chunk = chunk
        if self.whole:
            self.loaded = self.products.load(chunk, self.sharing, self.weights)

    def multiply(self) -> None:
        if self.whole:
            self.products.multiply(self.loaded, self.source, self.sums)
        else:
            self.products.walk(self.chunk, self.count, self.source, self.sums, self.weights)
