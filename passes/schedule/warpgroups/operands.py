"""A product's operands as warpgroups' copies bring them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.ring import CopiedOperand, WidenedOperand
from lispgpt.passes.targets.warpgroup_tiles import Shape, Tiling


@dataclass(frozen=True)
class Operands:
    """How the left and the right operand are copied."""

    left: CopiedOperand
    right: CopiedOperand | WidenedOperand

    @property
    def transposed(self) -> tuple[bool, bool]:
        return self.left.transposed, self.right.transposed

    def shape(self, product: Product, result_bytes: int, results: int) -> Shape:
        """What a product of these is to its tiles."""
        extents, left_bytes = (product.rows, product.columns, product.inner), self.left.item * len(self.left.tensors)
        stored = self.left.rest is not None
        widened = self.right.numbers if isinstance(self.right, WidenedOperand) else 0
        return Shape(*extents, left_bytes, result_bytes, self.transposed, results, stored, product.batches, widened)

    def of(self, tiling: Tiling) -> Operands:
        """For tiles of that size."""
        right: CopiedOperand | WidenedOperand = replace(self.right, outer=tiling.outputs, sharing=tiling.pair)
        return Operands(replace(self.left, outer=tiling.rows), right)
