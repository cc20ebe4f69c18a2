"""A norm of several sequences' residual stream, put off until the sums of the product that reads it (norm_sums.py)."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir.arithmetic import Number
from lispgpt.passes.decode_step.batch_launch import BatchLaunch
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.decode_step.deferred_norms import load_sums, normed
from lispgpt.passes.targets import ptx


class DeferredNorm:
    """Of a layer's residual stream, behind some products of rows."""

    def __init__(self, launch: BatchLaunch, norm: NormWeights, layer: Number, products: Sequence[Product]) -> None:
        self.launch, self.norm, self.layer, self.products = launch, norm, layer, products

    def load(self, product: Product, row: Number) -> list[Number]:
        """The sums of the norm's weights along a product's row."""
        return load_sums(self.launch, product, self.layer, row)

    def normed(self, total: Number, sequence: Number, of_row: list[Number]) -> Number:
        """A row's result.  of_row: what `load` has found."""
        return normed(self.norm, total, of_row, *ptx.load_reals(self.launch.moments_place(sequence), 2))
