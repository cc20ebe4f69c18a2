"""Numbers at places of tensors, asked for one by one, and what ops on numbers make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fuzz.mutated.interpret import CMPF, CMPI, PLAIN, Unknown, rounded

from lispgpt.ir.mlir import ir

Place = tuple[np.ndarray, ...]
MOST = 1 << 25
"""Numbers that an array here has at most: what would take more is not looked at."""


class TooMuch(Unknown):
    """An element that is made of too many others."""


class Tensor:
    """A value by its shape and what is at places, arrays of whole numbers for each dimension that go together."""

    def __init__(self, shape: Sequence[int], at: Callable[[Place], Any]) -> None:
        self.shape, self._at = tuple(shape), at
        self._known: dict[Any, Any] = {}

    def at(self, place: Place) -> Any:
        key = tuple((part.shape, part.tobytes()) for part in map(np.asarray, place))
        if key not in self._known:
            if (size := _size(place)) > MOST:
                raise TooMuch(f"{size:,} numbers")
            self._known[key] = self._at(place)
        return self._known[key]

    def once(self, place: Place) -> Any:
        """The same where somebody else remembers it: a value with hundreds of insertions would hold it in each."""
        return self._at(place)


def _size(place: Place) -> int:
    return int(np.prod(np.broadcast_shapes(*(np.shape(part) for part in place)), dtype=np.int64))


def decoded(array: np.ndarray, dtype: str) -> Callable[[Place], np.ndarray]:
    """Elements of memory as numbers.  array: of the element's bits where numpy has no such type."""

    def at(place: Place) -> np.ndarray:
        found = array[tuple(np.asarray(part, np.int64) for part in place)]
        if dtype == "bf16":
            return (found.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return found.astype(np.float64) if dtype[0] == "f" else found.astype(bool if dtype == "i1" else np.int64)

    return at


def _width(value: ir.Value) -> int:
    return int(getattr(value.type, "width", 64))


def _unsigned(value: ir.Value, number: Any) -> Any:
    width = _width(value)
    return np.asarray(number, np.int64) & np.int64((1 << width) - 1) if width < 64 else np.asarray(number, np.int64)


def _signed(value: ir.Value, number: Any) -> Any:
    """A number's lowest bits as a type has them, with their sign; of i1 a truth value."""
    width = _width(value)
    if width == 1:
        return (np.asarray(number, np.int64) & 1).astype(bool)
    shift = np.int64(64 - width)
    return np.asarray(number, np.int64) << shift >> shift


def _same_bits(op: ir.Operation, number: Any) -> Any:
    """Of arith.bitcast, between whole numbers and floating-point ones."""
    to, width = str(op.results[0].type), _width(op.operands[0])
    if to[0] == "i":
        kind = str(op.operands[0].type)
        single = np.asarray(number, np.float32)
        bits = np.asarray(number, np.float16).view(np.int16) if kind == "f16" else single.view(np.int32)
        return (bits.astype(np.int64) >> 16) if kind == "bf16" else bits.astype(np.int64)
    bits = np.asarray(_unsigned(op.operands[0], number))
    if to == "bf16":
        return (bits << 16).astype(np.uint32).view(np.float32).astype(np.float64)
    kinds = (np.uint16, np.float16) if width == 16 else (np.uint32, np.float32)
    return bits.astype(kinds[0]).view(kinds[1]).astype(np.float64)


BITS: dict[str, Callable[..., Any]] = {
    "arith.shli": lambda op, a, b: _signed(op.results[0], np.asarray(a, np.int64) << b),
    "arith.shrui": lambda op, a, b: _signed(op.results[0], _unsigned(op.operands[0], a) >> b),
    "arith.shrsi": lambda op, a, b: np.asarray(a, np.int64) >> b,
    "arith.extui": lambda op, a: _unsigned(op.operands[0], a),
    "arith.trunci": lambda op, a: _signed(op.results[0], a),
    "arith.uitofp": lambda op, a: _unsigned(op.operands[0], a).astype(np.float64),
    "arith.index_castui": lambda op, a: _unsigned(op.operands[0], a),
    "arith.bitcast": _same_bits,
}  # fmt: skip


def scalar(op: ir.Operation, operands: Sequence[Any]) -> Any:
    """What an op on numbers gives."""
    if op.name == "arith.constant":
        value, kind = op.attributes["value"], str(op.results[0].type)
        if kind == "i1":
            return np.bool_(ir.IntegerAttr(value).value)
        return np.float64(ir.FloatAttr(value).value) if "f" in kind else np.int64(ir.IntegerAttr(value).value)
    if op.name == "arith.cmpi":
        return CMPI[ir.IntegerAttr(op.attributes["predicate"]).value](*operands)
    if op.name == "arith.cmpf":
        number = ir.IntegerAttr(op.attributes["predicate"]).value
        compare = CMPF[number if number < 7 else number - 7]
        if compare is None:
            raise Unknown(f"cmpf {number}")
        return compare(*operands)
    if op.name == "arith.truncf":
        return rounded(operands[0], str(op.results[0].type))
    if op.name in BITS:
        return BITS[op.name](op, *operands)
    if op.name not in PLAIN:
        raise Unknown(op.name)
    return PLAIN[op.name](*operands)
