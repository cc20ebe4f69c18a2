"""Scalars and vectors as values of other types, and as values of one type."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.reader.forms import Form, List, show


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def is_float(kind: ir.Type) -> bool:
    """Whether values of a type, or its elements, are floating-point numbers."""
    return isinstance(kind.element_type if isinstance(kind, ir.ShapedType) else kind, ir.FloatType)


def same_type(evaluator: Evaluator, left: Any, right: Any, form: Form) -> tuple[ir.Value, ir.Value]:
    """Two scalars or vectors as values of one type: numbers become constants, narrow floats widen, an index becomes
    the integer that it meets."""
    if is_number(left):
        return evaluator.builder.constant(fitting(left, right.type), right.type, form), right
    if is_number(right):
        return left, evaluator.builder.constant(fitting(right, left.type), left.type, form)
    one, two = left.type, right.type
    if one == two:
        return left, right
    if isinstance(one, ir.FloatType) and isinstance(two, ir.FloatType) and one.width != two.width:
        wide = one if one.width > two.width else two
        return cast(evaluator, left, wide, form), cast(evaluator, right, wide, form)
    if isinstance(one, ir.IndexType) and isinstance(two, ir.IntegerType):
        return cast(evaluator, left, two, form), right
    if isinstance(two, ir.IndexType) and isinstance(one, ir.IntegerType):
        return left, cast(evaluator, right, one, form)
    first = (is_float(one), getattr(one, "width", 0)) >= (is_float(two), getattr(two, "width", 0))
    wide, narrow = (one, _operand_of(form, 1)) if first else (two, _operand_of(form, 0))
    evaluator.site.fail(f"`{show(form)}` mixes {one} and {two}; (cast {narrow} {wide}) converts", form)


def _operand_of(form: Form, number: int) -> str:
    """The text of one of a form's last two parts, where it has no more operands; else a name for any."""
    listed = form.items if isinstance(form, List) else ()
    pair = len(listed) == 3 or (len(listed) == 4 and show(listed[0]) == "select")
    return show(listed[number - 2]) if pair else "x"


def fitting(number: Any, kind: ir.Type) -> Any:
    """A number as an attribute of the type takes it."""
    return float(number) if is_float(kind) and not isinstance(number, float) and abs(number) < 1 << 1000 else number


def cast(evaluator: Evaluator, value: Any, kind: ir.Type, form: Form) -> ir.Value:
    """A scalar as another scalar type."""
    if is_number(value):
        return evaluator.builder.constant(value, kind, form)
    have = value.type
    if have == kind:
        return value
    numbers = (ir.IntegerType, ir.IndexType, ir.FloatType)
    if not isinstance(have, numbers) or not isinstance(kind, numbers):
        evaluator.site.fail(f"there is no cast from {have} to {kind}", form)
    op = _cast_op(have, kind)
    if op is None:
        middle = (
            evaluator.builder.f32
            if isinstance(have, ir.FloatType) and isinstance(kind, ir.FloatType)
            else evaluator.builder.i64
        )
        return cast(evaluator, cast(evaluator, value, middle, form), kind, form)
    return evaluator.builder.emit(op, [value], [kind], {}, form)


def _cast_op(have: ir.Type, kind: ir.Type) -> str | None:
    if isinstance(have, ir.FloatType):
        if isinstance(kind, ir.FloatType):
            if have.width == kind.width:
                return None
            return "arith.extf" if kind.width > have.width else "arith.truncf"
        return "arith.fptosi" if isinstance(kind, ir.IntegerType) else None
    if isinstance(kind, ir.FloatType):
        if isinstance(have, ir.IndexType):
            return None
        return "arith.uitofp" if have.width == 1 else "arith.sitofp"
    if isinstance(have, ir.IndexType) or isinstance(kind, ir.IndexType):
        return "arith.index_castui" if isinstance(have, ir.IntegerType) and have.width == 1 else "arith.index_cast"
    if kind.width > have.width:
        return "arith.extui" if have.width == 1 else "arith.extsi"
    return "arith.trunci"
