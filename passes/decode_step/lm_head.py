"""The product whose rows are tokens, by subgroups that multiply, each some chunks of 8 rows.

Rows 0 to 7 of an instruction are a chunk's along the first half of the depth, rows 8 to 15 the same along the second.
On the way it finds each sequence's largest logit, or, where the token is drawn, leaves all logits in the block's
memory.

The weight copier brings as many chunks as the ring has slots, ahead of the lm head.  A subgroup always reads the same
slots, so that it sees every phase of their barriers, and brings what comes behind them itself, as soon as it has read
one: through one thread for all each would wait for all others.  A chunk that a subgroup brings has a barrier of its
own, with a phase for each run.  Of several sequences subgroups have so much to multiply that the weight copier brings
all chunks as fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import either, lesser, loop, when, word
from lispgpt.passes.decode_step.batch_products import BatchProducts, added, put
from lispgpt.passes.decode_step.draw import Heats
from lispgpt.passes.decode_step.largest_logit import LOWEST, Best, publish, rank_of
from lispgpt.passes.decode_step.launch import Copied, Launch, copied
from lispgpt.passes.decode_step.layout import RESIDUAL_STREAM, SUBGROUPS, TWO_ROLES
from lispgpt.passes.decode_step.products import AT_ONCE, Products, operand_of
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.weight_copies import Copies, lasting_lm_chunks
from lispgpt.passes.decode_step.weights import Fragment, weights_of
from lispgpt.passes.targets import ptx

HELD = 64
"""Words of an operand that a lane has in registers, at most."""
Values = list[tuple[Number, Number, Number]]
"""A lane's: what a product makes of its row, of which sequence, and whether it is the lane's own."""


class LmHead(ABC):
    """each: sequences of a lane."""

    each = 1

    def __init__(self, launch: Launch) -> None:
        self.launch, self.products = launch, Products(launch)

    @abstractmethod
    def put(self, residual: Residual, numbers: Sequence[Number]) -> None:
        """The normed residual stream where the lm head reads it; by all subgroups, each some columns."""

    @abstractmethod
    def _multiply(self, base: Number) -> list[Any]:
        """A lane's sums of a chunk's rows, along all of the residual stream."""

    @abstractmethod
    def _values(self, sums: list[Any]) -> Values:
        """What these are of."""

    @abstractmethod
    def _leave(self, found: list[Number], run: Number) -> None:
        """What a lane has found of all of its rows: the words of a `Best` of each of its sequences."""

    def emit(self, chunk: Number, run: Number) -> None:
        """Multiply all of the block's rows.  chunk: the first one's number in the ring.  run: of the launch."""
        launch, slots = self.launch, self.launch.layout.stages
        made, kinds, self.chunk, self.run = copied(launch, launch.chain.lm_head, 0), "rrrr" * self.each, chunk, run
        if launch.layout.brings:
            self.copies, self.lasting = Copies(launch), lasting_lm_chunks(launch, launch.position + run)
        none, offset = [*Best.none()] * self.each, chunk % slots

        def of_round(round_: Number, *carried: Number) -> list[Number]:
            def of_slot(slot: Number, *best: Number) -> list[Number]:
                number = (slot + slots - offset) % slots + round_ * slots

                def one() -> list[Number]:
                    self._await(number, slot, round_)
                    sums = self._multiply(launch.start + slot * launch.layout.chunk)
                    self._release(number, slot)
                    return self._rows(number, self._values(sums), made, list(best))

                return either(number < launch.heads, kinds, one, lambda: list(best))

            return loop(launch.subgroup, slots, carried, of_slot, SUBGROUPS)

        self._leave(loop(0, (launch.heads + (slots - 1)) // slots, none, of_round), run)

    def _await(self, number: Number, slot: Number, round_: Number) -> None:
        launch, (_, parity) = self.launch, self.launch.slot(self.chunk + number)
        if not launch.layout.brings:
            ptx.wait(launch.full(slot), parity)
            return
        first = round_ == 0
        barrier = first.where(launch.full(slot), launch.brought(number))
        ptx.wait(barrier, first.where(parity, self.run & 1))

    def _release(self, number: Number, slot: Number) -> None:
        """By a subgroup that has read a chunk: bring the next one to its slot, or leave it to the residual stream."""
        launch, layout, next_ = self.launch, self.launch.layout, number + self.launch.layout.stages

        def bring() -> None:
            hint = (number < self.lasting).where(self.copies.lasting, self.copies.passing)
            self.copies.bring("lm_head", self.copies.lm_head_at(next_), slot, launch.brought(next_), hint, word(0))

        def leave() -> None:
            ptx.arrive(launch.empty(slot), layout.arrivals)

        with launch.once_read():
            if layout.brings:
                b.either((next_ < launch.heads).value, bring, leave)
            else:
                leave()

    def _rows(self, number: Number, values: Values, made: Copied, before: list[Number]) -> list[Number]:
        """The best so far, with those of 8 rows."""
        launch, layout, chain = self.launch, self.launch.layout, self.launch.chain
        rows, own_row = chain.lm_head.rows, number * 8 + self.products.group
        row = launch.row_of_lm_head(own_row)
        column = (lesser(row, word(rows - 1)) if rows % 8 else row).index()
        memory, found = (
            launch.view(chain.logits, 0, ir.MemRefType.get([layout.sequences, rows], b.f32())),
            list[Number](),
        )
        for i, (value, sequence, own) in enumerate(values):
            place = [launch.row_of(sequence), column]
            made.hold_product(value.value, place)
            with made.reader.scope():
                result = Number(made.reader.read(made.result, place))
            when(own & (row < rows), partial(b.store, result.value, memory, place))
            if layout.draws:
                when(own, partial(ptx.store_words, launch.place("logits") + own_row * 4, [result]))
            best = Best(rank_of(result), row, word(LOWEST), word(1)).where(own & (row < chain.vocab))
            found += Best(*before[4 * i : 4 * i + 4]).joined(best)
        return before if layout.draws else found


class OneLmHead(LmHead):
    """Of one sequence, whose parts fill an instruction's columns."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.steps, self.operand = launch.layout.width // 32, operand_of(self.products, "lm_head")

    def put(self, residual: Residual, numbers: Sequence[Number]) -> None:
        self.operand.put(residual, numbers)

    def emit(self, chunk: Number, run: Number) -> None:
        holds = self.steps * self.operand.words <= HELD
        self.held: list[Fragment] | None = self.operand.operand(0, self.steps, AT_ONCE) if holds else None
        super().emit(chunk, run)

    def _multiply(self, base: Number) -> list[Any]:
        operand = self.operand
        sums, together = operand.none(self.steps), operand.together
        for first in range(0, self.steps, AT_ONCE):
            count = min(AT_ONCE, self.steps - first)
            if self.held is None:
                right = operand.operand(first, count, AT_ONCE)
            else:
                right = self.held[first // together : (first + count) // together]
            weights = operand.load(base, first, count, AT_ONCE)
            sums = operand.add(weights, right, list(operand.scales(base, first, count)), sums)
        return sums

    def _values(self, sums: list[Any]) -> Values:
        return [(self.operand.whole(sums), word(0), self.products.part == 0)]

    def _leave(self, found: list[Number], run: Number) -> None:
        launch = self.launch
        if launch.layout.draws:
            Heats(launch).emit()
        else:
            best = Best(*found).across()
            when(launch.lane == 0, lambda: ptx.store_words(launch.place("best") + launch.subgroup * 16, best))
            ptx.arrive_at(RESIDUAL_STREAM, TWO_ROLES)


class BatchLmHead(LmHead):
    """Of several sequences, which fill an instruction's columns: each half of the residual stream has an instruction of
    its own, and of its results the half that is of its own weights counts.  A lane has a row and two sequences."""

    each, at_once = 2, 4

    def __init__(self, launch: Launch, products: BatchProducts) -> None:
        super().__init__(launch)
        self.sequences, self.weights = products, weights_of(launch, "lm_head")

    def put(self, residual: Residual, numbers: Sequence[Number]) -> None:
        put(residual, numbers)

    def _multiply(self, base: Number) -> list[Any]:
        half, residual_stream = self.launch.layout.width // 32, self.launch.place("x")
        places = self.weights.row_places(base, 0, half, half)
        chains = [self.sequences.none() for _ in range(2)]
        for at in range(0, half, self.at_once):
            weights = list(map(self.weights.load, places[at : at + self.at_once]))
            for step, a in enumerate(weights):
                for number, parts in enumerate(self.sequences.operands(residual_stream, at + step, half)):
                    both = zip(parts, chains[number], strict=True)
                    chains[number] = [ptx.multiply(a, part, total) for part, total in both]
        first, second = map(added, chains)
        return [first[i] + second[2 + i] for i in (0, 1)]

    def _values(self, sums: list[Any]) -> Values:
        count, numbers = self.launch.layout.sequences, [self.products.part * self.each + i for i in (0, 1)]
        return [(x, lesser(n, word(count - 1)), n < count) for x, n in zip(sums, numbers, strict=True)]

    def _leave(self, found: list[Number], run: Number) -> None:
        launch = self.launch
        for i in range(self.each):
            best = Best(*found[4 * i : 4 * i + 4])
            for distance in (16, 8, 4):
                best = best.joined(Best(*(w.from_lane(distance) for w in best)))
            sequence = self.products.part * self.each + i
            place = launch.place("best") + (sequence * SUBGROUPS + launch.subgroup) * 16
            leaves = (self.products.group == 0) & (sequence < launch.layout.sequences)
            when(leaves, partial(ptx.store_words, place, best))
        launch.synchronize()
        leads = launch.subgroup < launch.layout.sequences
        when(leads, lambda: publish(launch, launch.before + run + 1, launch.subgroup))
