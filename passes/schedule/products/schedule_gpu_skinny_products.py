"""schedule-gpu-skinny-products: products of a few rows with a matrix that has k innermost, on matrix instructions.

Before: linalg.contract x[n, k] * w[o, k] of at most `most_rows` rows n, with what computes x ahead of it and
        elementwise ops behind it.
After:  each block takes some of w's rows, and each of its subgroups a part of k: it loads those vectors of w straight
        into registers, all of them at once (before it waits for x, where the target starts kernels early), multiplies
        them by all rows of x, and the block adds up in shared memory.  x in f32 is `parts` bf16 numbers that add up to
        it.  Where reductions make x, subgroups compute its rows once for their block.  Of a long w, blocks loop over
        tiles with the next one's loads under way.

Requires: what plan-arena and recognise-products ensure.
Ensures: such products, whose w is read as it is in memory, have only scalar, vector and matrix ops, `grid` and `block`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import constant_arguments, refusable
from lispgpt.passes.kernels.products import Product, as_skinny, unscheduled_products
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.schedule.products.skinny_division import Division, Share
from lispgpt.passes.schedule.products.skinny_products import SkinnyProduct
from lispgpt.passes.schedule.products.vector_time import nbytes
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.cost import REACHED

MOST_VECTORS = 24
"""Of w that a lane loads at once."""
MOST_KEPT = 16
"""Runs of x that a lane keeps from tile to tile of w."""

OTHERS = 28
"""Registers of a lane beside sums and operands: the most seen where kernels of many lengths just do not spill."""

START, NORM = 0.4e-6, 9.5e-6
"""Seconds of a launch that nothing overlaps with, and of a block that computes a norm's rows."""

LOOPS, CACHE = 1.9, 1.5
"""By how much blocks that loop take longer than the weights' bytes do, and how fast all that blocks read comes from the
cache that cores share, by the memory's rate."""

TILES = (1, 2, 4)
"""Of matrix instructions along w's rows that a block may take."""


