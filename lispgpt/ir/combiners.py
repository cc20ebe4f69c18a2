"""The ops with which reductions combine: which work in any order, and what changes nothing."""

from __future__ import annotations

import math

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import element_type, filled_with, operations

COMBINERS = {
    "arith.addf": "add",
    "arith.mulf": "mul",
    "arith.maximumf": "maximumf",
    "arith.minimumf": "minimumf",
    "arith.maxnumf": "maxnumf",
    "arith.minnumf": "minnumf",
    "arith.addi": "add",
    "arith.muli": "mul",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    "arith.maxsi": "maxsi",
    "arith.minsi": "minsi",
}
"""Ops that combine in any order, and what vector.reduction calls them."""

NEUTRAL: dict[str, float | int] = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -math.inf,
    "arith.minimumf": math.inf,
    "arith.maxnumf": -math.inf,
    "arith.minnumf": math.inf,
    "arith.addi": 0,
    "arith.muli": 1,
    "arith.andi": -1,
    "arith.ori": 0,
    "arith.xori": 0,
}


def neutral(combiner: str, type_: ir.Type) -> float | int:
    """What an op of COMBINERS leaves of the other operand as it is."""
    if combiner in ("arith.maxsi", "arith.minsi"):
        half = 2 ** (type_.width - 1) if isinstance(type_, ir.IntegerType) else 2**63
        return -half if combiner == "arith.maxsi" else half - 1
    return NEUTRAL[combiner]


def combiner_of(op: ir.Operation) -> str | None:
    """The one op, of those that work in any order, with which a linalg.reduce of one tensor combines; else None."""
    inner = operations(op.regions[0].blocks[0])
    plain = len(inner) == 2 and inner[0].name in COMBINERS and len(op.results) == 1
    return inner[0].name if plain and set(inner[0].operands) == set(op.regions[0].blocks[0].arguments) else None


def starts_neutral(op: ir.Operation) -> bool:
    """Whether a linalg.reduce with a known combiner starts with what changes nothing, and says so while compiling."""
    start = filled_with(op.operands[1])
    return start is not None and start == neutral(combiner_of(op) or "", element_type(op.operands[1]))
