"""A sum, maximum or product over loops of a linalg.generic, divided among the lanes of a subgroup."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.combiners import COMBINERS, neutral
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    captured_values,
    defining_op,
    dim_positions,
    element_type,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.elementwise import Body
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.reductions import Loops, loops_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import SHUFFLED, subgroup_reduce
from lispgpt.passes.kernels.views import mapped

TOGETHER = 8
"""Values that a lane reads ahead of combining the first."""


@dataclass(frozen=True)
class SharedSum:
    """The linalg.generic `op`, whose one result combines `count` values with `combiner` in any order."""

    op: ir.Operation
    combiner: str
    loops: Loops

    @property
    def tensor(self) -> ir.Value:
        return self.op.results[0]

    @property
    def count(self) -> int:
        return prod(self.loops.extents[d] for d in self.loops.summed)

    @property
    def has_neighbours(self) -> bool:
        """Whether neighbours of the result are sums of neighbours in the rows of what is read."""
        maps = indexing_maps(self.op)
        last = dim_positions(maps[-1])[-1:]
        shapes = [(dim_positions(m)[-1:], v) for m, v in zip(maps[:-1], self.op.operands, strict=False)]
        return last != [] and all(d == last for d, v in shapes if isinstance(v.type, ir.RankedTensorType))

    def by_subgroup(self, reader: Reader, index: list[Index], lane: Index, lanes: int) -> ir.Value:
        """The element at `index`, which every lane gets.  All lanes have to come here together."""
        mine = self.share(reader, index, lane, lanes)
        return self.whole(reader, index, subgroup_reduce(self.combiner, mine, lanes, lanes))

    def share(self, reader: Reader, index: list[Index], lane: Index, lanes: int) -> ir.Value:
        """What one of `lanes` combines of the element at `index`: every `lanes`-th value from `lane` on."""
        at = self._loops_at(index)
        type_ = self._start(reader, at).type
        idle = b.constant(neutral(self.combiner, type_), type_)
        argument = self.op.regions[0].blocks[0].arguments[-1]
        extents = [self.loops.extents[d] for d in self.loops.summed]
        together = next(n for n in (TOGETHER, 1) if self.count % (lanes * n) == 0 or n == 1)

        def step(first: ir.Value, total: ir.Value) -> list[ir.Value]:
            with reader.scope():
                for number in (b.add(first, i * lanes) for i in range(together)):
                    where = list(at)
                    for d, i in zip(self.loops.summed, coordinates(number, extents), strict=True):
                        where[d] = i
                    total = b.unshortened(Body(reader, self.op, where, 1, wide=True).results({argument: total})[0])
            return [total]

        return b.loop(lane, self.count, lanes * together, [idle], step)[0]

    def whole(self, reader: Reader, index: list[Index], total: ir.Value) -> ir.Value:
        """The element at `index`, of which all lanes together have combined `total`."""
        start = self._start(reader, self._loops_at(index))
        return b.shortened(b.binary(self.combiner, start, total), element_type(self.tensor))

    def _loops_at(self, index: list[Index]) -> list[Index]:
        at: list[Index] = [0] * len(self.loops.extents)
        for position, value in zip(dim_positions(indexing_maps(self.op)[-1]), index, strict=True):
            if position is not None:
                at[position] = value
        return at

    def _start(self, reader: Reader, at: list[Index]) -> ir.Value:
        map_ = indexing_maps(self.op)[-1]
        return b.unshortened(reader.read(self.op.operands[len(self.op.operands) - 1], mapped(map_, at)))


def shared_sum(tensor: ir.Value) -> SharedSum | None:
    """The sum behind a tensor, through elementwise ops at the same index; None where there is none of that kind."""
    op = defining_op(tensor)
    while op is not None and is_elementwise(op) and not captured_values(op):
        found = [
            defining_op(v)
            for v, m in zip(op.operands, indexing_maps(op), strict=True)
            if shape_of(v) == shape_of(tensor) and dim_positions(m) == list(range(m.n_dims))
        ]
        op = next((o for o in found if o is not None and o.name == "linalg.generic"), None)
    if op is None or op.name != "linalg.generic" or len(op.results) != 1:
        return None
    if shape_of(op.results[0]) != shape_of(tensor):
        return None
    try:
        loops = loops_of(op)
    except Refused:
        return None
    combiner = _combiner(op)
    return SharedSum(op, combiner, loops) if combiner and loops.summed else None


def _combiner(op: ir.Operation) -> str | None:
    """The op that joins the sum so far with each point's value, where it is one of those that work in any order."""
    block = op.regions[0].blocks[0]
    *inner, terminator = operations(block)
    last = defining_op(terminator.operands[0])
    so_far = block.arguments[-1]
    if last is None or last not in inner or list(last.operands).count(so_far) != 1 or len(list(so_far.uses)) != 1:
        return None
    type_ = element_type(op.results[0])
    summed = "f32" if b.is_short(type_) else str(type_)
    return last.name if last.name in COMBINERS and summed in SHUFFLED else None
