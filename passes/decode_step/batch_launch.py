"""Who a thread of a launch of several sequences is, and what roles of it have in common."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import lesser, word
from lispgpt.passes.decode_step.batch_layout import NEW_ROW_SUBGROUPS, BatchLayout
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import RANKS
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.targets import ptx

THREADS = 32 * SUBGROUPS
"""Of a block, that multiply."""
MULTIPLIERS, TOKENS, PARTS = 1, 2, 3
"""Barriers of a block: of all subgroups that multiply; of those and all but the one that brings weights, once tokens
are known; of those that multiply or have own rows, once attention's parts are there."""


@dataclass
class BatchLaunch(Launch):
    layout: BatchLayout

    @property
    def sequence(self) -> Number:
        """The block's sequence, or, where it has none, the last one."""
        sequences = self.layout.sequences
        return self.rank if sequences == RANKS else lesser(self.rank, word(sequences - 1))

    @property
    def has_sequence(self) -> Number | None:
        """Whether the block has a sequence; None: all have."""
        sequences = self.layout.sequences
        return None if sequences == RANKS else self.rank < sequences

    def position_at(self, run: Number) -> Number:
        """The position of the block's sequence in a run of the launch, 0 where it has none."""
        position, there = self.position_of(self.sequence) + run, self.has_sequence
        return position if there is None else there.where(position, 0)

    def moments_place(self, sequence: Number) -> Number:
        """Where a subgroup has those of a sequence's residual stream."""
        return self.place("moments") + (self.subgroup * self.layout.sequences + sequence) * 8

    def wait_for_tokens(self) -> None:
        """All subgroups but the one that brings weights, once a run's tokens are known."""
        ptx.wait_at(TOKENS, THREADS + 32 * (1 + NEW_ROW_SUBGROUPS))
