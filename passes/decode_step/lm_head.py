"""The lm head of a clustered launch: each subgroup multiplies the chunks of some of the ring's slots, 8 tokens' rows
each.

On the way it finds its largest logit, or, where the token is drawn, leaves all logits in the block's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import lesser, real, when, word
from lispgpt.passes.decode_step.largest_logit import LOWEST, Best, rank_of
from lispgpt.passes.decode_step.launch import Copied, finished
from lispgpt.passes.decode_step.layout import MULTIPLIERS
from lispgpt.passes.decode_step.lm_head_ring import LmHeadChunks
from lispgpt.passes.decode_step.products import Products
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.row_products import AT_ONCE, operand_of
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.decode_step.weights import Fragment
from lispgpt.passes.targets import ptx

HELD = 64
"""Words of an operand that a lane has in registers, at most."""


class LmHead:
    def __init__(self, products: Products) -> None:
        self.products, self.launch = products, products.launch
        self.steps = self.launch.layout.width // 32
        self.operand = operand_of(products, "lm_head")

    def norm(self, residual: Residual, residual_stream: Sequence[Number]) -> None:
        """Put the normed residual stream where the lm head reads it; by all subgroups, each some columns."""
        norm = self.launch.chain.norms[2]
        gamma = residual.factors(norm.gamma, 0)
        beta = [real(0.0)] * len(gamma) if norm.beta is None else residual.factors(norm.beta, 0)
        mean, factor = residual.moments(residual_stream, norm.centred, norm.epsilon)
        made = []
        for value, scale, shift in zip(residual_stream, gamma, beta, strict=True):
            value = value - mean if norm.centred else value
            made.append(factor * (value * scale) + shift)
        self.operand.put(residual, made)
        ptx.wait_at(MULTIPLIERS, 32 * SUBGROUPS)

    def emit(self, chunk: Number, run: Number) -> None:
        """Multiply all of the block's rows, and leave its subgroups' largest, or all where a token is drawn.  chunk:
        the first one's number in the ring."""
        launch, layout = self.launch, self.launch.layout
        right = self.operand.operand(0, self.steps, AT_ONCE) if self.steps * self.operand.words <= HELD else None
        with finished(launch, launch.chain.lm_head, 0) as made:

            def rows(number: Number, base: Number, release: Callable[[], None], *best: Number) -> list[Number]:
                sums = self._sums(base, right)
                release()
                return self._rows(number, sums, made, Best.of(list(best)))

            found = LmHeadChunks(launch, chunk, run).walk(Best.none().words, "rrrr", rows)
        if layout.draws:
            return
        best = Best.of(found).across()
        when(launch.lane == 0, lambda: ptx.store_words(launch.place("best") + launch.subgroup * 16, best.words))

    def _rows(self, number: Number, sums: list[Number], made: Copied, best: Best) -> list[Number]:
        """The best so far, with those of 8 rows."""
        launch, layout, own_lane = self.launch, self.launch.layout, self.products.part == 0
        value = self.operand.whole(sums)
        row = launch.row_of_lm_head(number * 8 + self.products.group)
        end = launch.chain.lm_head.rows - 1
        where = [0, (lesser(row, word(end)) if launch.chain.lm_head.rows % 8 else row).index()]
        made.hold_product(value.value, where)
        with made.reader.scope():
            result = Number(made.reader.read(made.result, where))
        memory = launch.view(launch.chain.logits, 0, ir.MemRefType.get([1, launch.chain.lm_head.rows], b.f32()))
        when(own_lane & (row <= end), lambda: b.store(result.value, memory, [0, row.index()]))
        if layout.draws:
            place = launch.place("logits") + (number * 8 + self.products.group) * 4
            when(own_lane, lambda: ptx.store_words(place, [result]))
            return best.words
        own = Best(rank_of(result), row, word(LOWEST), word(1)).where(own_lane & (row < launch.chain.vocab))
        return best.joined(own).words

    def _sums(self, base: Number, held: list[Fragment] | None) -> list[Number]:
        """Of 8 rows, along all of the residual stream, what is still to be added up.  held: its operand, where a
        subgroup has it in registers."""
        operand = self.operand
        sums, together = operand.none(self.steps), operand.together
        for first in range(0, self.steps, AT_ONCE):
            count = min(AT_ONCE, self.steps - first)
            if held is None:
                right = operand.operand(first, count, AT_ONCE)
            else:
                right = held[first // together : (first + count) // together]
            weights = operand.load(base, first, count, AT_ONCE)
            sums = operand.add(weights, right, list(operand.scales(base, first, count)), sums)
        return sums
