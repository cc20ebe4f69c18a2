"""The tables of core forms and built-in functions that every program starts with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lispgpt.language.core.values import Builtin, Special

if TYPE_CHECKING:
    from lispgpt.language.core.environment import Environment
    from lispgpt.language.core.evaluator import Evaluator
    from lispgpt.language.reader.forms import List

NAMES: dict[str, Any] = {}


def special(name: str, least: int, most: int | None) -> Callable[..., Any]:
    """Register a core form that takes so many unevaluated arguments."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        def checked(evaluator: Evaluator, form: List, environment: Environment) -> Any:
            count = len(form.items) - 1
            if count < least or (most is not None and count > most):
                evaluator.fail(arity(name, least, most, count), form)
            return run(evaluator, form, environment)

        NAMES[name] = Special(name, checked)
        return run

    return register


def builtin(name: str, least: int, most: int | None) -> Callable[..., Any]:
    """Register a function of evaluated arguments."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        NAMES[name] = Builtin(name, run, least, most)
        return run

    return register


def arity(name: str, least: int, most: int | None, count: int) -> str:
    """`x` takes so many arguments and got that many."""
    wanted = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
    return f"`{name}` takes {wanted} argument{'' if wanted == '1' else 's'} and got {count}"
