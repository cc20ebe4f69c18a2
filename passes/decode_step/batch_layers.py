"""The subgroups of a launch of several sequences that multiply: all steps of a layer, one after the other, by all of
them."""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, either, given, lesser, loop, real, turns, when, word
from lispgpt.passes.decode_step.attention import NewRow, Pairs, PastRows, join_parts, make_hoisted, pairs_of
from lispgpt.passes.decode_step.batch_layout import NEW_ROW_SUBGROUPS, STEP_BYTES, SUMMER
from lispgpt.passes.decode_step.batch_products import BatchProducts, Held, for_threads, put
from lispgpt.passes.decode_step.batch_sums import BatchResidual, Exchange, Place, Summer, leave_addends, wait_for_tokens
from lispgpt.passes.decode_step.chain import NormWeights
from lispgpt.passes.decode_step.keep_clocked import keep_clocked
from lispgpt.passes.decode_step.kernel import StepKernel, clear, input_of
from lispgpt.passes.decode_step.largest_logit import choose, chosen_before, end, report
from lispgpt.passes.decode_step.launch import Launch, Role
from lispgpt.passes.decode_step.layout import PARTS, SUBGROUPS, THREADS, WEIGHT_COPIER, Sharing
from lispgpt.passes.decode_step.lm_head import BatchLmHead
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.rows import HiddenUnits, Queries, Row, Rows
from lispgpt.passes.decode_step.weight_copies import WeightCopier, chunks_ahead
from lispgpt.passes.targets import ptx
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES

NEW_ROW_THREADS = THREADS + 32 * NEW_ROW_SUBGROUPS
"""Threads that multiply or have the sequences' own rows."""


