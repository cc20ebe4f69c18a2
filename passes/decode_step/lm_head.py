"""The head of a sharded launch: each warp multiplies the chunks of some of the ring's slots, 8 tokens' rows each.

On the way it finds its largest logit, or, where the token is drawn, leaves all logits in the block's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.decode_step import cluster as c
from lispgpt.passes.decode_step.largest_logit import LOWEST, Best, rank_of
from lispgpt.passes.decode_step.launch import Copied, finished
from lispgpt.passes.decode_step.layout import MULTIPLIERS
from lispgpt.passes.decode_step.lm_head_ring import HeadChunks
from lispgpt.passes.decode_step.products import Products
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.row_products import AT_ONCE, side_of
from lispgpt.passes.decode_step.scalars import Word, lesser, real, when, word
from lispgpt.passes.decode_step.sharing import WARPS
from lispgpt.passes.decode_step.weights import Fragment

HELD = 64
"""Words of an operand that a lane has in registers, at most."""


class Head:
    def __init__(self, products: Products) -> None:
        self.products, self.launch = products, products.launch
        self.steps = self.launch.layout.width // 32
        self.side = side_of(products, "head")

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
        c.meet(MULTIPLIERS, 32 * WARPS)

    def emit(self, chunk: Word, run: Word) -> None:
        """Multiply all of the block's rows, and leave its warps' largest, or all where a token is drawn.  chunk: the
        first one's number in the ring."""
        launch, layout = self.launch, self.launch.layout
        right = self.side.operand(0, self.steps, AT_ONCE) if self.steps * self.side.words <= HELD else None
        with finished(launch, launch.chain.head, 0) as made:

            def rows(number: Word, base: Word, release: Callable[[], None], *best: Word) -> list[Word]:
                sums = self._sums(base, right)
                release()
                return self._rows(number, sums, made, Best.of(list(best)))

            found = HeadChunks(launch, chunk, run).walk(Best.none().words, "rrrr", rows)
        if layout.draws:
            return
        best = Best.of(found).across()
        when(launch.lane == 0, lambda: c.store_words(launch.place("best") + launch.warp * 16, best.words))

    def _rows(self, number: Word, sums: list[Word], made: Copied, best: Best) -> list[Word]:
        """The best so far, with those of 8 rows."""
        launch, layout, own_lane = self.launch, self.launch.layout, self.products.part == 0
        value = self.side.whole(sums)
        row = launch.row_of_head(number * 8 + self.products.group)
        end = launch.chain.head.rows - 1
        where = [0, (lesser(row, word(end)) if launch.chain.head.rows % 8 else row).index()]
        made.hold_product(value.value, where)
        with made.reader.scope():
            result = Word(made.reader.read(made.result, where))
        memory = launch.view(launch.chain.logits, 0, ir.MemRefType.get([1, launch.chain.head.rows], b.f32()))
        when(own_lane & (row <= end), lambda: b.store(result.value, memory, [0, row.index()]))
        if layout.draws:
            place = launch.place("logits") + (number * 8 + self.products.group) * 4
            when(own_lane, lambda: c.store_words(place, [result]))
            return best.words
        own = Best(rank_of(result), row, word(LOWEST), word(1)).where(own_lane & (row < launch.chain.vocab))
        return best.joined(own).words

    def _sums(self, base: Word, held: list[Fragment] | None) -> list[Word]:
        """Of 8 rows, along all of the stream, what is still to be added up.  held: its operand, where a warp has it in
        registers."""
        side = self.side
        sums, together = side.none(self.steps), side.together
        for first in range(0, self.steps, AT_ONCE):
            count = min(AT_ONCE, self.steps - first)
            if held is None:
                right = side.operand(first, count, AT_ONCE)
            else:
                right = held[first // together : (first + count) // together]
            weights = side.load(base, first, count, AT_ONCE)
            sums = side.add(weights, right, list(side.scales(base, first, count)), sums)
        return sums
