"""Text as it is generated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lispgpt.runtime.generate import Generator
from lispgpt.runtime.tokenizers import StreamDecoder, Tokenizer


class Text:
    """Pieces of text, one for each new token as it comes; what is left of a character that never ended comes last.

    tokens: the ids so far.  Without a tokenizer a piece is a token's id and a space.
    """

    def __init__(self, generator: Generator, prompt: Sequence[int], limit: int, tokenizer: Tokenizer | None) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self._pieces = self._make(generator, list(prompt), limit, tokenizer)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def _make(self, generator: Generator, prompt: list[int], limit: int, tokenizer: Tokenizer | None) -> Iterator[str]:
        decoder = StreamDecoder(tokenizer) if tokenizer else None
        for token in generator.generate(prompt, limit, tokenizer.ends if tokenizer else ()):
            self.tokens.append(token)
            piece = decoder.push(token) if decoder else f"{token} "
            self.text += piece if decoder else ""
            yield piece
        last = decoder.finish() if decoder else ""
        self.text += last
        if last:
            yield last
