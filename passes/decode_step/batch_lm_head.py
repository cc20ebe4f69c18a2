"""The lm head of a launch of several sequences: each subgroup multiplies the chunks of some of the ring's slots by all
of them.

Rows 0 to 7 of an instruction are a chunk's along the first half of the depth, rows 8 to 15 the same along the second:
each half of the residual stream has an instruction, and of its results the half that is of its own weights counts.

A subgroup always reads the same slots, so that it sees every phase of their barriers.  A lane has a row and two
sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import lesser, when, word
from lispgpt.passes.decode_step.batch_products import TextProducts, added
from lispgpt.passes.decode_step.largest_logit import LOWEST, Best, publish, rank_of
from lispgpt.passes.decode_step.launch import Copied, finished
from lispgpt.passes.decode_step.lm_head_ring import LmHeadChunks
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.decode_step.weights import weights_of
from lispgpt.passes.targets import ptx

AT_ONCE = 4
"""Steps whose weights are read together."""
EACH = 2
"""Texts of a lane."""


class BatchLmHead:
    def __init__(self, products: TextProducts) -> None:
        self.products, self.launch = products, products.launch
        self.weights = weights_of(products.launch, "lm_head")
        self.group, self.part = self.launch.lane // 4, self.launch.lane % 4

    def emit(self, chunk: Number, run: Number) -> None:
        """Multiply all of the block's rows, and publish each sequence's largest.  chunk: the first one's number in the
        ring. run: of the launch."""
        launch = self.launch
        with finished(launch, launch.chain.lm_head, 0) as made:

            def rows(number: Number, base: Number, release: Callable[[], None], *best: Number) -> list[Number]:
                sums = self._sums(base)
                release()
                return self._rows(number, sums, made, list(best))

            found = LmHeadChunks(launch, chunk, run).walk(Best.none().words * EACH, "rrrr" * EACH, rows)
        for i in range(EACH):
            best = Best.of(found[4 * i : 4 * i + 4])
            for distance in (16, 8, 4):
                best = best.joined(Best.of([w.from_lane(distance) for w in best.words]))
            sequence = self.part * EACH + i
            place = launch.place("best") + (sequence * SUBGROUPS + launch.subgroup) * 16
            leaves = (self.group == 0) & (sequence < launch.layout.sequences)
            when(leaves, partial(ptx.store_words, place, best.words))
        self.products.wait_at()
        when(
            launch.subgroup < launch.layout.sequences, lambda: publish(launch, launch.before + run + 1, launch.subgroup)
        )

    def _rows(self, number: Number, sums: list[Number], made: Copied, before: list[Number]) -> list[Number]:
        """The best so far, with those of 8 rows."""
        launch, layout, chain = self.launch, self.launch.layout, self.launch.chain
        rows = chain.lm_head.rows
        row = launch.row_of_lm_head(number * 8 + self.group)
        column = (lesser(row, word(rows - 1)) if rows % 8 else row).index()
        memory = launch.view(chain.logits, 0, ir.MemRefType.get([layout.sequences, rows], b.f32()))
        found = []
        for i, value in enumerate(sums):
            sequence = self.part * EACH + i
            there = sequence < layout.sequences
            place = [lesser(sequence, word(layout.sequences - 1)).index(), column]
            made.hold_product(value.value, place)
            with made.reader.scope():
                result = Number(made.reader.read(made.result, place))
            when(there & (row < rows), partial(b.store, result.value, memory, place))
            own = Best(rank_of(result), row, word(LOWEST), word(1)).where(row < chain.vocab)
            found += Best.of(before[4 * i : 4 * i + 4]).joined(own).words
        return found

    def _sums(self, base: Number) -> list[Number]:
        """Of a lane's row of 8, along all of the residual stream, for its two sequences."""
        half, residual_stream = self.launch.layout.width // 32, self.launch.place("x")
        places = self.weights.row_places(base, 0, half, half)
        chains = [self.products.none() for _ in range(2)]
        for at in range(0, half, AT_ONCE):
            weights = list(map(self.weights.load, places[at : at + AT_ONCE]))
            for step, a in enumerate(weights):
                for number, parts in enumerate(self.products.operands(residual_stream, at + step, half)):
                    both = zip(parts, chains[number], strict=True)
                    chains[number] = [ptx.multiply(a, part, total) for part, total in both]
        first, second = map(added, chains)
        return [first[i] + second[2 + i] for i in (0, 1)]
