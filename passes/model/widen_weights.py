"""widen-weights: matrices in blocks become BF16 once, ahead of products of many rows, where that should take less time.

Before:                                              After:
  %w = linalg.generic … {blocks, inline, rounded}      %w = linalg.generic … {blocks, inline, rounded}
    -> tensor<8192x2048xf32>                             -> tensor<8192x2048xf32>
  %s = linalg.contract ins(%x, %w) …                   %n = linalg.generic ins(%w) { arith.truncf } {widens}
                                                         -> tensor<8192x2048xbf16>
                                                       %s = linalg.contract ins(%x, %n) …

A product's blocks widen the numbers that they multiply, each those of its tiles, so that a matrix is widened as often
as there are tiles of rows, behind the same barriers as its steps.  Ahead of a product that is a kernel of its own, at
the rate of memory, whose result lies where those of the matrices before it lay: the plan's memory is the largest one's.

Requires: entries on tensors, and what round-activations ensures: numbers may be rounded to BF16 where it says so, which
is with precision=fast alone.
Ensures: a product of numbers in blocks that should take longer than both kernels reads BF16, the closest to what blocks
stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import contract, elementwise
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    entry_functions,
    indexing_maps,
    loop_extents,
    operations,
    shape_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.recognise.bf16_parts import may_round
from lispgpt.passes.recognise.find_gradients import is_product
from lispgpt.passes.recognise.in_blocks import bytes_of_blocks, kind_of_blocks
from lispgpt.passes.states import UNPLACED
from lispgpt.passes.targets import Gpu

WIDENS = "widens"
"""The mark of the op that rounds what a matrix's blocks stand for."""

WHEN = ("cost", "always", "never")

TILE_ROWS = 128
"""Of a product's tile, about."""

FEW_BITS, ELSE = 12, 20
"""Operations by which a product's lanes unpack a number of a block: of fewer than eight bits in whole words; any other.
Of five formats on an H200 (2026) it is 13 to 25."""

REACHED, STORED, BUSY = 0.87, 0.5, 0.5
"""The shares of a chip's rates that are reached: of matrix instructions; of memory by what widens, most of whose bytes
are stored (0.49 on an H200, 2026); of vector instructions."""

TOGETHER = 2
"""What a product multiplies and what it widens take is added up by this power: they overlap in part."""

SHORT_BYTES, WORD = 2, 4
"""Of a BF16 number, and of what lanes load at least of blocks that are whole words."""

LARGEST = 1 << 28
"""Bytes of a matrix in BF16 that is given memory."""


@dataclass(frozen=True)
class WidenWeights(Pass):
    """when: by modelled "cost", "always" where products have `rows` rows and more, or "never"."""

    starts_from = (UNPLACED,)
    when: str = "cost"
    rows: int = 32

    def run(self, module: ir.Module, target: object) -> None:
        if self.when not in WHEN:
            raise UserError(f"widen-weights: when is one of {', '.join(WHEN)}, not {self.when!r}")
        if self.when == "never" or not isinstance(target, Gpu):
            return
        for entry in entry_functions(module):
            for op in operations(entry.regions[0].blocks[0]):
                side = _widened_side(op) if is_product(op) else None
                if side is not None and self._pays(op, side, target):
                    _widen(op, side)

    def _pays(self, product: ir.Operation, side: int, target: Gpu) -> bool:
        rows, rates, matrix = _rows(product, side), target.rates, product.operands[side]
        numbers = prod(shape_of(matrix))
        if self.when == "always" or rates is None:
            return self.when == "always" and rows >= self.rows
        dtype = find_dtype(kind_of_blocks(matrix))
        each = FEW_BITS if dtype.item_bytes % WORD == 0 and dtype.item_bytes < dtype.block else ELSE
        multiply = 2 * rows * numbers / (REACHED * rates.matrix)
        widen = -(-rows // TILE_ROWS) * numbers * each / (BUSY * rates.vector)
        nbytes = numbers * (SHORT_BYTES + dtype.item_bytes / dtype.block)
        ahead = multiply + target.launch_seconds + nbytes / (STORED * rates.bandwidth)
        beside = (multiply**TOGETHER + widen**TOGETHER) ** (1 / TOGETHER)
        return SHORT_BYTES * numbers <= LARGEST and ahead < beside


def _widened_side(product: ir.Operation) -> int | None:
    """Which of a product's operands is a matrix in blocks along k that may be rounded; None where neither is."""
    maps = [dim_positions(map_) for map_ in indexing_maps(product)]
    for side, operand in enumerate(list(product.operands)[:2]):
        along_k = maps[side][-1] not in maps[2]
        if len(shape_of(operand)) == 2 and along_k and bytes_of_blocks(operand) is not None and may_round(operand):
            return side
    return None


def _rows(product: ir.Operation, side: int) -> int:
    """Of the other operand."""
    maps, extents = [dim_positions(map_) for map_ in indexing_maps(product)], loop_extents(product)
    return prod(extents[loop] for loop in maps[1 - side] if loop not in maps[side])


def _widen(product: ir.Operation, side: int) -> None:
    """Have a product read a matrix in BF16, which an op right ahead of it makes."""
    operands = list(product.operands)
    short = ir.RankedTensorType.get(list(shape_of(operands[side])), ir.BF16Type.get())

    def body(values: Sequence[ir.Value]) -> ir.Value:
        return b.binary("arith.addf", values[2], b.binary("arith.mulf", b.extend(values[0]), b.extend(values[1])))

    with ir.InsertionPoint(product), product.location:
        operands[side] = elementwise([operands[side]], short, lambda number: b.shortened(number, short.element_type))
        defining_op(operands[side]).attributes[WIDENS] = ir.UnitAttr.get()
        left, right, start = operands
        made = contract(left, right, start, indexing_maps(product), body)
    product.results[0].replace_all_uses_with(made)
    product.erase()
