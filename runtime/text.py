"""Text as it is generated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.overlap import overlap
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.tokenizers import StreamDecoder, Tokenizer, unread_beside


class Continuation:
    """What one sequence has said so far.

    limit: tokens at most.  tokens: their ids so far.  text: what they say, up to the first of the `stops` in it, which
    may begin and end within tokens.  ended: None, or why it goes on no more: "length", "end" (a token that ends texts)
    or "stop".  ends: the tokens that end it.  Without a tokenizer a piece of text is a token's id and a space, and
    nothing ends a text but its length.
    """

    def __init__(self, limit: int, tokenizer: Tokenizer | None, stops: Sequence[str] = ()) -> None:
        if stops and tokenizer is None:
            raise UserError("a text to stop at wants a tokenizer, and none was found: give --tokenizer FILE")
        if not all(stops):
            raise UserError("a text to stop at is empty: every text has that")
        self.limit, self.tokens, self.text = limit, list[int](), ""
        self.ended: str | None = None if limit > 0 else "length"
        self.ends = tokenizer.ends if tokenizer else frozenset()
        self._decoder = StreamDecoder(tokenizer) if tokenizer else None
        self._stops, self._held = tuple(stops), ""

    def take(self, token: int) -> str:
        """The text that a new token completes; what may be the start of a stop is held back until it is known."""
        self.tokens.append(token)
        if len(self.tokens) >= self.limit:
            self.ended = "length"
        if token in self.ends:
            self.ended = "end"
        if self._decoder is None:
            return f"{token} "
        piece = self._before_stops(self._decoder.push(token))
        return piece + self._finish() if self.ended in ("length", "end") else piece

    def take_all(self, tokens: Sequence[int]) -> str:
        """The text that new tokens complete, up to the one that ends it, behind which none is taken."""
        if self._decoder is None or self._stops:
            pieces = []
            for token in tokens:
                pieces.append(self.take(token))
                if self.ended:
                    break
            return "".join(pieces)
        taken = tokens[: self.limit - len(self.tokens)]
        if not self.ends.isdisjoint(taken):
            taken = taken[: 1 + next(n for n, token in enumerate(taken) if token in self.ends)]
        self.tokens += taken[:-1]
        piece = self._decoder.push_all(taken[:-1])
        self.text += piece
        return piece + self.take(taken[-1])

    def end(self) -> str:
        """Go on no more, as after a token that ends texts; what was held back."""
        self.ended = "end"
        return self._finish() if self._decoder is not None else ""

    def _finish(self) -> str:
        """What is left of a character that never ended, and what was held back."""
        assert self._decoder is not None
        rest = self._before_stops(self._decoder.finish())
        held, self._held = ("" if self.ended == "stop" else self._held), ""
        self.text += held
        return rest + held

    def _before_stops(self, piece: str) -> str:
        """What of the text up to here is no stop, and cannot become one."""
        text = self._held + piece
        found = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if found:
            self.ended, keep = "stop", min(found)
        else:
            keep = len(text) - max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = "" if found else text[keep:]
        self.text += text[:keep]
        return text[:keep]


class Text:
    """The text that a generator makes of a prompt: pieces, one for each new token as it comes.

    prompt: its tokens.  The rest is a `Continuation`'s.  Texts of one session may be read in turns: each begins again
    where another has used the states meanwhile.
    """

    def __init__(self, generator: Generator, prompt: Sequence[int], continuation: Continuation) -> None:
        self.generator, self.prompt, self._continuation = generator, list(prompt), continuation
        self._pieces = self._make()

    @property
    def tokens(self) -> list[int]:
        """The ids of the new tokens."""
        return self._continuation.tokens

    @property
    def text(self) -> str:
        """What they say, without what it stopped at."""
        return self._continuation.text

    @property
    def ended(self) -> str | None:
        """None, or why it goes on no more: "length", "end" or "stop"."""
        return self._continuation.ended

    @property
    def logprobs(self) -> list[float]:
        """The natural logarithm of each token's probability by the model's own logits, where that was asked for."""
        return self.generator.log_probabilities[: len(self.tokens)]

    @property
    def room(self) -> int:
        """Steps until the text is full, or what it goes on to has to be taken in anew."""
        left = self._continuation.limit - len(self.tokens)
        return min(left, self.generator.limit - self.generator.position)

    def take(self, token: int) -> str:
        """Go on with a token; the text that it completes."""
        self.generator.take(token)
        return self._continuation.take(token)

    def take_all(self, tokens: Sequence[int]) -> str:
        """Go on with what several steps on the device chose clearly; the text that these complete."""
        before = len(self.tokens)
        piece = self._continuation.take_all(tokens)
        self.generator.chose(self.tokens[before:])
        return piece

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end it."""
        return self._continuation.ends

    def end(self) -> str:
        """Go on no more: what was held back of the text."""
        return self._continuation.end()

    def __repr__(self) -> str:
        more = f"ended by {self.ended}" if self.ended else "more comes as it is iterated over"
        return f"<Text of {len(self.tokens)} new tokens, {more}: {self.text!r}>"

    def __str__(self) -> str:
        """All of the text, which is made up to its end."""
        for _ in self:
            continue
        return self.text or " ".join(map(str, self.tokens))

    def _ipython_display_(self) -> None:
        """Notebooks show the text as it comes."""
        for piece in self:
            print(piece, end="", flush=True)
        print()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        with self.generator.session.alone():
            return next(self._pieces)

    def _make(self) -> Iterator[str]:
        if self.tokens:  # a batch has made it
            return
        for token in self.generator.generate(self.prompt, self._continuation.limit):
            yield self._continuation.take(token)
            if self.ended:
                return


