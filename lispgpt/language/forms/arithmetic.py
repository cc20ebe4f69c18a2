"""`+ - * / < = sqrt …`: computed on numbers, emitted as arith and math on SSA scalars and vectors, and element by
element on tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import NAMES, builtin
from lispgpt.language.core.values import BlockType, LoopIndex, describe
from lispgpt.language.forms import tensors
from lispgpt.language.forms.casts import cast, fitting, is_float, is_number, same_type
from lispgpt.language.reader.forms import Form, show

_MOST_DIGITS = 4096


def _quotient(left: Any, right: Any) -> Any:
    """Division to a whole number, towards 0."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        if exponent * base.bit_length() > 2 * _MOST_DIGITS:
            raise OverflowError
        return base**exponent
    return math.pow(base, exponent)


# name: (on numbers, on integers, on floats)
_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "+": (operator.add, "arith.addi", "arith.addf"),
    "-": (operator.sub, "arith.subi", "arith.subf"),
    "*": (operator.mul, "arith.muli", "arith.mulf"),
    "/": (operator.truediv, "arith.divsi", "arith.divf"),
    "quot": (_quotient, "arith.divsi", "arith.divf"),
    "ceil-div": (lambda a, b: -(-a // b), "arith.ceildivsi", "arith.divf"),
    "mod": (operator.mod, "arith.remsi", "arith.remf"),
    "min": (min, "arith.minsi", "arith.minimumf"),
    "max": (max, "arith.maxsi", "arith.maximumf"),
    "pow": (_power, "", "math.powf"),
}
_OF_TWO = ("quot", "ceil-div", "mod", "pow")
_WHOLE = {"quot": "math.trunc", "ceil-div": "math.ceil"}
"""What makes a quotient of reals whole."""

# name: (on numbers, arith.cmpi's predicate, arith.cmpf's)
_COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], int, int]] = {
    "<": (operator.lt, 2, 4),
    "<=": (operator.le, 3, 5),
    ">": (operator.gt, 4, 2),
    ">=": (operator.ge, 5, 3),
    "=": (operator.eq, 0, 1),
    "!=": (operator.ne, 1, 13),
}
_MATH: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "sin": math.sin,
    "cos": math.cos,
    "erf": math.erf,
    "log2": math.log2,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
}
_SPELLED = {"round": "roundeven"}
"""What an op of the math dialect is called where it is not its function's name."""

NAMES["inf"], NAMES["-inf"], NAMES["pi"] = math.inf, -math.inf, math.pi


def _define_binary(name: str) -> None:
    least, most = (2, 2) if name in _OF_TWO else (1, None)

    @builtin(name, least, most)
    def run(evaluator: Evaluator, form: Form, *arguments: Any) -> Any:
        values = [_operand(evaluator, argument, form) for argument in arguments]
        if len(values) == 1:
            if name not in ("-", "/"):
                return values[0]
            values.insert(0, 0 if name == "-" else 1)
        result = values[0]
        for value in values[1:]:
            result = binary(evaluator, name, result, value, form)
        return result


def _operand(evaluator: Evaluator, value: Any, form: Form) -> Any:
    if isinstance(value, LoopIndex):
        return evaluator.ssa(value, form)
    if is_number(value) or isinstance(value, ir.Value):
        return value
    evaluator.site.fail(f"`{show(form)}` computes with numbers and tensors, and got {describe(value)}", form)


def binary(evaluator: Evaluator, name: str, left: Any, right: Any, form: Form) -> Any:
    """One arithmetic operation on two numbers or SSA values."""
    compute, on_integers, on_floats = _BINARY[name]
    if is_number(left) and is_number(right):
        return _compute(evaluator, name, compute, left, right, form)
    if tensors.is_tensor(left) or tensors.is_tensor(right):
        return tensors.elementwise(evaluator, lambda a, b: binary(evaluator, name, a, b, form), (left, right), form)
    left, right = same_type(evaluator, left, right, form)
    real = is_float(left.type)
    if not real and not on_integers:
        evaluator.site.fail(f"`{name}` wants floating-point values, and got ones of type {left.type}", form)
    result = evaluator.builder.emit(on_floats if real else on_integers, [left, right], [left.type], {}, form)
    if name == "mod":
        return _with_sign_of(evaluator, result, right, form)
    return evaluator.builder.emit(_WHOLE[name], [result], [left.type], {}, form) if real and name in _WHOLE else result


