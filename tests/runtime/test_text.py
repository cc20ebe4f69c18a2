"""Texts as they grow: stops across tokens, characters across tokens, and why a text ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
import seeded

from lispgpt.base.errors import UserError
from lispgpt.runtime.text import Continuation
from lispgpt.runtime.tokenizers.base import Tokenizer


class Pieces(Tokenizer):
    """Every token is one of these byte strings; the last one ends a text."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.size, self.end_of_text = pieces, len(pieces), len(pieces) - 1

    def encode_valid(self, text: str) -> list[int]:
        raise AssertionError("nothing is encoded here")

    def decode_bytes(self, token: int) -> bytes:
        return self.pieces[token]


def grown(tokens: list[int], pieces: list[bytes], stops: list[str], limit: int = 1000) -> tuple[str, Continuation]:
    """What is shown of tokens, up to where the text ends."""
    continuation, shown = Continuation(limit, Pieces(pieces), stops), ""
    for token in tokens:
        shown += continuation.take(token)
        assert shown == continuation.text
        if continuation.ended:
            break
    return shown, continuation


def test_a_text_ends_before_the_first_stop_that_is_whole_wherever_tokens_end() -> None:
    rng = seeded.rng()
    for _ in range(300):
        letters = "abé"
        words = ["".join(rng.choice(list(letters), rng.integers(1, 4))) for _ in range(9)]
        whole = "".join(rng.choice(words, 30))
        stops = ["".join(rng.choice(list(letters), rng.integers(1, 7))) for _ in range(rng.integers(1, 4))]
        data = whole.encode()
        cuts = sorted({0, len(data), *map(int, rng.integers(0, len(data), 25))})
        pieces = [data[a:b] for a, b in pairwise(cuts)]
        so_far = [data[:cut].decode(errors="ignore") for cut in cuts[1:]]
        seen = next((text for text in so_far if any(stop in text for stop in stops)), whole)
        places = [seen.find(stop) for stop in stops if stop in seen]
        shown, found = grown(list(range(len(pieces))), [*pieces, b"?"], stops, len(pieces))
        about = f"{whole!r} {stops} {pieces}"
        assert shown == whole[: min(places, default=len(whole))], about
        assert found.ended == ("stop" if places else "length"), about


def test_what_may_become_a_stop_is_held_back_and_given_at_the_end() -> None:
    pieces = [b"a\n", b"\nUs", b"er", b" x", b"<end>"]
    continuation = Continuation(9, Pieces(pieces), ["\n\nUser:"])
    assert [continuation.take(token) for token in (0, 1, 2)] == ["a", "", ""]
    assert continuation.take(3) == "\n\nUser x" and continuation.ended is None
    assert continuation.take(4).endswith("<end>") and continuation.ended == "end"


def test_a_character_that_never_ends_is_shown_at_the_end() -> None:
    shown, found = grown([0, 1], [b"a\xc3", b"\xa9\xe2\x82", b"."], [], limit=2)
    assert shown == "aé\ufffd" and found.ended == "length" and found.tokens == [0, 1]


def test_stops_want_a_tokenizer_and_letters() -> None:
    with pytest.raises(UserError, match="wants a tokenizer"):
        Continuation(3, None, ["x"])
    with pytest.raises(UserError, match="is empty"):
        Continuation(3, Pieces([b"a"]), [""])
