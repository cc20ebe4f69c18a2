"""Choosing: while compiling where the condition is known, with scf.if where it is an SSA value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lispgpt.frontend.environment import Environment
from lispgpt.frontend.forms import Form, List
from lispgpt.frontend.registry import special
from lispgpt.mlir import ir

if TYPE_CHECKING:
    from lispgpt.frontend.evaluator import Evaluator


def holds(value: Any) -> bool:
    """What counts as true while compiling: everything but false and nil."""
    return value is not None and value is not False


@special("if", 2, 3)
def _if(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    condition = evaluator.ssa(evaluator.evaluate(form.items[1], environment), form.items[1])
    if isinstance(condition, ir.Value):
        evaluator.fail("an `if` on an SSA value is not here yet", form)
    chosen: tuple[Form, ...] = form.items[2:3] if holds(condition) else form.items[3:4]
    return evaluator.evaluate(chosen[0], environment) if chosen else None
