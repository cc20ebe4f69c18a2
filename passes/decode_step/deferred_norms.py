"""A norm that is put off until the sums of the product that reads it, in a clustered launch (norm_sums.py)."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.decode_step.launch import Launch


def load_sums(launch: Launch, product: Product, layer: Number, row: Number) -> list[Number]:
    """Sums of the norm's weights along a product's row; none where the norm has no need of them."""
    found = next(((number, one) for number, one in launch.layout.sums_at.items() if one.product is product), None)
    if found is None:
        return []
    number, sums = found
    flat = ir.MemRefType.get([sums.nbytes // 4], b.f32())
    memory = b.emit("memref.view", [launch.memories[number], b.as_value(0)], [flat])
    first = layer * (len(sums.of) * sums.product.rows) + row
    return [Number(b.load(memory, [(first + i * sums.product.rows).index()], 1)) for i in range(len(sums.of))]


def normed(norm: NormWeights, total: Number, sums: Sequence[Number], mean: Number, factor: Number) -> Number:
    """A row's result.  total: its sum.  sums: what `load_sums` has found.  factor: 1 / deviation of the residual
    stream."""
    total = total - mean * sums[0] if norm.centred else total
    return factor * total if norm.beta is None else factor * total + sums[1]
