"""The head of a sharded launch: each warp multiplies the chunks of some of the ring's slots, 8 tokens' rows each.

On the way it finds its largest logit, or, where the token is drawn, leaves all logits in the block's memory.  A warp
always reads the same slots, so that it sees every phase of their barriers.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, either, lesser, loop, real, when, word
from lispgpt.passes.plan.sharded_choice import LOWEST, Best, rank_of
from lispgpt.passes.plan.sharded_digits import Digits
from lispgpt.passes.plan.sharded_launch import Copied, finished
from lispgpt.passes.plan.sharded_products import AT_ONCE, Products
from lispgpt.passes.plan.sharded_residual import Residual
from lispgpt.passes.plan.sharded_sharing import WARPS
from lispgpt.passes.plan.sharded_side import Parts, Side
from lispgpt.passes.plan.sharded_weights import Fragment, ScaledWeights, weights_of

HELD = 64
"""Words of an operand that a lane has in registers, at most."""


class Head:
    def __init__(self, products: Products) -> None:
        self.products, self.launch = products, products.launch
        self.steps = self.launch.layout.width // 32
        weights = weights_of(products.launch, "head")
        self.side: Side = Digits(products, weights) if isinstance(weights, ScaledWeights) else Parts(products, weights)

    def norm(self, residual: Residual, stream: Sequence[Word]) -> None:
        """Put the normed stream where the head reads it; by all warps that multiply, each some columns."""
        norm = self.launch.chain.norms[2]
        gamma = residual.factors(norm.gamma, 0)
        beta = [real(0.0)] * len(gamma) if norm.beta is None else residual.factors(norm.beta, 0)
        mean, factor = residual.moments(stream, norm.centred, norm.epsilon)
        made = []
        for value, scale, shift in zip(stream, gamma, beta, strict=True):
            value = value - mean if norm.centred else value
            made.append(factor * (value * scale) + shift)
        self.side.put(residual, made)

    def emit(self, chunk: Word) -> None:
        """Multiply all of the block's rows, and leave its warps' largest, or all where a token is drawn.  chunk: the
        first one's number in the ring."""
        launch, layout = self.launch, self.launch.layout
        right = self.side.operand(0, self.steps) if self.steps * self.side.words <= HELD else None
        slots = layout.stages
        offset = chunk % slots
        with finished(launch, launch.chain.head, 0) as made:

            def of_round(round_: Word, *best: Word) -> list[Word]:
                def of_slot(slot: Word, *best: Word) -> list[Word]:
                    number = (slot + slots - offset) % slots + round_ * slots
                    return self._rows(chunk, number, slot, right, made, Best.of(list(best)))

                return loop(launch.warp, slots, best, of_slot, WARPS)

            rounds = (launch.heads + (slots - 1)) // slots
            found = loop(0, rounds, Best.none().words, of_round)
        if layout.draws:
            return
        best = Best.of(found).across()
        when(launch.lane == 0, lambda: c.store_words(launch.place("best") + launch.warp * 16, best.words))

    def _rows(
        self,
        chunk: Word,
        number: Word,
        slot: Word,
        right: list[Fragment] | None,
        made: Copied,
        best: Best,
    ) -> list[Word]:
        launch, layout = self.launch, self.launch.layout

        def multiply() -> list[Word]:
            _, parity = launch.slot(chunk + number)
            c.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            sums = self._sums(base, right)
            c.fence_copies()
            c.warp_barrier()
            when(launch.lane == 0, lambda: c.arrive(launch.empty(slot), layout.arrivals))
            value = self.side.whole(sums)
            row = launch.row_of_head(number * 8 + self.products.group)
            end = launch.chain.head.rows - 1
            where = [0, (lesser(row, word(end)) if launch.chain.head.rows % 8 else row).index()]
            made.hold_product(value.value, where)
            with made.reader.scope():
                result = Word(made.reader.read(made.result, where))
            memory = launch.view(launch.chain.logits, 0, ir.MemRefType.get([1, launch.chain.head.rows], b.f32()))
            own_lane = self.products.part == 0
            when(own_lane & (row <= end), lambda: b.store(result.value, memory, [0, row.index()]))
            inside = own_lane & (row < launch.chain.vocab)
            if layout.draws:
                place = launch.place("logits") + (number * 8 + self.products.group) * 4
                when(own_lane, lambda: c.store_words(place, [result]))
                return best.words
            own = Best(rank_of(result), row, word(LOWEST), word(1)).where(inside)
            return best.joined(own).words

        return either(number < launch.heads, "rrrr", multiply, lambda: best.words)

    def _sums(self, base: Word, held: list[Fragment] | None) -> list[Word]:
        """Of 8 rows, along all of the stream, what is still to be added up.  held: its operand, where a warp has it in
        registers."""
        sums = self.side.none()
        for first in range(0, self.steps, AT_ONCE):
            count = min(AT_ONCE, self.steps - first)
            right = self.side.operand(first, count) if held is None else self.side.of_steps(held, first, count)
            sums = self.side.add(base, right, first, sums)
        return sums
