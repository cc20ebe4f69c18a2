"""How text is to be generated, by the names that the command line and Python share."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from lispgpt.base.errors import UserError
from lispgpt.runtime.samplers import Sampler, make_sampler
from lispgpt.runtime.samplers.adjustment import Adjustment, Penalties
from lispgpt.runtime.samplers.greedy import Greedy

MOST_TOGETHER = 8
"""Texts that are generated at once, where nobody says how many."""


class Choices(TypedDict, total=False):
    """What may be said; what is not, is as in the program's `generate` form, or else off."""

    max_new_tokens: int | None
    greedy: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repeat_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float]
    seed: int | None
    stop: str | Sequence[str]
    logprobs: bool
    lookup: int


@dataclass(frozen=True)
class Options:
    """max_new_tokens: of a text, at most.  greedy: take the most probable token, as temperature 0 does; else draw by
    temperature, top_k, top_p, min_p and seed (see `make_sampler`).  repeat_penalty, presence_penalty,
    frequency_penalty, logit_bias: see `Penalties`.  stop: texts that end a text, which they are left out of.
    logprobs: whether to keep each token's log-probability.  lookup: tokens to draft at once from what the text has
    already, where the tokens are greedy; 0 drafts none.
    """

    max_new_tokens: int = 64
    greedy: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: str | Sequence[str] = ()
    logprobs: bool = False
    lookup: int = 0

    @staticmethod
    def of(given: Mapping[str, Any], program: Mapping[str, Any]) -> Options:
        """What a caller gives, and beside it what the program's form says; UserError for what contradicts itself."""
        unknown = next((name for name in given if name not in {field.name for field in fields(Options)}), None)
        if unknown is not None:
            raise UserError(f"there is no option {unknown!r}; there are {', '.join(f.name for f in fields(Options))}")
        said = {name: value for name, value in given.items() if value is not None}
        for name, value in said.items():
            _check_kind(name, value)
        drawn = next((name for name in DRAWING if name in said), None)
        if said.get("greedy") and drawn:
            raise UserError(f"greedy contradicts {drawn.replace('_', '-')}")
        defaults = {name.replace("-", "_"): value for name, value in program.items()}
        if drawn:
            defaults.pop("greedy", None)
        options = Options(**{**defaults, **said})
        if options.temperature == 0:
            options = replace(options, greedy=True)
        if options.max_new_tokens < 0:
            raise UserError(f"max-new-tokens is {options.max_new_tokens}, which must not be negative")
        if options.lookup < 0:
            raise UserError(f"the look-up is of {options.lookup} tokens, which must not be negative")
        if options.lookup and not options.greedy:
            raise UserError("a look-up drafts the most probable tokens: give --greedy with it")
        penalties = options.penalties  # which says what is wrong with them, look-up or not
        if options.lookup and (options.logprobs or not penalties.none):
            raise UserError("a look-up drafts greedy tokens: it has no penalties, biases or log-probabilities")
        options.sampler()
        return options

    @property
    def penalties(self) -> Penalties:
        given = {"repeat": self.repeat_penalty, "presence": self.presence_penalty, "frequency": self.frequency_penalty}
        known = {name: value for name, value in given.items() if value is not None}
        return Penalties(**known, logit_bias=self.logit_bias or {})

    @property
    def plain(self) -> bool:
        """Whether tokens are the most probable ones, as they are, and nothing else is told of them."""
        return self.sampler() is None and self.penalties.none and not self.logprobs

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampler(self, number: int = 0) -> Sampler | None:
        """What draws the tokens of the text of that number, whose seed is so much larger; None: the most probable."""
        seed = None if self.seed is None else self.seed + number
        made = make_sampler(self.temperature, self.top_k, self.top_p, seed, self.greedy, self.min_p)
        return None if isinstance(made, Greedy) else made

    def adjustment(self, vocab: int) -> Adjustment | None:
        """The penalties and biases of one text."""
        penalties = self.penalties
        return None if penalties.none else Adjustment(penalties, vocab)

    def __str__(self) -> str:
        """What of it has to do with choosing tokens, in words."""
        chosen = ["greedy"] if self.greedy else [_worded(self, name) for name in DRAWING]
        return ", ".join(text for text in [*chosen, *(_worded(self, name) for name in PENALISING)] if text)


WHOLE = ("max_new_tokens", "top_k", "seed", "lookup")
DRAWING = ("temperature", "top_k", "top_p", "min_p")
PENALISING = ("repeat_penalty", "presence_penalty", "frequency_penalty")


def _worded(options: Options, name: str) -> str:
    value = getattr(options, name)
    return "" if value is None else f"{name} {value}"


def _check_kind(name: str, value: Any) -> None:
    """UserError where an option's value is of a kind that it is never of."""
    if name in WHOLE and not (isinstance(value, numbers.Integral) and not isinstance(value, bool)):
        raise UserError(f"{name.replace('_', '-')} is {value!r}, which must be a whole number")
    if name in (*DRAWING, *PENALISING) and not isinstance(value, numbers.Real):
        raise UserError(f"{name.replace('_', '-')} is {value!r}, which must be a number")
    if name == "logit_bias" and not isinstance(value, Mapping):
        raise UserError(f"logit-bias is {value!r}, which must be a map from tokens to numbers")
    texts = value if isinstance(value, Sequence) else [None]
    if name == "stop" and not all(isinstance(text, str) for text in texts):
        raise UserError(f"stop is {value!r}, which must be a text or several")
