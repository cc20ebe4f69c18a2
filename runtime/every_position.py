"""What a model says of every position of a text, by an entry that takes in some at once."""

from __future__ import annotations

import numpy as np

from lispgpt.runtime.decoding import padded
from lispgpt.runtime.long_texts import tell_lengths
from lispgpt.runtime.own_adapters import tell_adapters
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

ROWS = (16, 128)
"""Positions that are taken in at once: of these the smallest that is enough, or the largest."""


def rows_for(count: int, context: int) -> int:
    """How many positions an entry takes for so many."""
    return min(next((rows for rows in ROWS if rows >= count), ROWS[-1]), context)


def every_row(session: Session, entry: Entry, name: str, tokens: np.ndarray, adapter: int = 0) -> np.ndarray:
    """What a result of an entry says of each of i32 [n] tokens, f32 [n columns]; its states are then nobody's.
    adapter: of those that are there beside the model, 0 for none."""
    session.holder, rows, found = None, entry.sizes["length"], []
    if not entry.repeatable:
        session.forget([entry])
    tell_lengths(session, [entry], [tokens.size])
    tell_adapters(session, [entry], [adapter])
    for start in range(0, tokens.size, rows):
        part = tokens[start : start + rows]
        session.start(entry, dict(zip(entry.inputs, padded(part, start, rows), strict=True)))
        found.append(session.result(entry, name)[-len(part) :])
    return np.concatenate(found)


def pooled(rows: np.ndarray, pooling: str) -> np.ndarray:
    """The last of f32 [n columns] rows or their mean, f32 [columns], at length 1 (or 0)."""
    found = (rows[-1] if pooling == "last" else rows.mean(axis=0, dtype=np.float64)).astype(np.float64)
    length = float(np.sqrt(np.square(found).sum()))
    return (found / length if length else found).astype(np.float32)
