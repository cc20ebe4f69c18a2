"""The warps of a sharded launch that multiply: a layer's four products and its attention, and the head."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, loop, when, word
from lispgpt.passes.plan.sharded_attention import Earlier
from lispgpt.passes.plan.sharded_head import Head
from lispgpt.passes.plan.sharded_launch import Copied, Launch, copied
from lispgpt.passes.plan.sharded_layout import (
    AHEAD,
    ATTENDED,
    LINE,
    MULTIPLIERS,
    PARTS,
    STREAM,
    SUMS,
    WARPS,
    Sharing,
)
from lispgpt.passes.plan.sharded_own import Own
from lispgpt.passes.plan.sharded_products import Products, Source
from lispgpt.passes.plan.sharded_texts import columns_of, products_of


class Multipliers:
    def __init__(self, launch: Launch) -> None:
        self.launch, self.products = launch, products_of(launch)
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
            self._await("x", 4 * layout.width * layout.texts, last)
            c.wait(launch.barrier("statistics"), last)
            self.head.norm()
            self.head.emit(chunk)
            c.pass_by(STREAM, layout.two_roles)
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
        layout, chain, products = launch.layout, launch.chain, products_of(launch)
        texts, threads = layout.texts, layout.two_roles
        into = Rows(products, layout.into, (chain.norms[0], layer, "into_sums", run))
        up = Rows(products, layout.up, (chain.norms[1], layer, "up_sums", run))
        out = Columns(products, layout.out, layout.attended // LINE, "attended", "out_sums")
        down = Columns(products, layout.down, layout.hidden // LINE, "hidden_units", "down_sums")
        with ExitStack() as stack:
            made = stack.enter_context(copied(launch, chain.attention, chain.attended, layer))
            norms = [copied(launch, one.kernel, one.arguments, layer) for one in chain.head_norms]
            normed = [stack.enter_context(one) for one in norms]
            earlier = Earlier(launch, made, normed, run)
            into.load(chunk)
            out.load(chunk + layout.first_out)
            rows = earlier.load()
            self._await("x", 4 * layout.width * texts, launch.exchanged(run, layer * 2))
            products.split_up("stream", "x", layout.width)
            into.multiply()
            c.pass_by(SUMS, threads)
            if chain.aheads:
                when(layer == 0, lambda: c.meet(AHEAD, threads))
            self._await("own", 4 * layout.head_rows * texts, launch.at_layer(run, layer))
            earlier.attend(rows)

            def further(round_: Word) -> None:
                one = Earlier(launch, made, normed, run, round_)
                one.attend(one.load())

            if layout.rounds > 1:
                each(1, layout.rounds, further)
            self._own(launch, run, made, normed)
        c.pass_by(PARTS, threads)
        c.meet(ATTENDED, threads)
        out.multiply()
        c.pass_by(STREAM, threads)
        up.load(chunk + layout.first_up)
        down.load(chunk + layout.first_down)
        self._await("x", 4 * layout.width * texts, launch.exchanged(run, layer * 2 + 1))
        products.split_up("stream", "x", layout.width)
        up.multiply()
        c.pass_by(SUMS, threads)
        self._await("hidden_units", 4 * layout.hidden * texts, launch.at_layer(run, layer))
        products.split_up("units", "hidden_units", layout.hidden)
        down.multiply()
        c.pass_by(STREAM, threads)

    @staticmethod
    def _own(launch: Launch, run: Word, made: Copied, normed: Sequence[Copied]) -> None:
        """The rows' own keys and values: a warp has a head of keys of a text, from the last warp on."""
        layout = launch.layout
        count = layout.kv * layout.texts
        for first in range(0, count, WARPS):
            number = word(first + WARPS - 1) - launch.warp
            shared, text = (number, 0) if layout.texts == 1 else (number % layout.kv, number // layout.kv)
            own = partial(_attend_own, launch, run, made, normed, shared, text)
            if first + WARPS <= count:
                own()
            else:
                when(launch.warp >= WARPS - (count - first), own)


def _attend_own(
    launch: Launch, run: Word, made: Copied, normed: Sequence[Copied], shared: Word, text: Word | int
) -> None:
    one = Own(launch, made, normed, launch.position_of(text) + run, text)
    when(one.owns, partial(one.attend, shared))


class Rows:
    """A product of rows: its weights are loaded ahead where the layout holds them, or on the way."""

    def __init__(self, products: Products, sharing: Sharing, source: Source) -> None:
        self.products, self.sharing, self.source = products, sharing, source
        self.whole = products.launch.layout.whole

    def load(self, chunk: Word) -> None:
        self.chunk = chunk
        if self.whole:
            self.loaded = self.products.load_rows(chunk, self.sharing, self.source)

    def multiply(self) -> None:
        if self.whole:
            self.products.rows(self.loaded, self.source[2])
        else:
            self.products.walk_rows(self.chunk, self.sharing, self.source)


class Columns:
    """A product that sums over what a cluster has, in the same two ways.  count: of its chunks."""

    def __init__(self, products: Products, sharing: Sharing, count: int, source: str, sums: str) -> None:
        self.products, self.sharing, self.count = columns_of(products), sharing, count
        self.source, self.sums = source, sums
        self.whole = products.launch.layout.whole

    def load(self, chunk: Word) -> None:
        self.chunk = chunk
        if self.whole:
            self.loaded = self.products.load(chunk, self.sharing)

    def multiply(self) -> None:
        if self.whole:
            self.products.multiply(self.loaded, self.source, self.sums)
        else:
            self.products.walk(self.chunk, self.count, self.source, self.sums)
