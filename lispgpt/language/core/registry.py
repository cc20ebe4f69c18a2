"""The tables of core forms and built-in functions that every program starts with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lispgpt.language.core.values import Builtin, Special

NAMES: dict[str, Any] = {}


def special(name: str, least: int, most: int | None) -> Callable[..., Any]:
    """Register a core form that takes so many unevaluated arguments."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        NAMES[name] = Special(name, run, least, most)
        return run

    return register


def builtin(name: str, least: int, most: int | None) -> Callable[..., Any]:
    """Register a function of evaluated arguments."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        NAMES[name] = Builtin(name, run, least, most)
        return run

    return register
