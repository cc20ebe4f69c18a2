"""Greedy tokens that do not depend on how a sequence is run: near ties are decided by one way of running alone.

A sequence runs by entries for one and for several sequences, for one position and for many, alone or behind a draft.
Their kernels add up in different orders, so that logits differ in their last bits, and with them would the most
probable token where two are nearly as probable.  A clear lead is larger than these differences: there every way of
running finds the same token.  Any other is decided by logits that depend on the sequence's tokens alone: these are
taken in from nothing, in chunks of fixed sizes.

Tokens whose weights are equal have equal logits in every way of running, and the lowest of them is taken: an exact tie
is no near one where all that tie are known to be such twins.

This holds where numbers between the kernels are F32.  A cache of 16 bits rounds some of them to the other side, so that
leads differ eighty times as much: clear ones are larger there.  `--precision fast` rounds all of them, and too many
leads would not be clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lispgpt.base.dtypes import BLOCK_DTYPES, ROW_DTYPES
from lispgpt.base.precisions import EXACT
from lispgpt.runtime.decoding import chunk_sizes, padded, reports, taking_in
from lispgpt.runtime.long_texts import tell_lengths
from lispgpt.runtime.own_adapters import tell_adapters
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.samplers.greedy import Greedy
from lispgpt.runtime.session import Session

CLEAR = 4e-5
"""A clear lead of the best logit, in sizes of the logits: seven times the standard deviation of how much leads differ
between ways of running, where that was the largest.

Measured in a GPT-2 of 124M with loud random weights: 5.5e-6 (at most 2.4e-5 in 768 places) on an H200, 7e-7 on a CPU;
in a trained one of 2.6M 1e-7.
"""
CLEAR_BLOCKS = 2.5e-4
"""The same where CPUs and NVIDIA's GPUs multiply weights in blocks, by activations of 16 bits: measured 3.5e-5."""
CLEAR_NARROW = 4e-4
"""The same where keys and values are kept in 16 bits: measured 2.2e-5, at most 1.0e-4 in 300 places, in a GPT-2 of 124M
with random weights, of which F32 gave 2.7e-7 and 1.0e-6; one lead in 200 is less."""
CLEAR_PACKED = 2e-3
"""The same where they are packed in 8 bits, whose last one is worth 16 times as much and changes a 16th as often."""
CLEAR_BITS, CLEAR_BLOCKS_BITS, CLEAR_NARROW_BITS, CLEAR_PACKED_BITS = (
    int(np.float32(lead).view(np.int32)) for lead in (CLEAR, CLEAR_BLOCKS, CLEAR_NARROW, CLEAR_PACKED)
)
"""Numbers that are not negative have the order of their bits."""
NARROW = frozenset({"bf16", "f16"})
"""Types of 16 bits."""
CHUNKS, LONG_CHUNK = (128, 16, 1), 1024
"""Positions that are taken in at once: the first that the context has room for; longer ones beside, where they pay."""
PROBES = 24
"""Random texts after which tokens' logits have to be equal to take them for twins: those of tokens that are nearly
twins are equal after one in three."""


def report_of(logits: np.ndarray) -> list[int]:
    """What the library's `best-and-report` says of f32 [vocab]: the best token, the lowest of equals; how many are as
    good; how far the next one below is, in sizes of the logits, an f32's bits.  UserError where none is a number."""
    token = Greedy()(logits)
    best = logits[token]
    below = np.max(logits, where=logits < best, initial=-np.inf)
    size = np.max(np.abs(logits), where=np.isfinite(logits), initial=0)
    with np.errstate(all="ignore"):
        return [token, int(np.count_nonzero(logits == best)), int(np.float32((best - below) / size).view(np.int32))]


def clear_lead(weights: Mapping[str, Mapping[str, Any]], target: str, kept: Iterable[str] = ()) -> int:
    """The bits of the least lead that is clear.  weights: what an artifact says of them.  kept: types of states."""
    blocks = {facts["dtype"] for facts in weights.values()} & set(BLOCK_DTYPES)
    by_weights = CLEAR_BLOCKS_BITS if blocks and target.startswith(("cpu", "cuda")) else CLEAR_BITS
    if set(ROW_DTYPES).intersection(kept):
        return max(by_weights, CLEAR_PACKED_BITS)
    return max(by_weights, CLEAR_NARROW_BITS) if NARROW.intersection(kept) else by_weights


def kept_in(session: Session, name: str) -> str:
    """The type of what a state holds, as the program has it: rows that are packed are bytes."""
    facts = session.artifact.states.get(name.partition("@")[0], {})
    return str(facts.get("dtype", session.declared(name).dtype))


def near_rows(reports: np.ndarray) -> np.ndarray:
    """Which rows of reports, i32 [rows 3], are of near ties, as far as they say."""
    return np.flatnonzero((reports[:, 2] < CLEAR_BITS) | (reports[:, 1] > 1)) if reports.shape[1] > 2 else np.empty(0)


