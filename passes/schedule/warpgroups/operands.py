"""A product's operands as warpgroups' copies bring them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.ring import Side
from lispgpt.passes.targets.warpgroup_tiles import Shape, Tiling


@dataclass(frozen=True)
class Sides:
    """How the left and the right operand are copied."""

    left: Side
    right: Side

    @property
    def transposed(self) -> tuple[bool, bool]:
        return self.left.transposed, self.right.transposed

    def shape(self, product: Product, result_bytes: int, results: int) -> Shape:
        """What a product of these is to its tiles."""
        extents, left_bytes = (product.rows, product.columns, product.inner), self.left.item * len(self.left.tensors)
        stored = self.left.rest is not None
        return Shape(*extents, left_bytes, result_bytes, self.transposed, results, stored, product.batches)

    def of(self, tiling: Tiling) -> Sides:
        """For tiles of that size."""
        right = replace(self.right, outer=tiling.outputs, sharing=tiling.pair)
        return Sides(replace(self.left, outer=tiling.rows), right)
