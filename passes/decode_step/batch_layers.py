"""The subgroups of a launch of several sequences that multiply: all steps of a layer, one after the other, by all of
them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, either, loop, when, word
from lispgpt.passes.decode_step.batch_attention import OwnRows, TextAttention
from lispgpt.passes.decode_step.batch_launch import BatchLaunch
from lispgpt.passes.decode_step.batch_layout import STEP_BYTES, SUMMER
from lispgpt.passes.decode_step.batch_lm_head import BatchLmHead
from lispgpt.passes.decode_step.batch_products import TextProducts, for_threads
from lispgpt.passes.decode_step.batch_residual import PAUSE, ResidualStream, Summed
from lispgpt.passes.decode_step.batch_rows import HiddenUnits, Queries
from lispgpt.passes.decode_step.batch_sums import Summer, leave_addends
from lispgpt.passes.decode_step.hoisted import make_hoisted
from lispgpt.passes.decode_step.kernel import StepKernel, clear, input_of
from lispgpt.passes.decode_step.largest_logit import choose, chosen_before, end, report
from lispgpt.passes.decode_step.launch import Launch, copied
from lispgpt.passes.decode_step.layout import WEIGHT_COPIER
from lispgpt.passes.decode_step.lm_head_ring import chunks_ahead
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.decode_step.weight_ring import WeightCopier
from lispgpt.passes.targets import ptx
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES


class BatchLayers:
    def __init__(self, launch: BatchLaunch) -> None:
        self.launch = launch

    def emit(self) -> None:
        """All runs of the launch; one block leaves the last one's results."""
        launch, layout = self.launch, self.launch.layout

        def run(number: Number, chunk: Number) -> list[Number]:
            def layers() -> list[Number]:
                self._begin(number)

                def layer(n: Number, first: Number, since: Number) -> list[Number]:
                    return [first + layout.layer_chunks, self._layer(number, n, first, since)]

                return loop(0, layout.layers, [chunk, word(0)], layer)

            def other() -> list[Number]:
                if launch.kept:
                    reports = (number > 0) & launch.reports & (launch.subgroup < layout.sequences)
                    when(reports, lambda: report(launch, number, launch.subgroup))
                return [chunk, ptx.clock() - PAUSE]

            chunk, since = either(launch.layered, "rr", layers, other)
            products = TextProducts(launch)
            residual_stream, norm = ResidualStream(products), launch.chain.norms[2]
            weights = residual_stream.weights(norm, 0)
            behind = Summed.of_run(launch.before + number)
            when(launch.cluster >= layout.layer_clusters, lambda: residual_stream.follow(behind))
            last = residual_stream.take(behind, since)
            residual_stream.leave_normed(last, norm, weights)
            BatchLmHead(products).emit(chunk, number)
            return [chunk + chunks_ahead(launch)]

        loop(0, launch.times, [word(0)], run)
        ends = launch.reports & (launch.subgroup < layout.sequences)
        when(ends, self._end)

    def _end(self) -> None:
        launch, sequence = self.launch, self.launch.subgroup
        end(launch, choose(launch, launch.before + launch.times, sequence), launch.times - 1, sequence)

    def _begin(self, run: Number) -> None:
        """A run's tokens: the launch's first ones, or those that the run before has chosen; and what is made ahead."""
        launch, sequence = self.launch, self.launch.subgroup

        def chosen() -> None:
            token = chosen_before(launch, run, sequence)
            when(launch.lane == 0, lambda: ptx.store_words(launch.place("tokens") + sequence * 4, [token]))

        when((run > 0) & (sequence < launch.layout.sequences), chosen)
        if launch.chain.hoisted:
            position = launch.position_of(launch.sequence) + run
            make_hoisted(launch, position, launch.sequence.index(), partial(for_threads, launch))
        self.launch.wait_for_tokens()

    # ---- a layer

    def _layer(self, run: Number, layer: Number, chunk: Number, since: Number) -> Number:
        """since: the clock when the block has left its part of the last exchange; returns that of the next one."""
        launch = self.launch.again()
        layout, chain, products = launch.layout, launch.chain, TextProducts(launch)
        residual_stream = ResidualStream(products)
        count = ((launch.before + run) * layout.layers + layer) * 2
        parity = launch.at_layer(run, layer)
        with ExitStack() as stack:
            qkv = products.load_rows(chunk, layout.qkv, layout.qkv_tiles)
            out_projection = products.load_columns(chunk + layout.first_out_projection, layout.out_projection)
            products.release(qkv, out_projection)
            attention = TextAttention(stack, launch, run, layer)
            queries, weights = Queries(stack, products, layer), residual_stream.weights(chain.norms[0], layer)
            attention.load_early()
            numbers = either(
                layer == 0, "f" * (4 * len(residual_stream.lines)),
                lambda: self._embedded(residual_stream, run),
                lambda: residual_stream.take(Summed.of_layer(launch, launch.before + run, layer - 1), since),
            )  # fmt: skip
            residual_stream.leave_scaled(numbers, chain.norms[0], weights)
            attention.load()
            products.leave_sums(qkv, "x")
            products.wait_at()
            queries.leave()
            attention.publish(parity)
        launch.await_ranks("attended", 4 * layout.each * layout.depth * layout.sequences, parity)
        products.split_up("attended", "attended_parts", layout.each * layout.depth)
        products.leave_sums(out_projection, "attended_parts")
        products.wait_at()
        leave_addends(launch, count, layout.out_projection)
        since = ptx.clock()
        with ExitStack() as stack:
            up = products.load_rows(chunk + layout.first_up, layout.up, layout.up_tiles)
            down = products.load_columns(chunk + layout.first_down, layout.down)
            products.release(up, down)
            hidden, weights = HiddenUnits(stack, products, layer), residual_stream.weights(chain.norms[1], layer)
            added = residual_stream.take(Summed.of_attention(launch, launch.before + run, layer), since)
            residual_stream.leave_scaled(added, chain.norms[1], weights)
            products.leave_sums(up, "x")
            products.wait_at()
            hidden.leave()
        launch.await_ranks("units", 4 * layout.hidden * layout.sequences, parity)
        products.split_up("units", "x", layout.hidden)
        products.leave_sums(down, "x")
        products.wait_at()
        leave_addends(launch, count + 1, layout.down)
        return ptx.clock()

    def _embedded(self, residual_stream: ResidualStream, run: Number) -> list[Number]:
        chain = self.launch.chain
        with copied(self.launch, chain.embedding, chain.embedded, 0) as made:
            return residual_stream.embed(made, run)


