"""The ops with which reductions combine: which work in any order, and what changes nothing."""

from __future__ import annotations

import math

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations

COMBINERS: dict[str, tuple[str, float | int]] = {
    "arith.addf": ("add", 0.0),
    "arith.mulf": ("mul", 1.0),
    "arith.maximumf": ("maximumf", -math.inf),
    "arith.minimumf": ("minimumf", math.inf),
    "arith.maxnumf": ("maxnumf", -math.inf),
    "arith.minnumf": ("minnumf", math.inf),
    "arith.addi": ("add", 0),
    "arith.muli": ("mul", 1),
    "arith.andi": ("and", -1),
    "arith.ori": ("or", 0),
    "arith.xori": ("xor", 0),
}
"""Ops that combine in any order: what vector.reduction calls them, and what changes nothing."""


KNOWN = (*COMBINERS, "arith.maxsi", "arith.minsi")


def neutral(combiner: str, type_: ir.Type) -> float | int:
    """What an op of COMBINERS, or a signed maximum or minimum, leaves of the other operand as it is."""
    if combiner in ("arith.maxsi", "arith.minsi"):
        half = 2 ** (type_.width - 1) if isinstance(type_, ir.IntegerType) else 2**63
        return -half if combiner == "arith.maxsi" else half - 1
    return COMBINERS[combiner][1]


def combiner_of(op: ir.Operation) -> str | None:
    """The one op, of those that work in any order, with which a linalg.reduce of one tensor combines; else None."""
    inner = operations(op.regions[0].blocks[0])
    plain = len(inner) == 2 and inner[0].name in KNOWN and len(op.results) == 1
    return inner[0].name if plain and set(inner[0].operands) == set(op.regions[0].blocks[0].arguments) else None


def starts_neutral(op: ir.Operation) -> bool:
    """Whether a linalg.reduce with a known combiner starts with what changes nothing, and says so while compiling."""
    fill = defining_op(op.operands[1])
    number = defining_op(fill.operands[0]) if fill is not None and fill.name == "linalg.fill" else None
    if number is None or number.name != "arith.constant":
        return False
    type_ = number.results[0].type
    attribute = ir.FloatAttr if isinstance(type_, ir.FloatType) else ir.IntegerAttr
    return bool(attribute(number.attributes["value"]).value == neutral(combiner_of(op) or "", type_))
