"""The weights that norms multiply by, of which training warns where they begin as zeros."""

from __future__ import annotations

from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import viewed
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import Weight
from lispgpt.language.model.gradient_targets import WINDOWS
from lispgpt.language.model.table import Model
from lispgpt.language.reader.forms import Form


class TrainingWarning(UserError):
    """What a user should know who trains a program, and no other."""


@builtin("norm-weight", 1, 1)
def _norm_weight(evaluator: Evaluator, form: Form, weight: Any) -> Any:
    """`(norm-weight w)`: w, which a norm multiplies by; where it is a weight of the program, or a layer's part of one,
    training warns of one that begins as zeros."""
    if isinstance(weight, ir.Value):
        model, whole = evaluator.states.of(Model), viewed(weight, WINDOWS)
        model.norms.update(each.name for each in model.weights.values() if each.value == whole)
    return weight


def warn_of_zeros(evaluator: Evaluator, weight: Weight) -> None:
    """Of a norm's weight that begins as zeros, since the program says nothing: such layers learn nothing for long."""
    if weight.name in evaluator.states.of(Model).norms and weight.initial is None:
        said = f"({weight.name} [{' '.join(map(str, weight.shape[weight.stacked :]))}] {{:init 1}})"
        message = f"a norm multiplies by {weight.name}, which begins as zeros where it is trained from nothing: {said}"
        if not any(message == known.message for known in evaluator.site.warnings):
            evaluator.site.warnings.append(TrainingWarning(message, weight.form.span))
