"""How long products should take that go without matrix instructions: a model, as that of tiles (tile/cost.py)."""

from __future__ import annotations

from math import hypot, prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.cost import CACHE_SHARE, REACHED

UNPACKING = 8
"""Operations by which a weight in a block becomes a number."""

START, BUSY = 1.6e-6, 0.2
"""Seconds that nothing overlaps with, and the share of the rate of vector instructions that is reached beside loads and
conversions: by eight rows of 4096 x 14336 on an H200."""


def nbytes(tensor: ir.Value) -> int:
    """Of a tensor's elements."""
    return prod(shape_of(tensor)) * b.item_bytes(tensor.type)


def vector_seconds(product: Product, weights: int, passes: int, others: int, target: Gpu) -> float:
    """weights: bytes of the larger operand, all of which are read in each of `passes`.  others: operations beside
    multiply-adds."""
    rates = target.rates
    assert rates is not None
    memory, left = REACHED * rates.bandwidth, nbytes(product.left.tensor)
    operations = 2 * product.batches * product.rows * product.columns * product.inner + others
    arithmetic = operations / (BUSY * rates.vector)
    bytes_ = max((weights + left) / memory, passes * weights / (CACHE_SHARE * memory))
    return START + hypot(bytes_, arithmetic)  # neither waits for the other alone
