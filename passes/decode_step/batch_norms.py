"""A norm of several sequences' residual stream, put off until the sums of the product that reads it (norm_sums.py)."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.passes.decode_step import cluster as c
from lispgpt.passes.decode_step.batch_launch import BatchLaunch
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.decode_step.deferred_norms import load_sums, normed
from lispgpt.passes.decode_step.scalars import Word


class DeferredNorm:
    """Of a layer's residual stream, behind some products of rows."""

    def __init__(self, launch: BatchLaunch, norm: NormWeights, layer: Word, products: Sequence[Product]) -> None:
        self.launch, self.norm, self.layer, self.products = launch, norm, layer, products

    def load(self, product: Product, row: Word) -> list[Word]:
        """The sums of the norm's weights along a product's row."""
        return load_sums(self.launch, product, self.layer, row)

    def normed(self, total: Word, sequence: Word, of_row: list[Word]) -> Word:
        """A row's result.  of_row: what `load` has found."""
        return normed(self.norm, total, of_row, *c.load_reals(self.launch.moments_place(sequence), 2))
