"""What an evaluator is told of the language, so that it knows no form by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Language:
    """names: the core forms and built-in functions.  heads: what the head of a list may be where no name is bound, each
    `(evaluator, symbol, environment)`, giving MISSING where it knows nothing; asked in order.  fail_unknown: says what
    is wrong with a head that nobody knows, called as those.  calls: how values of a feature's own kind are called,
    `(evaluator, value, arguments, form)`.  template: what a form is where an SSA value is wanted, `(evaluator, value,
    form)`, for what other features make of quoted forms."""

    names: Mapping[str, Any]
    heads: tuple[Callable[..., Any], ...]
    fail_unknown: Callable[..., NoReturn]
    calls: Mapping[type, Callable[..., Any]]
    template: Callable[..., Any]
