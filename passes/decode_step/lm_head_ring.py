"""The lm head's chunks of a block in a clustered launch, as the subgroups that multiply take them.

The weight copier brings as many chunks as the ring has slots, ahead of the lm head.  A subgroup always reads the same
slots, and brings what comes behind them itself, as soon as it has read one: through one thread for all each would wait
for all others.  A chunk that a subgroup brings has a barrier of its own, with a phase for each run.  Of several
sequences subgroups have so much to multiply that the weight copier brings all chunks as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import either, loop, word
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.decode_step.weight_copies import Copies, lasting_lm_chunks
from lispgpt.passes.targets import ptx

Chunk = Callable[..., Sequence[Number]]
"""(its number among the block's, where it lies, what to call once it is read, *what is carried) -> the same."""


class LmHeadChunks:
    """By the subgroups that multiply.  chunk: the first one's number in the ring.  run: of the launch."""

    def __init__(self, launch: Launch, chunk: Number, run: Number) -> None:
        self.launch, self.chunk, self.run = launch, chunk, run
        if launch.layout.brings:
            self.copies, self.lasting = Copies(launch), lasting_lm_chunks(launch, launch.position + run)

    def walk(self, inits: Sequence[Number], kinds: str, body: Chunk) -> list[Number]:
        launch, slots = self.launch, self.launch.layout.stages
        offset = self.chunk % slots

        def of_round(round_: Number, *carried: Number) -> list[Number]:
            def of_slot(slot: Number, *carried: Number) -> list[Number]:
                number = (slot + slots - offset) % slots + round_ * slots

                def one() -> list[Number]:
                    self._await(number, slot, round_)
                    base, release = launch.start + slot * launch.layout.chunk, partial(self._release, number, slot)
                    return list(body(number, base, release, *carried))

                return either(number < launch.heads, kinds, one, lambda: list(carried))

            return loop(launch.subgroup, slots, carried, of_slot, SUBGROUPS)

        return loop(0, (launch.heads + (slots - 1)) // slots, inits, of_round)

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

        def go_on() -> None:
            b.either((next_ < launch.heads).value, bring, leave)

        launch.once_read(go_on if layout.brings else leave)
