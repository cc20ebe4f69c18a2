"""What makes weights of scores, read ahead: one number a row of the scores, and comparisons that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import dim_positions, indexing_maps, shape_of
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import mapped
from lispgpt.passes.recognise.attention_gradients import AttentionGradients
from lispgpt.passes.recognise.score_operands import POSITION

Where = tuple[list[Index], Index]
"""The leading indices of scores, and the position."""


class RowValues:
    """Of tensors with one number for each row of the scores, such as its log-sum-exp.  along: the dimension that sums
    go along; where that is the rows, neighbouring ones are read together."""

    def __init__(self, sums: AttentionGradients, reader: Reader, along: int) -> None:
        self.sums, self.reader, self.along = sums, reader, along
        self.tensors: dict[ir.Value, ir.AffineMap] = {}
        made = {op.results[0] for op in sums.shared()}
        for op in sums.weigh:
            for value, map_ in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
                dims = dim_positions(map_)
                plain = None not in dims and len(sums.extents) not in dims and value not in made
                if plain and isinstance(value.type, ir.RankedTensorType) and self.tensors.get(value, map_) == map_:
                    self.tensors[value] = map_

    def read(self, where: Where, width: int) -> list[ir.Value]:
        """At one row; none where rows are what sums go along."""
        if self.along != POSITION:
            return []
        self._release()
        return [self.reader.read(tensor, mapped(map_, [*where[0], None])) for tensor, map_ in self.tensors.items()]

    def read_pair(self, place: Callable[[Index], Where], along: Sequence[Index]) -> list[list[ir.Value]]:
        """At one row, or two neighbouring ones, the first of them even, where these are what sums go along."""
        if self.along == POSITION:
            return []
        self._release()
        places, found = [place(index)[0] for index in along], []
        for tensor, map_ in self.tensors.items():
            beside = dim_positions(map_)[-1:] == [self.along] and shape_of(tensor)[-1] % 2 == 0
            if beside and len(along) == 2:
                pair = self.reader.read(tensor, mapped(map_, [*places[0], None]), 2)
                found.append([b.lane_of(pair, i) for i in range(2)])
            else:
                found.append([self.reader.read(tensor, mapped(map_, [*at, None])) for at in places])
        return found

    def _release(self) -> None:
        """Take the tensors' elements from memory again."""
        for tensor in self.tensors:
            self.reader.bound.pop(tensor, None)

    def weights(self, scores: Sequence[ir.Value], held: Sequence[ir.Value], where: Where) -> list[ir.Value]:
        """Of each sum, at one place, of the products' scores there and what `read` gave of its row."""
        with self.reader.scope():
            self.hold(held)
            for product, score in zip(self.sums.products, scores, strict=True):
                self.reader.hold(product.op.results[0], score)
            return [b.extend(self.reader.read(one.unrounded, [*where[0], where[1]])) for one in self.sums.sums]

    def hold(self, values: Sequence[ir.Value]) -> None:
        """Take the tensors' elements from here on to be these."""
        for tensor, value in zip(self.tensors, values, strict=True):
            self.reader.hold(tensor, value)
