"""Moments of rows by groups of columns (see row_moments), of what a product's threads have in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.epilogue import Piece
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.team import subgroup_reduce, tree
from lispgpt.passes.model.row_moments import Moments
from lispgpt.passes.targets import Gpu


@dataclass
class MomentSums:
    """Takes pieces of rows in the order of their columns, as all lanes of a subgroup have them.

    moments: with the buffers that they go to.  lanes: neighbours that have the pieces of a group between them.  pieces:
    of each of them.  ragged: whether rows, and columns, may be past the product's end.
    """

    target: Gpu
    product: Product
    moments: Moments
    lanes: int
    pieces: int
    ragged: tuple[bool, bool]
    held: dict[Index, list[Piece]] = field(default_factory=dict, init=False)

    def take(self, piece: Piece, value: ir.Value) -> None:
        """A piece at its place in the product, and what the source of the moments is there."""
        held = self.held.setdefault(piece.row, [])
        held.append(Piece(piece.row, piece.output, value))
        if len(held) == self.pieces:
            self._store(held[0], [each.value for each in held])
            held.clear()

    def _store(self, first: Piece, values: Sequence[ir.Value]) -> None:
        """A group's moments, which one of its lanes stores."""
        group, found = self.moments.group, []
        if self.moments.sums is not None:
            total = self._added(values)
            found.append((total, self.moments.sums))
            mean = b.binary("arith.mulf", total, b.constant(1 / group, b.f32()))
            values = [b.binary("arith.subf", value, b.splat(mean, b.width_of(value))) for value in values]
        squares = [b.binary("arith.mulf", value, value) for value in values]
        found.append((self._added(squares), self.moments.squares))
        lane = b.mod(b.thread_id(), self.target.subgroup)
        live = b.equal(b.mod(lane, self.lanes), 0)
        extents = (self.product.rows, self.product.columns)
        at = (first.row, first.output)
        inside = [b.less(at[i], extents[i]) for i in (0, 1) if self.ragged[i]]
        place = [first.row, b.div(first.output, group)]

        def store() -> None:
            for value, buffer in found:
                b.store(value, buffer, place)

        b.if_live(b.both(live, *inside), store)

    def _added(self, values: Sequence[ir.Value]) -> ir.Value:
        """The sum of all lanes' elements."""
        total = b.horizontal("arith.addf", tree("arith.addf", values))
        return subgroup_reduce("arith.addf", total, self.lanes, self.target.subgroup)
