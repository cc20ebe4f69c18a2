"""How neighbouring lanes divide one vector of an attention's operand among them."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Share:
    """A lane's part of a key (or value): `width` numbers from `start` on; live: whether it has one (None: always)."""

    width: int
    start: Index
    live: ir.Value | None

    def within(self, value: ir.Value) -> ir.Value:
        """The lane's numbers, 0 where it has none."""
        return b.masked(self.live, value)


def one_load(operand: Operand, target: Gpu) -> int:
    """Numbers that a lane loads at once."""
    return b.largest_width(operand.depth, b.item_bytes(operand.element), target.vector_bytes)


def lane_width(operand: Operand, target: Gpu) -> int:
    """Neighbours that one lane takes of an operand's vectors, so that a subgroup holds them: whole loads, if need be
    several, that divide the depth."""
    load, depth = one_load(operand, target), operand.depth
    widths = range(load, depth + 1, load)
    return next(width for width in widths if depth % width == 0 and depth // width <= target.subgroup)


def lane_share(operand: Operand, lane: Index, lanes: int, target: Gpu) -> Share:
    """What the lane-th of `lanes` has."""
    width, depth = lane_width(operand, target), operand.depth
    start = b.mul(lane, width)
    if lanes * width == depth:
        return Share(width, start, None)
    live = b.less(start, depth)
    return Share(width, b.or_zero(live, start), live)
