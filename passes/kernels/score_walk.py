"""Which dimensions of scores a schedule of weighed sums keeps, and which it goes along while it adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.attention import first_position, last_position
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.attention_gradients import AttentionGradients
from lispgpt.passes.recognise.mask_bounds import Bound
from lispgpt.passes.recognise.score_operands import POSITION, Operand


@dataclass(frozen=True)
class Walk:
    """Results have rows along `kept`, a leading loop of the scores or POSITION; each is a sum along `along`, the other
    of the two kinds, and over all of `others`.  fixed: the loops that have neither: each of their points is a task."""

    sums: AttentionGradients

    @cached_property
    def kept(self) -> int:
        """The longest loop that a tile of results can go along: it is no loop of what is looked at."""
        if not self.sums.over_positions:
            return POSITION
        looked = {d for s in self.sums.sums for d in s.other.dims} | {
            d for p in self.sums.products for d in p.keys.dims
        }
        extents = self.sums.extents
        return max(range(len(extents)), key=lambda d: (d not in looked, extents[d], -d))

    @cached_property
    def along(self) -> int:
        if self.sums.over_positions:
            return POSITION
        return max(self.sums.summed, key=lambda d: (self.sums.extents[d], -d))

    @property
    def others(self) -> list[int]:
        return [d for d in self.sums.summed if d != self.along]

    @property
    def fixed(self) -> list[int]:
        return [d for d in range(len(self.sums.extents)) if d != self.kept and d not in self.sums.summed]

    @property
    def tasks(self) -> list[int]:
        """Extents of the fixed loops."""
        return [self.sums.extents[d] for d in self.fixed]

    def extent(self, dim: int) -> int:
        return self.sums.context if dim == POSITION else self.sums.extents[dim]

    @property
    def rounds(self) -> int:
        """How many times `along` is gone through: once for each point of the others."""
        return prod(self.sums.extents[d] for d in self.others)

    def place(self, task: Index, round_: Index, kept: Index, along: Index) -> tuple[list[Index], Index]:
        """The leading indices and the position."""
        found: dict[int, Index] = dict(zip(self.fixed, coordinates(task, self.tasks), strict=True))
        extents = [self.sums.extents[d] for d in self.others]
        found |= dict(zip(self.others, coordinates(round_, extents), strict=True))
        found |= {self.kept: kept, self.along: along}
        return [found[d] for d in range(len(self.sums.extents))], found[POSITION]

    def sides(self, number: int) -> tuple[Operand, Operand]:
        """A product's operand that has `kept`, and the one that has `along`."""
        product = self.sums.products[number]
        return (product.queries, product.keys) if self.sums.over_positions else (product.keys, product.queries)

    def range(self, reader: Reader, place: Callable[[Index], list[Index]], kept: Index, last: Index) -> list[Index]:
        """Between which indices of `along`, the second excluded, a row or neighbouring rows of results, from the
        `kept`-th to the `last`, are summed; place: gives the leading indices of a row of the scores."""
        sums, bounds = self.sums, (self.sums.lower, self.sums.upper)
        if sums.over_positions:
            low = first_position(sums, reader, place(kept)) if bounds[0] is not None else 0
            return [low, b.add(last_position(sums, reader, place(last)), 1)]
        low, high = 0, self.extent(self.along)
        if bounds[1] is not None and self._follows(bounds[1]):  # t ≤ s + c
            low = b.clamped(_minus(kept, bounds[1].constant), high)
        if bounds[0] is not None and self._follows(bounds[0]):  # t ≥ s + c
            return [low, b.clamped(b.add(_minus(last, bounds[0].constant), 1), high)]
        return [low, high]

    def all_seen(self, kept: Index, rows: int, along: Index, count: int) -> ir.Value | None:
        """Whether rows of results are sums over all of `count` neighbours along, which there are; None where bounds
        say nothing of either.  The walk is ordered."""
        first, last = (kept, b.add(kept, rows - 1)), (along, b.add(along, count - 1))
        queries, positions = (first, last) if self.sums.over_positions else (last, first)
        found = []
        if self.sums.upper is not None:
            found.append(b.less(positions[1], b.add(queries[0], self.sums.upper.constant), 3))
        if self.sums.lower is not None:
            found.append(b.less(b.add(queries[1], self.sums.lower.constant), positions[0], 3))
        if self.extent(self.along) % count:
            found.append(b.less(last[1], self.extent(self.along)))
        return b.both(*found)

    @property
    def is_ordered(self) -> bool:
        """Whether later rows see what is later: a tile's first and last row then bound what all of it sees."""
        bounds = [bound for bound in (self.sums.lower, self.sums.upper) if bound is not None]
        return not self.sums.over_positions or all(self._follows(bound) for bound in bounds)

    def _follows(self, bound: Bound) -> bool:
        """Whether a bound is the index of a query plus a constant."""
        if len(bound.terms) != 1 or bound.terms[0][0] != 1:
            return False
        op, dim = defining_op(bound.terms[0][1]), self.kept if self.sums.over_positions else self.along
        return op is not None and op.name == "linalg.index" and ir.IntegerAttr(op.attributes["dim"]).value == dim


def _minus(index: Index, constant: int) -> Index:
    """Their difference as a signed index."""
    return b.add(index, -constant)
