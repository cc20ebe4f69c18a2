"""An entry's weights in an order of their own, as a plan has them: pieces that are moved once, when they are loaded.

A piece is an array of bytes: `extents`, `start` and `strides` in the weight, `to` and `places` in what it is packed to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from lispgpt.ir.mlir import attribute, ir

PACKINGS = "packings"
"""The entry's attribute: by a packed weight's name, whose bytes it has, in pieces."""

Place = tuple[int, int]
"""Where a byte lies in a weight, and where in what it is packed to."""
Run = tuple[Place, tuple[tuple[int, Place], ...]]
"""Where the first of regular places lies, and of each dimension, outermost first, its extent and strides."""


def runs_of(places: Sequence[Place]) -> list[Run]:
    """Places in their order as few arrays with a stride for each dimension."""
    runs: list[Run] = [(place, ()) for place in places]
    while len(joined := _joined(runs)) < len(runs):
        runs = joined
    return runs


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Neighbours that are alike, and as far from each other, as one."""
    found, at = [], 0
    while at < len(runs):
        (first, dimensions), end = runs[at], at + 1
        step = _apart(first, runs[end][0]) if end < len(runs) else (0, 0)
        while (
            end < len(runs)
            and min(step) >= 0
            and runs[end][1] == dimensions
            and _apart(runs[end - 1][0], runs[end][0]) == step
        ):
            end += 1
        found.append((first, dimensions if end == at + 1 else ((end - at, step), *dimensions)))
        at = end
    return found


def _apart(first: Place, second: Place) -> Place:
    return second[0] - first[0], second[1] - first[1]


def pieces_of(*sides: Sequence[Run]) -> list[dict[str, Any]]:
    """What has every place of each side, added up."""
    found = []
    for chosen in product(*sides):
        dimensions = [dimension for _, own in chosen for dimension in own]
        extents = [extent for extent, _ in dimensions]
        starts = [sum(place[side] for place, _ in chosen) for side in (0, 1)]
        strides = [[step[side] for _, step in dimensions] for side in (0, 1)]
        found.append(
            {"extents": extents, "start": starts[0], "strides": strides[0], "to": starts[1], "places": strides[1]}
        )
    return found


def add_packing(
    entry: ir.Operation, name: str, weight: str, shape: Sequence[int], pieces: Sequence[dict[str, Any]]
) -> None:
    """Say of a weight that an entry has by that name what it is made of."""
    there = ir.DictAttr(entry.attributes[PACKINGS]) if PACKINGS in entry.attributes else []
    known = {one.name: one.attr for one in there}
    made = attribute({"weight": weight, "shape": list(shape), "pieces": ir.ArrayAttr.get(list(map(attribute, pieces)))})
    entry.attributes[PACKINGS] = ir.DictAttr.get({**known, name: made})


def packing_facts(packings: ir.Attribute) -> dict[str, dict[str, Any]]:
    """By name, as plans have them."""
    found = {}
    for named in ir.DictAttr(packings):
        fields = ir.DictAttr(named.attr)
        pieces = [_piece_facts(ir.DictAttr(piece)) for piece in ir.ArrayAttr(fields["pieces"])]
        shape = list(ir.DenseI64ArrayAttr(fields["shape"]))
        found[named.name] = {"weight": ir.StringAttr(fields["weight"]).value, "shape": shape, "pieces": pieces}
    return found


def _piece_facts(piece: ir.DictAttr) -> dict[str, Any]:
    facts: dict[str, Any] = {n: list(ir.DenseI64ArrayAttr(piece[n])) for n in ("extents", "strides", "places")}
    return facts | {n: ir.IntegerAttr(piece[n]).value for n in ("start", "to")}