MORE_REGISTERS, FEW_REGISTERS = 144, 80
"""Of threads of the subgroups that multiply, and of all others: together what all threads start with."""


class BatchKernel(StepKernel):
    launches = BatchLaunch

    def _clear(self, launch: Launch, thread: Number) -> None:
        """Zeros where operands have no part; and the sequences' tokens and positions where all of the block's subgroups
        read them."""
        layout, chain = self.layout, self.chain
        sizes = {"x": max(layout.width, layout.hidden), "attended_parts": layout.attended}
        for name, count in sizes.items():
            place = launch.place(name)
            each(thread, STEP_BYTES // 4 * (count // 16), partial(clear, place), layout.threads)

        def copy() -> None:
            for name, buffer in {"tokens": chain.tokens, "positions": chain.positions}.items():
                number = input_of(launch.memories[buffer], layout.sequences, thread.index())
                ptx.store_words(launch.place(name) + thread * 4, [number])

        when(thread < layout.sequences, copy)

    def _roles(self, launch: Launch) -> None:
        assert isinstance(launch, BatchLaunch)

        def multiply() -> None:
            TENSOR_COPIES.registers(MORE_REGISTERS, more=True)
            BatchLayers(launch).emit()

        def others() -> None:
            TENSOR_COPIES.registers(FEW_REGISTERS, more=False)
            when((launch.subgroup == WEIGHT_COPIER) & (launch.lane == 0), WeightCopier(launch).emit)
            when((launch.subgroup == SUMMER) & launch.layered, lambda: Summer(launch).emit())
            when((launch.subgroup > SUMMER) & launch.layered, lambda: OwnRows(launch).emit())

        b.either((launch.subgroup < SUBGROUPS).value, multiply, others)
