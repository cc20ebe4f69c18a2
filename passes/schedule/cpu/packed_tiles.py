"""A CPU's part of a product on instructions that multiply pairs of bf16: both operands are packed as these want them.

A block's operands are put, for some k after the other, into panels of tiles that are small enough for the second-level
cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.in_blocks import kind_of_blocks
from lispgpt.passes.schedule.cpu.panels import DEPTH, Panel, PanelProduct, pairs_of_parts, parts_of_types
from lispgpt.passes.schedule.cpu.register_tiles import Block, steps
from lispgpt.passes.targets.pairs import LINES, Pairs

MOST_OF_A_BLOCK = 384
"""Rows and columns."""


def parts_of(product: Product, mixed: int) -> tuple[int, int]:
    """How many bf16 numbers add up to one of the left and of the right operand.

    Of f32 by f32 three, which have all bits; where one operand is shorter, `mixed` of the other.  Where one is in
    blocks, whose numbers have 4 or 8 bits, two of either: 16 bits, as few rows have beside blocks.
    """
    left, right = (kind_of_blocks(operand.tensor) or operand.dtype for operand in (product.left, product.right))
    return parts_of_types(left, right, mixed)


@dataclass(frozen=True)
class Packing:
    """A block's rows and columns, the k that are packed at once, and the parts of the operands' numbers."""

    rows: int
    columns: int
    depth: int
    parts: tuple[int, int]

    @classmethod
    def of(cls, product: Product, unit: Pairs, parts: tuple[int, int], cores: int, panel_bytes: int) -> Packing:
        """What takes least time on so many cores; panels of a block have at most so many bytes."""
        multiplying = len(pairs_of_parts(*parts)) / unit.speed
        packing = _cycles(product.left, parts[0], by_pairs=False), _cycles(product.right, parts[1], by_pairs=True)

        def time(sizes: tuple[int, int]) -> float:
            rows, columns = (-(-size // LINES) * LINES for size in sizes)
            blocks = -(-product.rows // sizes[0]) * -(-product.columns // sizes[1]) * product.batches
            return -(-blocks // cores) * (rows * columns * multiplying + rows * packing[0] + columns * packing[1])

        sizes = ((rows, columns) for rows in _sizes(product.rows) for columns in _sizes(product.columns))
        rows, columns = min(sizes, key=time)
        most = max(panel_bytes // (2 * (rows * parts[0] + columns * parts[1])) // DEPTH, 1) * DEPTH
        chunks = -(-product.inner // most)
        return cls(rows, columns, min(-(-product.inner // chunks // DEPTH) * DEPTH, product.inner), parts)


def _sizes(extent: int) -> list[int]:
    """Of blocks that share an extent evenly, in whole tiles but for the last."""
    counts = range(1, -(-extent // LINES) + 1)
    return sorted({min(-(-extent // n // LINES) * LINES, extent) for n in counts if -(-extent // n) <= MOST_OF_A_BLOCK})


def _cycles(operand: Operand, parts: int, by_pairs: bool) -> float:
    """That packing an element takes, nearly."""
    across = operand.along_outer > 1
    apart = 3.0 if not across and operand.along_k == 1 else 0.0
    return apart + 0.5 * parts + (0.3 * parts if across != by_pairs else 0.0)


class PackedTiles:
    """Sums in a unit's registers."""

    def __init__(self, product: Product, reader: Reader, unit: Pairs, packing: Packing) -> None:
        self.product, self.unit, self.depth = product, unit, packing.depth
        self.left = Panel(product.left, reader, (packing.rows, self.depth), packing.parts[0], by_pairs=False)
        self.right = Panel(product.right, reader, (packing.columns, self.depth), packing.parts[1], by_pairs=True)
        self.panels = PanelProduct(unit, self.left.memory, self.right.memory, pairs_of_parts(*packing.parts))

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block; past its last row and column, up to whole tiles, they are anything."""
        whole = self.depth == self.product.inner
        tiles, lines = -(-block.columns // LINES), -(-block.rows // self.unit.rows)
        if not whole:
            zero = b.constant(0.0, b.with_width(b.f32(), LINES))
            clear = lambda row, _: steps(tiles, 1, lambda n, _: b.store(zero, sums, [row, b.mul(n, LINES)]))  # noqa: E731
            steps(lines * self.unit.rows, 1, clear)

        def part(first: Index, depth: int) -> None:
            self.left.pack(block.batch, block.row, block.rows, first, depth)
            self.right.pack(block.batch, block.column, block.columns, first, depth)

            def columns(column: Index, width: int) -> None:
                tile = partial(self.panels.tile, sums, -(-depth // DEPTH), not whole)
                steps(lines, self.unit.row_tiles, lambda row, height: tile(row, height, column, width))

            steps(tiles, self.unit.column_tiles, columns)

        steps(self.product.inner, self.depth, part)
