"""Reading tensors lazily: the value of some neighbouring elements, computed where it is needed.

A kernel's body is a graph of linalg ops on tensors.  A schedule walks it from the outputs: `Reader.read(tensor, index,
width)` emits the loads and the arithmetic that make those elements, so that a chain of elementwise ops, views and row
reductions becomes one expression in registers.  What is read twice at one index is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lispgpt.errors import InternalError
from lispgpt.mlir import create_op, ir
from lispgpt.passes.gpu import build as b
from lispgpt.passes.gpu.build import Index
from lispgpt.passes.gpu.expand import exp, expand
from lispgpt.passes.gpu.team import Team
from lispgpt.passes.kernel_body import kept_dimensions
from lispgpt.passes.structure import (
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
)
from lispgpt.passes.targets import Gpu

DYNAMIC = -(2**63)


@dataclass(frozen=True)
class Iota:
    """The indices base, base + 1, … of a vector's elements."""

    base: Index


class Reader:
    """Reads the tensors of one kernel.  team: the threads that compute its row reductions together."""

    def __init__(self, target: Gpu, team: Team | None = None) -> None:
        self.target = target
        self.team = team
        self.bound: dict[ir.Value, Callable[[Sequence[Index], int], ir.Value]] = {}
        self.indices: dict[ir.Value, Index] = {}
        self._scopes: list[dict[Any, ir.Value]] = [{}]

    def bind(self, tensor: ir.Value, value: Callable[[Sequence[Index], int], ir.Value]) -> None:
        """Take a tensor's elements from value(index, width), such as a schedule's own registers."""
        self.bound[tensor] = value

    def scope(self) -> _Scope:
        """Within it, values that were read may be used only inside (a loop's or a condition's body)."""
        return _Scope(self._scopes)

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value:
        """Elements tensor[index], …, tensor[index + (0, …, width - 1)] in the tensor's own element type."""
        if tensor in self.bound:
            return self.bound[tensor](index, width)
        key = (tensor, tuple(index), width)
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        value = self._compute(tensor, list(index), width)
        self._scopes[-1][key] = value
        return value

    def preload(self, tensor: ir.Value, index: Sequence[Index], width: int, wanted: Callable[[ir.Value], bool]) -> None:
        """Read ahead the buffers for which wanted(buffer) among those that the elements depend on."""
        op = defining_op(tensor)
        if tensor in self.bound or op is None:
            return
        if op.name == "bufferization.to_tensor":
            if wanted(op.operands[0]):
                self.read(tensor, index, width)
        elif is_elementwise(op):
            for operand, map_ in zip(op.operands[:-1], indexing_maps(op), strict=False):
                positions = dim_positions(map_)
                inner = positions.index(len(index) - 1) if len(index) - 1 in positions else None
                if inner is None or inner == len(positions) - 1:
                    self.preload(operand, _mapped(map_, index), 1 if inner is None else width, wanted)
        elif op.name in VIEWS:
            self.preload(op.operands[0], VIEWS[op.name](op, list(index), self), width, wanted)

    def depends_only_on(self, tensor: ir.Value, buffers: set[ir.Value]) -> bool:
        """Whether all the memory that a tensor is computed from is among the buffers."""
        op = defining_op(tensor)
        if op is None:
            return False
        if op.name == "bufferization.to_tensor":
            return op.operands[0] in buffers
        tensors = [o for o in op.operands if isinstance(o.type, ir.RankedTensorType)]
        return op.name in ("tensor.empty", "linalg.fill") or (
            bool(tensors) and all(self.depends_only_on(t, buffers) for t in tensors)
        )

    def _compute(self, tensor: ir.Value, index: list[Index], width: int) -> ir.Value:
        op = defining_op(tensor)
        if op is None:
            raise InternalError("a kernel reads a tensor that is no buffer")
        if op.name == "bufferization.to_tensor":
            return b.load(op.operands[0], index, width)
        if op.name == "linalg.fill":
            return b.splat(self.scalar(op.operands[0]), width)
        collapsed = op.name == "tensor.collapse_shape" and shape_of(op.operands[0])[-1] % width
        if collapsed or (op.name == "tensor.extract_slice" and not _is_in_step(op, width)):
            return b.vector_of([self.read(tensor, [*index[:-1], b.add(index[-1], i)]) for i in range(width)])
        if op.name in VIEWS:
            return self.read(op.operands[0], VIEWS[op.name](op, index, self), width)
        if is_elementwise(op):
            return self._elementwise(op, index, width)
        if op.name == "linalg.reduce":
            return b.splat(self._row_reduction(op, index), width)
        if op.name == "linalg.softmax":
            return self._softmax(op, index, width)
        raise InternalError(f"a GPU schedule met {op.name}, which it cannot compute on the way")

    def scalar(self, value: ir.Value) -> ir.Value:
        """A scalar of the kernel's body, rebuilt at the current place."""
        if value in self.indices:
            return b.as_value(self.indices[value])
        op = defining_op(value)
        if op is None:
            raise InternalError("a kernel's scalar is an argument")
        if op.name == "arith.constant":
            return create_op("arith.constant", [], [value.type], {"value": op.attributes["value"]}).results[0]
        if op.name == "tensor.extract":
            return self.read(op.operands[0], [self.index_of(v) for v in op.operands[1:]])
        operands = [self.scalar(v) for v in op.operands]
        return create_op(op.name, operands, [value.type], _attributes(op)).results[0]

    def index_of(self, value: ir.Value) -> Index:
        """An index value of the kernel's body; a plain integer where it is constant."""
        if value in self.indices:
            return self.indices[value]
        op = defining_op(value)
        if op is not None and op.name == "arith.constant":
            return ir.IntegerAttr(op.attributes["value"]).value
        return self.scalar(value)

    def _elementwise(self, op: ir.Operation, index: list[Index], width: int) -> ir.Value:
        block = op.regions[0].blocks[0]
        maps = indexing_maps(op)
        values: dict[ir.Value, Any] = {}
        used = {operand for nested in operations(block) for operand in nested.operands}
        for argument, operand, map_ in zip(block.arguments, op.operands, maps, strict=True):
            if argument in used:
                values[argument] = self._operand(operand, map_, index, width)
        for nested in operations(block)[:-1]:
            values[nested.results[0]] = self._body_op(nested, values, index, width)
        result = values.get(operations(block)[-1].operands[0])
        if result is None:
            result = self.scalar(operations(block)[-1].operands[0])
        return b.splat(_materialized(result, width), width)

    def _operand(self, operand: ir.Value, map_: ir.AffineMap, index: list[Index], width: int) -> ir.Value:
        if not isinstance(operand.type, ir.RankedTensorType):
            return self.scalar(operand)
        positions = dim_positions(map_)
        inner = len(index) - 1
        where = _mapped(map_, index)
        if width == 1 or inner not in positions:
            return self.read(operand, where)
        if positions.index(inner) == len(positions) - 1 and positions.count(inner) == 1:
            return self.read(operand, where, width)
        at = positions.index(inner)
        shifted = [[*where[:at], b.add(where[at], i), *where[at + 1 :]] for i in range(width)]
        return b.vector_of([self.read(operand, s) for s in shifted])

    def _body_op(self, op: ir.Operation, values: dict[ir.Value, Any], index: list[Index], width: int) -> Any:
        if op.name == "arith.constant":
            return self.scalar(op.results[0])
        if op.name == "linalg.index":
            dim = ir.IntegerAttr(op.attributes["dim"]).value
            return Iota(index[dim]) if dim == len(index) - 1 and width > 1 else b.as_value(index[dim])
        operands = [values[o] if o in values else self.scalar(o) for o in op.operands if op.name != "tensor.extract"]
        if op.name == "tensor.extract":
            where = [values[o] if o in values else self.index_of(o) for o in op.operands[1:]]
            return self._extract(op.operands[0], where, width)
        operands = [_materialized(o, width) for o in operands]
        wide = max((b.width_of(o) for o in operands), default=1)
        operands = [b.splat(o, wide) for o in operands]
        if op.name in b.INTRINSIC_BINARIES:
            return b.binary(op.name, *operands)
        if op.name.startswith("math."):
            return expand(op.name, operands, self.target)
        result = b.with_width(op.results[0].type, wide)
        return create_op(op.name, operands, [result], _attributes(op)).results[0]

    def _extract(self, tensor: ir.Value, where: list[Any], width: int) -> ir.Value:
        *outer, last = where
        if isinstance(last, Iota) and not any(
            isinstance(o, Iota) or b.width_of(o) > 1 for o in outer if not isinstance(o, int)
        ):
            return self.read(tensor, [*outer, last.base], width)
        if any(isinstance(o, Iota) for o in where):
            raise InternalError("a kernel gathers along a dimension that is not the last")
        return self.read(tensor, where)

    def _row_reduction(self, op: ir.Operation, index: list[Index]) -> ir.Value:
        """One element of a linalg.reduce: by the team over the last dimension, by each thread over another."""
        source = op.operands[0]
        combiner = operations(op.regions[0].blocks[0])[0].name
        (dimension,) = integers(op.attributes["dimensions"])
        extent = shape_of(source)[dimension]
        if dimension != len(shape_of(source)) - 1:
            places = [[*index[:dimension], i, *index[dimension:]] for i in range(extent)]
            total = self.read(source, places[0])
            for place in places[1:]:
                total = b.binary(combiner, total, self.read(source, place))
            return total
        neutral = self.read(op.operands[1], index)
        return self._over_row(source, index, combiner, neutral)

    def _over_row(
        self, source: ir.Value, row: list[Index], combiner: str, neutral: ir.Value, then: Callable | None = None
    ) -> ir.Value:
        if self.team is None:
            raise InternalError("a row reduction stands where no threads share a row")
        extent = shape_of(source)[-1]
        width = b.largest_width(extent, 4, self.target.vector_bytes)

        def at(start: Index) -> ir.Value:
            value = self.read(source, [*row, start], width)
            return then(value) if then else value

        if self.team.chunk_count(extent, width) <= 8:
            return self.team.reduce_row(combiner, neutral, extent, width, at)
        self.prepare(source, row)
        with self.scope():
            return self.team.reduce_row(combiner, neutral, extent, width, at)

    def prepare(self, tensor: ir.Value, row: Sequence[Index]) -> None:
        """Compute ahead of a loop over a row what depends on the row alone, such as its mean."""
        self._prepare(tensor, [*row, None])

    def _prepare(self, tensor: ir.Value, index: list[Index | None]) -> None:
        op = defining_op(tensor)
        if op is None or tensor in self.bound:
            return
        if is_elementwise(op):
            for operand, map_ in zip(op.operands[:-1], indexing_maps(op), strict=False):
                where = _mapped(map_, index)
                if any(i is None for i in where):
                    self._prepare(operand, where)
                elif isinstance(operand.type, ir.RankedTensorType):
                    self.read(operand, where)
        elif op.name == "tensor.extract_slice" and index[-1] is None:
            self._prepare(op.operands[0], [*_through_slice(op, [*index[:-1], 0], self)[:-1], None])
        elif op.name == "linalg.softmax":
            self._statistics(op, index[:-1])

    def _softmax(self, op: ir.Operation, index: list[Index], width: int) -> ir.Value:
        source, row = op.operands[0], index[:-1]
        if ir.IntegerAttr(op.attributes["dimension"]).value != len(index) - 1:
            raise InternalError("softmax over a dimension that is not the last")
        statistics = self._statistics(op, row)
        power = self._shifted_exp(b.lane_of(statistics, 0))(self.read(source, index, width))
        return b.binary("arith.mulf", power, b.splat(b.lane_of(statistics, 1), width))

    def _statistics(self, op: ir.Operation, row: list[Index]) -> ir.Value:
        """A softmax's largest element, and one over the sum of its exponentials."""
        key = (op.results[0], tuple(row), "statistics")
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        source = op.operands[0]
        top = self._over_row(source, row, "arith.maxnumf", b.constant(float("-inf"), b.f32()))
        total = self._over_row(source, row, "arith.addf", b.constant(0.0, b.f32()), self._shifted_exp(top))
        value = b.vector_of([top, b.binary("arith.divf", b.constant(1.0, b.f32()), total)])
        self._scopes[-1][key] = value
        return value

    def _shifted_exp(self, top: ir.Value) -> Callable[[ir.Value], ir.Value]:
        return lambda v: exp(b.binary("arith.subf", v, b.splat(top, b.width_of(v))), self.target)


