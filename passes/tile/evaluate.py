"""What a kernel's tensors are, computed by numpy: the meaning of `linalg` and `tensor` ops, without any chip.

With `exact`, floats are float64 throughout, which is the reference that everything else is compared with; without, each
op's results are rounded to its own types, as a chip's are.  BF16 numbers are float32 arrays of such values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lispgpt.base.errors import InternalError
from lispgpt.ir.combiners import combiner_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    element_type,
    indexing_maps,
    integers,
    kept_dimensions,
    loop_extents,
    operations,
    shape_of,
)

Array = np.ndarray


def to_bf16(values: Array) -> Array:
    """The nearest BF16 numbers, ties to even, as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))


_BINARY: dict[str, Callable[..., Any]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide,
    "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin,
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor, "maxsi": np.maximum, "minsi": np.minimum,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "negf": np.negative, "exp": np.exp, "exp2": np.exp2, "log": np.log, "tanh": np.tanh, "sqrt": np.sqrt,
    "absf": np.abs, "sin": np.sin, "cos": np.cos, "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: np.vectorize(math.erf, otypes=[float])(x),
}  # fmt: skip
_COMPARED = (np.equal, np.not_equal, *(np.less, np.less_equal, np.greater, np.greater_equal) * 2)
_ORDERED = (None, np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal) * 2
"""By the numbers of arith.cmpi's predicates and of arith.cmpf's."""


