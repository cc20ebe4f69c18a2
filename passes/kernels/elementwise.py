"""A linalg op's body at some neighbouring points of its loops: its ops, emitted on vectors of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, nested_operations, operations, shape_of
from lispgpt.passes.kernels.expand import expand, is_approximate
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.views import mapped
from lispgpt.passes.targets import Gpu, Target

UNROUNDED = ("constant", "select", "bitcast", "extf", "truncf")
"""Ops of `arith` that do no arithmetic on the floats that they take or make."""

MOVES = ("arith.addi", "arith.subi")
"""Ops that may move the indices of a vector's elements."""


class Values(Protocol):
    """A Reader: what it makes of the tensors, scalars and indices that a body takes, and scopes for nested blocks."""

    target: Target
    assumed: frozenset[ir.Value]
    indices: dict[ir.Value, Index]
    in_step: bool

    def bind(self, tensor: ir.Value, value: Callable[[Sequence[Index], int], ir.Value]) -> None: ...

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value: ...

    def scalar(self, value: ir.Value) -> ir.Value: ...

    def index_of(self, value: ir.Value) -> Index: ...

    def scope(self) -> Any: ...

    def stepping(self, in_step: bool = True) -> Any: ...


@dataclass(frozen=True)
class Iota:
    """The indices base, base + 1, … of a vector's elements.  moved: whether base is a loop's index plus something."""

    base: Index
    moved: bool = False


def elementwise(reader: Values, op: ir.Operation, index: list[Index], width: int) -> ir.Value:
    """`width` neighbouring elements of the op's result, from `index` on along the last dimension."""
    if width > 1 and any(len(nested.regions) or nested.name == "func.call" for nested in nested_operations(op)):
        read = Body(reader, op, index, width).operands()
        lanes = [{v: b.lane_of(x, i) if b.width_of(x) > 1 else x for v, x in read.items()} for i in range(width)]
        points = [[*index[:-1], b.add(index[-1], i)] for i in range(width)]
        found = [Body(reader, op, at, 1).results(given) for at, given in zip(points, lanes, strict=True)]
        return b.vector_of([value for (value,) in found])
    if isinstance(reader.target, Gpu) and only_chooses(op):
        return Body(reader, op, index, width).choice()
    return Body(reader, op, index, width).results({})[0]


def only_chooses(op: ir.Operation) -> bool:
    """Whether a body does no more than to take one of several tensors' elements, by the indices of outer loops."""
    *ops, terminator = operations(op.regions[0].blocks[0])
    arguments = set(list(op.regions[0].blocks[0].arguments)[:-1])
    selects = [nested for nested in ops if nested.name == "arith.select"]
    last = indexing_maps(op)[-1].n_dims - 1
    if len(arguments) < 2 or not selects or terminator.operands[0] != selects[-1].results[0]:
        return False
    for nested in ops:
        inner = nested.name == "linalg.index" and ir.IntegerAttr(nested.attributes["dim"]).value == last
        if inner or nested.name not in ("linalg.index", "arith.constant", "arith.cmpi", "arith.select"):
            return False
        read = [o for o in nested.operands if o in arguments]
        if read and (nested.name != "arith.select" or nested.operands[0] in arguments):
            return False
    return True


