"""Generating text: prefill a prompt in chunks of the compiled shapes, then decode token by token."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lispgpt.errors import UserError
from lispgpt.runtime.samplers.base import Sampler, damaged_logits
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

WEIGHT_READ_ROWS = 16
"""Rows of work that cost about as much as reading the weights once: what makes few large chunks worth their padding."""


@dataclass
class Generator:
    """One sequence of a session.

    entry: the model entry that gives logits.  sampler: None takes the entry's own `next` (greedy).  Greedy tokens and
    weighted draws come from the device where it can go on by itself.  When the sequence fills the context, its last
    three quarters are prefilled again at positions from 0 and generation goes on.
    """

    session: Session
    entry: str
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        for name in ("context", "vocab"):
            if type(self.session.config.get(name)) is not int:
                raise UserError(f"to generate, a program's config has to say its {name}: (config {name} N)")
        self.context = int(self.session.config["context"])
        self.vocab = int(self.session.config["vocab"])
        sizes = [positions for batch, positions in self.session.shapes(self.entry) if batch == 1]
        self.chunks = tuple(size for size in sizes if size <= self.context)
        if 1 not in self.chunks:
            raise UserError(f"entry {self.entry!r} was not compiled for one token of one sequence")
        shapes = {buffer.name: buffer.shape for buffer in self.session.artifact.plan.buffers}
        for size in self.chunks:
            names = self.session.entry(self.entry, 1, size).results
            results = {name.rpartition("/")[2]: shapes[name] for name in names}
            rows, *columns = results.get("logits", ()) or (0,)
            if rows != 1 or len(columns) != 1 or columns[0] < self.vocab or results.get("next", (1,)) != (1,):
                found = " ".join(map(str, results.get("logits", ())))
                raise UserError(
                    f"entry {self.entry!r} should give logits [1 {self.vocab}] (or more columns), not [{found}]"
                )
        self.tokens: list[int] = []
        self.position = 0

    def prefill(self, tokens: Sequence[int]) -> int:
        """Take in a prompt; the token that follows it."""
        bad = next((t for t in tokens if not 0 <= t < self.vocab), None)
        if bad is not None:
            raise UserError(f"token {bad} is not in the vocabulary of {self.vocab} (0 to {self.vocab - 1})")
        if not tokens:
            raise UserError("the prompt is empty: give at least one token")
        self.tokens += tokens
        if self.position + len(tokens) > self.context:
            return self._slide()
        return self._feed(tokens)

    def decode(self) -> int:
        """Take in the newest token (already in `tokens`); the token that follows it."""
        if self.position >= self.context:
            return self._slide()
        return self._feed(self.tokens[-1:])

    def generate(self, prompt: Sequence[int], max_new_tokens: int, ends: Collection[int] = ()) -> Iterator[int]:
        """New tokens as they come, up to and with the first of those that end a text."""
        if max_new_tokens < 1:
            self.prefill(prompt)
            return
        token = self.prefill(prompt)
        count = 1
        self.tokens.append(token)
        yield token
        while token not in ends and count < max_new_tokens:
            for token in self._next_tokens(max_new_tokens - count):
                count += 1
                self.tokens.append(token)
                yield token
                if token in ends:
                    break

    def device_draws(self) -> Weighted | None:
        """The sampler by whose settings the device draws; None where it decodes greedily or the host samples."""
        sampler = self.sampler if isinstance(self.sampler, Weighted) else None
        return sampler if self.session.advances(self.entry, drawn=True) else None

    def _next_tokens(self, wanted: int) -> Iterator[int]:
        """The tokens after the newest one: one, or more where the device can go on by itself; at most `wanted`."""
        room = min(wanted, self.context - self.position)
        draws = self.device_draws()
        able = draws is not None or (self.sampler is None and self.session.advances(self.entry))
        if room < 2 or not able:
            yield self.decode()
            return
        settings = draws.settings(self.position) if draws else None
        for token in self.session.steps(self.entry, self.tokens[-1], self.position, room, settings):
            self.position += 1
            if draws:
                draws.drawn += 1
            yield self._checked(token)

    def _slide(self) -> int:
        keep = max(1, self.context * 3 // 4)
        self.position = 0
        return self._feed(self.tokens[-keep:])

    def _feed(self, tokens: Sequence[int]) -> int:
        results: dict[str, np.ndarray] = {}
        start = 0
        for size in chunk_sizes(len(tokens), self.chunks):
            real = min(size, len(tokens) - start)
            # A chunk that is not full repeats its first token at that token's position, which changes nothing.
            ids = np.array([tokens[start]] * (size - real) + list(tokens[start : start + real]), np.int32)
            places = np.array(
                [self.position] * (size - real) + list(range(self.position, self.position + real)), np.int32
            )
            results = self.session.run(self.entry, ids[None], places[None])
            start += real
            self.position += real
        if self.sampler is None and "next" in results:
            return self._checked(int(results["next"][0]))
        return self._sample(results["logits"][0, : self.vocab])

    def _checked(self, token: int) -> int:
        """A token that the entry chose; UserError where it found no logit to choose by."""
        if not 0 <= token < self.vocab:
            raise damaged_logits("no finite number")
        return token

    def _sample(self, logits: np.ndarray) -> int:
        return int(np.argmax(logits)) if self.sampler is None else self.sampler(logits)


@functools.cache
def chunk_sizes(count: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Compiled sizes to run in order for `count` tokens, as cheap as can be; only the last may exceed what is left."""
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for n in range(1, count + 1):
        options = []
        for size in sizes:
            cost, rest = best[max(0, n - size)]
            options.append((cost + size + WEIGHT_READ_ROWS, (size, *rest) if size <= n else (*rest, size)))
        best.append(min(options))
    return best[count][1]
