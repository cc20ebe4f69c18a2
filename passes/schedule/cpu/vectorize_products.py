"""vectorize-products: matrix products on memory as vector loops, in functions that threads can share.

Before:  linalg.generic ins(%a, %b : memref<64x768xf32>, memref<768x3072xbf16>) outs(%c : memref<64x3072xf32>)
         whose body adds %a[m, k] * extf(%b[k, n]) to %c[m, n]   (also linalg.matmul, batch_matmul, contract …)
After:   func.call @product_0(%c0, %c96, %a, %b, %c)
         func.func @product_0(%from, %to, …)            blocks of columns %from … %to

Where columns lie side by side in the second operand, a tile is a few rows times a vector of columns; where the summed
dimension does in both operands, a tile's sums run along it in vectors.  Products of other layouts, with unknown extents
of columns or sums, or inside GPU kernels are left to convert-linalg-to-loops.  Sums are in the type of the output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir, passmanager
from lispgpt.ir.structure import operations, viewed
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.recognise.product_layout import ProductLayout, factors_of, has_plain_dimensions

ROWS, COLUMNS = 4, 32
"""A tile where columns lie side by side: 4 x 32 sums fill eight registers of 16 lanes."""

DOT_ROWS, DOT_COLUMNS, DOT_LANES = 2, 4, 16
"""A tile where the summed dimension does."""

SMALLEST, SHARED = 4096, 1 << 21
"""Multiplications below which a product stays a plain loop, and from which threads share it."""


class VectorizeProducts(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        if not any(op.name.startswith("linalg.") for op in _outside_kernels(module.operation)):
            return
        passmanager.PassManager.parse("builtin.module(linalg-generalize-named-ops)").run(module.operation)
        made: dict[str, str] = {}
        for op in list(_outside_kernels(module.operation)):
            product = _recognise(op) if op.name == "linalg.generic" else None
            if product is not None:
                _replace(module, op, product, made)


@dataclass(frozen=True)
class Product:
    """out[batch…, m, n] += a[…, m, k] * b[…, k, n], by the layout's loops; rows is None where there is no m.

    A loop over the batch may leave a where it is.
    along_columns: whether b's columns lie side by side (else the summed dimension does, in a and b).
    """

    operands: tuple[ir.Value, ir.Value, ir.Value]
    layout: ProductLayout
    along_columns: bool

    @property
    def batch(self) -> tuple[int, ...]:
        return self.layout.batch + self.layout.columns[:-1]

    @property
    def rows(self) -> int | None:
        return next(iter(self.layout.rows), None)

    @property
    def column(self) -> int:
        return self.layout.columns[-1]

    @property
    def summed(self) -> int:
        return self.layout.sums[0]

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the loops; below 0 where one is not known while compiling."""
        return self.layout.extents

    @property
    def column_block(self) -> int:
        return COLUMNS if self.along_columns else DOT_COLUMNS


