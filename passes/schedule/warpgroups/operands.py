"""A product's operands as warpgroups' copies bring them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.ring import Side, WidenedSide
from lispgpt.passes.targets.warpgroup_tiles import Shape, Tiling


@dataclass(frozen=True)
class Sides:
    """How the left and the right operand are copied."""

    left: Side
    right: Side | WidenedSide

    @property
    def transposed(self) -> tuple[bool, bool]:
        return self.left.transposed, self.right.transposed

    def shape(self, product: Product, result_bytes: int, results: int) -> Shape:
        """What a product of these is to its tiles."""
        extents, left_bytes = (product.rows, product.columns, product.inner), self.left.item * len(self.left.tensors)
        stored = self.left.rest is not None
        widened = self.right.numbers if isinstance(self.right, WidenedSide) else 0
        return Shape(*extents, left_bytes, result_bytes, self.transposed, results, stored, product.batches, widened)

    def of(self, tiling: Tiling) -> Sides:
        """For tiles of that size."""
        right: Side | WidenedSide = replace(self.right, outer=tiling.outputs)
        if isinstance(right, Side):
            right = replace(right, sharing=tiling.pair)
        return Sides(replace(self.left, outer=tiling.rows), right)