def _with_sign_of(evaluator: Evaluator, rest: ir.Value, divisor: ir.Value, form: Form) -> ir.Value:
    """A remainder, which has the sign of what was divided, as the one that has the sign of the divisor."""
    emit, kind, zero = (
        evaluator.builder.emit,
        rest.type,
        evaluator.builder.constant(fitting(0, rest.type), rest.type, form),
    )
    below = [_compared(evaluator, "<", value, zero, form) for value in (rest, divisor)]
    apart = emit("arith.xori", below, [below[0].type], {}, form)
    apart = emit("arith.andi", [apart, _compared(evaluator, "!=", rest, zero, form)], [apart.type], {}, form)
    moved = emit("arith.addf" if is_float(kind) else "arith.addi", [rest, divisor], [kind], {}, form)
    return emit("arith.select", [apart, moved, rest], [kind], {}, form)


def _compute(evaluator: Evaluator, name: str, compute: Any, left: Any, right: Any, form: Form) -> Any:
    try:
        if name == "/" and isinstance(left, int) and isinstance(right, int) and left % right == 0:
            return left // right
        result = compute(left, right)
    except ZeroDivisionError:
        evaluator.site.fail(f"`{show(form)}` divides by zero", form)
    except OverflowError:
        evaluator.site.fail(f"`{show(form)}` is too large for a real number", form)
    except ValueError:
        evaluator.site.fail(f"`{show(form)}` has no value", form)
    if isinstance(result, int) and result.bit_length() > _MOST_DIGITS:
        evaluator.site.fail(f"`{show(form)}` has more than {_MOST_DIGITS} bits", form)
    return result


@builtin("cast", 2, 2)
def _cast(evaluator: Evaluator, form: Form, value: Any, kind: Any) -> Any:
    """`(cast x T)`: a scalar, or each element of a tensor, as type T."""
    if isinstance(kind, BlockType):
        said = f"`cast` makes numbers, such as (cast x i8), and {kind.name} is a type of weights in blocks"
        evaluator.site.fail(said, form)
    if not isinstance(kind, ir.Type):
        evaluator.site.fail(f"`cast` wants a type second: (cast x f32), and got {describe(kind)}", form)
    value = _operand(evaluator, value, form)
    if tensors.is_tensor(value):
        if value.type.element_type == kind:
            return value
        return tensors.elementwise(evaluator, lambda a: cast(evaluator, a, kind, form), (value,), form, widen=False)
    return cast(evaluator, value, kind, form)


def _define_comparison(name: str) -> None:
    compute = _COMPARISONS[name][0]

    def compare(evaluator: Evaluator, left: Any, right: Any, form: Form) -> Any:
        if isinstance(left, LoopIndex) or isinstance(right, LoopIndex):
            left, right = evaluator.ssa(left, form), evaluator.ssa(right, form)
        if not isinstance(left, ir.Value) and not isinstance(right, ir.Value):
            if name not in ("=", "!=") and not (is_number(left) and is_number(right)):
                evaluator.site.fail(
                    f"`{show(form)}` compares numbers, and got {describe(left)} and {describe(right)}", form
                )
            return bool(compute(_comparable(left), _comparable(right)))
        left, right = _operand(evaluator, left, form), _operand(evaluator, right, form)
        if tensors.is_tensor(left) or tensors.is_tensor(right):
            return tensors.elementwise(evaluator, lambda a, b: compare(evaluator, a, b, form), (left, right), form)
        return _compared(evaluator, name, *same_type(evaluator, left, right, form), form)

    builtin(name, 2, 2)(lambda evaluator, form, left, right: compare(evaluator, left, right, form))


