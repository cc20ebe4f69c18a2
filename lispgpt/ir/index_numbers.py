"""Whole numbers that loops' counters alone make, computed for every round."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import constant_number, defining_op, loop_extents

MOST_POINTS = 1 << 16
"""Of loops whose rounds are gone through one by one."""


def numbers(value: ir.Value, ends: bool = False) -> np.ndarray | None:
    """Every number that a value is, where it is made of loops' counters alone which are not too many; else None.  ends:
    where they are too many, what it is at the loops' ends."""
    counters: dict[Any, range] = {}
    if not _collect(value, counters, set()):
        return None
    if prod(map(len, counters.values())) > MOST_POINTS:
        if not ends or len(counters) > 16:
            return None
        counters = {loop: range(c[0], c[-1] + 1, max(1, c[-1] - c[0])) for loop, c in counters.items()}
    axes = np.meshgrid(*[np.array(c, np.int64) for c in counters.values()], indexing="ij", sparse=True)
    with np.errstate(all="ignore"):
        found = _evaluate(value, dict(zip(counters, axes, strict=True)), {})
    return None if found is None else np.broadcast_to(found, tuple(map(len, counters.values())))


def counter_of(value: ir.Value) -> tuple[Any, range] | None:
    """What names a loop's counter, and its numbers; None for any other value."""
    op = defining_op(value)
    if op is not None:
        if op.name != "linalg.index":
            return None
        loops, dimension = op.parent.operation, ir.IntegerAttr(op.attributes["dim"]).value
        while not loops.name.startswith("linalg."):
            loops = loops.parent.operation
        return (loops, dimension), range(max(0, loop_extents(loops)[dimension]))
    holder = value.owner.owner.operation if isinstance(value.owner, ir.Block) else None
    if holder is None or holder.name != "scf.for" or ir.BlockArgument(value).arg_number:
        return None
    low, high, step = (constant_number(v) for v in list(holder.operands)[:3])
    if low is None or high is None or step is None or step < 1:
        return None
    return holder, range(low, high, step)


_PREDICATES = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
_COMPUTED: dict[str, Callable[..., Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.where(b == 0, 1, np.abs(b))),
    "arith.remsi": lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.select": lambda c, a, b: np.where(c != 0, a, b),
    **dict.fromkeys(("arith.index_cast", "arith.extsi", "arith.trunci"), lambda a: a),
    **dict.fromkeys(("arith.index_castui", "arith.extui"), lambda a: a),
}


def _collect(value: ir.Value, counters: dict[Any, range], seen: set[ir.Value]) -> bool:
    """Find the counters that a value is made of; False where it is made of something else too."""
    if value in seen:
        return True
    seen.add(value)
    counter = counter_of(value)
    if counter is not None:
        counters[counter[0]] = counter[1]
        return True
    op = defining_op(value)
    if op is None or not isinstance(value.type, (ir.IntegerType, ir.IndexType)):
        return False
    if op.name == "arith.constant":
        return True
    known = op.name in _COMPUTED or (op.name == "arith.cmpi" and ir.IntegerAttr(op.attributes["predicate"]).value < 6)
    return known and all(_collect(v, counters, seen) for v in op.operands)


def _evaluate(value: ir.Value, counters: dict[Any, np.ndarray], known: dict[ir.Value, Any]) -> Any:
    if value not in known:
        counter, op = counter_of(value), defining_op(value)
        if counter is not None:
            found: Any = counters[counter[0]]
        elif op.name == "arith.constant":
            found = np.int64(constant_number(value) or 0)
        else:
            parts = [_evaluate(v, counters, known) for v in op.operands]
            if op.name == "arith.cmpi":
                compute: Any = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
            else:
                compute = _COMPUTED[op.name]
            found = _in_type(compute(*parts), value.type)
        known[value] = found
    return known[value]


def _in_type(numbers: Any, kind: ir.Type) -> Any:
    """Whole numbers as a type holds them."""
    numbers = np.asarray(numbers).astype(np.int64)
    width = kind.width if isinstance(kind, ir.IntegerType) else 64
    if width == 1:
        return numbers & 1
    return numbers if width == 64 else ((numbers + (1 << (width - 1))) & ((1 << width) - 1)) - (1 << (width - 1))