class Body:
    """The body of a linalg op at loop indices `index`, and at the width - 1 points after it along loop `along`.

    along: the last loop, where it is not given.
    wide: arithmetic on 16-bit floats stays f32, as what a sum is carried in; else each result is rounded to its type.
    """

    def __init__(
        self,
        reader: Values,
        op: ir.Operation,
        index: list[Index],
        width: int,
        wide: bool = False,
        along: int | None = None,
    ) -> None:
        self.reader, self.op, self.index, self.width, self.wide = reader, op, index, width, wide
        self.along = len(index) - 1 if along is None else along
        self.values: dict[ir.Value, Any] = {}

    def results(self, given: dict[ir.Value, ir.Value]) -> list[ir.Value]:
        """What the body yields.  given: arguments of its block that are not to be read from the op's operands."""
        self.values.update(given)
        self.values.update(self.operands(given))
        *ops, terminator = operations(self.op.regions[0].blocks[0])
        for nested in ops:
            if nested.name == "arith.select" and nested.operands[0] in self.reader.assumed:
                self.values[nested.results[0]] = self._value(nested.operands[1])
            else:
                self.evaluate(nested)
        yielded = [self._materialized(self._value(v)) for v in terminator.operands]
        return [b.splat(v, self.width) for v in yielded]

    def choice(self) -> ir.Value:
        """What the body yields where it only chooses: nothing is read but what is taken."""
        block = self.op.regions[0].blocks[0]
        *ops, terminator = operations(block)
        for nested in ops:
            if nested.name != "arith.select":
                self.evaluate(nested)
        operands = dict(zip(block.arguments, zip(self.op.operands, indexing_maps(self.op), strict=True), strict=True))

        def taken(value: ir.Value) -> ir.Value:
            if value in operands:
                return b.splat(self._operand(*operands[value]), self.width)
            select = defining_op(value)
            if select is None or select.name != "arith.select":
                return b.splat(self._materialized(self._value(value)), self.width)

            def side(number: int) -> list[ir.Value]:
                with self.reader.scope():
                    return [taken(select.operands[number])]

            type_ = b.with_width(value.type, self.width)
            return b.choose(self._value(select.operands[0]), [type_], lambda: side(1), lambda: side(2))[0]

        return taken(terminator.operands[0])

    def operands(self, given: Container[ir.Value] = ()) -> dict[ir.Value, ir.Value]:
        """What the block's arguments are that its ops use, but for those that are given."""
        used = {operand for nested in nested_operations(self.op) for operand in nested.operands}
        maps = indexing_maps(self.op) if "indexing_maps" in self.op.attributes else []
        arguments = zip(self.op.regions[0].blocks[0].arguments, self.op.operands, maps, strict=False)
        return {a: self._operand(operand, map_) for a, operand, map_ in arguments if a in used and a not in given}

    def _operand(self, operand: ir.Value, map_: ir.AffineMap) -> ir.Value:
        """The elements that an operand has at the body's points: one where they are all the same."""
        reader, index, width = self.reader, self.index, self.width
        if not isinstance(operand.type, ir.RankedTensorType):
            return reader.scalar(operand)
        positions = dim_positions(map_)
        where = mapped(map_, index)
        if width == 1 or (None not in positions and self.along not in positions):
            return reader.read(operand, where)
        if positions and positions[-1] == self.along and positions.count(self.along) == 1 and not _computed(map_):
            return reader.read(operand, where, width)
        points = [[*index[: self.along], b.add(index[self.along], i), *index[self.along + 1 :]] for i in range(width)]
        return b.vector_of([reader.read(operand, mapped(map_, point)) for point in points])

    def _value(self, value: ir.Value) -> Any:
        return self.values[value] if value in self.values else self.reader.scalar(value)

    def evaluate(self, op: ir.Operation) -> None:
        """Emit one of the body's ops, and take its results among `values`."""
        if len(op.regions):
            self._nest(op)
        elif len(op.results) == 1:
            self.values[op.results[0]] = self._result(op)
        else:
            operands = [self._materialized(self._value(o)) for o in op.operands]
            wide = max((b.width_of(o) for o in operands), default=1)
            types = [b.with_width(r.type, wide) for r in op.results]
            copy = create_op(op.name, [b.splat(o, wide) for o in operands], types, attributes_of(op))
            self.values.update(zip(op.results, copy.results, strict=True))

    def _result(self, op: ir.Operation) -> Any:
        if op.name == "arith.constant":
            return self.reader.scalar(op.results[0])
        if op.name == "linalg.index":
            dim = ir.IntegerAttr(op.attributes["dim"]).value
            neighbours = dim == self.along and self.width > 1
            return Iota(self.index[dim]) if neighbours else b.as_value(self.index[dim])
        if op.name == "tensor.extract":
            where = [self.values[o] if o in self.values else self.reader.index_of(o) for o in op.operands[1:]]
            return self._extract(op.operands[0], where)
        values = [self._value(o) for o in op.operands]
        if op.name in MOVES and not self.reader.target.aligned_rows:
            moved = _moved(op.name, *values)
            if moved is not None:
                return moved
        operands = [self._materialized(v) for v in values]
        wide = max((b.width_of(o) for o in operands), default=1)
        operands = [b.splat(o, wide) for o in operands]
        return self._arithmetic(op, operands, b.with_width(op.results[0].type, wide))

    def _arithmetic(self, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
        """An op on scalars or vectors; on 16-bit floats in f32, rounded afterwards: the same, but on every chip."""
        name = op.name
        computed = name.startswith("math.") or name.partition(".")[2] not in UNROUNDED
        widened = computed or self.wide
        if widened and any(b.is_short(v.type) for v in (*operands, *op.results)):
            operands = [b.unshortened(o) for o in operands]
            if name == "arith.extf":
                return operands[0]
            narrow = type_
            if b.is_short(type_) and name != "arith.truncf":
                type_ = b.with_width(b.f32(), b.width_of(operands[0]))
            value = self._plain(op, operands, type_)
            if value.type == narrow or self.wide:
                return value
            return b.emit("arith.truncf", [value], [narrow])
        return self._plain(op, operands, type_)

    def _plain(self, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
        if op.name in b.INTRINSIC_BINARIES and self.reader.target.intrinsics:
            return b.binary(op.name, *operands)
        if op.name.startswith("math."):
            return expand(op.name, operands, self.reader.target, type_, is_approximate(op))
        return create_op(op.name, operands, [type_], attributes_of(op)).results[0]

    def _nest(self, op: ir.Operation) -> None:
        """An op with regions, such as an scf.if, with its body evaluated inside."""
        operands = [self._materialized(self._value(o)) for o in op.operands]
        if self.width > 1 or any(isinstance(r.type, ir.RankedTensorType) for r in (*op.results, *op.operands)):
            raise Refused(f"a body holds {op.name}")
        if self.wide and any(b.is_short(r.type) for r in (*op.results, *op.operands)):
            raise Refused(f"a sum's body holds {op.name}")
        copy = create_op(op.name, operands, [r.type for r in op.results], attributes_of(op), regions=len(op.regions))
        for mine, other in zip(op.regions, copy.regions, strict=True):
            for block in mine.blocks:
                types = [a.type for a in block.arguments]
                made = other.blocks.append(*types, arg_locs=[op.location] * len(types))
                self.values.update(zip(block.arguments, made.arguments, strict=True))
                with ir.InsertionPoint(made), self.reader.scope():
                    *ops, terminator = operations(block)
                    for nested in ops:
                        self.evaluate(nested)
                    values = [self._materialized(self._value(o)) for o in terminator.operands]
                    create_op(terminator.name, values, [], attributes_of(terminator))
        self.values.update(zip(op.results, copy.results, strict=True))

    def _extract(self, tensor: ir.Value, where: list[Any]) -> ir.Value:
        wide = [isinstance(o, Iota) or (isinstance(o, ir.Value) and b.width_of(o) > 1) for o in where]
        if not any(wide):
            return self.reader.read(tensor, where)
        *outer, last = where
        if isinstance(last, Iota) and not any(wide[:-1]) and self._is_in_step(tensor):
            with self.reader.stepping(self.reader.in_step and not last.moved):
                return self.reader.read(tensor, [*outer, last.base], self.width)
        places = [[_lane(o, lane) for o in where] for lane in range(self.width)]
        return b.vector_of([self.reader.read(tensor, place) for place in places])

    def _is_in_step(self, tensor: ir.Value) -> bool:
        """Whether the body's vectors lie where a tensor's rows may be read by vectors: these may be longer than its."""
        *outer, row = shape_of(tensor)
        return not self.reader.target.aligned_rows or row % self.width == 0 or prod(outer) == 1

    def _materialized(self, value: Any) -> ir.Value:
        if not isinstance(value, Iota):
            return value
        type_ = ir.VectorType.get([self.width], ir.IndexType.get())
        steps = ir.DenseElementsAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), i) for i in range(self.width)], type_)
        offsets = create_op("arith.constant", [], [type_], {"value": steps}).results[0]
        return b.binary("arith.addi", b.splat(b.as_value(value.base), self.width), offsets)


def _computed(map_: ir.AffineMap) -> bool:
    """Whether some index is more than a loop's or a number."""
    return any(not isinstance(e, (ir.AffineDimExpr, ir.AffineConstantExpr)) for e in map_.results)


def _moved(name: str, first: Any, second: Any) -> Iota | None:
    """What moves a vector's indices by one number; None where that is not what an op does."""
    if name == "arith.addi" and isinstance(second, Iota):
        first, second = second, first
    if not isinstance(first, Iota) or isinstance(second, Iota) or b.width_of(second) > 1:
        return None
    return Iota(b.binary(name, b.as_value(first.base), second), moved=True)


def _lane(value: Any, position: int) -> Index:
    """One of the indices that a vector of them holds."""
    if isinstance(value, Iota):
        return b.add(value.base, position)
    return value if isinstance(value, int) else b.lane_of(value, position)


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """As `create_op` takes them."""
    return {name: op.attributes[name] for name in op.attributes}