def unclear(reports: np.ndarray, clear: int) -> bool:
    """Whether some of reports, i32 [rows 3], may be of a near tie; drawn tokens, i32 [rows], are of none.  clear: the
    bits of the least lead that is clear, 0 where no near tie is decided."""
    return bool(clear) and reports.ndim > 1 and bool(((reports[:, 2] < clear) | (reports[:, 1] != 1)).any())


class NearTies:
    """What decides near ties of a session's sequences, on its states for one sequence.

    entry: the model's own, where the program has none that takes in prompts.  more: gives the entry that takes in so
    many positions of one sequence, where it can be compiled.  decided: how many near ties there were so far.  clear:
    the bits of the least lead that is clear.
    lets_go_on: whether steps of one sequence that were launched before may go on after it: it adds to no states, and
    runs no entry that leaves inputs for its next run.
    """

    def __init__(self, session: Session, entry: str, more: Callable[[int], Entry] | None = None) -> None:
        self._session, self._entry, self._more = session, entry, more
        context = session.config.get("context")
        self._context = context if type(context) is int else 1
        self._entries = taking_in(session, entry)
        self._last = next(iter(self._entries.values()))
        self._repeatable = all(each.repeatable for each in self._entries.values())
        self._sizes = self._fixed_sizes()
        self.lets_go_on = self._repeatable and 1 not in self._sizes
        kept = {kept_in(session, name) for name in session.held("state", self._entries.values())}
        self.clear = clear_lead(session.artifact.weights, session.artifact.target, kept)
        self.watches = kept <= {"f32", "i32", *NARROW, *ROW_DTYPES} and session.artifact.precision == EXACT
        self.decided = 0
        self._twins: np.ndarray | None = None

    def _fixed_sizes(self) -> tuple[int, ...]:
        """The chunks' sizes, which may not depend on what happens to be compiled already."""
        sizes = [next(size for size in CHUNKS if size <= self._context)]
        if self._session.device.weight_rows >= sizes[0] and self._context >= LONG_CHUNK:
            sizes.append(LONG_CHUNK)
        if self._more is None:
            sizes = [size for size in sizes if size in self._entries] or [max(self._entries, default=1)]
        return tuple(sorted({*sizes} if self._repeatable else {1, *sizes}))

    def near(self, report: Sequence[int]) -> bool:
        """Whether the best token of a report (see `report_of`) may be another in another way of running."""
        if not self.watches or len(report) < 3 or report[0] < 0 or not report[1]:  # none equals where nothing ran
            return False
        token, equal, lead = report[:3]
        return lead < self.clear or (equal > 1 and (self._twins is None or equal != self._twins[token]))

    def decide(self, report: Sequence[int], tokens: Sequence[int], vocab: int, holder: object, adapter: int = 0) -> int:
        """The token after these, which the states for one sequence then hold: they are the holder's or nobody's.

        report: which is not clear.  adapter: the sequence's own.
        """
        self.decided += 1
        if self._session.holder is not holder:
            self._session.holder = None
        if report[1] > 1 and self._twins is None:
            self._twins = self._count_twins(vocab)
        self._run(tokens, adapter)
        if "next" not in self._last.results:
            return Greedy()(self.logits(vocab))
        return reports(self._session, self._last)[0][0]

    def logits(self, vocab: int) -> np.ndarray:
        """What decided last, f32 [vocab]."""
        return np.asarray(self._session.result(self._last, next(iter(self._last.results)))[0, :vocab])

    def _count_twins(self, vocab: int) -> np.ndarray:
        """How many tokens are one with each token, itself among them, i64 [vocab]."""
        random, classes = np.random.default_rng(0), np.zeros(vocab, np.int64)
        for _ in range(PROBES):
            self._run(random.integers(0, vocab, min(self._context, CHUNKS[0])).tolist())
            kinds = np.unique(self.logits(vocab), return_inverse=True)[1].astype(np.int64)
            classes = np.unique(classes * vocab + kinds, return_inverse=True)[1].astype(np.int64)
        return np.bincount(classes)[classes]

    def _run(self, tokens: Sequence[int], adapter: int = 0) -> None:
        """Take tokens in from nothing."""
        if not self._repeatable:
            self._session.forget(self._entries.values())
        tell_lengths(self._session, self._entries.values(), [len(tokens)])
        tell_adapters(self._session, self._entries.values(), [adapter])
        start = 0
        for size in chunk_sizes(len(tokens), self._sizes, self._session.device.weight_rows, self._repeatable):
            part, self._last = tokens[start : start + size], self._chunk(size)
            inputs = padded(part, start, size)
            self._session.start(self._last, dict(zip(self._last.inputs, inputs, strict=True)))
            start += len(part)

    def _chunk(self, size: int) -> Entry:
        if size not in self._entries:  # others may have had it compiled meanwhile
            self._entries = taking_in(self._session, self._entry)
        if size not in self._entries:
            assert self._more is not None
            self._entries[size] = self._more(size)
        return self._entries[size]
