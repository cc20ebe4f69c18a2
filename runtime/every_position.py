"""The logits of every position of a text, by an entry that takes in some at once."""

from __future__ import annotations

import numpy as np

from lispgpt.runtime.decoding import padded
from lispgpt.runtime.long_texts import tell_lengths
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

ROWS = (16, 128)
"""Positions that are taken in at once: of these the smallest that is enough, or the largest."""


def rows_for(count: int, context: int) -> int:
    """How many positions an entry takes for so many."""
    return min(next((rows for rows in ROWS if rows >= count), ROWS[-1]), context)


def every_logits(session: Session, entry: Entry, tokens: np.ndarray, vocab: int) -> np.ndarray:
    """What follows each of i32 [n] tokens, f32 [n vocab]; the entry's states are then nobody's."""
    session.holder, rows, found = None, entry.sizes["length"], []
    if not entry.repeatable:
        session.forget([entry])
    tell_lengths(session, [entry], [tokens.size])
    for start in range(0, tokens.size, rows):
        part = tokens[start : start + rows]
        session.start(entry, dict(zip(entry.inputs, padded(part, start, rows), strict=True)))
        found.append(session.result(entry, "logits")[-len(part) :, :vocab])
    return np.concatenate(found)
