"""The entries that decode, their inputs, and the sizes that prompts are taken in by.

The compiler knows nothing of this.  A program's `generate` form (the language's library, generation.lisp) makes entries
that are run by their names:

    `prefill`          (tokens, positions: i32 [1 n]) → logits of the last position, f32 [1 columns]; `next`, i32 [1];
                       and `report`, i32 [1 3], which says beside the token how clearly it is the most probable (see
                       `near_ties.report_of`)
    `decode-greedy`    the same for one position
    `decode-drawn`     without a report, and with a third input `sampling`, i32 [1 n], as `Weighted.settings` makes it
    `decode-adjusted`  with `penalties`, `bias` and `counts` behind it, as an `Adjustment` has them; the report,
                       i32 [1 4], ends with the bits of the token's log-probability
    `decode-steered`   for a batch: `decode-drawn` of the tokens that a fourth input `mask`, i32 [n words], lets come, a
                       bit for each, after what `penalties`, f32 [n 4], `bias` and `counts` say, where a sequence has
                       some (its first number is not 0); a report of four words, in which those that were drawn are
                       clear; and `tops`, i32 [n 2*m], as many of the most probable tokens as the last of the
                       sequence's penalties, each with the bits of its log-probability
    `verify-draft`     `next`, i32 [n], and `report`, i32 [n 3], after each of n positions
    `all-logits`       `logits`, f32 [n columns], after each of n positions
    `hidden-states`    `hidden`, f32 [n width], what the head takes of each of n positions
    `score-tokens`     with a third input `targets`, i32 [1 n]: `losses`, f32 [n], and `next`

`next` is the most probable token or one drawn by the settings, or no token where the best logit is no number.  What
decodes may leave it and its position in its first two inputs: then running it again decodes the next token without a
word from the host.  A program without them generates by its own entry, whose first result is the logits.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.samplers.adjustment import Adjustment
from lispgpt.runtime.samplers.base import Sampler, damaged_logits
from lispgpt.runtime.samplers.greedy import Greedy
from lispgpt.runtime.samplers.steering import Steering
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

PREFILL, GREEDY, DRAWN, ADJUSTED = "prefill", "decode-greedy", "decode-drawn", "decode-adjusted"
STEERED = "decode-steered"
VERIFY, SCORE, ALL_LOGITS, HIDDEN = "verify-draft", "score-tokens", "all-logits", "hidden-states"
SAMPLING, MASK, PENALTIES, TOPS = "sampling", "mask", "penalties", "tops"
BY_PLACE = "bias", "counts"
"""Inputs of `decode-steered` that stay with the device, and are given for a sequence where it begins."""
MOST_PROBABLE = Weighted(1.0, 1, None, 0)
"""What a device draws by where it is to take the most probable token."""
SHORT_PROMPT, GROUPS = 64, 8
"""Tokens of prompts that are taken in together, and into how many such groups a batch is parted: see `intake_sizes`."""


@dataclass(frozen=True)
class Row:
    """What a step takes of one sequence.  more: its part of the inputs behind tokens and positions, by their names."""

    token: int
    position: int
    more: Mapping[str, np.ndarray]


def positions_of(session: Session, entry: Entry) -> int:
    """How many positions of one sequence an entry takes; 0 where it takes others or something else."""
    shapes = [session.shape(place) for place in entry.inputs.values()]
    rows, positions = shapes[0] if shapes and len(shapes[0]) == 2 else (0, 0)
    return positions if rows == 1 and len(shapes) >= 2 and shapes[1] == shapes[0] else 0


def single(session: Session, name: str) -> Entry | None:
    """The entry of that name that decodes one sequence."""
    return next((entry for entry in session.entries(name) if positions_of(session, entry) == 1), None)


def taking_in(session: Session, entry: str) -> dict[int, Entry]:
    """What takes in positions of one sequence, by how many.  entry: the model's own, for programs without others."""
    named = session.entries(PREFILL) or session.entries(entry)
    found = {n: each for each in named if (n := positions_of(session, each))}
    greedy = single(session, GREEDY)
    return found if greedy is None else found | {1: greedy}


def can_decode(session: Session, entry: str) -> bool:
    """Whether a session has entries to decode with.  entry: the model's own."""
    return any(e.sizes.get("positions") == 1 for name in (GREEDY, entry) for e in session.entries(name))


def size_of(session: Session, name: str) -> int:
    """A size in the program's config, such as its context."""
    size = session.config.get(name)
    if type(size) is not int:
        raise UserError(f"to generate, a program's config has to say its {name}: (config {name} N)")
    return size


def checking(session: Session, drafted: int, choice: str, repeatable: bool) -> Entry:
    """The entry that checks drafts of so many tokens; UserError where none can be checked.

    choice: see `choice_of`.  repeatable: whether runs of the model leave nothing that a later run of the same positions
    does not write again.
    """
    if choice != GREEDY:
        raise UserError("a look-up drafts greedy tokens: it wants them without penalties and log-probabilities")
    if not repeatable:
        raise UserError("this model's states add up over positions, so that no draft can be taken back")
    entry = session.entry(VERIFY, batch=1, length=drafted + 1)
    session.read_at_once(entry)
    return entry


