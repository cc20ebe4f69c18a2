"""What a check of gradients needs of an entry: inputs that move what it differentiates by, and what it makes of that.

    (gradients loss [w])     with %w read everywhere as   %w + input "along 0",
and a report of what the loss was and of the gradient.  So central differences along any direction are two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import WeightReference
from lispgpt.language.forms import arithmetic, tensors
from lispgpt.language.model.reports import GRADIENT, Report, Reports, place_of
from lispgpt.language.reader.forms import Form, List, Vector, show


@dataclass
class GradientChecks:
    """on: whether entries are made to be checked.  moves: the inputs that the entry being built has for that, by their
    names."""

    on: bool = False
    moves: dict[str, ir.Value] = field(default_factory=dict)

    def move(self, evaluator: Evaluator, value: ir.Value, form: Form) -> str:
        """Have what reads a value read it moved by an input; that input's name."""
        block = evaluator.builder.insertion.block
        name = f"along {len(self.moves)}"
        along = block.add_argument(value.type, evaluator.site.location(form))
        self.moves[name] = along
        made, ops = defining_op(value), operations(block)
        behind = ops[ops.index(made) + 1] if made is not None else ops[0]
        with evaluator.builder.at(ir.InsertionPoint(behind)):
            moved = tensors.elementwise(
                evaluator, lambda a, b: arithmetic.binary(evaluator, "+", a, b, form), (value, along), form, widen=False
            )
        value.replace_all_uses_with(moved)
        own = defining_op(moved)
        for number, operand in enumerate(own.operands):
            if operand == moved:
                own.operands[number] = value
        return name

    def say(
        self,
        evaluator: Evaluator,
        names: Sequence[str],
        targets: Sequence[Any],
        loss: ir.Value,
        gradients: Sequence[ir.Value],
        form: Form,
    ) -> None:
        """Report a loss and its gradients.  names: of the inputs that move the targets, by which each is."""
        given = form.items[2] if isinstance(form, List) and len(form.items) == 3 else None
        listed = given.items if isinstance(given, Vector) and len(given.items) == len(names) else ()
        labels = [show(item, 40) for item in listed] or [
            target.weight.name if isinstance(target, WeightReference) else f"value {number}"
            for number, target in enumerate(targets, 1)
        ]
        text = "\n".join(f"{name}={label}" for name, label in zip(names, labels, strict=True))
        report = Report(GRADIENT, place_of(evaluator, form), text, [loss, *gradients])
        evaluator.states.of(Reports).put(evaluator, report, form)
