"""Ops between floats of several widths, where all floats are of 64 bits: what widens or narrows one is nothing then,
and bits are those of the type as it is written.

    (arith.extf {:result f32} x)        x
    (arith.bitcast {:result f16} bits)  arith.extf(arith.bitcast bits : i16 to f16) : f64
    (arith.bitcast {:result i32} x)     arith.bitcast(arith.truncf x : f32) : i32
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir.mlir import ir
from lispgpt.language.core.builder import Builder
from lispgpt.language.reader.forms import Form, Keyword, List, Map, show

RESIZING = ("arith.extf", "arith.truncf")
BITS = "arith.bitcast"


def made(
    builder: Builder, name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] | None, form: List
) -> ir.Value | None:
    """What such an op gives where it is another than it says; None for all others."""
    if len(operands) != 1 or not results or len(results) != 1:
        return None
    (operand,), (result,) = operands, results
    if name in RESIZING:
        return operand if operand.type == result else None
    if name != BITS or operand.type == result:
        return None
    if result == builder.f64 and isinstance(operand.type, ir.IntegerType):
        kind = _float(operand.type.width, _spelled(form))
        bits = builder.emit(BITS, [operand], [kind], {}, form) if kind is not None else None
        return bits and builder.emit("arith.extf", [bits], [result], {}, form)
    if operand.type == builder.f64 and isinstance(result, ir.IntegerType):
        kind = _float(result.width, "f32")
        short = builder.emit("arith.truncf", [operand], [kind], {}, form) if kind is not None else None
        return short and builder.emit(BITS, [short], [result], {}, form)
    return None


def _float(width: int, spelled: str) -> ir.Type | None:
    """The float below 64 bits whose bits so many are."""
    if width == 16:
        return ir.BF16Type.get() if spelled == "bf16" else ir.F16Type.get()
    return ir.F32Type.get() if width == 32 else None


def _spelled(form: List) -> str:
    """The result type of an op as it is written."""
    given = form.items[1]
    items: Sequence[Form] = given.items if isinstance(given, Map) else ()
    for key, value in zip(items[::2], items[1::2], strict=False):
        if isinstance(key, Keyword) and key.name == "result":
            return show(value)
    return ""