def reports(session: Session, entry: Entry) -> list[list[int]]:
    """What the last run of an entry says of the tokens that it chose, a row for each."""
    found = session.result(entry, result_of(entry))
    rows: list[list[int]] = found.reshape(len(found), -1).tolist()
    return rows


def check_results(session: Session, entry: Entry, vocab: int) -> None:
    """UserError where an entry gives no row of logits for so many tokens."""
    shapes = {name: session.shape(place) for name, place in entry.results.items()}
    logits = next(iter(shapes.values()), ())
    if len(logits) != 2 or logits[0] != 1 or logits[1] < vocab or shapes.get("next", (1,)) != (1,):
        found = " ".join(map(str, logits))
        raise UserError(f"entry {entry.name!r} should give logits [1 {vocab}] (or more columns), not [{found}]")


def choice_of(sampler: Sampler | None, adjustment: Adjustment | Steering | None, logprobs: bool) -> str:
    """The entry that chooses a sequence's tokens by a sampler, on devices that can; "" where the host has to."""
    if sampler is not None and not isinstance(sampler, Greedy | Weighted):
        return ""
    if isinstance(adjustment, Steering):
        return STEERED
    if adjustment is not None or logprobs:
        return ADJUSTED
    return DRAWN if isinstance(sampler, Weighted) else GREEDY


def runs_on(entry: Entry) -> bool:
    """Whether an entry leaves its tokens and positions for its next run."""
    return all(entry.leaves(name) for name in list(entry.inputs)[:2])


def result_of(entry: Entry) -> str:
    """The result that says which tokens an entry chose, and perhaps more of them."""
    return "report" if "report" in entry.results else "next"


def step_inputs(entry: Entry, rows: Sequence[Row | None], idle: Sequence[int] | None = None) -> dict[str, Any]:
    """Inputs by which an entry decodes a token of each sequence, but for those that stay with the device; None is
    nobody's row: token 0 at position 0, or at that of `idle`."""
    tokens, places, *others = entry.inputs
    some = next(row for row in rows if row is not None)
    spare = {name: np.zeros_like(value) for name, value in some.more.items()}
    spare |= {SAMPLING: MOST_PROBABLE.settings(0)}
    spare |= {MASK: np.full_like(spare[MASK], -1)} if MASK in spare else {PENALTIES: np.ones(3, np.float32)}
    free = [0] * len(rows) if idle is None else idle
    every = [row or Row(0, position, spare) for row, position in zip(rows, free, strict=True)]
    inputs: dict[str, Any] = {tokens: [[row.token] for row in every], places: [[row.position] for row in every]}
    return inputs | {name: np.stack([row.more[name] for row in every]) for name in others if name in some.more}


def padded(tokens: Sequence[int] | np.ndarray, position: int, size: int) -> np.ndarray:
    """Tokens from a position on and their positions, i32 [2 1 size], for an entry of so many.

    Where there are fewer, the first stands more than once, at its own position, which changes nothing.
    """
    made, spare = np.empty((2, 1, size), np.int32), size - len(tokens)
    if spare:
        made[0, 0, :spare], made[1, 0, :spare] = tokens[0], position
    made[0, 0, spare:] = tokens
    made[1, 0, spare:] = np.arange(position, position + len(tokens))
    return made


def checked_tokens(tokens: Sequence[int], vocab: int) -> np.ndarray:
    """A prompt as an array; UserError for what is none."""
    if not tokens:
        raise UserError("the prompt is empty: give at least one token")
    try:
        numbers = np.frombuffer(struct.pack(f"{len(tokens)}i", *tokens), np.int32)  # in a third of asarray's time
        known = int(numbers.view(np.uint32).max()) < vocab  # those below zero are the largest
    except struct.error:
        numbers = np.asarray(tokens)
        known = 0 <= numbers.min() <= numbers.max() < vocab
    if not known:
        bad = next(t for t in tokens if not 0 <= t < vocab)
        raise UserError(f"token {bad} is not in the vocabulary of {vocab} (0 to {vocab - 1})")
    return numbers


def checked_token(token: int, vocab: int) -> int:
    """A token that an entry chose; UserError where it found none."""
    if 0 <= token < vocab:
        return token
    raise damaged_logits("no finite number")


@functools.cache
def chunk_sizes(count: int, sizes: tuple[int, ...], weight_rows: int, padded: bool = True) -> tuple[int, ...]:
    """Compiled sizes to run in order for `count` tokens, as cheap as can be.

    weight_rows: what reading the weights once costs, in rows of work (see `Device.weight_rows`), which makes few large
    chunks worth their padding.  padded: whether the last may exceed what is left; without it the sizes sum to the
    count, and one of them is 1.
    """
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for n in range(1, count + 1):
        options = []
        for size in sizes:
            if size <= n or padded:
                cost, rest = best[max(0, n - size)]
                options.append((cost + size + weight_rows, (size, *rest) if size <= n else (*rest, size)))
        best.append(min(options))
    return best[count][1]


def intake_sizes(batch: int, weight_rows: int) -> dict[str, int] | None:
    """The sizes of a `prefill` that takes in the short prompts of some sequences of a batch at once.

    None where that costs no less than one by one: of few sequences, or where rows cost more than reading the weights.
    """
    count = batch // GROUPS
    return {"batch": count, "positions": SHORT_PROMPT} if count > 1 and weight_rows >= SHORT_PROMPT else None