@dataclass(frozen=True)
class ScheduleGpuSkinnyProducts(Pass):
    """least_rows, most_rows: of x.  parts: bf16 numbers that an f32 one is split into.  subgroups: of a block, or twice
    as many where a lane's share of one row of w would be more than `vectors` vectors.  outputs: rows of w of a block;
    0: as many as an instruction has, -1: by what a core has to load.  blocks_per_core: how many share a core where
    they loop.  ahead: the most vectors of x that a lane is made to load before the first is multiplied."""

    starts_from = (PLACED,)
    only_faster = True
    least_rows: int = 2
    most_rows: int = 16
    parts: int = 2
    subgroups: int = 8
    vectors: int = 4
    outputs: int = -1
    blocks_per_core: int = 2
    ahead: int = 24

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        constant = constant_arguments(module)
        for kernel, found in unscheduled_products(module, schedule=self.name):
            product = as_skinny(found)
            if self.least_rows <= product.rows <= self.most_rows and _fits(product, target):
                with refusable(kernel):
                    division = _division(product, target, self)
                    SkinnyProduct(kernel, product, constant(kernel), target, division).emit()

    def time_of(self, kernel: ir.Operation, found: Product, target: Gpu) -> float:
        """Seconds that it should take of a product, fitted to 14 on an H200 (2026); Refused where it leaves that
        to others."""
        product = as_skinny(found)
        if target.matrix is None or not self.least_rows <= product.rows <= self.most_rows or not _fits(product, target):
            raise Refused("there are too few or too many rows, or the other operand is not in memory with k innermost")
        division, rates = _division(product, target, self), target.rates
        assert rates is not None
        memory, weights, rows = REACHED * rates.bandwidth, *map(nbytes, (product.right.tensor, product.left.tensor))
        blocks = product.batches * -(-product.columns // division.share.outputs)
        if division.resident:
            return START + LOOPS * weights / memory
        norms = NORM * -(-blocks // target.cores) if product.left.reduces() else 0.0
        return START + norms + max(weights / memory, (weights + blocks * rows) / (CACHE * memory))


def _fits(product: Product, target: Gpu) -> bool:
    """Whether lanes' vectors of w lie as they are in memory, and there are rows enough of it for an instruction."""
    unit, right = target.matrix, product.right
    assert unit is not None
    as_it_is = right.buffer() is not None and not right.is_computed() and right.dtype != "f16"
    return as_it_is and right.along_k % unit.run == product.inner % unit.block == 0 and product.columns >= unit.rows


def _division(product: Product, target: Gpu, options: ScheduleGpuSkinnyProducts) -> Division:
    """How blocks and subgroups share a product; Refused where no lane has the registers."""
    unit = target.matrix
    assert unit is not None
    every = product.inner // unit.block
    wide = -(-every // options.subgroups) > options.vectors
    subgroups = min(every, options.subgroups * (2 if wide else 1))
    steps = -(-every // subgroups)
    parts = 1 if product.left.dtype == "bf16" else options.parts
    threads, ahead = subgroups * target.subgroup, options.ahead
    if product.columns > 2 * target.cores * options.blocks_per_core * unit.rows:
        share = _share(product, target, steps, 0)
        if -(-product.rows // share.left_size) * len(share.held_left) * steps * parts > MOST_KEPT:
            raise Refused("a subgroup's part of a product's rows is too long to be kept in registers")
        room = target.lane_registers(threads, options.blocks_per_core)
        if _registers(product, target, share, steps, ahead, parts) <= room:
            return Division(share, subgroups, steps, options.blocks_per_core, options.parts, ahead)
    room = target.lane_registers(threads, 1)
    share = _share(
        product, target, steps, options.outputs, lambda each: _registers(product, target, each, steps, ahead) <= room
    )
    return Division(share, subgroups, steps, 0, options.parts, ahead)


def _registers(product: Product, target: Gpu, share: Share, steps: int, ahead: int, parts: int = 0) -> int:
    """Words of a lane: of sums, of w and of x, with what addresses and masks take beside them.

    ahead: vectors of x that are loaded before the first is multiplied, where a block has one tile.  parts: bf16 numbers
    of each of x that are kept from tile to tile of w, while the next one's vectors are loaded, too; 0: one tile.
    """
    unit = target.matrix
    assert unit is not None
    size, left_size = (b.item_bytes(o.tensor.type) for o in (product.right, product.left))
    tiles = -(-product.rows // share.left_size) if parts else 1
    right = share.tiles * len(share.held) * steps * unit.run * size
    left = tiles * len(share.held_left) * steps * unit.run
    first = min(left * left_size, ahead * target.vector_bytes)
    nbytes = 2 * right + 2 * parts * left if parts else right + first
    return share.tiles * tiles * prod(unit.accumulator) + OTHERS + ceil(target.loaded_words * nbytes / 4)


def _share(
    product: Product, target: Gpu, steps: int, outputs: int, fits: Callable[[Share], bool] = lambda _: True
) -> Share:
    """The tile of so many outputs, or one instruction's (0), or that with which a core has least to load (-1): its
    blocks' rows of w, and all of x for each of them.  fits: whether lanes have the registers."""
    unit = target.matrix
    assert unit is not None
    shares = [Share(n, False, unit.rows, unit.columns, unit.left_rows, (0,)) for n in TILES]
    if outputs and unit.columns < unit.rows:
        shares.append(Share(1, True, unit.columns, unit.rows, (0,), unit.left_rows))
    if outputs >= 0:
        shares = [share for share in shares if share.outputs == outputs] or shares[:1]
    shares = [share for share in shares if share.tiles * len(share.held) * steps <= MOST_VECTORS]
    shares = [share for share in shares if fits(share)]
    if not shares:
        raise Refused("a subgroup's part of a product's rows is too long for its registers")

    def loaded(share: Share) -> int:
        blocks = product.batches * -(-product.columns // share.outputs)
        size, left_size = (b.item_bytes(o.tensor.type) for o in (product.right, product.left))
        each = product.inner * (share.outputs * size + product.rows * left_size)
        return -(-blocks // target.cores) * each

    return min(shares, key=loaded)
