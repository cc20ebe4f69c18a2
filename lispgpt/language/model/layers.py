"""`(per layers …)`: weights and states of which every layer has one, or with `:where` some layers have one.

    (weights
      (per layers (norm-w [width]))
      (per layers :where dense? (up-w [hidden width])))

`dense?` is a function of a layer's number.  What is declared is a stack of as many as there are such layers; `(up-w l)`
is that of layer l.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import State, Weight, describe
from lispgpt.language.forms.choice import holds
from lispgpt.language.forms.tensors import dimension
from lispgpt.language.reader.forms import Form, Keyword, List, head_name, show


@dataclass(frozen=True)
class Stack:
    """count: how many layers have one.  layers: which, where not all have."""

    count: int
    layers: tuple[int, ...] | None = None


def is_stack(form: Form) -> bool:
    """Whether a form is `(per …)` with something in it."""
    return head_name(form) == "per" and isinstance(form, List) and len(form.items) > 2


def stack_of(evaluator: Evaluator, form: List, environment: Environment) -> tuple[Stack, tuple[Form, ...]]:
    """What `(per layers …)` or `(per layers :where f …)` says, and the declarations in it."""
    count, rest = dimension(evaluator, form.items[1], environment), form.items[2:]
    if not isinstance(rest[0], Keyword):
        return Stack(count), rest
    if rest[0].name != "where" or len(rest) < 3:
        evaluator.site.fail(f"`{show(form)}` is not (per layers …) or (per layers :where some-layer? …)", rest[0])
    chosen = evaluator.single(rest[1], environment)
    own = tuple(layer for layer in range(count) if holds(evaluator.call(chosen, [layer], rest[1])))
    return Stack(len(own), None if len(own) == count else own), rest[2:]


def place_of(evaluator: Evaluator, target: Weight | State, layer: Any, form: Form) -> Any:
    """Where a layer's part is in a stack; an error for a layer that has none."""
    if target.layers is None:
        return layer
    if not isinstance(layer, int) or layer not in target.layers:
        own = ", ".join(map(str, target.layers))
        evaluator.site.fail(
            f"{target.name} is of the layers {own}, and `{show(form)}` asks for {describe(layer)}", form
        )
    return target.layers.index(layer)
