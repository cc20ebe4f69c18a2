"""What `gradients` differentiates by: values that the loss is computed from, and windows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import RESHAPES, defining_op, shape_of, viewed
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Weight, WeightReference, describe
from lispgpt.language.forms import arithmetic, shapes
from lispgpt.language.model.blocks import is_in_blocks
from lispgpt.language.model.written_out import sources_of
from lispgpt.language.reader.forms import Form, List, Vector, show

WINDOWS = RESHAPES | {"tensor.extract_slice"}
"""Ops whose result is the same elements as some of their operand."""


@dataclass(frozen=True, eq=False)
class Target:
    """value: what was asked for.  whole: the value of which it is a slice or a reshape; itself where it is none."""

    value: ir.Value
    whole: ir.Value

    def window_of(self, evaluator: Evaluator, gradient: ir.Value, form: Form) -> ir.Value:
        """The window of the whole's gradient that the value is of the whole."""
        return _same_window(evaluator, self.value, self.whole, gradient, form)


def targets_of(evaluator: Evaluator, targets: Any, loss: ir.Value, form: Form) -> list[Target]:
    """The targets of a vector; an error at the one that the loss is not computed from."""
    given = shapes.items_of(targets) or ()
    if not given:
        message = "`gradients` wants the values to differentiate by in a vector: (gradients loss [w b])"
        evaluator.site.fail(message, form)
    values = [_value_of(evaluator, target, form) for target in given]
    found = [Target(value, viewed(value, WINDOWS)) for value in values]
    sources = sources_of(loss)
    for number, (target, made) in enumerate(zip(given, found, strict=True)):
        if made.whole not in sources and not isinstance(target, WeightReference) and 0 not in shape_of(made.whole):
            place = _place_of(form, number, len(given))
            what = f"`{show(place)}`" if place is not form else f"value {number + 1} of those to differentiate by"
            evaluator.site.fail(f"the loss is not computed from {what}", place)
    return found


def _value_of(evaluator: Evaluator, target: Any, form: Form) -> ir.Value:
    held = target.weight if isinstance(target, WeightReference) else target
    if is_in_blocks(held):
        evaluator.site.fail(f"{held.name} is in blocks ({held.dtype}), which are not trained", form)
    value: Any = held.value if isinstance(held, Weight) else held
    if not shapes.is_tensor(value) or not arithmetic.is_float(value.type):
        evaluator.site.fail(f"`gradients` differentiates by tensors of floats, and got {describe(target)}", form)
    return value


def _place_of(form: Form, number: int, count: int) -> Form:
    """The form of one of the targets, where they are written as a vector in the call; else the call."""
    listed = form.items[2] if isinstance(form, List) and len(form.items) == 3 else None
    return listed.items[number] if isinstance(listed, Vector) and len(listed.items) == count else form


def _same_window(evaluator: Evaluator, value: ir.Value, whole: ir.Value, gradient: ir.Value, form: Form) -> ir.Value:
    """The window of a whole's gradient that a value is of the whole."""
    if value == whole:
        return gradient
    op = defining_op(value)
    inner = _same_window(evaluator, op.operands[0], whole, gradient, form)
    if op.name != "tensor.extract_slice":
        return shapes.reshape(evaluator, inner, shape_of(value), form)
    kind = shapes.tensor_type(evaluator, shape_of(value), inner.type.element_type, form)
    attributes = {name: op.attributes[name] for name in op.attributes}
    return evaluator.builder.emit("tensor.extract_slice", [inner, *list(op.operands)[1:]], [kind], attributes, form)
