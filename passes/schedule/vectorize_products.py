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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir, passmanager
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import coordinates

ROWS, COLUMNS = 4, 32
"""A tile where columns lie side by side: 4 x 32 sums fill eight registers of 16 lanes."""

DOT_ROWS, DOT_COLUMNS, DOT_LANES = 2, 4, 16
"""A tile where the summed dimension does."""

SMALLEST, SHARED = 4096, 1 << 21
"""Multiplications below which a product stays a plain loop, and from which threads share it."""


class VectorizeProducts(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        if not _walk(module.operation, lambda op: op.name.startswith("linalg.")):
            return
        passmanager.PassManager.parse("builtin.module(linalg-generalize-named-ops)").run(module.operation)
        made: dict[str, str] = {}
        for op in _walk(module.operation, lambda op: op.name == "linalg.generic"):
            product = _recognise(op)
            if product is not None:
                _replace(module, op, product, made)


@dataclass(frozen=True)
class Product:
    """out[batch…, m, n] += a[…, m, k] * b[…, k, n], by loop numbers; rows is None where there is no m.

    A loop over the batch may leave a where it is.
    along_columns: whether b's columns lie side by side (else the summed dimension does, in a and b).
    """

    operands: tuple[ir.Value, ir.Value, ir.Value]
    maps: tuple[list[int], list[int], list[int]]
    extents: list[int]
    batch: list[int]
    rows: int | None
    column: int
    summed: int
    along_columns: bool

    @property
    def column_block(self) -> int:
        return COLUMNS if self.along_columns else DOT_COLUMNS


def _walk(root: ir.Operation, wanted: Callable[[ir.Operation], bool]) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def look(op: Any) -> Any:
        if op.operation.name in ("gpu.module", "gpu.launch"):
            return ir.WalkResult.SKIP
        if wanted(op.operation):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    root.walk(look, ir.WalkOrder.PRE_ORDER)
    return found


def _recognise(op: ir.Operation) -> Product | None:
    if len(op.operands) != 3 or len(op.results) or not _multiplies_and_adds(op):
        return None
    left, right, out = op.operands
    if not all(isinstance(v.type, ir.MemRefType) for v in (left, right, out)):
        return None
    maps = [dim_positions(m) for m in indexing_maps(op)]
    kinds = ["reduction" in str(t) for t in op.attributes["iterator_types"]]
    if any(p is None for m in maps for p in m) or sum(kinds) != 1 or not maps[2]:
        return None
    summed, column = kinds.index(True), maps[2][-1] or 0
    if column not in maps[1]:
        left, right, maps = right, left, [maps[1], maps[0], maps[2]]
    if column in maps[0] or column not in maps[1] or summed not in maps[0] or summed not in maps[1]:
        return None
    others = [d for d in range(len(kinds)) if d not in (summed, column)]
    only_rows = [d for d in others if d in maps[0] and d not in maps[1]]
    if len(only_rows) > 1 or any(d not in maps[2] for d in others):
        return None
    extents = _extents(maps, (left, right, out), len(kinds))
    return _with_layout((left, right, out), maps, extents, others, only_rows[0] if only_rows else None, column, summed)


def _with_layout(
    operands: tuple[ir.Value, ir.Value, ir.Value],
    maps: Sequence[Any],
    extents: list[int],
    others: list[int],
    rows: int | None,
    column: int,
    summed: int,
) -> Product | None:
    contiguous = [_last_stride(v) == 1 for v in operands]
    along_columns = maps[1][-1] == column and contiguous[1] and contiguous[2]
    along_sum = maps[0][-1] == summed and maps[1][-1] == summed and contiguous[0] and contiguous[1]
    batch = [d for d in others if d != rows]
    known = [extents[d] for d in (*batch, column, summed)]
    work = math.prod(n for n in extents if n > 0)
    if not (along_columns or along_sum) or min(known) < 0 or work < SMALLEST:
        return None
    first, second, third = maps
    return Product(operands, (first, second, third), extents, batch, rows, column, summed, along_columns)


def _last_stride(value: ir.Value) -> int:
    strides, _ = ir.MemRefType(value.type).get_strides_and_offset()
    return strides[-1] if strides else 1


def _extents(maps: Sequence[Sequence[Any]], operands: Sequence[ir.Value], loops: int) -> list[int]:
    """Each loop's extent; -1 where it is not known while compiling."""
    extents = [-1] * loops
    for dims, value in zip(maps, operands, strict=True):
        type_ = ir.MemRefType(value.type)
        for position, dim in enumerate(dims):
            if not type_.is_dynamic_dim(position):
                extents[dim] = type_.shape[position]
    return extents


def _multiplies_and_adds(op: ir.Operation) -> bool:
    """Whether the body is yield(acc + ext(x) * ext(y)) on floats."""
    block = op.regions[0].blocks[0]
    x, y, acc = block.arguments
    terminator = list(block.operations)[-1].operation
    total = defining_op(terminator.operands[0]) if len(terminator.operands) == 1 else None
    if total is None or total.name != "arith.addf" or acc not in total.operands:
        return False
    term = total.operands[1] if total.operands[0] == acc else total.operands[0]
    product = defining_op(term)
    if product is None or product.name != "arith.mulf":
        return False
    sources = [_without_extension(v) for v in product.operands]
    return x in sources and y in sources and sources[0] != sources[1]


def _without_extension(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == "arith.extf" else value


def _replace(module: ir.Module, op: ir.Operation, product: Product, made: dict[str, str]) -> None:
    """Call the product's function in place of op; products of the same form share one."""
    types = [v.type for v in product.operands]
    key = f"{[str(t) for t in types]} {product.maps} {product.extents}"
    blocks = -(-product.extents[product.column] // product.column_block)
    items = math.prod([blocks, *(product.extents[d] for d in product.batch)])
    if key not in made:
        made[key] = f"product_{len(made)}"
        with op.location, ir.InsertionPoint(module.body):
            _Builder(made[key], product, blocks).build()
    index = ir.IndexType.get()
    with op.location, ir.InsertionPoint(op):
        ends = [
            create_op("arith.constant", [], [index], {"value": ir.IntegerAttr.get(index, n)}).results[0]
            for n in (0, items)
        ]
        create_op("func.call", [*ends, *product.operands], [], {"callee": ir.FlatSymbolRefAttr.get(made[key])})
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
        attributes = {
            "sym_name": ir.StringAttr.get(self.name),
            "sym_visibility": ir.StringAttr.get("private"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
        }
        if math.prod(n for n in self.product.extents if n > 0) >= SHARED:
            attributes |= {"parallel": ir.UnitAttr.get(), "no_inline": ir.UnitAttr.get()}
        function = create_op("func.func", attributes=attributes, regions=1)
        entry = ir.Block.create_at_start(function.regions[0], types)
        start, stop, self.a, self.b, self.out = entry.arguments
        self.element = self.out.type.element_type
        with ir.InsertionPoint(entry):
            _loop(start, stop, 1, self._item)
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

            def full() -> list[ir.Value]:
                self._all_rows(first, width)
                return []

            def rest() -> list[ir.Value]:
                self._columns_one_by_one(whole * width, columns)
                return []

            b.choose(b.less(block, whole), [], full, rest)

    def _columns_one_by_one(self, start: int, stop: int) -> None:
        _loop(start, stop, 1, lambda column: self._all_rows(column, 1))

    def _all_rows(self, first: Index, width: int) -> None:
        product = self.product
        tile = self._tile_along_columns if product.along_columns else self._tile_along_sum
        if product.rows is None:
            tile(None, 1, first, width)
            return
        at_once = ROWS if product.along_columns else DOT_ROWS
        rows: Index = product.extents[product.rows]
        if rows < 0:
            position = b.as_value(product.maps[2].index(product.rows))
            rows = b.emit("memref.dim", [self.out, position], [ir.IndexType.get()])
        whole = b.mul(b.div(rows, at_once), at_once)
        _loop(0, whole, at_once, lambda row: tile(row, at_once, first, width))
        if whole != rows:
            _loop(whole, rows, 1, lambda row: tile(row, 1, first, width))

    def _indices(self, operand: int, **at: Index) -> list[Index]:
        product = self.product
        place = dict(self.at)
        for dim, key in ((product.rows, "m"), (product.column, "n"), (product.summed, "k")):
            if dim is not None:
                place[dim] = at.get(key, 0)
        return [place[d] for d in product.maps[operand]]

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


def _loop(start: Index, stop: Index, step: int, body: Callable[[Index], None]) -> None:
    """A loop that carries nothing."""

    def inside(i: ir.Value) -> list[ir.Value]:
        body(i)
        return []

    b.loop(start, stop, step, [], inside)
