"""Reading tensors lazily: the value of some neighbouring elements, computed where it is needed.

A kernel's body is a graph of linalg ops on tensors.  A schedule walks it from the outputs: `Reader.read(tensor, index,
width)` emits the loads and the arithmetic that make those elements, so that a chain of elementwise ops, views and row
reductions becomes one expression in registers.  What is read twice at one index is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lispgpt.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.elementwise import attributes_of, elementwise
from lispgpt.passes.kernels.expand import exp
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.kernels.views import VIEWS, is_in_step, mapped, through_slice
from lispgpt.passes.targets import Gpu


class Reader:
    """Reads the tensors of one kernel.  team: the threads that compute its row reductions together."""

    def __init__(self, target: Gpu, team: Team | None = None) -> None:
        self.target = target
        self.team = team
        self.bound: dict[ir.Value, Callable[[Sequence[Index], int], ir.Value]] = {}
        self.assumed: frozenset[ir.Value] = frozenset()
        self.indices: dict[ir.Value, Index] = {}
        self._scopes: list[dict[Any, ir.Value]] = [{}]

    def bind(self, tensor: ir.Value, value: Callable[[Sequence[Index], int], ir.Value]) -> None:
        """Take a tensor's elements from value(index, width), such as a schedule's own registers."""
        self.bound[tensor] = value

    @contextmanager
    def assuming(self, conditions: frozenset[ir.Value]) -> Iterator[None]:
        """Within it, conditions in elementwise ops' bodies are true: what they select needs no selecting."""
        before, self.assumed = self.assumed, self.assumed | conditions
        yield
        self.assumed = before

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
                    self.preload(operand, mapped(map_, index), 1 if inner is None else width, wanted)
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
        if collapsed or (op.name == "tensor.extract_slice" and not is_in_step(op, width)):
            return b.vector_of([self.read(tensor, [*index[:-1], b.add(index[-1], i)]) for i in range(width)])
        if op.name in VIEWS:
            return self.read(op.operands[0], VIEWS[op.name](op, index, self), width)
        if is_elementwise(op):
            return elementwise(self, op, index, width)
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
        return create_op(op.name, operands, [value.type], attributes_of(op)).results[0]

    def index_of(self, value: ir.Value) -> Index:
        """An index value of the kernel's body; a plain integer where it is constant."""
        if value in self.indices:
            return self.indices[value]
        op = defining_op(value)
        if op is not None and op.name == "arith.constant":
            return ir.IntegerAttr(op.attributes["value"]).value
        return self.scalar(value)

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
                where = mapped(map_, index)
                if any(i is None for i in where):
                    self._prepare(operand, where)
                elif isinstance(operand.type, ir.RankedTensorType):
                    self.read(operand, where)
        elif op.name == "tensor.extract_slice" and index[-1] is None:
            self._prepare(op.operands[0], [*through_slice(op, [*index[:-1], 0], self)[:-1], None])
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


def outputs_of(kernel: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
    """(tensor, buffer) for each result that a kernel's body writes, in order."""
    block = kernel.regions[0].blocks[0]
    writes = [op for op in operations(block) if op.name == "bufferization.materialize_in_destination"]
    return [(op.operands[0], op.operands[1]) for op in writes]
