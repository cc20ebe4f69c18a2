"""What a program does with all of its weights, without naming them: lists of them, and states that are like them."""

from __future__ import annotations

from typing import Any

from lispgpt.base.dtypes import BLOCK_DTYPES, DECLARED_DTYPES
from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import BlockType, State, Weight, WeightReference, describe, items_of
from lispgpt.language.forms import shapes
from lispgpt.language.model.table import Model
from lispgpt.language.reader.forms import Form


@builtin("all-weights", 0, 0)
def _all_weights(evaluator: Evaluator, form: Form) -> Any:
    """`(all-weights)`: the weights that the program has declared so far, those of layers each as one stack."""
    return tuple(map(WeightReference, evaluator.states.of(Model).weights.values()))


@builtin("matching", 1, None)
def _matching(evaluator: Evaluator, form: Form, *parts: Any) -> Any:
    """`(matching "lora" …)`: the weights declared so far whose names have one of these texts in them."""
    declared = evaluator.states.of(Model).weights
    for part in parts:
        if not isinstance(part, str):
            evaluator.site.fail(f"`matching` wants parts of weights' names as texts, and got {describe(part)}", form)
        if not any(part in name for name in declared):
            known = f"there are {', '.join(declared)}" if declared else "there is no weight"
            evaluator.site.fail(f"no weight has {part!r} in its name; {known}", form)
    return tuple(WeightReference(weight) for name, weight in declared.items() if any(part in name for part in parts))


@builtin("weight-name", 1, 1)
def _weight_name(evaluator: Evaluator, form: Form, weight: Any) -> Any:
    """`(weight-name w)`: what a weight is called."""
    return _weight(evaluator, weight, form, "weight-name").name


@builtin("whole", 1, 1)
def _whole(evaluator: Evaluator, form: Form, held: Any) -> Any:
    """`(whole w)`: all of a weight or a state, the layers of a stacked one too, as it is by now in the entry."""
    if isinstance(held, WeightReference):
        held = held.weight
    if isinstance(held, (Weight, State)):
        if held.value is None:
            evaluator.site.fail(f"{held.name} has a value inside an entry only", form)
        return held.value
    if not shapes.is_tensor(held):
        evaluator.site.fail(f"`whole` wants a weight or a state, and got {describe(held)}", form)
    return held


@builtin("layered", 1, 1)
def _layered(evaluator: Evaluator, form: Form, weight: Any) -> Any:
    """`(layered w)`: whether a weight is a stack, whose first dimension counts layers."""
    return _weight(evaluator, weight, form, "layered").stacked


@builtin("weight-shape", 1, 1)
def _weight_shape(evaluator: Evaluator, form: Form, weight: Any) -> Any:
    """`(weight-shape w)`: the sizes of one layer's part of a weight."""
    found = _weight(evaluator, weight, form, "weight-shape")
    return found.shape[1:] if found.stacked else found.shape


@builtin("weight-dtype", 1, 1)
def _weight_dtype(evaluator: Evaluator, form: Form, weight: Any) -> Any:
    """`(weight-dtype w)`: the type of a weight's elements."""
    dtype = _weight(evaluator, weight, form, "weight-dtype").dtype
    return BlockType(dtype) if dtype in BLOCK_DTYPES else ir.Type.parse(dtype)


@builtin("states-like", 3, 3)
def _states_like(evaluator: Evaluator, form: Form, weights: Any, suffix: Any, dtype: Any) -> Any:
    """`(states-like [w …] ".m" f32)`: for each weight a state of its shape, named as it is with the suffix behind."""
    model, items = evaluator.states.of(Model), items_of(weights)
    if items is None or not isinstance(suffix, str) or str(dtype) not in DECLARED_DTYPES:
        evaluator.site.fail('`states-like` wants weights, a suffix and a type: (states-like [w b] ".m" f32)', form)
    made = []
    for item in items:
        weight = _weight(evaluator, item, form, "states-like")
        name = weight.name + suffix
        if name in model.states:
            evaluator.site.fail(f"the state {name} is declared twice", form)
        model.states[name] = State(name, weight.shape, str(dtype), form, shared=True)
        made.append(model.states[name])
    return tuple(made)


def _weight(evaluator: Evaluator, value: Any, form: Form, what: str) -> Weight:
    if isinstance(value, Weight):
        return value
    if not isinstance(value, WeightReference):
        evaluator.site.fail(f"`{what}` wants weights, as (all-weights) lists them, and got {describe(value)}", form)
    return value.weight
