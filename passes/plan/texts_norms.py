"""A norm of several texts' stream, put off until the sums of the product that reads it (norm_sums.py)."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word
from lispgpt.passes.plan.sharded_chain import NormWeights, Product
from lispgpt.passes.plan.texts_launch import TextsLaunch


class DeferredNorm:
    """Of a layer's stream, behind some products of rows."""

    def __init__(self, launch: TextsLaunch, norm: NormWeights, layer: Word, products: Sequence[Product]) -> None:
        self.launch, self.norm, self.layer, self.products = launch, norm, layer, products
        self.sums = launch.layout.sums_at

    def load(self, product: Product, row: Word) -> list[Word]:
        """The sums of the norm's weights along a product's row; none where the norm has no need of them."""
        found = next(((number, one) for number, one in self.sums.items() if one.product is product), None)
        if found is None:
            return []
        number, sums = found
        flat = ir.MemRefType.get([sums.nbytes // 4], b.f32())
        memory = b.emit("memref.view", [self.launch.memories[number], b.as_value(0)], [flat])
        first = self.layer * (len(sums.of) * sums.product.rows) + row
        return [Word(b.load(memory, [(first + i * sums.product.rows).index()], 1)) for i in range(len(sums.of))]

    def normed(self, total: Word, text: Word, of_row: list[Word]) -> Word:
        """A row's result.  of_row: what `load` has found."""
        mean, factor = c.load_reals(self.launch.moments_place(text), 2)
        total = total - mean * of_row[0] if self.norm.centred else total
        return factor * total if self.norm.beta is None else factor * total + of_row[1]
