"""recognise-products: record on each kernel that is a product what its dimensions are.

Before: a kernel = "contraction" with linalg.contract indexing_maps = [[b, n, k], [b, k, o], [b, n, o]] …
After:  the same with product = {extents = [2, 16, 48, 64], batch = [0], rows = [1], columns = [2], sums = [3],
                                 left = [0, 1, 3], right = [0, 3, 2], result = [0, 1, 2],
                                 operands = [0, 1]}

Requires: what outline-kernels ensures.
Ensures: `ProductLayout.of_kernel` describes every kernel of kind "contraction" that holds one linalg.contract.
"""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions, operations
from lispgpt.passes.base import Pass
from lispgpt.passes.recognise.product_layout import ATTRIBUTE, ProductLayout, has_plain_dimensions


class RecogniseProducts(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for kernel in kernel_functions(module, "contraction"):
            found = [op for op in operations(kernel.regions[0].blocks[0]) if op.name == "linalg.contract"]
            if len(found) == 1 and has_plain_dimensions(found[0]):
                kernel.attributes[ATTRIBUTE] = ProductLayout.of_contraction(found[0]).attribute()
