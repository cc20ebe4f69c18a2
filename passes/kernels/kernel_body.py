"""Reading a kernel's tensors lane by lane: elementwise producers are computed where they are read.

A `KernelBody` knows where a kernel's tensors live: arguments and results in buffers, roots where a schedule put them.
`read` of anything else follows its definition (elementwise generics, slices, reshapes, fills), which is how bias, GELU,
norms and residuals end up inside the loops of their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    element_type,
    indexing_maps,
    is_elementwise,
    kept_dimensions,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.emit import Emitter, Index, largest_power_of_two
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.views import DYNAMIC, slice_numbers

Reading = Callable[[list[Index], int], ir.Value]


@dataclass(frozen=True)
class _Lanes:
    """The index of a vectorised loop: `base`, `base` + 1, …"""

    base: Index


class KernelBody:
    """The tensors of one kernel function, and how to read them."""

    def __init__(self, function: ir.Operation, emitter: Emitter) -> None:
        self.function = function
        self.emitter = emitter
        self.ops = operations(function.regions[0].blocks[0])
        self.buffers: dict[ir.Value, ir.Value] = {}
        self.destinations: dict[ir.Value, ir.Value] = {}
        for op in self.ops:
            if op.name == "bufferization.to_tensor":
                self.buffers[op.results[0]] = op.operands[0]
            elif op.name == "bufferization.materialize_in_destination":
                self.destinations[op.operands[0]] = op.operands[1]
        self.readings: dict[ir.Value, Reading] = {}
        self._views: dict[ir.Value, ir.Value] = {}
        self._scopes: list[dict] = [{}]

    def compute_ops(self) -> list[ir.Operation]:
        """The ops that do the kernel's work, in order."""
        return [
            op
            for op in self.ops
            if op.name in ("linalg.generic", "linalg.reduce", "linalg.contract", "linalg.softmax", "scf.for")
        ]

    def finish(self, grid: Sequence[int]) -> None:
        """Drop the tensor ops that the schedule has replaced and record the grid."""
        for op in reversed(self.ops):
            if op.name != "func.return":
                op.erase()
        self.function.attributes["grid"] = ir.DenseI64ArrayAttr.get(list(grid))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values read inside are remembered until the end of the `with`: open one in every loop body."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def read(self, tensor: ir.Value, indices: Sequence[Index], lanes: int = 1) -> ir.Value:
        """Elements [indices[:-1], indices[-1] … + lanes) of a tensor; a scalar for one lane."""
        key = (tensor, tuple(indices), lanes)
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        value = self._read(tensor, list(indices), lanes)
        self._scopes[-1][key] = value
        return value

    def _read(self, tensor: ir.Value, indices: list[Index], lanes: int) -> ir.Value:
        if tensor in self.readings:
            return self.readings[tensor](indices, lanes)
        memref = self.buffer_of(tensor)
        if memref is not None:
            return self.emitter.load(memref, indices, lanes)
        op = defining_op(tensor)
        if op is None:
            raise Refused("it reads a tensor that has no buffer")
        if is_elementwise(op):
            return self._compute(op, indices, lanes)
        if op.name == "linalg.fill":
            return self.emitter.broadcast(self.scalar(op.operands[0]), lanes)
        if op.name == "tensor.extract_slice":
            return self.read(op.operands[0], self._slice_indices(op, indices), lanes)
        if op.name in ("tensor.expand_shape", "tensor.collapse_shape"):
            if lanes > 1 and shape_of(op.operands[0])[-1] % lanes:
                places = [[*indices[:-1], self.emitter.add(indices[-1], lane)] for lane in range(lanes)]
                return self._gather(places, tensor)
            return self.read(op.operands[0], self._reshape_indices(op, indices), lanes)
        raise Refused(f"it reads the result of {op.name}")

    def contiguous_lanes(self, tensor: ir.Value, lanes: int) -> int:
        """The most lanes, a power of two, that reads of a tensor can take along rows of what it is made from."""
        lanes = largest_power_of_two(lanes, shape_of(tensor)[-1])
        op = defining_op(tensor)
        if op is None or self.buffer_of(tensor) is not None:
            return lanes
        sources = [v for v in op.operands if shape_of(v) == shape_of(tensor)] if is_elementwise(op) else []
        if op.name in ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape"):
            sources = [op.operands[0]]
        return min([lanes, *(self.contiguous_lanes(v, lanes) for v in sources)])

    def buffer_of(self, tensor: ir.Value) -> ir.Value | None:
        """The memref that holds a tensor, through reshapes of whole buffers; None where it is computed."""
        if tensor in self.buffers:
            return self.buffers[tensor]
        if tensor in self._views:
            return self._views[tensor]
        op = defining_op(tensor)
        if op is None or op.name not in ("tensor.expand_shape", "tensor.collapse_shape"):
            return None
        source = self.buffer_of(op.operands[0])
        if source is None:
            return None
        type_ = ir.MemRefType.get(shape_of(tensor), element_type(tensor))
        anchor = defining_op(source)
        attributes = {"reassociation": op.attributes["reassociation"]}
        if op.name == "tensor.expand_shape":
            attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape_of(tensor)))
        block = self.emitter.entry
        point = ir.InsertionPoint.at_block_begin(block) if anchor is None else ir.InsertionPoint.after(anchor)
        with point:
            view = create_op(op.name.replace("tensor", "memref"), [source], [type_], attributes).results[0]
        self._views[tensor] = view
        return view

    def _slice_indices(self, op: ir.Operation, indices: list[Index]) -> list[Index]:
        """Indices into the source of a slice; dimensions that a rank reduction dropped are at their offset."""
        numbers, sizes, strides = slice_numbers(op)
        if set(strides) - {1}:
            raise Refused("it reads every so many elements of a tensor")
        kept = kept_dimensions(sizes, shape_of(op.results[0]))
        dynamic = iter(list(op.operands)[1:])
        offsets = [self.scalar(next(dynamic)) if o == DYNAMIC else o for o in numbers]
        remaining = iter(indices)
        return [self.emitter.add(o, next(remaining)) if keep else o for o, keep in zip(offsets, kept, strict=True)]

    def _reshape_indices(self, op: ir.Operation, indices: list[Index]) -> list[Index]:
        groups = [
            [ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])
        ]
        e = self.emitter
        if op.name == "tensor.collapse_shape":
            shape = shape_of(op.operands[0])
            if not groups:
                return [0] * len(shape)
            return [c for g, i in zip(groups, indices, strict=True) for c in e.delinearize(i, [shape[d] for d in g])]
        shape = shape_of(op.results[0])
        linear = []
        for group in groups:
            index: Index = 0
            for d in group:
                index = e.add(e.mul(index, shape[d]), indices[d])
            linear.append(index)
        return linear

    def scalar(self, value: ir.Value) -> ir.Value:
        """A scalar that the kernel's own block computes."""
        key = (value, "scalar")
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        op = defining_op(value)
        if op is None:
            return value
        if op.name == "arith.constant":
            return self.emitter.constant(op.attributes["value"], value.type)
        if op.name == "tensor.extract":
            result = self.read(op.operands[0], [self.scalar(i) for i in list(op.operands)[1:]])
        else:
            operands = [self.scalar(v) for v in op.operands]
            result = create_op(op.name, operands, [value.type], dict(op.attributes.items())).results[0]
        self._scopes[-1][key] = result
        return result

    def bind(self, value: ir.Value, scalar: ir.Value) -> None:
        """Within the current scope, a scalar of the kernel's text (a loop's index) is this one."""
        self._scopes[-1][(value, "scalar")] = scalar

    def _compute(self, op: ir.Operation, indices: list[Index], lanes: int) -> ir.Value:
        """One point (or `lanes` neighbours along the last loop) of an elementwise generic."""
        block = op.regions[0].blocks[0]
        last = len(indices) - 1
        local: dict[ir.Value, ir.Value | _Lanes] = {}
        for argument, operand, map_ in zip(block.arguments, op.operands, indexing_maps(op), strict=True):
            if any(True for _ in argument.uses):
                local[argument] = self._read_operand(operand, dim_positions(map_), indices, lanes)
        for inner in operations(block):
            if inner.name == "linalg.yield":
                return self.emitter.broadcast(self._local(inner.operands[0], local, lanes), lanes)
            if inner.name == "linalg.index":
                dim = ir.IntegerAttr(inner.attributes["dim"]).value
                wide = dim == last and lanes > 1
                local[inner.results[0]] = _Lanes(indices[dim]) if wide else self.emitter.value(indices[dim])
            elif inner.name == "tensor.extract":
                local[inner.results[0]] = self._extract(inner, local, lanes)
            else:
                local[inner.results[0]] = self._elementwise(inner, local, lanes)
        raise Refused("a linalg.generic has no linalg.yield")

    def _read_operand(self, operand: ir.Value, dims: list[Any], indices: list[Index], lanes: int) -> ir.Value:
        if not isinstance(operand.type, ir.RankedTensorType):
            return self.scalar(operand)
        at = [indices[d] if d is not None else 0 for d in dims]
        last = len(indices) - 1
        if last not in dims or lanes == 1:
            return self.read(operand, at, 1)
        if dims.index(last) == len(dims) - 1 and dims.count(last) == 1:
            return self.read(operand, at, lanes)
        return self._gather(
            [[self.emitter.add(indices[d], lane) if d == last else indices[d] for d in dims] for lane in range(lanes)],
            operand,
        )

    def _gather(self, places: list[list[Index]], tensor: ir.Value) -> ir.Value:
        elements = [self.read(tensor, place, 1) for place in places]
        type_ = self.emitter.lanes_type(element_type(tensor), len(places))
        return create_op("vector.from_elements", elements, [type_]).results[0]

    def _extract(self, op: ir.Operation, local: dict, lanes: int) -> ir.Value:
        places = [self._local(v, local, lanes, keep_lanes=True) for v in list(op.operands)[1:]]
        tensor = op.operands[0]
        if places and isinstance(places[-1], _Lanes) and all(_is_scalar(p) for p in places[:-1]):
            return self.read(tensor, [*places[:-1], places[-1].base], lanes)
        if all(_is_scalar(p) for p in places):
            return self.read(tensor, places, 1)
        wide = [self.emitter.lane_indices(p.base, lanes) if isinstance(p, _Lanes) else p for p in places]
        position = [ir.DenseI64ArrayAttr.get([lane]) for lane in range(lanes)]
        index = self.emitter.index_type

        def lane_of(value: ir.Value, lane: int) -> ir.Value:
            if _is_scalar(value):
                return value
            return self.emitter.op("vector.extract", [value], [index], static_position=position[lane])

        return self._gather([[lane_of(w, lane) for w in wide] for lane in range(lanes)], tensor)

    def _elementwise(self, op: ir.Operation, local: dict, lanes: int) -> ir.Value:
        operands = [self._local(v, local, lanes) for v in op.operands]
        wide = any(not _is_scalar(v) for v in operands)
        if wide:
            operands = [self.emitter.broadcast(v, lanes) for v in operands]
        if op.name == "arith.constant":
            return self.emitter.constant(op.attributes["value"], op.results[0].type)
        type_ = self.emitter.lanes_type(op.results[0].type, lanes if wide else 1)
        return create_op(op.name, operands, [type_], dict(op.attributes.items())).results[0]

    def _local(self, value: ir.Value, local: dict, lanes: int, keep_lanes: bool = False) -> ir.Value:
        found = local.get(value)
        if found is None:
            return self.scalar(value)
        if isinstance(found, _Lanes) and not keep_lanes:
            return self.emitter.lane_indices(found.base, lanes)
        return found


def _is_scalar(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, ir.Value) and not isinstance(value.type, ir.VectorType))
