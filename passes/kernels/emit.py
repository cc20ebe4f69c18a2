"""Building loops, index arithmetic and vectors: what schedules are written with.

Indices are Python ints where they are known while compiling and SSA values otherwise; arithmetic folds the former.  A
value of one lane is a scalar, one of several lanes a 1-D vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import create_op, ir

Index = Any  # int | ir.Value


@dataclass
class Loop:
    """An open scf.for: its index, what it carries, and after it is closed its results."""

    index: ir.Value
    carried: list[ir.Value]
    results: list[ir.Value] = field(default_factory=list)
    yielded: list[ir.Value] | None = None


class Emitter:
    """Builds ops at the end of the current block; constants go to the start of the function."""

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        self.entry = function.regions[0].blocks[0]
        self.index_type = ir.IndexType.get()
        self.f32 = ir.F32Type.get()
        self._constants: dict[tuple[str, str], ir.Value] = {}

    def op(
        self, name: str, operands: Sequence[Index], results: Sequence[ir.Type], **attributes: Any
    ) -> ir.Value | None:
        """Build an op; its first result.  Python ints among the operands become index constants."""
        built = create_op(name, [self.value(v) for v in operands], results, attributes)
        return built.results[0] if results else None

    def value(self, index: Index) -> ir.Value:
        return self.constant(index, self.index_type) if isinstance(index, int) else index

    def constant(self, value: float | int | ir.Attribute, type_: ir.Type) -> ir.Value:
        """A scalar constant, or a vector with the same number in every lane."""
        key = (str(value), str(type_))
        if key not in self._constants:
            with ir.InsertionPoint.at_block_begin(self.entry):
                built = create_op("arith.constant", [], [type_], {"value": _constant_attribute(value, type_)})
            self._constants[key] = built.results[0]
        return self._constants[key]

    def block_id(self, dimension: str) -> ir.Value:
        """The block's coordinate in the grid along "x", "y" or "z"."""
        return self.op("gpu.block_id", [], [self.index_type], dimension=ir.Attribute.parse(f"#gpu<dim {dimension}>"))

    def add(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(a, int) and a == 0:
            return b
        return a if isinstance(b, int) and b == 0 else self.op("arith.addi", [a, b], [self.index_type])

    def sub(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if isinstance(b, int) and b == 0 else self.op("arith.subi", [a, b], [self.index_type])

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if isinstance(a, int):
            a, b = b, a
        return a if isinstance(b, int) and b == 1 else self.op("arith.muli", [a, b], [self.index_type])

    def div(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.op("arith.divui", [a, b], [self.index_type])

    def rem(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else self.op("arith.remui", [a, b], [self.index_type])

    def min(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.op("arith.minui", [a, b], [self.index_type])

    def max(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.op("arith.maxui", [a, b], [self.index_type])

    def delinearize(self, index: Index, extents: Sequence[int]) -> list[Index]:
        """Row-major coordinates of a linear index; the first coordinate is not reduced."""
        coordinates: list[Index] = []
        for extent in reversed(extents[1:]):
            coordinates.insert(0, self.rem(index, extent))
            index = self.div(index, extent)
        return [index, *coordinates] if extents else []

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1, carried: Sequence[ir.Value] = ()) -> Iterator[Loop]:
        """An scf.for; set `loop.yielded` before leaving where it carries values."""
        bounds = [self.value(start), self.value(stop), self.value(step)]
        op = create_op("scf.for", [*bounds, *carried], [v.type for v in carried], regions=1)
        locations = [ir.Location.unknown()] * (1 + len(carried))
        block = op.regions[0].blocks.append(self.index_type, *(v.type for v in carried), arg_locs=locations)
        loop = Loop(block.arguments[0], list(block.arguments)[1:])
        with ir.InsertionPoint(block):
            yield loop
            create_op("scf.yield", loop.yielded or [])
        loop.results = list(op.results)

    def lanes_type(self, element: ir.Type, lanes: int) -> ir.Type:
        return element if lanes == 1 else ir.VectorType.get([lanes], element)

    def load(self, memref: ir.Value, indices: Sequence[Index], lanes: int) -> ir.Value:
        name = "memref.load" if lanes == 1 else "vector.load"
        return self.op(name, [memref, *indices], [self.lanes_type(memref.type.element_type, lanes)])

    def store(self, value: ir.Value, memref: ir.Value, indices: Sequence[Index]) -> None:
        name = "vector.store" if isinstance(value.type, ir.VectorType) else "memref.store"
        self.op(name, [value, memref, *indices], [])

    def broadcast(self, value: ir.Value, lanes: int) -> ir.Value:
        if lanes == 1 or isinstance(value.type, ir.VectorType):
            return value
        return self.op("vector.broadcast", [value], [self.lanes_type(value.type, lanes)])

    def lane_indices(self, base: Index, lanes: int) -> ir.Value:
        """base, base + 1, … as a vector of index."""
        if lanes == 1:
            return self.value(base)
        type_ = ir.VectorType.get([lanes], self.index_type)
        steps = ir.Attribute.parse(f"dense<{list(range(lanes))}> : {type_}")
        return self.op("arith.addi", [self.broadcast(self.value(base), lanes), self.constant(steps, type_)], [type_])

    def to_f32(self, value: ir.Value) -> ir.Value:
        lanes = value.type.shape[0] if isinstance(value.type, ir.VectorType) else 1
        element = value.type.element_type if lanes > 1 else value.type
        return value if element == self.f32 else self.op("arith.extf", [value], [self.lanes_type(self.f32, lanes)])

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self.op("math.fma", [a, b, c], [c.type])

    def reduce_lanes(self, kind: str, vector: ir.Value) -> ir.Value:
        """Combine the lanes of a vector; kind as in vector.reduction ("add", "maximumf", …)."""
        if not isinstance(vector.type, ir.VectorType):
            return vector
        attributes = {"kind": ir.Attribute.parse(f"#vector.kind<{kind}>")}
        if kind in ("add", "mul") and isinstance(vector.type.element_type, ir.FloatType):
            attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<reassoc>")
        return self.op("vector.reduction", [vector], [vector.type.element_type], **attributes)

    def scratch(self, shape: Sequence[int], element: ir.Type) -> ir.Value:
        """Memory of this call of the kernel, on its stack."""
        attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0]), "alignment": _i64(64)}
        with ir.InsertionPoint.at_block_begin(self.entry):
            return create_op("memref.alloca", [], [ir.MemRefType.get(list(shape), element)], attributes).results[0]


def largest_power_of_two(limit: int, extent: int) -> int:
    """The largest power of two that divides `extent` and is at most `limit`."""
    lanes = 1
    while lanes * 2 <= limit and extent % (lanes * 2) == 0:
        lanes *= 2
    return lanes


def _i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _constant_attribute(value: float | int | ir.Attribute, type_: ir.Type) -> ir.Attribute:
    if isinstance(value, ir.Attribute):
        return value
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    scalar = (
        ir.FloatAttr.get(element, value) if isinstance(element, ir.FloatType) else ir.IntegerAttr.get(element, value)
    )
    return ir.DenseElementsAttr.get_splat(type_, scalar) if isinstance(type_, ir.VectorType) else scalar