def _outside_kernels(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for child in operations(block):
                if child.name not in ("gpu.module", "gpu.launch"):
                    yield child
                    yield from _outside_kernels(child)


def _recognise(op: ir.Operation) -> Product | None:
    """The product that an op on memory is; None where it has another layout, or is small."""
    if len(op.operands) != 3 or any(not isinstance(v.type, ir.MemRefType) for v in op.operands):
        return None
    factors = factors_of(op.regions[0].blocks[0])
    if factors is None or not has_plain_dimensions(op):
        return None
    block = op.regions[0].blocks[0]
    if {viewed(v, ["arith.extf"]) for v in factors} != set(list(block.arguments)[:2]):
        return None
    layout = ProductLayout.of_contraction(op)
    kept = {*layout.batch, *layout.rows, *layout.columns}
    if kept != set(layout.result) or len(layout.rows) > 1 or len(layout.sums) != 1 or not layout.columns:
        return None
    left, right, out = (op.operands[i] for i in (*layout.operands, 2))
    near = [_last_stride(v) == 1 for v in (left, right, out)]
    along_columns = layout.right[-1] == layout.columns[-1] == layout.result[-1] and near[1] and near[2]
    along_sum = layout.left[-1] == layout.right[-1] == layout.sums[0] and near[0] and near[1]
    known = [extent for loop, extent in enumerate(layout.extents) if loop not in layout.rows]
    work = math.prod(n for n in layout.extents if n > 0)
    if not (along_columns or along_sum) or min(known) < 0 or work < SMALLEST:
        return None
    return Product((left, right, out), layout, along_columns)


def _last_stride(value: ir.Value) -> int:
    strides, _ = ir.MemRefType(value.type).get_strides_and_offset()
    return strides[-1] if strides else 1


def _replace(module: ir.Module, op: ir.Operation, product: Product, made: dict[str, str]) -> None:
    """Call the product's function in place of op; products of the same form share one."""
    types = [v.type for v in product.operands]
    key = f"{[str(t) for t in types]} {product.layout}"
    blocks = -(-product.extents[product.column] // product.column_block)
    items = math.prod([blocks, *(product.extents[d] for d in product.batch)])
    if key not in made:
        made[key] = f"product_{len(made)}"
        with op.location, ir.InsertionPoint(module.body):
            _Builder(made[key], product, blocks).build()
    with op.location, ir.InsertionPoint(op):
        operands = [b.as_value(0), b.as_value(items), *product.operands]
        b.call(made[key], operands)
    op.erase()


@dataclass
class _Builder:
    """The function of one form of product; `at` holds the index of each loop that is open."""

    name: str
    product: Product
    blocks: int
    at: dict[int, Index] = field(default_factory=dict)

    def build(self) -> None:
        index = ir.IndexType.get()
        types = [index, index, *(v.type for v in self.product.operands)]
        large = math.prod(n for n in self.product.extents if n > 0) >= SHARED
        attributes = {"parallel": ir.UnitAttr.get(), "no_inline": ir.UnitAttr.get()} if large else {}
        function = b.private_function(self.name, types, **attributes)
        entry = ir.Block.create_at_start(function.regions[0], types)
        start, stop, self.a, self.b, self.out = entry.arguments
        self.element = self.out.type.element_type
        with ir.InsertionPoint(entry):
            b.each(start, stop, 1, self._item)
            create_op("func.return")

    def _item(self, item: Index) -> None:
        """All rows of one block of columns of one member of the batch."""
        product = self.product
        *batch, block = coordinates(item, [*(product.extents[d] for d in product.batch), self.blocks])
        self.at = dict(zip(product.batch, batch, strict=True))
        width, columns = product.column_block, product.extents[product.column]
        first = b.mul(block, width)
        whole = columns // width
        if whole == self.blocks:
            self._all_rows(first, width)
        elif whole == 0:
            self._columns_one_by_one(0, columns)
        else:
            b.either(
                b.less(block, whole),
                lambda: self._all_rows(first, width),
                lambda: self._columns_one_by_one(whole * width, columns),
            )

    def _columns_one_by_one(self, start: int, stop: int) -> None:
        b.each(start, stop, 1, lambda column: self._all_rows(column, 1))

    def _all_rows(self, first: Index, width: int) -> None:
        product = self.product
        tile = self._tile_along_columns if product.along_columns else self._tile_along_sum
        if product.rows is None:
            tile(None, 1, first, width)
            return
        at_once = ROWS if product.along_columns else DOT_ROWS
        rows: Index = product.extents[product.rows]
        if rows < 0:
            position = b.as_value(product.layout.result.index(product.rows))
            rows = b.emit("memref.dim", [self.out, position], [ir.IndexType.get()])
        whole = b.mul(b.div(rows, at_once), at_once)
        b.each(0, whole, at_once, lambda row: tile(row, at_once, first, width))
        if whole != rows:
            b.each(whole, rows, 1, lambda row: tile(row, 1, first, width))

    def _indices(self, operand: int, **at: Index) -> list[Index]:
        product = self.product
        place = dict(self.at)
        for dim, key in ((product.rows, "m"), (product.column, "n"), (product.summed, "k")):
            if dim is not None:
                place[dim] = at.get(key, 0)
        return [place[d] for d in (product.layout.left, product.layout.right, product.layout.result)[operand]]

    def _load(self, memory: ir.Value, place: list[Index], width: int) -> ir.Value:
        """In the output's type."""
        value, type_ = b.load(memory, place, width, aligned=False), b.with_width(self.element, width)
        return value if value.type == type_ else b.emit("arith.extf", [value], [type_])

    def _tile_along_columns(self, first_row: Index, count: int, first: Index, width: int) -> None:
        rows = [self._row(first_row, i) for i in range(count)]
        places = [self._indices(2, m=row, n=first) for row in rows]

        def step(k: Index, *totals: ir.Value) -> list[ir.Value]:
            column = self._load(self.b, self._indices(1, n=first, k=k), width)
            found = [b.splat(self._load(self.a, self._indices(0, m=row, k=k), 1), width) for row in rows]
            return [b.fma(x, column, total) for x, total in zip(found, totals, strict=True)]

        starts = [self._load(self.out, place, width) for place in places]
        sums = b.loop(0, self.product.extents[self.product.summed], 1, starts, step)
        for place, total in zip(places, sums, strict=True):
            b.store(total, self.out, place, aligned=False)

    def _row(self, first: Index, offset: int) -> Index:
        return 0 if first is None else b.add(first, offset)

    def _tile_along_sum(self, first_row: Index, count: int, first: Index, width: int) -> None:
        extent = self.product.extents[self.product.summed]
        rows = [self._row(first_row, i) for i in range(count)]
        columns = [b.add(first, j) for j in range(width)]
        whole = extent - extent % DOT_LANES
        zero = b.constant(0.0, b.with_width(self.element, DOT_LANES))
        totals = self._sum_products(rows, columns, 0, whole, DOT_LANES, [zero] * (count * width))
        places = [self._indices(2, m=m, n=n) for m in rows for n in columns]
        add = ir.Attribute.parse("#vector.kind<add>")
        sums = [
            b.emit("vector.reduction", [total, self._load(self.out, place, 1)], [self.element], kind=add)
            for total, place in zip(totals, places, strict=True)
        ]
        if whole != extent:
            sums = self._sum_products(rows, columns, whole, extent, 1, sums)
        for place, total in zip(places, sums, strict=True):
            b.store(total, self.out, place)

    def _sum_products(
        self, rows: list[Index], columns: list[Index], start: int, stop: int, lanes: int, totals: list[ir.Value]
    ) -> list[ir.Value]:
        def step(k: Index, *so_far: ir.Value) -> list[ir.Value]:
            left = [self._load(self.a, self._indices(0, m=m, k=k), lanes) for m in rows]
            right = [self._load(self.b, self._indices(1, n=n, k=k), lanes) for n in columns]
            pairs = [(x, y) for x in left for y in right]
            return [b.fma(x, y, total) for (x, y), total in zip(pairs, so_far, strict=True)]

        return b.loop(start, stop, lanes, totals, step)
