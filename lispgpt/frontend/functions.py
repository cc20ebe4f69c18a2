"""func.func functions: definitions with types, and calls by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lispgpt.frontend.environment import Environment
from lispgpt.frontend.forms import Form, List, Symbol
from lispgpt.frontend.parameters import parse_parameters
from lispgpt.frontend.registry import special
from lispgpt.frontend.values import Closure, Function

if TYPE_CHECKING:
    from lispgpt.frontend.evaluator import Evaluator


def call(evaluator: Evaluator, function: Function, arguments: list[Any], form: Form) -> Any:
    """func.call of a function by its name."""
    evaluator.fail(f"{function.name} cannot be called yet", form)


@special("defn", 2, None)
def _defn(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    name = form.items[1]
    if not isinstance(name, Symbol):
        evaluator.fail("`defn` wants a name: (defn name [x y] body)", name)
    parameters = parse_parameters(evaluator, form.items[2], "defn")
    environment.define(name, Closure(name.name, parameters, form.items[3:], environment, form))
    return None
