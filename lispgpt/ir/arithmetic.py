"""Arithmetic on scalars and vectors as Python writes it: the values of expansions of functions, and of kernels that are
written out thread by thread (threads.py).

Integers are below 2^31 and not negative where they are divided, compared or shifted to the right.  A plain int or float
takes the other operand's type; adding 0, and multiplying or dividing by 1, emits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir

FLOAT_PREDICATES = ("false", "==", ">", ">=", "<", "<=", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "!=", "uno")
INTEGER_PREDICATES = ("==", "!=", "<", "<=", ">", ">=", "u<", "u<=", "u>", "u>=")


class Number:
    """A value of a float or integer type, or a vector of them; numbers beside it become constants of its type."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: ir.Value) -> None:
        self.value, self.type = value, value.type
        self.element = b.element_of(value.type)

    @property
    def is_real(self) -> bool:
        return isinstance(self.element, ir.FloatType)

    def like(self, element: ir.Type) -> ir.Type:
        """As many of another element type."""
        return ir.VectorType.get(self.type.shape, element) if isinstance(self.type, ir.VectorType) else element

    def emit(self, name: str, *others: Operand, element: ir.Type | None = None, **attributes: Any) -> Self:
        """An op on this and others, whose result is of this type or has another element type."""
        operands = [self.value, *(self.operand(other) for other in others)]
        return type(self)(b.emit(name, operands, [self.like(element or self.element)], **attributes))

    def operand(self, other: Operand) -> ir.Value:
        return other.value if isinstance(other, Number) else b.constant(other, self.type)

    def _arithmetic(self, name: str, other: Operand, reversed_: bool = False) -> Self:
        values = [self.operand(other), self.value] if reversed_ else [self.value, self.operand(other)]
        return type(self)(b.emit(f"arith.{name}{'f' if self.is_real else 'i'}", values, [self.type]))

    def __add__(self, other: Operand) -> Self:
        return self if isinstance(other, int) and other == 0 else self._arithmetic("add", other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Self:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Operand) -> Self:
        return self._arithmetic("sub", other, reversed_=True)

    def __mul__(self, other: Operand) -> Self:
        return self if isinstance(other, int) and other == 1 else self._arithmetic("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Self:
        return self._arithmetic("div", other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._arithmetic("div", other, reversed_=True)

    def __mod__(self, other: Operand) -> Self:
        """Of integers ≥ 0, as // is."""
        return self.emit("arith.remui", other)

    def __floordiv__(self, other: Operand) -> Self:
        return self if isinstance(other, int) and other == 1 else self.emit("arith.divui", other)

    def __neg__(self) -> Self:
        return self.emit("arith.negf")

    def __abs__(self) -> Self:
        return self.emit("math.absf")

    def __and__(self, other: Operand) -> Self:
        return self.emit("arith.andi", other)

    def __or__(self, other: Operand) -> Self:
        return self.emit("arith.ori", other)

    def __xor__(self, other: Operand) -> Self:
        return self.emit("arith.xori", other)

    def __rshift__(self, other: Operand) -> Self:
        return self.emit("arith.shrui", other)

    def signed_shift(self, by: int) -> Self:
        return self.emit("arith.shrsi", by)

    def __lshift__(self, other: Operand) -> Self:
        return self.emit("arith.shli", other)

    def is_(self, relation: str, other: Operand) -> Self:
        """A comparison: of floats ordered, but for "!=" and names with u in them; of integers signed, but with a u."""
        number = (FLOAT_PREDICATES if self.is_real else INTEGER_PREDICATES).index(relation)
        return self.emit("arith.cmpf" if self.is_real else "arith.cmpi", other, element=b.i1(), predicate=number)

    def __lt__(self, other: Operand) -> Self:
        return self.is_("<", other)

    def __le__(self, other: Operand) -> Self:
        return self.is_("<=", other)

    def __gt__(self, other: Operand) -> Self:
        return self.is_(">", other)

    def __ge__(self, other: Operand) -> Self:
        return self.is_(">=", other)

    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.is_("==", other)

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.is_("!=", other)

    def where(self, yes: Operand, no: Operand) -> Number:
        """yes where this condition holds, else no; at least one of them is no Python number."""
        given = next(value for value in (yes, no) if isinstance(value, Number))
        return Number(b.select(self.value, given.operand(yes), given.operand(no)))

    def clamp(self, low: float, high: float) -> Self:
        return self.emit("arith.maximumf", low).emit("arith.minimumf", high)

    def signed_as(self, other: Number) -> Self:
        """This, which is ≥ 0, with another's sign."""
        return self.emit("math.copysign", other)

    def whole(self) -> Self:
        """A float as an integer of as many bits."""
        return self.emit("arith.fptosi", element=ir.IntegerType.get_signless(self.element.width))

    def bits(self) -> Self:
        """A float's bits as an integer, or the float of these bits."""
        if not self.is_real:
            return self.as_real()
        return self.emit("arith.bitcast", element=ir.IntegerType.get_signless(self.element.width))

    def as_real(self, cast: str = "arith.bitcast") -> Self:
        """An integer, or with bitcast the float whose bits it is, as a float of as many bits."""
        return self.emit(cast, element=ir.F64Type.get() if self.element.width == 64 else ir.F32Type.get())

    def bit(self, position: int) -> Self:
        """Whether a bit of an integer is set."""
        return (self.signed_shift(position) & 1).emit("arith.trunci", element=b.i1())

    def index(self) -> ir.Value:
        """An integer that is not negative, as an index."""
        return b.emit("arith.index_castui", [self.value], [ir.IndexType.get()])

    def from_lane(self, distance: int) -> Number:
        """The value of the lane whose number differs by this in exclusive or, of 32 lanes."""
        return Number(b.shuffle_xor(self.value, distance, 32))

    def of_lane(self, lane: Number) -> Number:
        """The value of the lane of that number, of 32."""
        return Number(b.shuffle_from(self.value, lane.value, 32))

    def power_of_two(self) -> Self:
        """2^n as an F32 for an integer -126 ≤ n ≤ 127."""
        return ((self + 127) << 23).as_real()


Operand = Number | float


def fma(x: Operand, y: Operand, z: Operand) -> Number:
    """x · y + z, of which one at least is no Python number."""
    given = next(value for value in (x, y, z) if isinstance(value, Number))
    return Number(b.emit("math.fma", [given.operand(value) for value in (x, y, z)], [given.type]))


def where(condition: Number, yes: Operand, no: Operand) -> Number:
    """One of two, of which one at least is no Python number."""
    return condition.where(yes, no)


def polynomial(coefficients: Sequence[float], x: Number) -> Number:
    """The coefficient of the highest power first."""
    total = Number(x.operand(coefficients[0]))
    for coefficient in coefficients[1:]:
        total = fma(total, x, coefficient)
    return total


def is_finite(x: Number) -> Number:
    return abs(x).is_("<", math.inf)