def tokens_of(
    prompt: str | Sequence[int], tokenizer: Tokenizer | None, vocab: Any = None, weights: Path | None = None
) -> list[int]:
    """The tokens of a prompt: a text, or their ids in a list or an array; UserError for anything else, and for a text
    where the tokenizer is clearly not that of a model of `vocab` tokens.  weights: beside which a tokenizer may be."""
    if not isinstance(prompt, str):
        return _token_ids(prompt)
    check_tokenizer(tokenizer, vocab)
    tokens = [] if tokenizer is None else list(tokenizer.prompt(prompt))
    if tokenizer is None and prompt and weights is not None and (unread := unread_beside(weights)):
        raise UserError(unread)
    if not tokens:
        raise UserError(
            "no tokenizer was found beside the checkpoint: give --tokenizer FILE or --prompt-tokens, in Python "
            "tokenizer= or a list of tokens"
            if prompt and tokenizer is None
            else "without a tokenizer that has an end-of-text token, give --prompt-tokens"
        )
    return tokens


def check_tokenizer(tokenizer: Tokenizer | None, vocab: Any) -> None:
    """UserError where a tokenizer has not half as many tokens as the model: what it makes of texts is another's."""
    if tokenizer is not None and type(vocab) is int and 2 * tokenizer.size < vocab:
        raise UserError(
            f"the tokenizer has {tokenizer.size:,} tokens, and the model's vocabulary has {vocab:,}: it is another "
            "model's; give --tokenizer FILE, or token ids"
        )


def tokenizer_doubt(tokenizer: Tokenizer | None, vocab: Any) -> str:
    """What to say of a tokenizer of clearly fewer tokens than the model has: vocabularies are padded, but by little."""
    if tokenizer is None or type(vocab) is not int or tokenizer.size >= 0.9 * vocab:
        return ""
    said = f"the tokenizer has {tokenizer.size:,} tokens, and the model's vocabulary has {vocab:,}"
    return f"{said}: is it the model's own?"


def _token_ids(given: Any) -> list[int]:
    listed = list(given) if isinstance(given, Sequence) or getattr(given, "ndim", 0) == 1 else None
    if listed is None or not all(isinstance(token, (int, np.integer)) and type(token) is not bool for token in listed):
        shown = repr(given)
        raise UserError(f"a prompt is a text or a list of token ids, and not {shown[:40] + '…' * (len(shown) > 40)}")
    return [int(token) for token in listed]
