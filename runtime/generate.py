"""Generating text: prefill a prompt in chunks of the compiled shapes, then decode token by token (see `decoding`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.decoding import (
    ADJUSTED,
    ALL_LOGITS,
    DRAWN,
    GREEDY,
    MASK,
    MOST_PROBABLE,
    PENALTIES,
    SAMPLING,
    STEERED,
    Row,
    check_results,
    checked_token,
    checked_tokens,
    checking,
    choice_of,
    chunk_sizes,
    padded,
    reports,
    result_of,
    runs_on,
    single,
    size_of,
    step_inputs,
    taking_in,
)
from lispgpt.runtime.devices.base import RUNS_AHEAD
from lispgpt.runtime.long_texts import Reach, tell_lengths
from lispgpt.runtime.lookup import CHECK_STEPS, STEPS_BEFORE_DRAFTS, Lookup, ModelDrafts
from lispgpt.runtime.near_ties import NearTies, report_of
from lispgpt.runtime.own_adapters import tell_adapters
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.samplers.adjustment import Adjustment, Penalties
from lispgpt.runtime.samplers.base import Sampler, log_probability, real_of
from lispgpt.runtime.samplers.greedy import Greedy
from lispgpt.runtime.samplers.steering import Steering
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session


@dataclass
class Generator:
    """One sequence of a session.

    entry: the model entry that gives logits.  sampler: None takes the most probable token.  adjustment: of logits
    before that.  logprobs: whether `log_probabilities` gets, for each new token, the logarithm of its probability in
    the model's own logits.  lookup: how many tokens at most to draft from the text so far and check in one run, which
    gives the same greedy tokens.  drafter: another model that drafts up to `drafted` tokens instead,
    of any choice.  Tokens come from the device where the program has an entry for them.  When the sequence fills the
    context, its last three quarters are prefilled again at positions from 0 and generation goes on.
    near_ties: decides where no token is clearly the most probable.  parted: whether steps that are launched already go
    on with another token than this sequence.  adapter: of those that are there beside the model, 0 for none.
    """

    session: Session
    entry: str
    sampler: Sampler | None = None
    adjustment: Adjustment | Steering | None = None
    logprobs: bool = False
    lookup: int = 0
    near_ties: NearTies | None = None
    drafter: Callable[[Sequence[int], int], list[int]] | None = None
    drafted: int = 0
    adapter: int = 0

    def __post_init__(self) -> None:
        session = self.session
        self.context, self.vocab = size_of(session, "context"), size_of(session, "vocab")
        self._greedy, self._drawn, self._adjusted = (single(session, name) for name in (GREEDY, DRAWN, ADJUSTED))
        self._entries = taking_in(session, self.entry)
        self.chunks = tuple(sorted(size for size in self._entries if size <= self.context))
        if 1 not in self.chunks:
            raise UserError(f"entry {self.entry!r} was not compiled for one token of one sequence")
        self.single = self._entries[1]  # whose states hold this sequence, where it is the session's `holder`
        self.repeatable = all(entry.repeatable for entry in self._entries.values())
        for entry in self._entries.values():
            check_results(session, entry, self.vocab)
            session.read_at_once(entry)
        self.tokens, self.log_probabilities = list[int](), list[float]()
        self.position, self.parted, self._reach = 0, False, Reach(session, self.context)
        self.near_ties, self.drafts = self.near_ties or NearTies(session, self.entry), None
        if self.lookup:
            steps = 1.0 if self.decoder() is None else CHECK_STEPS
            self.drafts = Lookup(checking(session, self.lookup, self.choice, self.repeatable), self.lookup, steps)
        elif self.drafter is not None:
            self.drafts = ModelDrafts(self._checking_any(), self.drafted, ask=self.drafter)

    def _checking_any(self) -> Entry:
        """What checks drafts of tokens that are chosen in any way: by each one's logits, where not all are greedy."""
        if self.choice == GREEDY or not self.repeatable:
            return checking(self.session, self.drafted, GREEDY, self.repeatable)
        return self.session.entry(ALL_LOGITS, batch=1, length=self.drafted + 1)

    @property
    def choice(self) -> str:
        """The entry that chooses tokens as this sequence wants them, on devices that can; "" where the host has to."""
        return choice_of(self.sampler, self.adjustment, self.logprobs)

    @property
    def plain(self) -> bool:
        """Whether a token that a device chose clearly is all that the next one takes from the host."""
        return self.choice in (GREEDY, DRAWN) or (self.choice == ADJUSTED and not self.logprobs)

    @property
    def waits(self) -> bool:
        """Whether each step takes or gives more than its token, in which the one before it has a part."""
        return self.choice == STEERED

    @property
    def tops(self) -> int:
        """How many of the most probable tokens are told of each step."""
        return self.adjustment.top if isinstance(self.adjustment, Steering) else 0

    @property
    def penalties(self) -> Adjustment | None:
        """What is changed about this sequence's logits by the tokens that it has, and the biases of its own."""
        return self.adjustment.penalties if isinstance(self.adjustment, Steering) else self.adjustment

    def prefill(self, tokens: Sequence[int]) -> int:
        """Take in a prompt; the token that follows it."""
        if not self.tokens:
            self.restart(len(tokens))
        numbers, reached = self._read(tokens), self.position + len(tokens)
        if reached > self.context:
            return self._again(self.kept)
        return self._feed(numbers) if self._goes_on(reached) else self._again(reached)

    def begin(self, tokens: Sequence[int]) -> None:
        """Begin with a prompt that another entry takes in: the next step is that of its last token."""
        self._read(tokens)
        self.position = len(tokens) - 1
        self._reach.begins(len(tokens))

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
            return self._again(self.kept)
        return self._feed(self.tokens[-1:]) if self._goes_on(self.position + 1) else self._again(self.position + 1)

    def _goes_on(self, position: int) -> bool:
        """Whether the states are this sequence's, as they are up to a position."""
        return self.session.holder is self and position <= self.limit

    def generate(self, prompt: Sequence[int], max_new_tokens: int, ends: Collection[int] = ()) -> Iterator[int]:
        """New tokens as they come, up to and with the first of those that end a text."""
        if max_new_tokens < 1:
            self.prefill(prompt)
            return
        token, count = self.prefill(prompt), 1
        self.take(token)
        yield token
        while token not in ends and count < max_new_tokens:
            for token in self.next_tokens(max_new_tokens - count):
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

    @property
    def limit(self) -> int:
        """Positions up to which the sequence goes on as it is; there its text, or the newest part, is taken in anew."""
        return self._reach.limit

    def restart(self, length: int) -> None:
        """Begin with so many tokens at position 0, which forgets states that no position says where to write."""
        self.position, self.session.holder = 0, self
        self._reach.begins(length)
        if not self.repeatable:
            self.session.forget(self._entries.values())
        tell_lengths(self.session, self._entries.values(), [length])
        tell_adapters(self.session, self._entries.values(), [self.adapter])

    def device_draws(self) -> Weighted | None:
        """The sampler by whose settings the device draws; None where it decodes greedily or the host samples."""
        decoder = self.decoder()
        return None if decoder is None or SAMPLING not in decoder.inputs else self._weighted()

    def _weighted(self) -> Weighted:
        return self.sampler if isinstance(self.sampler, Weighted) else MOST_PROBABLE

    def decoder(self) -> Entry | None:
        """The entry that decodes step after step on the device as this sequence wants it; None: the host chooses."""
        chosen = {GREEDY: self._greedy, DRAWN: self._drawn, ADJUSTED: self._adjusted}.get(self.choice)
        return chosen if chosen and runs_on(chosen) else None

    def step(self, position: int) -> tuple[Entry, dict[str, Any]]:
        """The entry that decodes one token, and its inputs for the newest token at a position."""
        entry = self.decoder() or self._entries[1]
        return entry, step_inputs(entry, [self.row(entry, position)])

    def row(self, entry: Entry, position: int | None = None) -> Row:
        """What a step of an entry takes of this sequence, its newest token at its own position or another."""
        self.parted, position = False, self.position if position is None else position
        more = {SAMPLING: self._weighted().settings(position)} if SAMPLING in entry.inputs else {}
        if MASK in entry.inputs:
            more |= {MASK: self.mask(self.session.shape(entry.inputs[MASK])[1]), PENALTIES: self._wishes()}
        elif PENALTIES in entry.inputs:
            own = self.penalties or Adjustment(Penalties(), self.vocab)
            more |= {PENALTIES: own.strengths, "bias": own.bias, "counts": own.counts}
        return Row(self.tokens[-1], position, more)

    def _wishes(self) -> np.ndarray:
        """The penalties, 0 for none, and how many of the most probable tokens are told, f32 [4]."""
        own, found = self.penalties, np.zeros(4, np.float32)
        found[:3] = 0 if own is None else own.strengths
        found[3] = self.tops
        return found

    def mask(self, words: int) -> np.ndarray:
        """Which tokens may come next, i32 [words], a bit for each."""
        found = self.adjustment.words() if isinstance(self.adjustment, Steering) and self.choice == STEERED else None
        return np.full(words, -1, np.int32) if found is None else found

    def accept(self, report: Sequence[int]) -> int:
        """The token that a step on the device chose for this sequence, which has now taken in the one before it.

        report: the sequence's part of `next`, one number, or of `report`, three or four; behind it of `tops`.
        """
        self.position += 1
        if isinstance(self.sampler, Weighted):
            self.sampler.drawn += 1
        token, logits = self.decided(report)
        if self.logprobs:
            said = real_of(report[3]) if logits is None else log_probability(logits, token)
            self.log_probabilities.append(said)
        if logits is None and isinstance(self.adjustment, Steering):
            tops = zip(report[4::2], map(real_of, report[5::2]), strict=True)
            self.adjustment.told([*tops])
        return token

    def chose(self, tokens: Sequence[int]) -> None:
        """Go on with what as many steps on the device chose clearly, one that no token has to be told of."""
        self.position += len(tokens)
        if isinstance(self.sampler, Weighted):
            self.sampler.drawn += len(tokens)
        self.tokens += tokens
        if self.adjustment is not None:
            for token in tokens:
                self.adjustment.wrote(token)

    def choose(self, logits: np.ndarray) -> int:
        """The token that follows by a row of logits, f32 [columns]."""
        own = logits[: self.vocab]
        adjusted = own if self.adjustment is None else self.adjustment(own)
        sampler = self.sampler or Greedy()
        token = self.decided(report_of(adjusted))[0] if isinstance(sampler, Greedy) else sampler(adjusted)
        if self.logprobs:
            self.log_probabilities.append(log_probability(own, token))
        return token

    def decided(self, report: Sequence[int]) -> tuple[int, np.ndarray | None]:
        """The token of a report; of a near tie the one that all ways of running give, and its logits, if of use."""
        ties, logits = self.near_ties, None
        if not isinstance(self.sampler or Greedy(), Greedy) or ties is None or not ties.near(report):
            return checked_token(report[0], self.vocab), None
        token = ties.decide(report, self.tokens[-self.position :], self.vocab, self, self.adapter)
        if self.adjustment is not None or self.logprobs:
            logits = ties.logits(self.vocab)
            token = Greedy()(logits if self.adjustment is None else self.adjustment(logits))
        self.parted = token != report[0] or not ties.lets_go_on
        return checked_token(token, self.vocab), logits

    def next_tokens(self, wanted: int) -> Iterator[int]:
        """The tokens after the newest one: one, or more where the device can go on by itself; at most `wanted`."""
        room, decoder = min(wanted, self.limit - self.position), self.decoder()
        if room < 2 or self.session.holder is not self:
            yield self.decode()
            return
        if (draft := self._draft(room - 1)) or decoder is None:
            yield from self._drafted(draft) if draft else [self.decode()]
            return
        self.session.put(*self.step(self.position))
        # Runs ahead of what is read only write over their own rows: a state that adds up would keep them.
        ahead = (RUNS_AHEAD if self.drafts is None else STEPS_BEFORE_DRAFTS) if decoder.repeatable else 1

        def goes_on() -> bool:
            return self.session.holder is self and not self.parted and not self._draft(room - 1)

        for choices in self.session.repeat(decoder, result_of(decoder), room, ahead, goes_on):
            token = self.accept(choices.ravel().tolist())
            if self.drafts is not None:
                self.drafts.came(self.tokens, token)
            yield token
            if self.parted:
                return

    def checked(self, room: int) -> Iterator[int]:
        """The tokens, at most `room`, that one run gives by a draft, or by itself where none is worth checking; each
        has to be taken before the next is asked for.  The states for one sequence have to be this one's."""
        draft = self._draft(room - 1)
        yield from self._drafted(draft) if draft else [self.decode()]

    def _draft(self, room: int) -> list[int]:
        """At most `room` tokens that are worth checking; none without a look-up."""
        return self.drafts.draft(self.tokens, room) if self.drafts is not None and self.drafts.pays else []

    def _drafted(self, draft: Sequence[int]) -> Iterator[int]:
        """The tokens that one run gives: those of a draft that were right, and the one after them."""
        assert self.drafts is not None
        entry, real = self.drafts.entry, 1 + len(draft)
        self._start(entry, [self.tokens[-1], *draft], self.drafts.most + 1)
        self.parted = False
        for number, choose in enumerate(self._choices(entry)[-real:]):
            self.position += 1
            token = choose()
            right = number < len(draft) and draft[number] == token
            if parted := not right or self.parted:
                self.drafts.learn(number + right, len(draft))
            yield token
            if parted:
                return

    def _choices(self, entry: Entry) -> list[Callable[[], int]]:
        """What chooses the token behind each position that an entry has checked; to be called in order."""
        if "logits" in entry.results:
            return [partial(self.choose, row) for row in self.session.result(entry, "logits")]
        return [partial(self._decided_token, report) for report in reports(self.session, entry)]

    def _decided_token(self, report: Sequence[int]) -> int:
        return self.decided(report)[0]

    @property
    def kept(self) -> int:
        """How many tokens of a text that is longer than the context are taken in."""
        return max(1, self.context * 3 // 4)

    def _again(self, count: int) -> int:
        """Take the newest tokens in from position 0 on."""
        self.restart(count)
        return self._feed(self.tokens[-count:])

    def _feed(self, tokens: Sequence[int] | np.ndarray) -> int:
        start, entry = 0, self._entries[1]
        for size in self.chunks_of(len(tokens)):
            entry = self.take_in(tokens[start : start + size], size)
            start += size
        return self.following(entry)

    def chunks_of(self, count: int) -> tuple[int, ...]:
        """How many positions each of the runs has that take in so many tokens; the last may have more than are left."""
        return chunk_sizes(count, self.chunks, self.session.device.weight_rows, self.repeatable)

    def take_in(self, tokens: Sequence[int] | np.ndarray, size: int, beside: bool = False) -> Entry:
        """Run what takes in so many positions on the sequence's next tokens, at most as many; what ran.  beside: while
        what is started next goes on."""
        self._start(self._entries[size], tokens, size, beside)
        self.position += len(tokens)
        return self._entries[size]

    def take_all(self, tokens: Sequence[int]) -> int:
        """Take in tokens that are in `tokens` already, from the sequence's position on; the token that follows."""
        return self._feed(tokens)

    def following(self, entry: Entry) -> int:
        """The token that follows what an entry has just taken in."""
        if self.choice == GREEDY and "next" in entry.results:
            return self.decided(reports(self.session, entry)[0])[0]
        return self.choose(self.session.result(entry, next(iter(entry.results)))[0])

    def _start(self, entry: Entry, tokens: Sequence[int] | np.ndarray, size: int, beside: bool = False) -> None:
        """Run an entry of so many positions on tokens from the sequence's position on."""
        inputs = padded(tokens, self.position, size)
        start = self.session.start_beside if beside else self.session.start
        start(entry, dict(zip(entry.inputs, inputs, strict=True)))
