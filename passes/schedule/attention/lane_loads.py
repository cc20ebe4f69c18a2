"""What a lane loads of a position's key or value, ahead of its use, and the numbers that it makes of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, read_operand
from lispgpt.passes.kernels.packed_rows import packed_kind, packed_loads, unscaled_numbers
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import behind_views
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.attention.lane_shares import Share
from lispgpt.passes.targets import Gpu

Row = tuple[ir.Value, ir.Value | None]
"""Numbers in f32, and what all of a position's are yet to be multiplied by, if anything."""


@dataclass(frozen=True)
class LaneLoads:
    """Of keys, or of values, with a lane's share of each."""

    operand: Operand
    share: Share
    reader: Reader
    target: Gpu

    @property
    def kind(self) -> str:
        """Of packed rows that are loaded as they are; "" of numbers."""
        return packed_kind(self.operand.tensor) if self.operand.has_rows and self.share.width % 4 == 0 else ""

    @property
    def count(self) -> int:
        """Of what is loaded for a position."""
        return 2 if self.kind else 1

    def load(self, place: Place, t: Index) -> list[ir.Value]:
        if self.kind:
            own = self.operand.index(place, t, self.share.start)
            op, index = behind_views(self.operand.tensor, own, self.reader)
            assert op is not None
            with self.reader.stepping():
                found = packed_loads(op, self.reader, index, self.share.width)
            assert found is not None
            return list(found)
        return [read_operand(self.reader, self.operand, place, t, self.share.start, self.share.width)]

    def made(self, loads: Sequence[ir.Value]) -> Row:
        if self.kind:
            words, head = loads
            return unscaled_numbers(self.kind, words, head, self.share.width, self.target)
        return b.extend(loads[0]), None

    def made_where(self, live: ir.Value, loads: Sequence[ir.Value]) -> Row:
        """The same; zeros where that does not hold."""
        if self.kind:
            return self.made([b.masked(live, value) for value in loads])
        return b.masked(live, b.extend(loads[0])), None
