"""A text that a request wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lispgpt.runtime.intake import Intake
from lispgpt.runtime.options import Options
from lispgpt.runtime.samplers.steering import Grammar, Steering
from lispgpt.runtime.text import Text


@dataclass(eq=False)
class Job:
    """One text that a request wants.

    prompt: tokens, fewer than the context.  number: among those of the request, whose seeds are one apart.  hear: is
    told of each step (piece, why it ended or None, what failed or None) on the scheduler's thread.  priority: the
    lowest first.  top: how many of the most probable tokens to tell of each.  adapter: of the model's, 0 for none.
    told: tokens that it heard of.
    """

    prompt: list[int]
    options: Options
    hear: Callable[[str, str | None, Exception | None], None]
    number: int = 0
    priority: int = 0
    grammar: Callable[[], Grammar] | None = None
    top: int = 0
    adapter: int = 0
    cancelled: bool = False
    text: Text | None = field(default=None, repr=False)
    steering: Steering | None = None
    intake: Intake | None = None
    cached: int = 0
    told: int = 0
