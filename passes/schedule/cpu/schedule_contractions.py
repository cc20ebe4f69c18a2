"""schedule-contractions: products of any layout on a CPU, in vectors, with what follows them applied to the sums.

Before (inside a kernel = "contraction"):          After:
  %s = linalg.contract ins(%x, %w) …                 %o, %n, %b = gpu.block_id x * 48, y * 16, z
  %y = linalg.generic ins(%s, %bias) …               scf.for %o … scf.for %n … {
                                                       scf.for %k … iter_args(sums) { loads, arith.extf, vector.fma }
                                                       vector.reduction …, memref.store in scratch }
                                                     scf.for … { vector.load scratch, + bias, …, vector.store %y }

Requires: what outline-kernels, recognise-products and destination-passing ensure.
Ensures: the kernel's `grid` is (blocks of columns, blocks of rows, batches), and nothing else in it depends on how many
blocks of rows there are.  A register tile of sums stays in vector registers.  BF16 is widened in registers and sums are
F32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.kernels.kernel import refusable, reschedule
from lispgpt.passes.kernels.products import Product, unscheduled_products
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.schedule.cpu.byte_tiles import ByteTiles
from lispgpt.passes.schedule.cpu.packed_tiles import PackedTiles, Packing, parts_of
from lispgpt.passes.schedule.cpu.panels import pairs_of_parts
from lispgpt.passes.schedule.cpu.register_tiles import (
    Block,
    DotTiles,
    OuterTiles,
    TileSizes,
    divisor,
    scratch,
    steps,
    vector_ranges,
)
from lispgpt.passes.schedule.cpu.transposed_tiles import TransposedTiles
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Cpu
from lispgpt.passes.targets.pairs import LINES, Pairs

OPERAND_REGISTERS = 8
"""Vector registers that a tile's sums leave to what is multiplied."""

WHOLE_OUTPUTS = 512
"""Columns in a block, at most, where weights are multiplied as whole numbers."""


@dataclass(frozen=True)
class ScheduleContractions(Pass):
    """outputs, rows: columns and rows in a block, and outer_rows rows where sums are vectors of columns; rows_tile,
    outputs_tile: sums in registers, as far as the target has them; vector_outputs: with one row; depth_unroll: elements
    of what is summed that a loop over a tile takes at once.  packed_rows: the fewest rows for which an operand's
    vectors are first put side by side, and transposed_rows those for which columns that lie apart are,
    transposed_outputs of them in a block of either; most_rows: in such a block, as far as cores have enough blocks.
    dot_product_rows: the fewest rows and columns for instructions that multiply pairs, and panel_bytes what is packed
    for them at once.  parts: bf16 numbers that an f32 one is split into where the other operand is shorter: two keep
    about 16 bits, three all; split_products: how many products take the time of splitting a number.  whole_numbers:
    whether few rows beside weights in blocks become numbers of 16 bits."""

    starts_from = (PLACED,)
    only_faster = True
    outputs: int = 48
    rows: int = 16
    outer_rows: int = 64
    rows_tile: int = 4
    outputs_tile: int = 6
    vector_outputs: int = 1
    depth_unroll: int = 4
    packed_rows: int = 8
    transposed_rows: int = 64
    transposed_outputs: int = 192
    most_rows: int = 256
    dot_product_rows: int = 16
    panel_bytes: int = 1 << 19
    parts: int = 3
    split_products: int = 20
    whole_numbers: bool = True

    def run(self, module: ir.Module, target: Cpu) -> None:
        for kernel, product in unscheduled_products(module):
            with refusable(kernel):
                _CpuProduct(kernel, self, product, target).emit()


def _unit(product: Product, target: Cpu, options: ScheduleContractions) -> Pairs | None:
    """The target's instruction for pairs, where a product is large enough to pack its operands for it.

    Numbers of several parts take several products, which pays where an instruction has many sums, and where enough is
    multiplied by each number that is split."""
    unit, rows, columns = target.pairs, product.rows, product.columns
    if unit is None or min(rows, columns, product.inner) < options.dot_product_rows:
        return None
    count = len(pairs_of_parts(*parts_of(product, options.parts)))
    if count == 1:
        return unit
    share = count * target.vector_bytes / (3 * unit.speed)  # of vectors' time, who are as quick as caches allow
    pays = rows * columns * (1 - share) >= options.split_products * (rows + columns)
    return unit if pays and unit.speed >= 4 * target.vector_bytes else None


def _oriented(product: Product, lanes: int) -> Product:
    """With the operand whose rows or columns lie side by side on the right, if one's do."""
    left, right = product.left, product.right
    better = right.along_outer == 1 or (right.extent < lanes <= left.extent)
    return product.transposed() if left.along_outer > 1 and better else product