def _compared(evaluator: Evaluator, name: str, left: ir.Value, right: ir.Value, form: Form) -> ir.Value:
    """A comparison of two scalars or vectors of one type."""
    _, integer, real = _COMPARISONS[name]
    op, predicate = ("arith.cmpf", real) if is_float(left.type) else ("arith.cmpi", integer)
    kind = evaluator.builder.i1
    if isinstance(left.type, ir.VectorType):
        kind = ir.VectorType.get(left.type.shape, kind)
    attributes = {"predicate": ir.IntegerAttr.get(evaluator.builder.i64, predicate)}
    return evaluator.builder.emit(op, [left, right], [kind], attributes, form)


def _comparable(value: Any) -> Any:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else value


def _define_math(name: str) -> None:
    compute = _MATH[name]

    @builtin(name, 1, 1)
    def run(evaluator: Evaluator, form: Form, value: Any) -> Any:
        value = _operand(evaluator, value, form)
        if is_number(value):
            try:
                return compute(value)
            except (ValueError, OverflowError, ZeroDivisionError):
                evaluator.site.fail(f"`{show(form)}` has no value at {value}", form)
        if tensors.is_tensor(value):
            return tensors.elementwise(evaluator, lambda a: run(evaluator, form, a), (value,), form)
        if not is_float(value.type):
            evaluator.site.fail(f"`{name}` wants a floating-point value, and got one of type {value.type}", form)
        return evaluator.builder.emit(f"math.{_SPELLED.get(name, name)}", [value], [value.type], {}, form)


@builtin("abs", 1, 1)
def _abs(evaluator: Evaluator, form: Form, value: Any) -> Any:
    value = _operand(evaluator, value, form)
    if is_number(value):
        return abs(value)
    if tensors.is_tensor(value):
        return tensors.elementwise(evaluator, lambda a: _abs(evaluator, form, a), (value,), form)
    op = "math.absf" if is_float(value.type) else "math.absi"
    return evaluator.builder.emit(op, [value], [value.type], {}, form)


@builtin("not", 1, 1)
def _not(evaluator: Evaluator, form: Form, value: Any) -> Any:
    if not isinstance(value, ir.Value):
        return value is None or value is False
    if tensors.is_tensor(value):
        return tensors.elementwise(evaluator, lambda a: _not(evaluator, form, a), (value,), form)
    if value.type != evaluator.builder.i1:
        evaluator.site.fail(f"`not` wants an i1, and got {describe(value)}", form)
    true = evaluator.builder.constant(1, evaluator.builder.i1, form)
    return evaluator.builder.emit("arith.xori", [value, true], [value.type], {}, form)


@builtin("select", 3, 3)
def _select(evaluator: Evaluator, form: Form, condition: Any, one: Any, other: Any) -> Any:
    """`(select c a b)`: a where c holds, else b; both are evaluated."""
    if isinstance(condition, bool):
        return one if condition else other
    values = [condition, _operand(evaluator, one, form), _operand(evaluator, other, form)]
    if any(tensors.is_tensor(value) for value in values):
        return tensors.elementwise(evaluator, lambda *v: _select(evaluator, form, *v), tuple(values), form)
    if not isinstance(condition, ir.Value):
        evaluator.site.fail(f"`select` wants a condition first, and got {describe(condition)}", form)
    if is_number(values[1]) and is_number(values[2]):
        kind = (
            evaluator.builder.f32
            if isinstance(values[1], float) or isinstance(values[2], float)
            else evaluator.builder.i64
        )
        values[1] = evaluator.builder.constant(values[1], kind, form)
    one, other = same_type(evaluator, values[1], values[2], form)
    return evaluator.builder.emit("arith.select", [condition, one, other], [one.type], {}, form)


for _name in _BINARY:
    _define_binary(_name)
for _name in _COMPARISONS:
    _define_comparison(_name)
for _name in _MATH:
    _define_math(_name)