class _Scope:
    def __init__(self, scopes: list[dict[Any, ir.Value]]) -> None:
        self.scopes = scopes

    def __enter__(self) -> None:
        self.scopes.append({})

    def __exit__(self, *exception: object) -> None:
        self.scopes.pop()


def _materialized(value: Any, width: int) -> ir.Value:
    if not isinstance(value, Iota):
        return value
    type_ = ir.VectorType.get([width], ir.IndexType.get())
    steps = ir.DenseElementsAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), i) for i in range(width)], type_)
    offsets = create_op("arith.constant", [], [type_], {"value": steps}).results[0]
    return b.binary("arith.addi", b.splat(b.as_value(value.base), width), offsets)


def _mapped(map_: ir.AffineMap, index: Sequence[Index]) -> list[Index]:
    where: list[Index] = []
    for expression in map_.results:
        if isinstance(expression, ir.AffineDimExpr):
            where.append(index[expression.position])
        elif isinstance(expression, ir.AffineConstantExpr):
            where.append(expression.value)
        else:
            raise InternalError(f"a kernel reads through the map {map_}")
    return where


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def _through_slice(op: ir.Operation, index: list[Index], reader: Reader) -> list[Index]:
    return sliced_index(op, list(op.operands[1:]), shape_of(op.results[0]), index, reader)


