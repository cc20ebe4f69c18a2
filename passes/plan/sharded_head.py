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
from lispgpt.passes.plan.sharded_launch import Copied, finished
from lispgpt.passes.plan.sharded_layout import MULTIPLIERS
from lispgpt.passes.plan.sharded_products import AT_ONCE, Products
from lispgpt.passes.plan.sharded_residual import Residual
from lispgpt.passes.plan.sharded_sharing import WARPS
from lispgpt.passes.plan.sharded_weights import Fragment, total, weights_of

HELD = 32
"""Steps of a depth whose operand a warp has in registers."""


class Head:
    def __init__(self, products: Products) -> None:
        self.products, self.launch = products, products.launch
        self.weights = weights_of(products.launch, "head")

    def norm(self, residual: Residual, stream: Sequence[Word]) -> None:
        """Put the normed stream, in parts, where the head reads it; by all warps that multiply, each some columns."""
        norm = self.launch.chain.norms[2]
        gamma = residual.factors(norm.gamma, 0)
        beta = [real(0.0)] * len(gamma) if norm.beta is None else residual.factors(norm.beta, 0)
        mean, factor = residual.moments(stream, norm.centred, norm.epsilon)
        made = []
        for value, scale, shift in zip(stream, gamma, beta, strict=True):
            value = value * scale - mean * scale if norm.centred else value * scale
            made.append(factor * value + shift)
        for i, pair in enumerate(residual.pairs):
            residual.put(pair, made[2 * i : 2 * i + 2])
        c.meet(MULTIPLIERS, 32 * WARPS)

    def emit(self, chunk: Word) -> None:
        """Multiply all of the block's rows, and leave its warps' largest, or all where a token is drawn.  chunk: the
        first one's number in the ring."""
        launch, layout = self.launch, self.launch.layout
        steps = layout.width // 32
        right = self.products.operand("x", 0, steps) if steps <= HELD else None
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
            chains = self._chains(base, right)
            c.fence_copies()
            c.warp_barrier()
            when(launch.lane == 0, lambda: c.arrive(launch.empty(slot), layout.arrivals))
            value = self.products.across_halves(total(chains))
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

    def _chains(self, base: Word, right: list[Fragment] | None) -> list[list[Word]]:
        """Of 8 rows, along all of the stream, sums still to be added up.  right: its operand, where a warp has it in
        registers."""
        weights, steps = self.weights, self.launch.layout.width // 32
        chains, places = weights.chains(4), weights.row_places(base, 0, steps)
        for at in range(0, steps, AT_ONCE):
            now = places[at : at + AT_ONCE]
            sides = right[at : at + AT_ONCE] if right else self.products.operand("x", at, len(now))
            chains = weights.add(chains, map(weights.load, now), sides, weights.row_scales(base, at, len(now)))
        return chains
