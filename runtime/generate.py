"""Generating text: prefill a prompt in chunks of the compiled shapes, then decode token by token.

The compiler knows nothing of this.  A program's `generate` form (the language's library, generation.lisp) makes entries
that are run here by their names:

    `prefill`          (tokens, positions: i32 [1 n]) → logits of the last position, f32 [1 columns]; `next`, i32 [1]
    `decode-greedy`    the same for one position
    `decode-drawn`     with a third input `sampling`, i32 [1 n], as `Weighted.settings` makes it

`next` is the most probable token or one drawn by the settings, or no token where the best logit is no number.  What
decodes may leave it and its position in its first two inputs: then running it again decodes the next token without a
word from the host.  A program without them generates by its own entry, whose first result is the logits.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.samplers.base import Sampler, damaged_logits
from lispgpt.runtime.samplers.greedy import Greedy
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

PREFILL, GREEDY, DRAWN = "prefill", "decode-greedy", "decode-drawn"
WEIGHT_READ_ROWS = 16
"""Rows of work that cost about as much as reading the weights once: what makes few large chunks worth their padding."""


@dataclass
class Generator:
    """One sequence of a session.

    entry: the model entry that gives logits.  sampler: None takes the most probable token.  Greedy tokens and weighted
    draws come from the device where the program has an entry for them.  When the sequence fills the context, its last
    three quarters are prefilled again at positions from 0 and generation goes on.
    """

    session: Session
    entry: str
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        session = self.session
        for name in ("context", "vocab"):
            if type(session.config.get(name)) is not int:
                raise UserError(f"to generate, a program's config has to say its {name}: (config {name} N)")
        self.context = int(session.config["context"])
        self.vocab = int(session.config["vocab"])
        self._greedy, self._drawn = (self._single(name) for name in (GREEDY, DRAWN))
        prefill = session.entries(PREFILL) or session.entries(self.entry)
        self._entries = {n: entry for entry in prefill if (n := self._positions(entry))}
        if self._greedy is not None:
            self._entries[1] = self._greedy
        self.chunks = tuple(sorted(size for size in self._entries if size <= self.context))
        if 1 not in self.chunks:
            raise UserError(f"entry {self.entry!r} was not compiled for one token of one sequence")
        self.repeatable = all(entry.repeatable for entry in self._entries.values())
        for entry in self._entries.values():
            self._check_results(entry)
        self.tokens: list[int] = []
        self.position = 0

    @staticmethod
    def can_run(session: Session, entry: str) -> bool:
        """Whether a session has entries to decode with."""
        return any(e.sizes.get("positions") == 1 for name in (GREEDY, entry) for e in session.entries(name))

    def _positions(self, entry: Entry) -> int:
        """How many positions of one sequence an entry takes; 0 where it takes others or something else."""
        shapes = [self.session.shape(place) for place in entry.inputs.values()]
        rows, positions = shapes[0] if shapes and len(shapes[0]) == 2 else (0, 0)
        return positions if rows == 1 and len(shapes) >= 2 and shapes[1] == shapes[0] else 0

    def _single(self, name: str) -> Entry | None:
        """The entry of that name that decodes one sequence."""
        return next((entry for entry in self.session.entries(name) if self._positions(entry) == 1), None)

    def _check_results(self, entry: Entry) -> None:
        shapes = {name: self.session.shape(place) for name, place in entry.results.items()}
        logits = next(iter(shapes.values()), ())
        if len(logits) != 2 or logits[0] != 1 or logits[1] < self.vocab or shapes.get("next", (1,)) != (1,):
            found = " ".join(map(str, logits))
            raise UserError(
                f"entry {self.entry!r} should give logits [1 {self.vocab}] (or more columns), not [{found}]"
            )

    def prefill(self, tokens: Sequence[int]) -> int:
        """Take in a prompt; the token that follows it."""
        bad = next((t for t in tokens if not 0 <= t < self.vocab), None)
        if bad is not None:
            raise UserError(f"token {bad} is not in the vocabulary of {self.vocab} (0 to {self.vocab - 1})")
        if not tokens:
            raise UserError("the prompt is empty: give at least one token")
        if not self.tokens:
            self.restart()
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

    def restart(self) -> None:
        """Begin a sequence at position 0, which forgets states that no position says where to write."""
        self.position = 0
        if not self.repeatable:
            self.session.forget(self._entries.values())

    def device_draws(self) -> Weighted | None:
        """The sampler by whose settings the device draws; None where it decodes greedily or the host samples."""
        sampler = self.sampler if isinstance(self.sampler, Weighted) else None
        return sampler if self._drawn is not None else None

    def decoder(self) -> Entry | None:
        """The entry that decodes step after step on the device by the sampler; None where the host has to choose."""
        chosen = self._greedy if self.sampler is None else self._drawn if self.device_draws() else None
        return chosen if chosen and all(chosen.leaves(name) for name in list(chosen.inputs)[:2]) else None

    def step(self, position: int) -> tuple[Entry, dict[str, Any]]:
        """The entry that decodes one token, and its inputs for the newest token at a position."""
        entry, draws = self.decoder() or self._entries[1], self.device_draws()
        names = list(entry.inputs)
        inputs: dict[str, Any] = {names[0]: [self.tokens[-1:]], names[1]: [[position]]}
        return entry, inputs | ({names[2]: draws.settings(position)[None]} if draws else {})

    def _next_tokens(self, wanted: int) -> Iterator[int]:
        """The tokens after the newest one: one, or more where the device can go on by itself; at most `wanted`."""
        room, decoder = min(wanted, self.context - self.position), self.decoder()
        if room < 2 or decoder is None:
            yield self.decode()
            return
        draws = self.device_draws()
        self.session.put(*self.step(self.position))
        # Runs ahead of what is read only write over their own rows: a state that adds up would keep them.
        ahead = READS_AHEAD if decoder.repeatable else 1
        for following in self.session.repeat(decoder, "next", room, ahead):
            self.position += 1
            if draws:
                draws.drawn += 1
            yield self._checked(int(following[0]))

    def _slide(self) -> int:
        keep = max(1, self.context * 3 // 4)
        self.restart()
        return self._feed(self.tokens[-keep:])

    def _feed(self, tokens: Sequence[int]) -> int:
        start, entry = 0, self._entries[1]
        for size in chunk_sizes(len(tokens), self.chunks, self.repeatable):
            real = min(size, len(tokens) - start)
            # A chunk that is not full repeats its first token at that token's position, which changes nothing.
            ids, places = np.full((2, 1, size), [[[tokens[start]]], [[self.position]]], np.int32)
            ids[0, size - real :] = tokens[start : start + real]
            places[0, size - real :] = range(self.position, self.position + real)
            entry = self._entries[size]
            self.session.start(entry, dict(zip(entry.inputs, (ids, places), strict=True)))
            start += real
            self.position += real
        if self.sampler is None and "next" in entry.results:
            return self._checked(int(self.session.result(entry, "next")[0]))
        logits = self.session.result(entry, next(iter(entry.results)))
        return (self.sampler or Greedy())(logits[0, : self.vocab])

    def _checked(self, token: int) -> int:
        """A token that the entry chose; UserError where it found no logit to choose by."""
        if not 0 <= token < self.vocab:
            raise damaged_logits("no finite number")
        return token


@functools.cache
def chunk_sizes(count: int, sizes: tuple[int, ...], padded: bool = True) -> tuple[int, ...]:
    """Compiled sizes to run in order for `count` tokens, as cheap as can be.

    padded: whether the last may exceed what is left; without it the sizes sum to the count, and one of them is 1.
    """
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for n in range(1, count + 1):
        options = []
        for size in sizes:
            if size <= n or padded:
                cost, rest = best[max(0, n - size)]
                options.append((cost + size + WEIGHT_READ_ROWS, (size, *rest) if size <= n else (*rest, size)))
        best.append(min(options))
    return best[count][1]
