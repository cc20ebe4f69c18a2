"""Functions of register tiles, and of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.tile.boxes import emit
from lispgpt.passes.tile.types import ROWS, SHARES, RegisterTile, register_tile

FUNCTIONS = {
    "+": "arith.addf",
    "-": "arith.subf",
    "*": "arith.mulf",
    "/": "arith.divf",
    "max": "arith.maxnumf",
    "neg": "arith.negf",
    "exp2": "math.exp2",
    "log": "math.log",
    "fma": "math.fma",
}
"""Functions of numbers, by which register tiles are mapped and their rows reduced."""


def mapped(name: str, operands: Sequence[Any]) -> ir.Value:
    """A function of register tiles, element by element; rows and numbers are repeated to the widest of them."""
    tiles = [register_tile(x) for x in operands if isinstance(x, ir.Value)]
    widest = max(tiles, key=lambda t: (len(t.shape), t.layout == SHARES))
    return b.emit(FUNCTIONS[name], [_as(x, widest) for x in operands], [widest.type])


def _as(value: Any, tile: RegisterTile) -> ir.Value:
    if not isinstance(value, ir.Value):
        return b.constant(float(value), tile.type)
    return value if register_tile(value).layout == tile.layout else emit("broadcast", [value], tile.type)


def reduced(name: str, registers: ir.Value, shares: bool) -> ir.Value:
    """Rows of sums, or shares of rows, as one number each: every member has its own; shares: every lane too."""
    tile = register_tile(registers)
    members = tile.shape[0] * tile.teams[1]
    shape, teams = (members, tile.shape[1]), (tile.teams[0], 1)
    rows = RegisterTile(shape, tile.dtype, SHARES if shares else ROWS, teams, tile.unit)
    return create_op("tile.reduce", [registers], [rows.type], {"by": FUNCTIONS[name]}).results[0]


def over_members(name: str, rows: ir.Value) -> ir.Value:
    """What all members have of a row together, by way of shared memory."""
    if register_tile(rows).shape[0] == 1:
        return rows
    return create_op("tile.over_members", [rows], [rows.type], {"by": FUNCTIONS[name]}).results[0]