class _CpuProduct:
    def __init__(self, kernel: ir.Operation, options: ScheduleContractions, product: Product, target: Cpu) -> None:
        self.kernel, self.target, self.lanes = kernel, target, target.vector_bytes // 4
        self.outputs = outputs_of(kernel)
        self.weights: BlockWeights | None = None
        self.turns = False
        self.unit = _unit(product, target, options)
        if self.unit is not None:
            self._pack(product, options, self.unit)
        else:
            self._tile(_oriented(product, self.lanes), options)
        self.along_rows = self.product.along_columns == 1 and self.product.transposed().along_columns > 1

    def _pack(self, product: Product, options: ScheduleContractions, unit: Pairs) -> None:
        self.product = product
        self.packing = Packing.of(
            product, unit, parts_of(product, options.parts), self.target.cores, options.panel_bytes
        )
        self.rows_block, self.columns_block = self.packing.rows, self.packing.columns

    def _tile(self, product: Product, options: ScheduleContractions) -> None:
        self.product = product
        self.outer = product.right.along_outer > 1
        if options.whole_numbers and ByteTiles.can_multiply(product, self.target):
            weights = BlockWeights.of(product.right)
            self.weights = weights if weights is None or not weights.has_floats else None
        self.packs = product.rows >= options.packed_rows
        if self.weights is None and not self.outer and self._turns(product, options):
            self._turn(product, options)
            return
        self.sizes = self._outer_tile(product.rows) if self.outer else self._dot_tile(product.rows, options)
        tile = self.sizes.columns * (self.lanes if self.outer else 1)
        # Every block makes the other operand whole numbers anew.
        most = min(WHOLE_OUTPUTS, product.columns // (2 * self.target.cores)) if self.weights is not None else 0
        self.columns_block = _block_of(product.columns, max(options.outputs, most), tile)
        self.rows_block = _evenly(product.rows, self._outer_rows(options) if self.outer else options.rows)
        if self.outer and self.packs:  # what a part of k has of either operand is near for all of a block's columns
            rows = -(-product.rows // self.rows_block) * product.batches
            most = min(options.transposed_outputs, product.columns * rows // self.target.cores)
            self.columns_block = _block_of(product.columns, max(self.columns_block, most), tile)

    def _outer_rows(self, options: ScheduleContractions) -> int:
        """In a block, at most: every block packs its columns anew."""
        if not self.packs:
            return options.outer_rows
        columns = -(-self.product.columns // self.columns_block) * self.product.batches
        enough = self.product.rows * columns // (2 * self.target.cores)
        return max(options.outer_rows, min(options.most_rows, enough))

    def _turns(self, product: Product, options: ScheduleContractions) -> bool:
        return product.rows >= options.transposed_rows and min(product.columns, product.inner) >= 2 * self.lanes

    def _turn(self, product: Product, options: ScheduleContractions) -> None:
        """Blocks for columns that lie apart and are first put side by side: large ones, as far as cores have enough."""
        self.turns, self.sizes = True, self._outer_tile(product.rows)
        tile, enough = self.sizes.columns * self.lanes, 2 * self.target.cores
        self.rows_block = _evenly(product.rows, options.most_rows)
        rows = -(-product.rows // self.rows_block) * product.batches
        most = max(tile, min(options.transposed_outputs, product.columns * rows // enough))
        self.columns_block = product.columns if product.columns <= most else _block_of(product.columns, most, tile)

    def _dot_tile(self, most: int, options: ScheduleContractions) -> TileSizes:
        rows = _evenly(_evenly(most, options.rows), options.rows_tile)
        room = min(options.rows_tile * options.outputs_tile, self.target.registers - OPERAND_REGISTERS)
        columns = options.vector_outputs if rows == 1 else max(1, min(room // rows, options.outputs_tile))
        return TileSizes(rows, columns, self.lanes, options.depth_unroll)

    def _outer_tile(self, rows: int) -> TileSizes:
        """A vector for each sum, for each of the right operand's, and one for the left one's element."""
        vectors = -(-self.product.columns // self.lanes)
        columns = min(vectors, 3 if self.target.registers >= 32 else 2)
        room = (self.target.registers - 2) // columns - 1
        return TileSizes(min(rows, 8, room), columns, self.lanes)

    def emit(self) -> None:
        product = self.product
        grid = [-(-product.columns // self.columns_block), -(-product.rows // self.rows_block), product.batches]
        if reschedule(self.kernel, grid, [1], self.target, self._body) and self.unit and self.unit.permission:
            self.kernel.attributes["permission"] = ir.StringAttr.get(self.unit.permission)

    def _body(self) -> None:
        product, reader = self.product, Reader(self.target)
        for operand in (product.left, product.right):
            operand.bind_buffer(reader)
        tiles, sums = self._tiles(reader), scratch(self._sums_shape())
        column = b.mul(b.block_id("x"), self.columns_block)
        row = b.mul(b.block_id("y"), self.rows_block) if product.rows > 1 else 0
        batch = b.block_id("z") if product.batches > 1 else 0

        def block(rows: int, columns: int) -> None:
            part = Block(batch, row, column, rows, columns)
            with reader.scope():
                tiles.fill(part, sums)
            self._results(reader, part, sums)

        def at_rows(rows: int) -> None:
            _whole_or_rest(column, product.columns, self.columns_block, lambda columns: block(rows, columns))

        _whole_or_rest(row, product.rows, self.rows_block, at_rows)

    def _tiles(self, reader: Reader) -> PackedTiles | TransposedTiles | OuterTiles | ByteTiles | DotTiles:
        if self.weights is not None:
            return ByteTiles(self.product, reader, self.weights, self.target)
        if self.unit is not None:
            return PackedTiles(self.product, reader, self.unit, self.packing)
        if self.turns:
            return TransposedTiles(self.product, reader, self.sizes, min(self.rows_block, self.product.rows))
        if self.outer:
            return OuterTiles(self.product, reader, self.sizes, self.packs)
        return DotTiles(self.product, reader, self.sizes)

    def _sums_shape(self) -> list[int]:
        """Of a block: whole tiles and vectors of them."""
        rows, columns = min(self.rows_block, self.product.rows), self.columns_block
        if self.unit is not None:
            return [-(-rows // LINES) * LINES, -(-columns // LINES) * LINES]
        return [rows, -(-columns // self.lanes) * self.lanes if self.outer or self.turns else columns]

    def _results(self, reader: Reader, block: Block, sums: ir.Value) -> None:
        """Apply what follows the product to a block's sums and write every result of the kernel."""

        def elements(row: Index, column: Index, lanes: int) -> None:
            def read_sums(index: object, width: int) -> ir.Value:
                if self.along_rows and width > 1:
                    return b.vector_of([b.load(sums, [b.add(row, i), column], 1) for i in range(width)])
                return b.load(sums, [row, column], width, aligned=False)

            with reader.scope():
                reader.bind(self.product.result, read_sums)
                place = self.product.place(block.batch, b.add(block.row, row), b.add(block.column, column))
                for tensor, destination in self.outputs:
                    b.store(reader.read(tensor, place, lanes), destination, place, aligned=False)

        if self.along_rows:
            steps(block.columns, 1, lambda column, _: self._along(block.rows, lambda r, n: elements(r, column, n)))
        else:
            steps(block.rows, 1, lambda row, _: self._along(block.columns, lambda c, n: elements(row, c, n)))

    def _along(self, extent: int, elements: Callable[[Index, int], None]) -> None:
        """elements(start, lanes) for vectors along an extent, as far as neighbours lie side by side in the result."""
        product, block = self.product, self.columns_block
        if self.along_rows:
            product, block = product.transposed(), self.rows_block
        if product.along_columns == product.columns:
            full = extent // self.lanes * self.lanes
            rest = [(full + start, lanes) for start, lanes in vector_ranges(extent - full, self.lanes)]
            lanes = self.lanes
        else:
            lanes = b.largest_width(math.gcd(product.along_columns, block), 1, self.lanes)
            full = extent // lanes * lanes
            rest = [(start, 1) for start in range(full, extent)]
        if full:
            steps(full, lanes, elements)
        for start, width in rest:
            elements(start, width)


def _whole_or_rest(first: Index, extent: int, block: int, emit: Callable[[int], None]) -> None:
    """emit(size) for a block that starts at `first`: a whole one, or what is left where that is less."""
    rest = extent % block
    if extent < block:
        emit(extent)
    elif rest == 0:
        emit(block)
    else:
        b.either(b.less(first, extent - rest), lambda: emit(block), lambda: emit(rest))


def _evenly(extent: int, limit: int) -> int:
    """The largest divisor of an extent up to a limit, if it is at least half of it; else the limit or the extent."""
    found = divisor(extent, limit)
    return found if 2 * found >= min(extent, limit) else min(extent, limit)


def _block_of(extent: int, limit: int, tile: int) -> int:
    """Columns in a block: a multiple of the tile that divides the extent where there is one, else as many as fit."""
    best = [d for d in range(tile, limit + 1, tile) if extent % d == 0]
    return max(best) if best else min(max(limit - limit % tile, tile), extent)
