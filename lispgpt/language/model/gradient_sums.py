"""Sums of gradients: of whole tensors, of windows of them, and of rows that are added where numbers say."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, casts, tensors
from lispgpt.language.model import index_algebra
from lispgpt.language.model.gradient_rules import is_filled_with, window
from lispgpt.language.model.scattering import Scatter
from lispgpt.language.reader.forms import Form


def as_type(evaluator: Evaluator, gradient: ir.Value, dtype: ir.Type, form: Form) -> ir.Value:
    """A gradient in another type, element by element."""
    if gradient.type.element_type == dtype:
        return gradient

    def compute(value: ir.Value) -> ir.Value:
        return casts.cast(evaluator, value, dtype, form)

    return tensors.elementwise(evaluator, compute, (gradient,), form, widen=False)


@dataclass
class Sum:
    """Gradients of one value: whole tensors, parts of it that tensor.insert_slice put into zeros, and rows to add."""

    wholes: list[ir.Value] = field(default_factory=list)
    parts: list[ir.Operation] = field(default_factory=list)
    scatters: list[Scatter] = field(default_factory=list)

    def add(self, gradient: ir.Value) -> None:
        op = defining_op(gradient)
        if op is not None and op.name == "tensor.insert_slice" and is_filled_with(op.operands[1], 0.0):
            self.parts.append(op)
        else:
            self.wholes.append(gradient)

    def total(self, evaluator: Evaluator, value: ir.Value, form: Form) -> ir.Value:
        """The one tensor that all of it makes, for the value whose gradient it is."""
        wholes, parts, wide = self.wholes, self.parts, tensors.summed_in(evaluator, value)
        total = None if wholes else _joined(evaluator, value, parts, form)
        if total is not None:
            wholes, parts = [], []
        for whole in wholes:
            total = whole if total is None else arithmetic.binary(evaluator, "+", total, whole, form)
        if total is None and (parts or not self.scatters):
            total = _ground(evaluator, value, parts, form)
        taken: list[ir.Operation] = []
        for op in parts:
            assert total is not None
            if wholes:
                total = as_type(evaluator, total, wide, form)
            part = op.operands[0]
            if wholes or not all(_apart(op, other) for other in taken):
                part = arithmetic.binary(evaluator, "+", window(evaluator, total, op, form), part, form)
            part = as_type(evaluator, part, total.type.element_type, form)
            attributes = {name: op.attributes[name] for name in op.attributes}
            operands = [part, total, *list(op.operands)[2:]]
            total = evaluator.builder.emit("tensor.insert_slice", operands, [total.type], attributes, form)
            taken.append(op)
        for scatter in self.scatters:
            total = scatter.onto(total)
        assert total is not None
        return total


def _joined(evaluator: Evaluator, value: ir.Value, parts: list[ir.Operation], form: Form) -> ir.Value | None:
    """The gradient of what was divided into equal parts, that lie side by side in each of its rows."""
    shape, own = shape_of(value), [shape_of(op.operands[0]) for op in parts]
    along = [d for d, extent in enumerate(shape) if own and len(own[0]) == len(shape) and own[0][d] != extent]
    if len(along) != 1 or prod(shape[: along[0]]) == 1 or len({str(op.operands[0].type) for op in parts}) > 1:
        return None
    (dimension,) = along
    starts = {integers(op.attributes["static_offsets"])[dimension]: op.operands[0] for op in parts}
    if len(parts) == 1 or sorted(starts) != list(range(0, shape[dimension], own[0][dimension])):
        return None
    if len(starts) < len(parts) or any(set(integers(op.attributes["static_strides"])) != {1} for op in parts):
        return None
    return index_algebra.joined(evaluator, [starts[start] for start in sorted(starts)], dimension, form)


def _ground(evaluator: Evaluator, value: ir.Value, parts: list[ir.Operation], form: Form) -> ir.Value:
    """What the parts of a gradient are put into: zeros, or nothing where they are all of it."""
    shape = shape_of(value)
    apart = all(_apart(one, other) for i, one in enumerate(parts) for other in parts[:i])
    dtypes = {op.operands[0].type.element_type for op in parts}
    dtype = dtypes.pop() if apart and len(dtypes) == 1 else tensors.summed_in(evaluator, value)
    if apart and sum(prod(shape_of(op.operands[0])) for op in parts) == prod(shape):
        return tensors.empty(evaluator, shape, dtype, form)
    return tensors.filled(evaluator, shape, 0.0, dtype, form)


def _apart(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two windows of a tensor are known to have no element in common."""
    if len(one.operands) > 2 or len(other.operands) > 2:
        return False
    starts = [integers(op.attributes["static_offsets"]) for op in (one, other)]
    sizes = [integers(op.attributes["static_sizes"]) for op in (one, other)]
    return any(a + n <= b or b + m <= a for a, b, n, m in zip(*starts, *sizes, strict=True))