def sliced_index(
    op: ir.Operation, dynamic_offsets: Sequence[ir.Value], shape: Sequence[int], index: Sequence[Index], reader: Reader
) -> list[Index]:
    """From an index into a slice (or what is inserted at one) of that shape to the index into the whole."""
    offsets, sizes = (integers(op.attributes[name]) for name in ("static_offsets", "static_sizes"))
    dynamic = iter(dynamic_offsets)
    kept = kept_dimensions(sizes, shape)
    inner = iter(index)
    where = []
    for offset, keep in zip(offsets, kept, strict=True):
        start = reader.index_of(next(dynamic)) if offset == DYNAMIC else offset
        where.append(b.add(start, next(inner)) if keep else start)
    return where


def _is_in_step(op: ir.Operation, width: int) -> bool:
    """Whether every `width` neighbours in a slice's rows are aligned neighbours in the source's."""
    offsets, sizes = (integers(op.attributes[name]) for name in ("static_offsets", "static_sizes"))
    steps = (offsets[-1], shape_of(op.operands[0])[-1])
    kept = kept_dimensions(sizes, shape_of(op.results[0]))[-1]
    return width == 1 or (kept and offsets[-1] != DYNAMIC and all(step % width == 0 for step in steps))


def _through_expand(op: ir.Operation, index: list[Index], reader: Reader) -> list[Index]:
    """From an expanded tensor's index to its source's."""
    shape = shape_of(op.results[0])
    return [_linear([index[i] for i in group], [shape[i] for i in group]) for group in _groups(op)]