class Evaluator:
    """Gives each value of a kernel's body its array.  memory: the arrays of its arguments."""

    def __init__(self, memory: dict[ir.Value, Array], exact: bool) -> None:
        self.memory, self.exact = memory, exact
        self.values: dict[ir.Value, Any] = {}

    def hold(self, tensor: ir.Value, value: Array) -> None:
        """Take a tensor to be this, and all that is made of it to be made anew."""
        self.values = {known: array for known, array in self.values.items() if not _depends(known, tensor)}
        self.values[tensor] = value

    def of(self, value: ir.Value) -> Any:
        """A tensor's or scalar's array."""
        if value not in self.values:
            op = defining_op(value)
            found = self._results(op)
            self.values.update(zip(op.results, found, strict=True))
        return self.values[value]

    def _results(self, op: ir.Operation) -> Sequence[Any]:
        dialect, _, name = op.name.partition(".")
        handler = getattr(self, f"_{dialect}_{name}", None)
        if handler is not None:
            found = handler(op)
            found = found if isinstance(found, list) else [found]
        elif dialect in ("arith", "math"):
            found = [self.scalar(op, [self.of(v) for v in op.operands], ())]
        else:
            raise InternalError(f"numpy has no meaning of {op.name} yet")
        return [self._rounded(array, r.type) for array, r in zip(found, op.results, strict=True)]

    def _rounded(self, array: Any, type_: ir.Type) -> Any:
        element = type_.element_type if isinstance(type_, ir.RankedTensorType) else type_
        if isinstance(element, (ir.IntegerType, ir.IndexType)):
            return np.asarray(array, bool if getattr(element, "width", 64) == 1 else np.int64)
        if self.exact or isinstance(element, ir.F64Type):
            return np.asarray(array, np.float64)
        values = np.asarray(array, np.float32)
        return to_bf16(values) if isinstance(element, ir.BF16Type) else values

    # ---- tensors

    def _bufferization_to_tensor(self, op: ir.Operation) -> Array:
        return self.memory[op.operands[0]]

    def _tensor_empty(self, op: ir.Operation) -> Array:
        return np.zeros(shape_of(op.results[0]))

    def _linalg_fill(self, op: ir.Operation) -> Array:
        return np.full(shape_of(op.results[0]), self.of(op.operands[0]))

    def _reshaped(self, op: ir.Operation) -> Array:
        return self.of(op.operands[0]).reshape(shape_of(op.results[0]))

    _tensor_expand_shape = _tensor_collapse_shape = _reshaped

    def _tensor_extract_slice(self, op: ir.Operation) -> Array:
        offsets, sizes, strides = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
        given = iter(int(self.of(v)) for v in list(op.operands)[1:])
        offsets = [next(given) if offset == ir.ShapedType.get_dynamic_size() else offset for offset in offsets]
        at = tuple(slice(o, o + n * s, s) for o, n, s in zip(offsets, sizes, strides, strict=True))
        kept = kept_dimensions(sizes, shape_of(op.results[0]))
        dropped = tuple(i for i, keep in enumerate(kept) if not keep)
        return self.of(op.operands[0])[at].squeeze(dropped)

    # ---- linalg

    def _linalg_contract(self, op: ir.Operation) -> Array:
        """In float64, so that what it is compared with is all that rounds."""
        letters = [[chr(ord("a") + e.position) for e in map_.results] for map_ in indexing_maps(op)]
        left, right, result = map("".join, letters)
        a, b, start = (np.asarray(self.of(v), np.float64) for v in op.operands)
        return start + np.einsum(f"{left},{right}->{result}", a, b)

    def _linalg_reduce(self, op: ir.Operation) -> Array:
        combine = _BINARY[(combiner_of(op) or "").partition(".")[2]]
        axes = tuple(integers(op.attributes["dimensions"]))
        return combine(self.of(op.operands[1]), combine.reduce(self.of(op.operands[0]), axis=axes))  # type: ignore[attr-defined]

    def _linalg_softmax(self, op: ir.Operation) -> Array:
        given, axis = self.of(op.operands[0]), ir.IntegerAttr(op.attributes["dimension"]).value
        with np.errstate(invalid="ignore"):
            powers = np.exp(given - given.max(axis, keepdims=True))
            found: Array = powers / powers.sum(axis, keepdims=True)
        return found

    def _linalg_generic(self, op: ir.Operation) -> list[Array]:
        """A body with one number for each point of its loops; where loops are summed over, by its last op."""
        extents = [extent for _, extent in sorted(loop_extents(op).items())]
        parallel = ["parallel" in str(kind) for kind in op.attributes["iterator_types"]]
        block, inputs = op.regions[0].blocks[0], len(op.operands) - len(op.results)
        values: dict[ir.Value, Any] = {}
        for argument, operand, map_ in zip(block.arguments, op.operands, indexing_maps(op), strict=True):
            if argument.arg_number < inputs or all(parallel):
                values[argument] = self._spread(self.of(operand), map_, extents)
        *ops, last = operations(block)
        summed = tuple(i for i, kind in enumerate(parallel) if not kind)
        for inner in ops:
            if not all(v in values or defining_op(v) is None or defining_op(v) not in ops for v in inner.operands):
                continue
            if any(v in list(block.arguments)[inputs:] for v in inner.operands) and summed:
                continue
            found = self.scalar(inner, [values[v] if v in values else self.of(v) for v in inner.operands], extents)
            values[inner.results[0]] = self._rounded(found, inner.results[0].type)
        if not summed:
            return [np.broadcast_to(self._in(values, v), extents) for v in last.operands]
        return [self._total(op, n, v, values, summed) for n, v in enumerate(last.operands)]

    def _in(self, values: dict[ir.Value, Any], value: ir.Value) -> Any:
        return values[value] if value in values else self.of(value)

    def _total(self, op: ir.Operation, number: int, value: ir.Value, values: dict[ir.Value, Any], axes: Any) -> Array:
        combiner = defining_op(value)
        accumulator = list(op.regions[0].blocks[0].arguments)[len(op.operands) - len(op.results) + number]
        terms = [self._in(values, v) for v in combiner.operands if v != accumulator]
        combine = _BINARY[combiner.name.partition(".")[2]]
        start = self.of(op.operands[len(op.operands) - len(op.results) + number])
        extents = [extent for _, extent in sorted(loop_extents(op).items())]
        return combine(start, combine.reduce(np.broadcast_to(terms[0], extents), axis=axes))  # type: ignore[attr-defined]

    @staticmethod
    def _spread(array: Array, map_: ir.AffineMap, extents: Sequence[int]) -> Array:
        """An operand's elements at each point of the loops."""
        grid = np.indices(extents, sparse=True)
        where = []
        for expression in map_.results:
            if isinstance(expression, ir.AffineConstantExpr):
                where.append(np.array(expression.value))
            elif isinstance(expression, ir.AffineDimExpr):
                where.append(grid[expression.position])
            else:
                raise InternalError(f"numpy has no meaning of the index {expression} yet")
        return array[tuple(where)] if where else array

    def scalar(self, op: ir.Operation, values: list[Any], extents: Sequence[int] = ()) -> Any:
        """What a function of numbers makes of arrays of them."""
        name = op.name.partition(".")[2]
        if name in _BINARY:
            return _BINARY[name](*values)
        if name in _UNARY:
            return _UNARY[name](*values)
        if name == "fma":
            return values[0] * values[1] + values[2]
        if name == "constant":
            kind = ir.FloatAttr if isinstance(element_type(op.results[0]), ir.FloatType) else ir.IntegerAttr
            return kind(op.attributes["value"]).value
        if name == "select":
            return np.where(*values)
        if name in ("cmpi", "cmpf"):
            return (_COMPARED if name == "cmpi" else _ORDERED)[ir.IntegerAttr(op.attributes["predicate"]).value](
                *values
            )  # type: ignore[misc]
        if name in ("extf", "truncf", "sitofp", "index_cast", "extsi"):
            return values[0]
        if name == "index":
            return np.indices(extents, sparse=True)[ir.IntegerAttr(op.attributes["dim"]).value]
        raise InternalError(f"numpy has no meaning of {op.name} yet")


def _depends(value: ir.Value, tensor: ir.Value) -> bool:
    op = defining_op(value)
    return value == tensor or (op is not None and any(_depends(operand, tensor) for operand in op.operands))


def reference(kernel: ir.Operation, memory: Sequence[Array]) -> list[Array]:
    """In float64 the results of a kernel, in order, from the arrays of its arguments."""
    block = kernel.regions[0].blocks[0]
    evaluator = Evaluator(dict(zip(block.arguments, memory, strict=True)), exact=True)
    writes = [op for op in operations(block) if op.name == "bufferization.materialize_in_destination"]
    return [evaluator.of(op.operands[0]) for op in writes]
