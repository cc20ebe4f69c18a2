"""Moments of rows by groups of columns (see row_moments), of what a product's threads have in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.epilogue import Epilogue, ResultRun, Span
from lispgpt.passes.kernels.team import subgroup_reduce, tree
from lispgpt.passes.model.row_moments import Moments
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import SUMS_AT_ONCE, Tiling


@dataclass(frozen=True)
class RowMoments:
    """The moments that a product's kernel makes of one of its results, with the buffers that they go to."""

    moments: Moments
    target: Gpu
    tiling: Tiling

    @property
    def own_columns(self) -> Sequence[tuple[int, int]]:
        """None: what moments are of is a result, too."""
        return ()

    def start(self, epilogue: Epilogue, pieces: Sequence[ResultRun]) -> MomentSums:
        """What takes a thread's pieces of one tile."""
        split, group = self.tiling.splits > 1, self.moments.group
        lanes, count = (group // SUMS_AT_ONCE, 1) if split else (4, group // 8)
        return MomentSums(self.target, self.moments, epilogue, lanes, count)


@dataclass(frozen=True)
class MomentSums:
    """Takes pieces of rows in the order of their columns, as all lanes of a subgroup have them.

    lanes: neighbours that have the pieces of a group between them.  count: of each of them.
    """

    target: Gpu
    moments: Moments
    epilogue: Epilogue
    lanes: int
    count: int
    held: dict[Index, list[ResultRun]] = field(default_factory=dict)

    @property
    def tensor(self) -> ir.Value:
        """What they are of."""
        return self.moments.source

    def put(self, pieces: Sequence[ResultRun], values: Sequence[ir.Value], span: Span | None) -> None:
        """Take pieces, and store the moments of groups that are whole."""
        for piece, value in zip(pieces, values, strict=True):
            held = self.held.setdefault(piece.row, [])
            held.append(ResultRun(piece.row, piece.output, value))
            if len(held) == self.count:
                self._store(held[0], [each.value for each in held])
                held.clear()

    def _store(self, first: ResultRun, values: Sequence[ir.Value]) -> None:
        """A group's moments, which one of its lanes stores."""
        group, found = self.moments.group, []
        if self.moments.sums is not None:
            total = self._added(values)
            found.append((total, self.moments.sums))
            mean = b.binary("arith.mulf", total, b.constant(1 / group, b.f32()))
            values = [b.binary("arith.subf", value, b.splat(mean, b.width_of(value))) for value in values]
        squares = [b.binary("arith.mulf", value, value) for value in values]
        found.append((self._added(squares), self.moments.squares))
        live = b.equal(b.mod(b.mod(b.thread_id(), self.target.subgroup), self.lanes), 0)
        place = [first.row, b.div(first.output, group)]

        def store() -> None:
            for value, buffer in found:
                b.store(value, buffer, place)

        b.if_live(b.both(live, self.epilogue.live(first)), store)

    def _added(self, values: Sequence[ir.Value]) -> ir.Value:
        """The sum of all lanes' elements."""
        total = b.horizontal("arith.addf", tree("arith.addf", values))
        return subgroup_reduce("arith.addf", total, self.lanes, self.target.subgroup)