def _through_collapse(op: ir.Operation, index: list[Index], reader: Reader) -> list[Index]:
    """From a collapsed tensor's index to its source's."""
    shape = shape_of(op.operands[0])
    where: list[Index] = []
    for group, linear in zip(_groups(op), index, strict=True):
        where += _split(linear, [shape[i] for i in group])
    return where


def _groups(op: ir.Operation) -> list[list[int]]:
    return [integers(group) for group in op.attributes["reassociation"]]


def _linear(index: list[Index], shape: list[int]) -> Index:
    total: Index = 0
    for i, extent in zip(index, shape, strict=True):
        total = b.add(b.mul(total, extent), i if extent > 1 else 0)
    return total


def _split(linear: Index, shape: list[int]) -> list[Index]:
    where: list[Index] = []
    for position, extent in enumerate(reversed(shape)):
        outermost = position == len(shape) - 1 or all(e == 1 for e in shape[: len(shape) - 1 - position])
        where.insert(0, 0 if extent == 1 else linear if outermost else b.mod(linear, extent))
        linear = b.div(linear, extent)
    return where


VIEWS: dict[str, Callable[[ir.Operation, list[Index], Reader], list[Index]]] = {
    "tensor.extract_slice": _through_slice,
    "tensor.expand_shape": _through_expand,
    "tensor.collapse_shape": _through_collapse,
    "tensor.cast": lambda op, index, reader: index,
}


def outputs_of(kernel: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
    """(tensor, buffer) for each result that a kernel's body writes, in order."""
    block = kernel.regions[0].blocks[0]
    writes = [op for op in operations(block) if op.name == "bufferization.materialize_in_destination"]
    return [(op.operands[0], op.operands[1]) for op in writes]
