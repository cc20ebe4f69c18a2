"""Numbers of few bits: casts that keep to a type's range, and bytes from 0 to 255.

MLIR's integers have no sign of their own.  What is declared as u8 is kept in i8 and read as i32; what an entry gives as
u8 is a `Bytes`, which `saturate` makes.
"""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Bytes, State, Weight, describe
from lispgpt.language.forms import shapes, tensors
from lispgpt.language.forms.casts import cast, is_float
from lispgpt.language.reader.forms import Form, List, Symbol, show

U8 = "u8"
EXAMPLE = "(saturate x i8)"


def is_bytes(held: Any) -> bool:
    """Whether something is a weight or a state of u8."""
    return isinstance(held, (Weight, State)) and held.dtype == U8


def numbers_of(evaluator: Evaluator, value: ir.Value, form: Form) -> ir.Value:
    """The numbers from 0 to 255, in i32, that a tensor of i8 holds as u8."""
    i32 = evaluator.builder.i32

    def compute(x: ir.Value) -> Any:
        return evaluator.builder.emit("arith.extui", [x], [i32], {}, form)

    return tensors.elementwise(evaluator, compute, (value,), form, widen=False)  # type: ignore[no-any-return]


@special("saturate", 2, 2)
def _saturate(evaluator: Evaluator, form: List, environment: Any) -> Any:
    """`(saturate x i8)`: the nearest number of a type, i8, i16, i32, i64 or u8, for each element.

    Floats are rounded, halves to the even neighbour; what is beyond the type's range becomes its end, and NaN 0.
    (`cast` drops what is behind the point, and keeps the low bits of integers.)  What becomes u8 is a result of an
    entry, or what a state of u8 is to hold, and nothing is computed with it.
    """
    value = evaluator.ssa(evaluator.value_of(evaluator.evaluate(form.items[1], environment), form), form)
    kind_form = form.items[2]
    as_bytes = isinstance(kind_form, Symbol) and kind_form.name == U8
    kind = ir.IntegerType.get_signless(8) if as_bytes else evaluator.single(kind_form, environment)
    if not isinstance(kind, ir.IntegerType) or kind.width not in (8, 16, 32, 64):
        evaluator.site.fail(
            f"`saturate` wants an integer type second, as in {EXAMPLE}, and got {show(kind_form)}", form
        )
    if not isinstance(value, ir.Value):
        evaluator.site.fail(f"`saturate` wants a tensor or a computed number, and got {describe(value)}", form)
    least, most = (0, 255) if as_bytes else (-(1 << kind.width - 1), (1 << kind.width - 1) - 1)

    def compute(x: ir.Value) -> ir.Value:
        return _nearest(evaluator, x, kind, least, most, form)

    if not shapes.is_tensor(value):
        if as_bytes:
            evaluator.site.fail("`saturate` to u8 is of tensors", form)
        return compute(value)
    made = tensors.elementwise(evaluator, compute, (value,), form, widen=False)
    return Bytes(made) if as_bytes else made


def _nearest(evaluator: Evaluator, x: ir.Value, kind: ir.Type, least: int, most: int, form: Form) -> ir.Value:
    emit, builder = evaluator.builder.emit, evaluator.builder
    if is_float(x.type):
        wide = x if x.type.width >= 32 else cast(evaluator, x, builder.f32, form)
        real = wide.type
        rounded = emit("math.roundeven", [wide], [real], {}, form)
        number = emit("arith.cmpf", [wide, wide], [builder.i1], {"predicate": _predicate(evaluator, 7)}, form)
        zero = builder.constant(0.0, real, form)
        rounded = emit("arith.select", [number, rounded, zero], [real], {}, form)
        top, bottom = (builder.constant(n, real, form) for n in (_below(most, real), float(least)))
        held = emit(
            "arith.minimumf", [emit("arith.maximumf", [rounded, bottom], [real], {}, form), top], [real], {}, form
        )
        middle = ir.IntegerType.get_signless(max(kind.width, 32))
        made = emit("arith.fptosi", [held], [middle], {}, form)
        if _below(most, real) != most:  # the type's end is between two floats
            above = emit("arith.cmpf", [rounded, top], [builder.i1], {"predicate": _predicate(evaluator, 2)}, form)
            made = emit("arith.select", [above, builder.constant(most, middle, form), made], [middle], {}, form)
        return cast(evaluator, made, kind, form)
    if not isinstance(x.type, ir.IntegerType) or x.type.width == 1:
        x = cast(evaluator, x, builder.i64 if not isinstance(x.type, ir.IntegerType) else builder.i32, form)
    for op, end in (("arith.maxsi", least), ("arith.minsi", most)):
        if -(1 << x.type.width - 1) <= end <= (1 << x.type.width - 1) - 1:
            x = emit(op, [x, builder.constant(end, x.type, form)], [x.type], {}, form)
    return cast(evaluator, x, kind, form)


def _predicate(evaluator: Evaluator, number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(evaluator.builder.i64, number)


def _below(number: int, kind: ir.Type) -> float:
    """The largest number of a float type that is no larger."""
    bits = 24 if kind.width == 32 else 53
    drop = max(number.bit_length() - bits, 0)
    return float(number >> drop << drop)
