"""Where a text may be about to say something that is looked for."""

from __future__ import annotations


def overlap(text: str, wanted: str) -> int:
    """How long the longest end of a text is that is the start of what is wanted, and not all of it."""
    return next((n for n in range(min(len(text), len(wanted) - 1), 0, -1) if text.endswith(wanted[:n])), 0)