class BatchLayers:
    """All runs of the launch; one block leaves the last one's results."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.lm_head = launch, BatchLmHead(launch, BatchProducts(launch))

    def emit(self) -> None:
        launch, layout, sequence = self.launch, self.launch.layout, self.launch.subgroup
        residual, norm = BatchResidual(launch), launch.chain.norms[2]

        def run(number: Number, chunk: Number) -> list[Number]:
            behind = Place.behind_layer(launch, number, word(layout.layers - 1))

            def layers() -> list[Number]:
                def layer(n: Number, first: Number, since: Number) -> list[Number]:
                    return [first + layout.layer_chunks, self._layer(number, n, first, since)]

                self._begin(number)
                return loop(0, layout.layers, [chunk, word(0)], layer)

            def others() -> list[Number]:
                if launch.kept:
                    reports = (number > 0) & launch.reports & (sequence < layout.sequences)
                    when(reports, lambda: report(launch, number, sequence))
                residual.follow(behind)
                return [chunk, ptx.clock() - layout.pause]

            chunk, since = either(launch.layered, "rr", layers, others)
            weights = residual.weights(norm, 0)
            self.lm_head.put(residual, residual.normed(residual.take(behind, since), norm, weights))
            launch.synchronize()
            self.lm_head.emit(chunk, number)
            launch.synchronize()
            return [chunk + chunks_ahead(launch)]

        loop(0, launch.times, [word(0)], run)
        ends, last = launch.reports & (sequence < layout.sequences), launch.times - 1
        when(ends, lambda: end(launch, choose(launch, launch.before + launch.times, sequence), last, sequence))

    def _begin(self, run: Number) -> None:
        """A run's tokens: the launch's first ones, or those that the run before has chosen; and what is made ahead."""
        launch, sequence = self.launch, self.launch.subgroup
        with given((run > 0) & (sequence < launch.layout.sequences)):
            token = chosen_before(launch, run, sequence)
            when(launch.lane == 0, lambda: ptx.store_words(launch.place("tokens") + sequence * 4, [token]))
        if launch.chain.hoisted:
            position = launch.position_of(launch.sequence) + run
            make_hoisted(launch, position, launch.sequence.index(), partial(for_threads, launch))
        wait_for_tokens()

    # ---- a layer

    def _layer(self, run: Number, layer: Number, chunk: Number, since: Number) -> Number:
        launch = self.launch.again()
        layout, chain, products, residual = launch.layout, launch.chain, BatchProducts(launch), BatchResidual(launch)
        parity = launch.at_layer(run, layer)

        def add(number: int, held: Held, source: str) -> Number:
            products.leave_sums(held, source)
            launch.synchronize()
            leave_addends(products, Exchange.of(launch, run, layer, number), held.sharing)
            return ptx.clock()

        qkv = products.load_rows(chunk, layout.qkv, layout.qkv_tiles)
        first = chunk + layout.first_out_projection
        out_projection = products.load_columns(first, layout.out_projection, products.weights)
        products.release(qkv, out_projection)
        past = PastRows(launch, layer, launch.position_at(run), sequence=launch.sequence)
        queries, weights = Queries(launch, layer, launch.thread, THREADS), residual.weights(chain.norms[0], layer)
        rows = past.load(range(past.early))
        before = Place.behind_layer(launch, run, layer - 1)
        x = either(layer > 0, residual.kinds, lambda: residual.take(before, since), lambda: residual.of_tokens(run))
        self._hand_on(residual, x, chain.norms[0], weights[0])
        rows += past.load(range(past.early, past.turns))
        products.leave_sums(qkv, "x")
        launch.synchronize()
        self._leave(queries, products, layout.qkv)
        attend(past, rows, parity)
        launch.await_ranks("attended", 4 * layout.each * layout.depth * layout.sequences, parity)
        products.split_up("attended", "attended_parts", layout.each * layout.depth)
        behind = Place.behind_attention(launch, run, layer)
        since = add(0, out_projection, "attended_parts")
        up = products.load_rows(chunk + layout.first_up, layout.up, layout.up_tiles)
        down = products.load_columns(chunk + layout.first_down, layout.down, products.weights)
        products.release(up, down)
        hidden, weights = HiddenUnits(launch, layer, launch.thread, THREADS), residual.weights(chain.norms[1], layer)
        self._hand_on(residual, residual.take(behind, since), chain.norms[1], weights[0])
        products.leave_sums(up, "x")
        launch.synchronize()
        self._leave(hidden, products, layout.up)
        launch.await_ranks("hidden_units", 4 * layout.hidden * layout.sequences, parity)
        products.split_up("hidden_units", "x", layout.hidden)
        return add(1, down, "x")

    @staticmethod
    def _leave(rows: Rows, products: BatchProducts, sharing: Sharing) -> None:
        """A thread that has no row may not ask for its sum: sums of the next product take their place once what is made
        of these is there."""

        def sum_of(row: Row, number: int) -> Number:
            ask = partial(products.sum_of, sharing, row.sequence, row.row + number * rows.count, 1)
            return either(row.there, "f", ask, lambda: [real(0.0)])[0]

        def moments(row: Row) -> tuple[Number, Number]:
            mean, factor = ptx.load_reals(products.launch.moments_place(row.sequence), 2)
            return mean, factor

        rows.leave(sum_of, moments)

    def _hand_on(self, residual: Residual, numbers: list[Number], norm: NormWeights, gamma: list[Number]) -> None:
        """The residual stream times a norm's gamma as an operand, and in each subgroup's memory all sequences' moments,
        which are then at hand behind the product."""
        launch = self.launch
        put(residual, [x * g for x, g in zip(numbers, gamma, strict=True)])
        residual.leave_moments(numbers)
        launch.synchronize()
        sequence = lesser(launch.lane, word(launch.layout.sequences - 1))
        ptx.store_words(launch.moments_place(sequence), list(residual.moments(norm, sequence)))


def attend(past: PastRows, rows: Pairs, parity: Number) -> None:
    """The results of the block's sequence's heads to all ranks, once queries are there."""
    launch, heads = past.launch, past.launch.layout.each
    with given(launch.has_sequence):
        launch.await_ranks("own", 4 * launch.layout.head_rows, parity)
        past.attend(rows)
        ptx.wait_at(PARTS, NEW_ROW_THREADS)
        for first in range(0, heads, SUBGROUPS):
            there = None if heads - first >= SUBGROUPS else launch.subgroup < heads - first
            when(there, partial(_publish, launch, launch.subgroup + first))


def _publish(launch: Launch, head: Number) -> None:
    """One head's result."""
    layout, (at, there) = launch.layout, pairs_of(launch)
    _, total, *numbers = join_parts(launch, "parts", layout.head_subgroups + 1, head, at)
    whole = Number(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
    for i, (number, inside) in enumerate(zip(at, there, strict=True)):
        pair = [n * whole for n in numbers[2 * i : 2 * i + 2]]
        place = ((launch.sequence * layout.each + head) * layout.depth + (number & -4)) * 4
        quad = launch.of_neighbours(pair, 2)
        when(inside, partial(launch.send, "attended", [(place, quad)], 2))


class NewRows(Role):
    """The subgroups that have the sequence's own key and value of each layer."""

    def emit(self) -> None:
        """All runs of the launch."""
        with turns(0, self.launch.times) as run:
            wait_for_tokens()
            with given(self.launch.has_sequence), turns(0, self.launch.layout.layers) as layer:
                self._layer(run, layer)

    def _layer(self, run: Number, layer: Number) -> None:
        launch = self.launch.again()
        own = NewRow(launch, layer, launch.position_at(run), launch.sequence)
        self._await_rows(launch.at_layer(run, layer))
        each(launch.subgroup - (SUMMER + 1), launch.layout.kv, own.attend, NEW_ROW_SUBGROUPS)
        ptx.arrive_at(PARTS, NEW_ROW_THREADS)

    def _await_rows(self, parity: Number) -> None:
        """Wait for the rows.  Where each rank has a sequence the last subgroup, which has least to do, keeps matrix
        units clocked meanwhile; of 2 sequences it makes no difference."""
        barrier, rest = self.launch.barrier("own"), self.launch.target.matrix_rest // 2
        if self.launch.has_sequence is not None:
            ptx.wait(barrier, parity)
            return
        last = self.launch.subgroup == SUMMER + NEW_ROW_SUBGROUPS
        b.either(last.value, lambda: keep_clocked(barrier, parity, rest), lambda: ptx.wait(barrier, parity))


MORE_REGISTERS, FEW_REGISTERS = 144, 80
"""Of threads of the subgroups that multiply, and of all others: together what all threads start with."""


class BatchKernel(StepKernel):
    def _clear(self, launch: Launch, thread: Number) -> None:
        """Zeros where operands have no part; and the sequences' tokens and positions where all of the block's subgroups
        read them."""
        layout, chain = self.layout, self.chain
        sizes = {"x": max(layout.width, layout.hidden), "attended_parts": layout.attended}
        for name, count in sizes.items():
            clear(launch.place(name), STEP_BYTES // 4 * (count // 16), thread, layout.threads)
        with given(thread < layout.sequences):
            for name, buffer in {"tokens": chain.tokens, "positions": chain.positions}.items():
                number = input_of(launch.memories[buffer], layout.sequences, thread.index())
                ptx.store_words(launch.place(name) + thread * 4, [number])

    def _roles(self, launch: Launch) -> None:
        def multiply() -> None:
            TENSOR_COPIES.registers(MORE_REGISTERS, more=True)
            BatchLayers(launch).emit()

        def others() -> None:
            TENSOR_COPIES.registers(FEW_REGISTERS, more=False)
            when((launch.subgroup == WEIGHT_COPIER) & (launch.lane == 0), WeightCopier(launch).emit)
            when((launch.subgroup == SUMMER) & launch.layered, lambda: Summer(launch).emit())
            when((launch.subgroup > SUMMER) & launch.layered, lambda: NewRows(launch).emit())

        b.either((launch.subgroup < SUBGROUPS).value, multiply, others)
