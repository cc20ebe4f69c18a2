"""Where a long text may be parted, so that byte-level tokenizers make of its pieces what they make of the whole."""

from __future__ import annotations

from collections.abc import Iterator

PIECE = 1 << 20
"""Characters of a piece, about."""
MOST_AT_ONCE = 1 << 22
"""Characters that are encoded at once at most: where each is a token, tokenizers take some hundred bytes for it."""
_AFTER_LINES = "/"
"""What GPT-4o's pattern takes together with a line's end before it."""


def pieces_of(text: str) -> Iterator[str]:
    """A text's pieces; one that can be parted nowhere may be longer than PIECE."""
    begins = looked = 0
    while len(text) - looked > PIECE:
        start = max(begins, looked - 1)
        cut = end_of_piece(text[start : looked + PIECE])
        looked += PIECE
        if cut:
            yield text[begins : start + cut]
            begins = looked = start + cut
    yield text[begins:]


def end_of_piece(text: str) -> int:
    """How much of a text that goes on can be encoded for itself; 0 where nothing can.

    That ends after a line's end that is the only white space between two characters, or where no line ends so, as in
    texts whose lines end in two characters, before the only space between two letters.  Of more white space, GPT-2's
    pattern leaves the last character to what follows, and others' do not.
    """
    end = len(text) - 1
    while (end := text.rfind("\n", 1, end)) > 0:
        if not text[end - 1].isspace() and not text[end + 1].isspace() and text[end + 1] not in _AFTER_LINES:
            return end + 1
    end = len(text) - 1
    while (end := text.rfind(" ", 1, end)) > 0:
        if text[end - 1].isalpha() and text[end + 1].isalpha():
            return end
    return 0
