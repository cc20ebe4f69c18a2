"""Who a thread of a launch of several texts is, and what roles of it have in common."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.passes.decode_step import cluster as c
from lispgpt.passes.decode_step.batch_layout import OWN_WARPS, TextsLayout
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import RANKS
from lispgpt.passes.decode_step.scalars import Word, lesser, word
from lispgpt.passes.decode_step.sharing import WARPS

THREADS = 32 * WARPS
"""Of a block, that multiply."""
MULTIPLIERS, TOKENS, PARTS = 1, 2, 3
"""Barriers of a block: of all warps that multiply; of those and all but the one that brings weights, once tokens are
known; of those that multiply or have own rows, once attention's parts are there."""


@dataclass
class TextsLaunch(Launch):
    layout: TextsLayout

    @property
    def text(self) -> Word:
        """The block's text, or, where it has none, the last one."""
        texts = self.layout.texts
        return self.rank if texts == RANKS else lesser(self.rank, word(texts - 1))

    @property
    def has_text(self) -> Word | None:
        """Whether the block has a text; None: all have."""
        texts = self.layout.texts
        return None if texts == RANKS else self.rank < texts

    def position_at(self, run: Word) -> Word:
        """The position of the block's text in a run of the launch, 0 where it has none."""
        position, there = self.position_of(self.text) + run, self.has_text
        return position if there is None else there.where(position, 0)

    def moments_place(self, text: Word) -> Word:
        """Where a warp has those of a text's stream."""
        return self.place("moments") + (self.warp * self.layout.texts + text) * 8

    def meet_tokens(self) -> None:
        """All warps but the one that brings weights, once a run's tokens are known."""
        c.meet(TOKENS, THREADS + 32 * (1 + OWN_WARPS))
