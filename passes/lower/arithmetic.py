"""Arithmetic on scalars or vectors with Python numbers as operands: what expansions of functions are written with."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir.mlir import create_op, ir

FLOAT_PREDICATES = ("false", "eq", "gt", "ge", "lt", "le", "ne", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno")
INTEGER_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")


class Arithmetic:
    """Ops on one type, scalar or vector, with Python numbers as operands."""

    def __init__(self, type_: ir.Type, hardware_exp2: bool) -> None:
        self.type = type_
        self.hardware_exp2 = hardware_exp2
        element = type_.element_type if isinstance(type_, ir.VectorType) else type_
        self.int_type = self.like(ir.IntegerType.get_signless(64 if element == ir.F64Type.get() else 32))

    def of(self, element: ir.Type) -> Arithmetic:
        """The same on as many of another element type."""
        return type(self)(self.like(element), self.hardware_exp2)

    def constant(self, number: float | int, type_: ir.Type) -> ir.Value:
        element = type_.element_type if isinstance(type_, ir.VectorType) else type_
        make = ir.IntegerAttr if isinstance(element, ir.IntegerType) else ir.FloatAttr
        value = make.get(element, number)
        if isinstance(type_, ir.VectorType):
            value = ir.DenseElementsAttr.get_splat(type_, value)
        return create_op("arith.constant", [], [type_], {"value": value}).results[0]

    def __call__(self, name: str, *operands: ir.Value | float | int, result: ir.Type | None = None) -> ir.Value:
        kind = next((o.type for o in operands if isinstance(o, ir.Value)), self.type)
        values = [o if isinstance(o, ir.Value) else self.constant(o, kind) for o in operands]
        return create_op(name, values, [result or kind]).results[0]

    def polynomial(self, coefficients: Sequence[float], x: ir.Value) -> ir.Value:
        total = self.constant(coefficients[0], self.type)
        for coefficient in coefficients[1:]:
            total = self("math.fma", total, x, coefficient)
        return total

    def like(self, element: ir.Type) -> ir.Type:
        """As many of another element type."""
        return ir.VectorType.get(self.type.shape, element) if isinstance(self.type, ir.VectorType) else element

    def compare(self, predicate: str, a: ir.Value, b: ir.Value | float | int) -> ir.Value:
        """A comparison of floats, ordered but for "uno", or of signed integers."""
        element = a.type.element_type if isinstance(a.type, ir.VectorType) else a.type
        real = isinstance(element, ir.FloatType)
        number = (FLOAT_PREDICATES if real else INTEGER_PREDICATES).index(predicate)
        attribute = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)}
        other = b if isinstance(b, ir.Value) else self.constant(b, a.type)
        type_ = self.like(ir.IntegerType.get_signless(1))
        return create_op("arith.cmpf" if real else "arith.cmpi", [a, other], [type_], attribute).results[0]

    def select(self, condition: ir.Value, a: ir.Value | float | int, b: ir.Value | float | int) -> ir.Value:
        kind = next((v.type for v in (a, b) if isinstance(v, ir.Value)), self.type)
        values = [v if isinstance(v, ir.Value) else self.constant(v, kind) for v in (a, b)]
        return create_op("arith.select", [condition, *values], [kind]).results[0]

    def bit(self, n: ir.Value, position: int) -> ir.Value:
        """Whether a bit of an integer is set."""
        shifted = self("arith.andi", self("arith.shrsi", n, position), 1)
        return self("arith.trunci", shifted, result=self.like(ir.IntegerType.get_signless(1)))

    def power_of_two(self, n: ir.Value) -> ir.Value:
        """2^n for an integer -126 ≤ n ≤ 127."""
        bits = self("arith.shli", self("arith.addi", n, 127), 23)
        return self("arith.bitcast", bits, result=self.type)

    def magnitude(self, x: ir.Value) -> ir.Value:
        return self("math.absf", x)

    def signed_as(self, value: ir.Value, x: ir.Value) -> ir.Value:
        """A value ≥ 0 with another's sign."""
        return self("math.copysign", value, x)
