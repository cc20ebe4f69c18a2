"""What an entry of linalg on tensors computes, op by op in float64: no pass has touched it, and none is trusted.

An op's body is computed at all points of its parallel loops at once, and at one point of the others after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    entry_functions,
    indexing_maps,
    integers,
    kept_dimensions,
    operations,
    shape_of,
    strings,
)

Values = dict[Any, Any]

DYNAMIC = ir.ShapedType.get_dynamic_size()
DTYPES = {"f32": np.float64, "bf16": np.float64, "f16": np.float64, "i1": np.bool_}


class Unknown(Exception):
    """An op that has no meaning here yet."""


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Float64 numbers as a narrower type holds them, to the nearest, ties to even."""
    single = np.asarray(values, np.float32)
    if dtype == "f16":
        return single.astype(np.float16).astype(np.float64)
    if dtype != "bf16":
        return np.asarray(values, np.float64)
    bits = single.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(single), np.nan, bits.astype(np.uint32).view(np.float32)).astype(np.float64)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.trunc(a / np.where(b == 0, 1, b)), np.int64)


PLAIN: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add, "arith.addi": np.add, "arith.subf": np.subtract, "arith.subi": np.subtract,
    "arith.mulf": np.multiply, "arith.muli": np.multiply, "arith.divf": np.divide, "arith.negf": np.negative,
    "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor, "arith.divui": _quotient, "arith.divsi": _quotient, "arith.remsi": np.fmod,
    "arith.remui": np.fmod, "arith.remf": np.fmod, "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": lambda a, b: -(-a // b), "arith.select": np.where,
    "arith.index_cast": lambda a: a, "arith.extf": lambda a: a, "arith.extsi": lambda a: np.asarray(a, np.int64),
    "arith.extui": lambda a: np.asarray(a, np.int64), "arith.trunci": lambda a: a,
    "arith.sitofp": lambda a: np.asarray(a, np.float64), "arith.uitofp": lambda a: np.asarray(a, np.float64),
    "arith.fptosi": lambda a: np.asarray(np.trunc(a), np.int64),
    "math.exp": np.exp, "math.exp2": np.exp2, "math.expm1": np.expm1, "math.log": np.log, "math.log1p": np.log1p,
    "math.log2": np.log2, "math.sqrt": np.sqrt, "math.rsqrt": lambda a: 1 / np.sqrt(a), "math.tanh": np.tanh,
    "math.sin": np.sin, "math.cos": np.cos, "math.tan": np.tan, "math.atan": np.arctan, "math.absf": np.abs,
    "math.absi": np.abs, "math.floor": np.floor, "math.ceil": np.ceil, "math.round": np.round, "math.erf": _erf,
    "math.erfc": lambda a: 1 - _erf(a), "math.powf": np.power, "math.fma": lambda a, b, c: a * b + c,
    "math.sinh": np.sinh, "math.cosh": np.cosh, "math.roundeven": np.rint, "math.copysign": np.copysign,
}  # fmt: skip
CMPI = [np.equal, np.not_equal, *[np.less, np.less_equal, np.greater, np.greater_equal] * 2]
CMPF = [None, np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]


def entries(module: ir.Module) -> dict[tuple[str, tuple[tuple[int, ...], ...]], ir.Operation]:
    """A module's entries by name and the shapes of their inputs, in the order of these."""
    return {(ir.StringAttr(e.attributes["entry"]).value, _input_shapes(e)): e for e in entry_functions(module)}


def _input_shapes(entry: ir.Operation) -> tuple[tuple[int, ...], ...]:
    inputs = entry.attributes["inputs"]
    return tuple(tuple(integers(inputs[i].attr)) for i in range(len(inputs)))


