"""Reading tensors lazily: the value of some neighbouring elements, computed where it is needed.

A kernel's body is a graph of linalg ops on tensors.  A schedule walks it from the outputs: `Reader.read(tensor, index,
width)` emits the loads and the arithmetic that make those elements, so that a chain of elementwise ops, views and row
reductions becomes one expression in registers.  What is read twice at one index is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.combiners import combiner_of, neutral, starts_neutral
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    element_type,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.elementwise import Body, attributes_of, elementwise
from lispgpt.passes.kernels.expand import exp
from lispgpt.passes.kernels.packed_rows import packed_numbers
from lispgpt.passes.kernels.rearranged import branch, insert_slice, iterated, rearranged, vectors_of_part
from lispgpt.passes.kernels.reductions import reduced, vector_loop
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import UNROLLED_CHUNKS, Alone, Neighbours, Row, Team
from lispgpt.passes.kernels.views import VIEWS, buffers_behind, is_in_step, keeps_step, mapped, through_slice
from lispgpt.passes.targets import Target


class Reader:
    """Reads the tensors of one kernel.  team: the threads that compute its row reductions together."""

    def __init__(self, target: Target, team: Team | Alone | Neighbours | None = None) -> None:
        self.target = target
        self.team, self.in_step = team, False
        self.bound: dict[ir.Value, Callable[[Sequence[Index], int], ir.Value]] = {}
        self.assumed: frozenset[ir.Value] = frozenset()
        self.indices: dict[ir.Value, Index] = {}
        self._taken: Callable[[ir.Value, Sequence[Index], int], ir.Value] | None = None
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

    @contextmanager
    def stepping(self, in_step: bool = True) -> Iterator[None]:
        """Within it, every vector that is asked for starts at a multiple of its width in its row (or need not)."""
        before, self.in_step = self.in_step, in_step
        yield
        self.in_step = before

    def from_memory(self, buffer: ir.Value, index: Sequence[Index], width: int) -> ir.Value:
        """Elements of a buffer."""
        if self._taken is not None:
            return self._taken(buffer, index, width)
        return b.load(buffer, index, width, self.target.aligned_rows)

    @contextmanager
    def taking(self, loads: Callable[[ir.Value, Sequence[Index], int], ir.Value]) -> Iterator[None]:
        """Within it, elements of buffers come from loads(buffer, index, width), and nothing read before is known."""
        scopes, taken = self._scopes, self._taken
        self._scopes, self._taken = [{}], loads
        yield
        self._scopes, self._taken = scopes, taken

    def hold(self, tensor: ir.Value, value: ir.Value) -> None:
        """Take a tensor's elements from here on to be this value, wherever they are asked for."""
        self.bound[tensor] = lambda index, width: value

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Within it, values that were read may be used only inside (a loop's or a condition's body)."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value:
        """Elements tensor[index], …, tensor[index + (0, …, width - 1)] in the tensor's own element type."""
        if tensor in self.bound:
            return self.bound[tensor](index, width)
        return self.once((tensor, tuple(index), width), lambda: self._compute(tensor, list(index), width))

    def once(self, key: Any, make: Callable[[], ir.Value]) -> ir.Value:
        """The value that was made for a key in the scopes that are open, or else a new one."""
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        self._scopes[-1][key] = value = make()
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
        elif op.name in VIEWS and all(map(wanted, buffers_behind(op.operands[1:]))):
            self.preload(op.operands[0], VIEWS[op.name](op, list(index), self), width, wanted)

    def _compute(self, tensor: ir.Value, index: list[Index], width: int) -> ir.Value:
        op = defining_op(tensor)
        if op is None:
            raise Refused("it reads a tensor that has no buffer")
        if op.name == "bufferization.to_tensor":
            return self.from_memory(op.operands[0], index, width)
        if op.name == "linalg.fill":
            return b.splat(self.scalar(op.operands[0]), width)
        apart = op.name == "tensor.collapse_shape" and self._crosses_rows(op, width)
        short = self._neighbours_of_collapsed(op, width) if apart and self.in_step else 1
        if 1 < short < width:
            starts = [b.add(index[-1], start) for start in range(0, width, short)]
            return b.joined([self.read(tensor, [*index[:-1], start], short) for start in starts])
        if apart or (op.name == "tensor.extract_slice" and not is_in_step(op, width, self.target.aligned_rows)):
            return b.vector_of([self.read(tensor, [*index[:-1], b.add(index[-1], i)]) for i in range(width)])
        if op.name in VIEWS:
            with self.stepping(self.in_step and keeps_step(op, width)):
                return self.read(op.operands[0], VIEWS[op.name](op, index, self), width)
        packed = packed_numbers(op, self, index, width) if "packed" in op.attributes and width > 1 else None
        if packed is not None:
            return packed
        if is_elementwise(op):
            return elementwise(self, op, index, width)
        if op.name == "tensor.insert_slice" and self.in_step and width > 1 and vectors_of_part(op) % width == 0:
            return insert_slice(self, op, index, width)
        if op.name == "tensor.empty" and width > 1:
            return b.splat(b.constant(0, element_type(tensor)), width)
        if op.name == "linalg.reduce" and self._is_over_rows(op):
            points = [[*index[:-1], b.add(index[-1], i)] for i in range(width)] if width > 1 else [index]
            return b.vector_of([self._row_reduction(op, point) for point in points])
        if op.name == "linalg.softmax" and (width == 1 or softmax_dimension(op) == len(index) - 1):
            return self._softmax(op, index, width)
        if width == 1:
            return self._element(tensor, op, index)
        number = list(op.results).index(tensor)
        along = vector_loop(op, number) if op.name == "linalg.generic" else None
        if along is not None:
            return reduced(self, op, number, index, width, along)[number]
        return b.vector_of([self._element(tensor, op, [*index[:-1], b.add(index[-1], i)]) for i in range(width)])

    def _crosses_rows(self, op: ir.Operation, width: int) -> bool:
        """Whether a vector of a collapsed tensor may go on in another row of its source, which lies apart."""
        source = op.operands[0]
        if self.in_step or width == 1:
            return bool(shape_of(source)[-1] % width)
        whole = shape_of(source)[-1:] == shape_of(op.results[0])[-1:]
        apart = defining_op(source) is None or defining_op(source).name != "bufferization.to_tensor"
        return bool(shape_of(source)[-1] % width) or (not self.target.aligned_rows and apart and not whole)

    def _neighbours_of_collapsed(self, op: ir.Operation, width: int) -> int:
        """How many neighbours, a divisor of a width, lie in one row of a collapsed tensor's source from every multiple
        of it on; 1 where none are read together."""
        row = shape_of(op.operands[0])[-1]
        found = math.gcd(row, width)
        return 1 if self.target.aligned_rows and found < row else found

    def _element(self, tensor: ir.Value, op: ir.Operation, index: list[Index]) -> ir.Value:
        """One element of what is read one by one."""
        if op.name == "linalg.softmax":
            return self._softmax(op, index, 1)
        number = list(op.results).index(tensor)
        if op.name in ("scf.if", "scf.for"):
            return (branch if op.name == "scf.if" else iterated)(self, op, number, index)
        if op.name != "linalg.generic":
            return rearranged(self, op, index)
        return reduced(self, op, number, index)[number]

    def scalar(self, value: ir.Value) -> ir.Value:
        """A scalar of the kernel's body, rebuilt at the current place."""
        if value in self.indices:
            return b.as_value(self.indices[value])
        op = defining_op(value)
        if op is None:
            raise Refused("a number is an argument of a block")
        if len(op.regions):
            body = Body(self, op, [], 1)
            body.evaluate(op)
            return body.values[value]
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

    @staticmethod
    def _is_over_rows(op: ir.Operation) -> bool:
        """Whether a linalg.reduce combines along one dimension, in any order."""
        return len(integers(op.attributes["dimensions"])) == 1 and combiner_of(op) is not None

    def _row_reduction(self, op: ir.Operation, index: list[Index]) -> ir.Value:
        """One element of a linalg.reduce."""
        combiner, from_nothing = combiner_of(op) or "", starts_neutral(op)
        start = b.unshortened(self.read(op.operands[1], index))
        idle = start if from_nothing else b.constant(neutral(combiner, start.type), start.type)
        (dimension,) = integers(op.attributes["dimensions"])
        total = self._combined(op.operands[0], dimension, index, combiner, idle)
        total = total if from_nothing else b.binary(combiner, total, start)
        return b.shortened(total, element_type(op.results[0]))

    def _combined(
        self,
        source: ir.Value,
        dimension: int,
        row: list[Index],
        combiner: str,
        start: ir.Value,
        then: Callable[[ir.Value], ir.Value] = lambda value: value,
    ) -> ir.Value:
        """A tensor's elements along a dimension, each through `then`, combined: by the team over a last dimension that
        it shares, else by each thread."""
        extent = shape_of(source)[dimension]

        def at(i: Index, width: int = 1) -> ir.Value:
            return then(b.unshortened(self.read(source, [*row[:dimension], i, *row[dimension:]], width)))

        if self.team is not None and dimension == len(row) and self.team.shares(row):
            return self.team.over_row(self, combiner, start, extent, Row(at, lambda: self.prepare(source, row)))
        if extent <= UNROLLED_CHUNKS:
            total = at(0)
            for i in range(1, extent):
                total = b.binary(combiner, total, at(i))
            return total

        def step(i: ir.Value, total: ir.Value) -> list[ir.Value]:
            with self.scope():
                return [b.binary(combiner, total, at(i))]

        return b.loop(0, extent, 1, [start], step)[0]

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
        dimension = softmax_dimension(op)
        statistics = self._statistics(op, [*index[:dimension], *index[dimension + 1 :]])
        power = self._shifted_exp(b.lane_of(statistics, 0))(b.unshortened(self.read(op.operands[0], index, width)))
        value = b.binary("arith.mulf", power, b.splat(b.lane_of(statistics, 1), width))
        return b.shortened(value, element_type(op.results[0]))

    def _statistics(self, op: ir.Operation, row: list[Index]) -> ir.Value:
        """A softmax's largest element, and one over the sum of its exponentials."""
        source, dimension = op.operands[0], softmax_dimension(op)
        wide = element_type(source) if element_type(source) == ir.F64Type.get() else b.f32()

        def make() -> ir.Value:
            lowest, zero = b.constant(float("-inf"), wide), b.constant(0.0, wide)
            top = self._combined(source, dimension, row, self.target.maximum, lowest)
            total = self._combined(source, dimension, row, "arith.addf", zero, self._shifted_exp(top))
            return b.vector_of([top, b.binary("arith.divf", b.constant(1.0, wide), total)])

        return self.once((op.results[0], tuple(row), "statistics"), make)

    def _shifted_exp(self, top: ir.Value) -> Callable[[ir.Value], ir.Value]:
        return lambda v: exp(b.binary("arith.subf", v, b.splat(top, b.width_of(v))), self.target)


def softmax_dimension(op: ir.Operation) -> int:
    """The dimension that a linalg.softmax normalises."""
    return ir.IntegerAttr(op.attributes["dimension"]).value


def outputs_of(kernel: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
    """(tensor, buffer) for each result that a kernel's body writes, in order."""
    block = kernel.regions[0].blocks[0]
    writes = [op for op in operations(block) if op.name == "bufferization.materialize_in_destination"]
    return [(op.operands[0], op.operands[1]) for op in writes]
