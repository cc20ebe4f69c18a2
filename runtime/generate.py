"""Generating text: prefill a prompt in chunks of the compiled shapes, then decode token by token (see `decoding`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.decoding import (
    ADJUSTED,
    DRAWN,
    GREEDY,
    MOST_PROBABLE,
    PREFILL,
    SAMPLING,
    VERIFY,
    Row,
    checked_tokens,
    chunk_sizes,
    padded,
    result_of,
    runs_on,
    step_inputs,
)
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.lookup import CHECK_STEPS, STEPS_BEFORE_DRAFTS, Lookup
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.samplers.adjustment import Adjustment, Penalties
from lispgpt.runtime.samplers.base import Sampler, damaged_logits, log_probability
from lispgpt.runtime.samplers.greedy import Greedy
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session


@dataclass
class Generator:
    """One sequence of a session.

    entry: the model entry that gives logits.  sampler: None takes the most probable token.  adjustment: of logits
    before that.  logprobs: whether `log_probabilities` gets, for each new token, the logarithm of its probability in
    the model's own logits.  lookup: how many tokens at most to draft from the text so far and check in one run, which
    gives the same greedy tokens.  Tokens come from the device where the program has an entry for them.  When the
    sequence fills the context, its last three quarters are prefilled again at positions from 0 and generation goes on.
    """

    session: Session
    entry: str
    sampler: Sampler | None = None
    adjustment: Adjustment | None = None
    logprobs: bool = False
    lookup: int = 0

    def __post_init__(self) -> None:
        session = self.session
        for name in ("context", "vocab"):
            if type(session.config.get(name)) is not int:
                raise UserError(f"to generate, a program's config has to say its {name}: (config {name} N)")
        self.context = int(session.config["context"])
        self.vocab = int(session.config["vocab"])
        self._greedy, self._drawn, self._adjusted = (self._single(name) for name in (GREEDY, DRAWN, ADJUSTED))
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
        self.log_probabilities: list[float] = []
        self.position = 0
        self._drafts = self._lookup() if self.lookup else None

    def _lookup(self) -> Lookup:
        if self.choice != GREEDY:
            raise UserError("a look-up drafts greedy tokens: it wants them without penalties and log-probabilities")
        if not self.repeatable:
            raise UserError("this model's states add up over positions, so that no draft can be taken back")
        verify = self.session.entry(VERIFY, batch=1, length=self.lookup + 1)
        return Lookup(verify, self.lookup, 1.0 if self.decoder() is None else CHECK_STEPS)

    @property
    def choice(self) -> str:
        """The entry that chooses tokens as this sequence wants them, on devices that can; "" where the host has to."""
        if self.sampler is not None and not isinstance(self.sampler, Greedy | Weighted):
            return ""
        if self.adjustment is not None or self.logprobs:
            return ADJUSTED
        return DRAWN if isinstance(self.sampler, Weighted) else GREEDY

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
        if not self.tokens:
            self.restart()
        numbers = self._read(tokens)
        if self.position + len(tokens) > self.context:
            return self._slide()
        return self._feed(numbers) if self.session.holder is self else self._again(self.position + len(tokens))

    def begin(self, tokens: Sequence[int]) -> None:
        """Begin with a prompt that another entry takes in: the next step is that of its last token."""
        self._read(tokens)
        self.position = len(tokens) - 1

    def _read(self, tokens: Sequence[int]) -> np.ndarray:
        """Put what was given behind the text, and give it as an array; UserError for what is no prompt."""
        numbers = checked_tokens(tokens, self.vocab)
        self.tokens += tokens
        if self.adjustment is not None:
            self.adjustment.read(tokens)
        return numbers

    def decode(self) -> int:
        """Take in the newest token (already in `tokens`); the token that follows it."""
        if self.position >= self.context:
            return self._slide()
        return self._feed(self.tokens[-1:]) if self.session.holder is self else self._again(self.position + 1)

    def generate(self, prompt: Sequence[int], max_new_tokens: int, ends: Collection[int] = ()) -> Iterator[int]:
        """New tokens as they come, up to and with the first of those that end a text."""
        if max_new_tokens < 1:
            self.prefill(prompt)
            return
        token = self.prefill(prompt)
        count = 1
        self.take(token)
        yield token
        while token not in ends and count < max_new_tokens:
            for token in self._next_tokens(max_new_tokens - count):
                count += 1
                self.take(token)
                yield token
                if token in ends:
                    break

    def take(self, token: int) -> None:
        """Let the sequence go on with a token."""
        self.tokens.append(token)
        if self.adjustment is not None:
            self.adjustment.wrote(token)

    def restart(self) -> None:
        """Begin a sequence at position 0, which forgets states that no position says where to write."""
        self.position, self.session.holder = 0, self
        if not self.repeatable:
            self.session.forget(self._entries.values())

    def device_draws(self) -> Weighted | None:
        """The sampler by whose settings the device draws; None where it decodes greedily or the host samples."""
        decoder = self.decoder()
        return None if decoder is None or SAMPLING not in decoder.inputs else self._weighted()

    def _weighted(self) -> Weighted:
        return self.sampler if isinstance(self.sampler, Weighted) else MOST_PROBABLE

    def decoder(self) -> Entry | None:
        """The entry that decodes step after step on the device as the sequence wants it; None where the host has to
        choose."""
        chosen = {GREEDY: self._greedy, DRAWN: self._drawn, ADJUSTED: self._adjusted}.get(self.choice)
        return chosen if chosen and runs_on(chosen) else None

    def step(self, position: int) -> tuple[Entry, dict[str, Any]]:
        """The entry that decodes one token, and its inputs for the newest token at a position."""
        entry = self.decoder() or self._entries[1]
        return entry, step_inputs(entry, [self.row(entry, position)])

    def row(self, entry: Entry, position: int | None = None) -> Row:
        """What a step of an entry takes of this sequence, its newest token at its own position or another."""
        position = self.position if position is None else position
        more = {SAMPLING: self._weighted().settings(position)} if SAMPLING in entry.inputs else {}
        if self.choice == ADJUSTED:
            own = self.adjustment or Adjustment(Penalties(), self.vocab)
            more |= {"penalties": own.strengths, "bias": own.bias, "counts": own.counts}
        return Row(self.tokens[-1], position, more)

    def accept(self, choice: np.ndarray) -> int:
        """The token that a step on the device chose for this sequence, which has now taken in the one before it.

        choice: the sequence's part of `next`, [1], or of `report`, [1 2].
        """
        self.position += 1
        if isinstance(self.sampler, Weighted):
            self.sampler.drawn += 1
        if self.logprobs:
            self.log_probabilities.append(float(choice.view(np.float32)[0, 1]))
        return self._checked(int(choice.flat[0]))

    def choose(self, logits: np.ndarray) -> int:
        """The token that follows by a row of logits, f32 [columns]."""
        own = logits[: self.vocab]
        token = (self.sampler or Greedy())(own if self.adjustment is None else self.adjustment(own))
        if self.logprobs:
            self.log_probabilities.append(log_probability(own, token))
        return token

    def _next_tokens(self, wanted: int) -> Iterator[int]:
        """The tokens after the newest one: one, or more where the device can go on by itself; at most `wanted`."""
        room, decoder = min(wanted, self.context - self.position), self.decoder()
        if room < 2 or self.session.holder is not self:
            yield self.decode()
            return
        if (draft := self._draft(room - 1)) or decoder is None:
            yield from self._drafted(draft) if draft else [self.decode()]
            return
        self.session.put(*self.step(self.position))
        # Runs ahead of what is read only write over their own rows: a state that adds up would keep them.
        ahead = (READS_AHEAD if self._drafts is None else STEPS_BEFORE_DRAFTS) if decoder.repeatable else 1

        def goes_on() -> bool:
            return self.session.holder is self and not self._draft(room - 1)

        for choices in self.session.repeat(decoder, result_of(decoder), room, ahead, goes_on):
            token = self.accept(choices[:1])
            if self._drafts is not None:
                self._drafts.came(self.tokens, token)
            yield token

    def _draft(self, room: int) -> list[int]:
        """At most `room` tokens that are worth checking; none without a look-up."""
        return self._drafts.draft(self.tokens, room) if self._drafts is not None and self._drafts.pays else []

    def _drafted(self, draft: Sequence[int]) -> Iterator[int]:
        """The tokens that one run gives: those of a draft that were right, and the one after them."""
        assert self._drafts is not None
        entry, real = self._drafts.entry, 1 + len(draft)
        self._start(entry, [self.tokens[-1], *draft], self.lookup + 1)
        found = [int(token) for token in self.session.result(entry, "next")[-real:]]
        right = next((n for n, guess in enumerate(draft) if found[n] != guess), len(draft))
        self._drafts.learn(right)
        for token in found[: right + 1]:
            self.position += 1
            yield self._checked(token)

    def _slide(self) -> int:
        return self._again(max(1, self.context * 3 // 4))

    def _again(self, count: int) -> int:
        """Take the newest tokens in from position 0 on."""
        self.restart()
        return self._feed(self.tokens[-count:])

    def _feed(self, tokens: Sequence[int] | np.ndarray) -> int:
        start, entry = 0, self._entries[1]
        for size in chunk_sizes(len(tokens), self.chunks, self.session.device.weight_rows, self.repeatable):
            real, entry = min(size, len(tokens) - start), self._entries[size]
            self._start(entry, tokens[start : start + real], size)
            start += real
            self.position += real
        if self.choice == GREEDY and "next" in entry.results:
            return self._checked(int(self.session.result(entry, "next")[0]))
        return self.choose(self.session.result(entry, next(iter(entry.results)))[0])

    def _start(self, entry: Entry, tokens: Sequence[int] | np.ndarray, size: int) -> None:
        """Run an entry of so many positions on tokens from the sequence's position on."""
        inputs = padded(tokens, self.position, size)
        self.session.start(entry, dict(zip(entry.inputs, inputs, strict=True)))

    @property
    def single(self) -> Entry:
        """An entry whose states hold this sequence, where it is the session's `holder`."""
        return self._entries[1]

    def _checked(self, token: int) -> int:
        """A token that the entry chose; UserError where it found no logit to choose by."""
        if not 0 <= token < self.vocab:
            raise damaged_logits("no finite number")
        return token