def run(entry: ir.Operation, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What an entry returns ("result:…", "state:…", …) for its arguments ("input:…", "weight:…", "state:…")."""
    block = entry.regions[0].blocks[0]
    names = strings(entry.attributes["arguments"])
    values: Values = {}
    for name, argument in zip(names, block.arguments, strict=True):
        values[argument] = np.asarray(given[name]).reshape(shape_of(argument))
    with np.errstate(all="ignore"):
        found = _Walk(values).block(block)
    return dict(zip(strings(entry.attributes["results"]), found, strict=True))


class _Walk:
    """What the values of one entry are.  point: where in the loops of a linalg op its body is, all points at once."""

    def __init__(self, values: Values, point: Sequence[Any] = ()) -> None:
        self.values, self.point = values, point

    def block(self, block: ir.Block) -> list[Any]:
        """Run a block; what its terminator takes."""
        *ops, last = operations(block)
        for op in ops:
            found = self._results(op)
            self.values.update(zip(op.results, found if isinstance(found, list) else [found], strict=True))
        return [self.values[v] for v in last.operands]

    def _results(self, op: ir.Operation) -> Any:
        operands = [self.values[v] for v in op.operands]
        handler = getattr(self, "_" + op.name.replace(".", "_"), None)
        if handler is not None:
            return handler(op, operands)
        if op.name == "arith.cmpi":
            return CMPI[ir.IntegerAttr(op.attributes["predicate"]).value](*operands)
        if op.name == "arith.cmpf":
            number = ir.IntegerAttr(op.attributes["predicate"]).value
            compare = CMPF[number if number < 7 else number - 7]
            if compare is None:
                raise Unknown(f"cmpf {number}")
            return compare(*operands)
        if op.name not in PLAIN:
            raise Unknown(op.name)
        return PLAIN[op.name](*operands)

    # ---- numbers

    def _arith_constant(self, op: ir.Operation, operands: list[Any]) -> Any:
        value = op.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr):
            return np.array(value).reshape(shape_of(op.results[0])).astype(_dtype(op.results[0]))
        kind = str(op.results[0].type)
        return np.float64(ir.FloatAttr(value).value) if "f" in kind else np.int64(ir.IntegerAttr(value).value)

    def _arith_truncf(self, op: ir.Operation, operands: list[Any]) -> Any:
        return rounded(operands[0], str(op.results[0].type).removesuffix(">").split("x")[-1])

    def _linalg_index(self, op: ir.Operation, operands: list[Any]) -> Any:
        return self.point[ir.IntegerAttr(op.attributes["dim"]).value]

    def _tensor_extract(self, op: ir.Operation, operands: list[Any]) -> Any:
        tensor, *where = operands
        for place, extent in zip(where, tensor.shape, strict=True):
            if np.min(place) < 0 or np.max(place) >= extent:
                raise Unknown("an element outside a tensor")
        return tensor[tuple(where)]

    # ---- views

    def _tensor_empty(self, op: ir.Operation, operands: list[Any]) -> Any:
        return np.full(shape_of(op.results[0]), np.nan if _dtype(op.results[0]) is np.float64 else -77)

    def _linalg_fill(self, op: ir.Operation, operands: list[Any]) -> Any:
        return np.full(shape_of(op.results[0]), operands[0])

    def _tensor_cast(self, op: ir.Operation, operands: list[Any]) -> Any:
        return operands[0]

    def _reshaped(self, op: ir.Operation, operands: list[Any]) -> Any:
        return operands[0].reshape(shape_of(op.results[0]))

    _tensor_expand_shape = _tensor_collapse_shape = _reshaped

    def _window(self, op: ir.Operation, dynamic: list[Any]) -> tuple[tuple[slice, ...], list[int]]:
        offsets, sizes, strides = (
            list(integers(op.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides")
        )
        more = iter(dynamic)
        offsets = [int(next(more)) if o == DYNAMIC else o for o in offsets]
        where = zip(offsets, sizes, strides, strict=True)
        return tuple(slice(o, o + (size - 1) * step + 1, step) for o, size, step in where), sizes

    def _tensor_extract_slice(self, op: ir.Operation, operands: list[Any]) -> Any:
        window, _ = self._window(op, operands[1:])
        return operands[0][window].reshape(shape_of(op.results[0]))

    def _tensor_insert_slice(self, op: ir.Operation, operands: list[Any]) -> Any:
        window, sizes = self._window(op, operands[2:])
        whole = np.array(operands[1])
        assert sum(kept_dimensions(sizes, operands[0].shape)) == operands[0].ndim
        whole[window] = operands[0].reshape(sizes)
        return whole

    # ---- loops

    def _scf_for(self, op: ir.Operation, operands: list[Any]) -> list[Any]:
        low, high, step, *carried = operands
        body = op.regions[0].blocks[0]
        for counter in range(int(low), int(high), int(step)):
            self.values.update(zip(body.arguments, [np.int64(counter), *carried], strict=True))
            carried = self.block(body)
        return carried

    def _scf_if(self, op: ir.Operation, operands: list[Any]) -> list[Any]:
        if np.ndim(operands[0]):
            raise Unknown("scf.if in a body")
        return self.block(op.regions[0 if operands[0] else 1].blocks[0])

    def _linalg_generic(self, op: ir.Operation, operands: list[Any]) -> list[Any]:
        maps, count = indexing_maps(op), len(op.results)
        body = op.regions[0].blocks[0]
        extents: dict[int, int] = {}
        for map_, operand in zip(maps, operands, strict=True):
            for expression, extent in zip(map_.results, np.shape(operand), strict=True):
                if isinstance(expression, ir.AffineDimExpr):
                    extents[expression.position] = extent
        kinds = ["parallel" in str(kind) for kind in op.attributes["iterator_types"]]
        outer = [d for d, parallel in enumerate(kinds) if parallel]
        grid = np.meshgrid(*[np.arange(extents[d]) for d in outer], indexing="ij", sparse=True)
        shape = [extents[d] for d in outer]
        sums = [np.array(o) for o in operands[-count:]]
        for inner in itertools.product(*[range(extents[d]) for d, parallel in enumerate(kinds) if not parallel]):
            rest, spread = iter(inner), iter(grid)
            point = [next(spread) if parallel else np.int64(next(rest)) for parallel in kinds]
            taken = [*operands[:-count], *sums]
            own: Values = dict(self.values)
            for argument, map_, operand in zip(body.arguments, maps, taken, strict=True):
                own[argument] = operand[tuple(_at(e, point) for e in map_.results)] if np.ndim(operand) else operand
            for number, value in enumerate(_Walk(own, point).block(body)):
                where = tuple(_at(e, point) for e in maps[len(operands) - count + number].results)
                full = np.broadcast_to(value, shape) if where else value
                sums[number] = sums[number].astype(np.result_type(sums[number], np.asarray(full)))
                sums[number][where] = full
        return sums

    def _linalg_contract(self, op: ir.Operation, operands: list[Any]) -> Any:
        letters = ["".join(chr(97 + e.position) for e in map_.results) for map_ in indexing_maps(op)]
        return np.einsum(f"{letters[0]},{letters[1]}->{letters[2]}", *operands[:2], optimize=True) + operands[2]

    def _linalg_reduce(self, op: ir.Operation, operands: list[Any]) -> list[Any]:
        count = len(op.results)
        (dimension,) = integers(op.attributes["dimensions"])
        body, totals = op.regions[0].blocks[0], list(operands[count:])
        for i in range(operands[0].shape[dimension]):
            taken = [np.take(o, i, dimension) for o in operands[:count]]
            self.values.update(zip(body.arguments, [*taken, *totals], strict=True))
            totals = self.block(body)
        return [np.asarray(t) for t in totals]

    def _linalg_softmax(self, op: ir.Operation, operands: list[Any]) -> Any:
        dimension = ir.IntegerAttr(op.attributes["dimension"]).value
        weights = np.exp(operands[0] - operands[0].max(dimension, keepdims=True))
        return weights / weights.sum(dimension, keepdims=True)


def _at(expression: ir.AffineExpr, point: Sequence[Any]) -> Any:
    if isinstance(expression, ir.AffineDimExpr):
        return point[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    left, right = _at(expression.lhs, point), _at(expression.rhs, point)
    if isinstance(expression, ir.AffineAddExpr):
        return left + right
    if isinstance(expression, ir.AffineMulExpr):
        return left * right
    if isinstance(expression, ir.AffineModExpr):
        return left % right
    if isinstance(expression, ir.AffineFloorDivExpr):
        return left // right
    raise Unknown(str(expression))


def _dtype(value: ir.Value) -> Any:
    return DTYPES.get(str(getattr(value.type, "element_type", value.type)), np.int64)
