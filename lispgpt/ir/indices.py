"""Index arithmetic at the current insertion point, where plain integers are folded; constants, and ops in general."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lispgpt.ir.mlir import create_op, ir

Index = Any
"""An index: a Python integer where it is known, else an SSA value of type index."""


def emit(name: str, operands: Sequence[Any], results: Sequence[ir.Type], **attributes: Any) -> ir.Value:
    """One op with one result."""
    return create_op(name, operands, results, attributes).results[0]


def constant(value: Any, type_: ir.Type) -> ir.Value:
    if isinstance(type_, (ir.VectorType, ir.RankedTensorType)):
        element = _scalar_attribute(value, type_.element_type)
        return emit("arith.constant", [], [type_], value=ir.DenseElementsAttr.get_splat(type_, element))
    return emit("arith.constant", [], [type_], value=_scalar_attribute(value, type_))


def _scalar_attribute(value: Any, type_: ir.Type) -> ir.Attribute:
    is_float = isinstance(type_, (ir.F32Type, ir.BF16Type, ir.F16Type, ir.F64Type))
    return ir.FloatAttr.get(type_, float(value)) if is_float else ir.IntegerAttr.get(type_, int(value))


def as_value(index: Index) -> ir.Value:
    return constant(index, ir.IndexType.get()) if isinstance(index, int) else index


def add(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a is b and isinstance(a, int):
        return 2 * a
    if isinstance(a, int) and a == 0:
        return b
    if isinstance(b, int) and b == 0:
        return a
    return _binary("arith.addi", a, b)


def sub(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return a if isinstance(b, int) and b == 0 else _binary("arith.subi", a, b)


def mul(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    for x, y in ((a, b), (b, a)):
        if isinstance(x, int) and x in (0, 1):
            return y if x else 0
    return _binary("arith.muli", a, b)


def div(a: Index, b: int) -> Index:
    """Floor of a / b for a ≥ 0."""
    if isinstance(a, int):
        return a // b
    return a if b == 1 else _binary("arith.divui", a, b)


def mod(a: Index, b: int) -> Index:
    """a modulo b for a ≥ 0."""
    if isinstance(a, int):
        return a % b
    return 0 if b == 1 else _binary("arith.remui", a, b)


def xor(a: Index, b: Index) -> Index:
    """Bit by bit."""
    return a ^ b if isinstance(a, int) and isinstance(b, int) else _binary("arith.xori", a, b)


def _binary(name: str, a: Index, b: Index) -> ir.Value:
    return emit(name, [as_value(a), as_value(b)], [ir.IndexType.get()])


def at_most(index: Index, largest: Index) -> ir.Value:
    """The smaller of the two."""
    return emit("arith.minui", [as_value(index), as_value(largest)], [ir.IndexType.get()])


def clamped(index: Index, largest: int) -> Index:
    """A signed index brought between 0 and the largest."""
    if isinstance(index, int):
        return max(0, min(index, largest))
    for name, limit in (("arith.minsi", largest), ("arith.maxsi", 0)):
        index = emit(name, [index, as_value(limit)], [ir.IndexType.get()])
    return index


def less(a: Index, b: Index, predicate: int = 6) -> ir.Value:
    """a < b, unsigned (predicate 7: a ≤ b)."""
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
    return emit("arith.cmpi", [as_value(a), as_value(b)], [ir.IntegerType.get_signless(1)], predicate=attribute)


def equal(a: Index, b: Index) -> ir.Value:
    return less(a, b, 0)
