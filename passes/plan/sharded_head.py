"""The head of a sharded launch: each warp a ring's slots of its own, 8 tokens' rows at once, the largest on the way.

A warp always reads the same slots, so that it sees every phase of their barriers.
"""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, lesser, loop, real, when, word
from lispgpt.passes.plan.sharded_choice import LOWEST, Best, rank_of
from lispgpt.passes.plan.sharded_launch import Copied, finished, lanes, statistics
from lispgpt.passes.plan.sharded_layout import MULTIPLIERS, WARPS
from lispgpt.passes.plan.sharded_operands import part_bytes, place_of_pair
from lispgpt.passes.plan.sharded_products import Products

HELD = 32
"""Steps of a depth whose operand a warp has in registers."""


class Head:
    def __init__(self, products: Products) -> None:
        self.products, self.launch = products, products.launch
        self.own_texts = 1 if products.launch.layout.texts == 1 else 2
        """Texts that a lane has sums of."""

    def norm(self) -> None:
        """Put the normed stream, in parts, where the head reads it; by all warps that multiply, each some columns."""
        launch, layout = self.launch, self.launch.layout
        norm = launch.chain.norms[2]
        gamma = launch.floats(norm.gamma, 0)
        beta = None if norm.beta is None else launch.floats(norm.beta, 0)

        def of_text(text: Word | int) -> None:
            mean, factor = statistics(launch, norm.centred, norm.epsilon, text)

            def pair(number: Word) -> None:
                column = (number * 2).index()
                scales = lanes(b.load(gamma, [column], 2))
                shifts = [real(0.0)] * 2 if beta is None else lanes(b.load(beta, [column], 2))
                values = c.load_reals(launch.place("stream") + text * (4 * layout.width) + number * 8, 2)
                made = []
                for value, scale, shift in zip(values, scales, shifts, strict=True):
                    value = value - mean * scale if norm.centred else value
                    made.append(factor * value + shift)
                for i, part in enumerate(c.split(*made)):
                    to = launch.place("x") + place_of_pair(number, layout.texts, text)
                    c.store_words(to + part_bytes(layout.texts) * i, [part])

            each(launch.warp * 32 + launch.lane, layout.width // 2, pair, 32 * WARPS)

        if layout.texts == 1:
            of_text(0)
        else:
            each(0, layout.texts, of_text)
        c.meet(MULTIPLIERS, 32 * WARPS)

    def emit(self, chunk: Word) -> None:
        """Multiply all of the block's rows, and leave its warps' largest.  chunk: the first one's number."""
        launch, layout = self.launch, self.launch.layout
        steps = layout.width // 32
        right = self.products.operand("x", 0, steps) if steps <= HELD and layout.texts == 1 else None
        slots = layout.stages
        offset = chunk % slots
        with finished(launch, launch.chain.head, 0) as made:

            def of_round(round_: Word, *best: Word) -> list[Word]:
                def of_slot(slot: Word, *best: Word) -> list[Word]:
                    number = (slot + slots - offset) % slots + round_ * slots
                    return self._rows(chunk, number, slot, right, made, list(best))

                return loop(launch.warp, slots, best, of_slot, WARPS)

            rounds = (launch.heads + (slots - 1)) // slots
            found = loop(0, rounds, Best.none().words * self.own_texts, of_round)
        if layout.draws:
            return
        if layout.texts == 1:
            best = Best.of(found).across()
            when(launch.lane == 0, lambda: c.store_words(launch.place("best") + launch.warp * 16, best.words))
            return
        for i in range(self.own_texts):
            best = Best.of(found[4 * i : 4 * i + 4]).across((16, 8, 4))
            text = launch.lane * 2 + i
            place = launch.place("best") + (text * WARPS + launch.warp) * 16
            when((launch.lane < 4) & (text < layout.texts), partial(c.store_words, place, best.words))

    def _rows(
        self,
        chunk: Word,
        number: Word,
        slot: Word,
        right: list[list[Word]] | None,
        made: Copied,
        best: list[Word],
    ) -> list[Word]:
        """best: four words for each text that a lane has."""
        launch, layout = self.launch, self.launch.layout

        def multiply() -> list[Word]:
            _, parity = launch.slot(chunk + number)
            c.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            sums = self.products.head_sums(self.products.row_places(base, 0, layout.width // 32), right)
            c.fence_copies()
            c.warp_barrier()
            when(launch.lane == 0, lambda: c.arrive(launch.empty(slot), layout.arrivals))
            results = self.products.results(self.products.head_totals(sums))
            row = (launch.first_head + number) * 8 + self.products.group
            end = launch.chain.head.rows - 1
            column = (lesser(row, word(end)) if launch.chain.head.rows % 8 else row).index()
            shape = ir.MemRefType.get([layout.texts, launch.chain.head.rows], b.f32())
            memory = launch.view(launch.chain.logits, 0, shape)
            return [
                w
                for i, (text, value) in enumerate(results)
                for w in finish(text, value, row, column, memory, Best.of(best[4 * i : 4 * i + 4]))
            ]

        def finish(
            text: Word | int, value: Word, row: Word, column: ir.Value, memory: ir.Value, best: Best
        ) -> list[Word]:
            number_ = text if isinstance(text, int) else lesser(text, word(layout.texts - 1)).index()
            made.hold_product(value.value, [number_, column])
            with made.reader.scope():
                result = Word(made.reader.read(made.result, [number_, column]))
            own_lane, end = self.products.leaves(text), launch.chain.head.rows - 1
            within = b.emit("arith.andi", [own_lane.value, (row <= end).value], [own_lane.value.type])
            when(Word(within), lambda: b.store(result.value, memory, [number_, row.index()]))
            inside = b.emit("arith.andi", [own_lane.value, (row < launch.chain.vocab).value], [own_lane.value.type])
            if layout.draws:
                place = launch.place("logits") + (number * 8 + self.products.group) * 4
                when(own_lane, lambda: c.store_words(place, [result]))
                return best.words
            own = Best(rank_of(result), row, word(LOWEST), word(1)).where(Word(inside))
            return best.joined(own).words

        return either(number < launch.heads, "rrrr" * self.own_texts, multiply, lambda: best)
