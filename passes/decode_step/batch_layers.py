"""The warps of a launch of several texts that multiply: all steps of a layer, one after the other, by all of them."""

from __future__ import annotations

from contextlib import ExitStack

from lispgpt.ir.mlir import ir
from lispgpt.passes.decode_step import cluster as c
from lispgpt.passes.decode_step.batch_attention import TextAttention
from lispgpt.passes.decode_step.batch_launch import TextsLaunch
from lispgpt.passes.decode_step.batch_lm_head import TextsHead
from lispgpt.passes.decode_step.batch_products import TextProducts, for_threads
from lispgpt.passes.decode_step.batch_residual import PAUSE, Stream, Summed
from lispgpt.passes.decode_step.batch_rows import HiddenUnits, Queries
from lispgpt.passes.decode_step.batch_sums import leave_addends
from lispgpt.passes.decode_step.largest_logit import choose, chosen_before, end, report
from lispgpt.passes.decode_step.launch import Copied, copied
from lispgpt.passes.decode_step.lm_head_ring import chunks_ahead
from lispgpt.passes.decode_step.scalars import Word, either, loop, when, word
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused


class TextsLayers:
    def __init__(self, launch: TextsLaunch) -> None:
        self.launch = launch

    def emit(self) -> None:
        """All runs of the launch; one block leaves the last one's results."""
        launch, layout = self.launch, self.launch.layout

        def run(number: Word, chunk: Word) -> list[Word]:
            def layers() -> list[Word]:
                self._begin(number)

                def layer(n: Word, first: Word, since: Word) -> list[Word]:
                    return [first + layout.layer_chunks, self._layer(number, n, first, since)]

                return loop(0, layout.layers, [chunk, word(0)], layer)

            def other() -> list[Word]:
                if launch.kept:
                    reports = (number > 0) & launch.reports & (launch.warp < layout.texts)
                    when(reports, lambda: report(launch, number, launch.warp))
                return [chunk, c.clock() - PAUSE]

            chunk, since = either(launch.layered, "rr", layers, other)
            products = TextProducts(launch)
            stream, norm = Stream(products), launch.chain.norms[2]
            weights = stream.weights(norm, 0)
            behind = Summed.of_run(launch.before + number)
            when(launch.cluster >= layout.layer_clusters, lambda: stream.follow(behind))
            last = stream.take(behind, since)
            stream.leave_normed(last, norm, weights)
            TextsHead(products).emit(chunk, number)
            return [chunk + chunks_ahead(launch)]

        loop(0, launch.times, [word(0)], run)
        ends = launch.reports & (launch.warp < layout.texts)
        when(ends, self._end)

    def _end(self) -> None:
        launch, text = self.launch, self.launch.warp
        end(launch, choose(launch, launch.before + launch.times, text), launch.times - 1, text)

    def _begin(self, run: Word) -> None:
        """A run's tokens: the launch's first ones, or those that the run before has chosen; and what is made ahead."""
        launch, text = self.launch, self.launch.warp

        def chosen() -> None:
            token = chosen_before(launch, run, text)
            when(launch.lane == 0, lambda: c.store_words(launch.place("tokens") + text * 4, [token]))

        when((run > 0) & (text < launch.layout.texts), chosen)
        if launch.chain.aheads:
            self._make_ahead(run)
        self.launch.meet_tokens()

    def _make_ahead(self, run: Word) -> None:
        """What is the same for all layers' attention to the block's text."""
        launch = self.launch
        text = launch.text
        for ahead in launch.chain.aheads:
            with copied(launch, ahead.kernel, ahead.arguments, 0) as made:
                for argument, series in ahead.arguments.items():
                    if series.buffer == launch.chain.tokens:
                        raise Refused("what a kernel ahead of the layers makes depends on the token")
                    if series.buffer == launch.chain.positions:
                        made.hold(argument, (launch.position_of(text) + run).value)
                for tensor, memory in outputs_of(made.op):
                    theirs = ahead.results[ir.BlockArgument(memory).arg_number]
                    self._leave_ahead(made, tensor, theirs, text)

    def _leave_ahead(self, made: Copied, tensor: ir.Value, argument: int, text: Word) -> None:
        launch, layout = self.launch, self.launch.layout
        shape, start = layout.ahead.shapes[argument], launch.place("ahead") + layout.ahead.place(argument)
        count = 1
        for extent in shape:
            count *= extent

        def one(number: Word) -> None:
            index, rest = [], number
            for extent in shape[:0:-1]:
                index.append((rest % extent).index())
                rest = rest // extent
            with made.reader.scope():
                value = Word(made.reader.read(tensor, [text.index(), *index[::-1]]))
            c.store_words(start + number * 4, [value])

        for_threads(launch, count, one)

    # ---- a layer

    def _layer(self, run: Word, layer: Word, chunk: Word, since: Word) -> Word:
        """since: the clock when the block has left its part of the last exchange; returns that of the next one."""
        launch = self.launch.again()
        layout, chain, products = launch.layout, launch.chain, TextProducts(launch)
        stream = Stream(products)
        count = ((launch.before + run) * layout.layers + layer) * 2
        parity = launch.at_layer(run, layer)
        with ExitStack() as stack:
            into = products.load_rows(chunk, layout.into, layout.into_tiles)
            out = products.load_columns(chunk + layout.first_out, layout.out)
            products.release(into, out)
            attention = TextAttention(stack, launch, run, layer)
            queries, weights = Queries(stack, products, layer), stream.weights(chain.norms[0], layer)
            attention.load_early()
            numbers = either(
                layer == 0, "f" * (4 * len(stream.lines)),
                lambda: self._embedded(stream, run),
                lambda: stream.take(Summed.of_layer(launch, launch.before + run, layer - 1), since),
            )  # fmt: skip
            stream.leave_scaled(numbers, chain.norms[0], weights)
            attention.load()
            products.leave_sums(into, "x")
            products.meet()
            queries.leave()
            attention.tell(parity)
        launch.await_ranks("attended", 4 * layout.each * layout.depth * layout.texts, parity)
        products.split_up("attended", "attended_parts", layout.each * layout.depth)
        products.leave_sums(out, "attended_parts")
        products.meet()
        leave_addends(launch, count, layout.out)
        since = c.clock()
        with ExitStack() as stack:
            up = products.load_rows(chunk + layout.first_up, layout.up, layout.up_tiles)
            down = products.load_columns(chunk + layout.first_down, layout.down)
            products.release(up, down)
            hidden, weights = HiddenUnits(stack, products, layer), stream.weights(chain.norms[1], layer)
            added = stream.take(Summed.of_attention(launch, launch.before + run, layer), since)
            stream.leave_scaled(added, chain.norms[1], weights)
            products.leave_sums(up, "x")
            products.meet()
            hidden.leave()
        launch.await_ranks("units", 4 * layout.hidden * layout.texts, parity)
        products.split_up("units", "x", layout.hidden)
        products.leave_sums(down, "x")
        products.meet()
        leave_addends(launch, count + 1, layout.down)
        return c.clock()

    def _embedded(self, stream: Stream, run: Word) -> list[Word]:
        chain = self.launch.chain
        with copied(self.launch, chain.embedding, chain.embedded, 0) as made:
            return stream.embed(made, run)
