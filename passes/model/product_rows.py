"""Which cache writes a product's kernel does, instead of attention's or their own: of rows that are its columns.

Where those are all that reads their columns, the kernel is `cached_only`, and need not store them beside its caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import VIEWS, captured_values, defining_op, shape_of, viewed
from lispgpt.passes.model.kernel_group import top_level, users
from lispgpt.passes.model.row_columns import RowColumns, columns_read, row_columns
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.bf16_parts import parts_of
from lispgpt.passes.recognise.cache_writes import CacheWrite, is_cache_write, is_written_in_place, readers_of

CACHED_ONLY = "cached_only"
"""The mark of a kernel, of whose results in the product's shape nobody reads the columns that go to caches."""

ALIGNED = 8
"""Elements that a bulk copy's rows have a multiple of."""


def writes_by_products(
    attentions: list[Attention], ops: list[ir.Operation], placements: set[ir.Operation], rows: int
) -> tuple[list[Attention], dict[ir.Operation, ir.Operation]]:
    """Attentions without the writes that kernels of products with at least so many rows can do instead, and for each
    loop that is one, theirs or not, and each op that only makes rows for it, the product."""
    places = {op: number for number, op in enumerate(ops)}
    kept, homes = [], {}
    for attention in attentions:
        found = {} if attention.alone else _home(attention.writes, places, placements, rows)
        homes.update(found)
        kept.append(replace(attention, writes=()) if found else attention)
    for chain in _chains(ops, placements, {write.loop for attention in attentions for write in attention.writes}):
        homes.update(_home(chain, places, placements, rows))
    return kept, homes


def _chains(
    ops: Sequence[ir.Operation], placements: set[ir.Operation], taken: set[ir.Operation]
) -> list[list[CacheWrite]]:
    """Writes that no attention does, each with those that go on with its cache."""
    found: dict[ir.Operation, list[CacheWrite]] = {}
    for op in ops:
        if is_cache_write(op) and op not in taken and is_written_in_place(op, placements):
            found[op] = found.pop(defining_op(op.operands[3]), [])
            found[op].append(CacheWrite(op))
    return list(found.values())


def _home(
    writes: Sequence[CacheWrite], places: dict[ir.Operation, int], placements: set[ir.Operation], rows: int
) -> dict[ir.Operation, ir.Operation]:
    """For writes to one cache; nothing where they stay where they are."""
    if not writes or writes[0].rows < rows:
        return {}
    columns = [row_columns(write) for write in writes]
    found = [one for one in columns if one is not None]
    products = {one.product for one in found}
    if len(found) < len(columns) or len(products) > 1:
        return {}
    (product,), loops = products, {write.loop for write in writes}
    moved = {*loops, *(op for one in found for op in one.after)}
    alone = all(users(op.results[0], op) <= moved for op in moved - loops)
    given = {value for loop in loops for value in (*loop.operands, *captured_values(loop))}
    given -= {*(one.source for one in found), *(loop.results[0] for loop in loops)}
    if not found[0].short or not all(map(_is_copied, list(product.operands)[:2])) or not alone:
        return {}
    if _are_made_of(given, product, loops, places) or _is_read_later(writes[0], product, places, placements):
        return {}
    return dict.fromkeys(moved, product)


def _is_read_later(
    write: CacheWrite, product: ir.Operation, places: dict[ir.Operation, int], placements: set[ir.Operation]
) -> bool:
    """Whether anything behind a product but the write reads what the cache holds before."""
    readers = readers_of(viewed(write.loop.operands[3], VIEWS))
    behind = {top_level(op, product) for op in readers if op not in placements} - {write.loop}
    return any(places.get(op, 0) > places[product] for op in behind)


def _is_copied(operand: ir.Value) -> bool:
    """Whether bulk copies bring a product's operand: where it is in memory, its rows so long that each is aligned."""
    op = defining_op(viewed(operand))
    in_memory = op is None or "inline" not in op.attributes or parts_of(op) is not None
    return in_memory and shape_of(operand)[-1] % ALIGNED == 0


def _are_made_of(
    values: set[ir.Value], product: ir.Operation, looked_at: set[ir.Operation], places: dict[ir.Operation, int]
) -> bool:
    """Whether any of some values depends on a product."""
    waiting, seen = list(values), set(looked_at)
    while waiting:
        op = defining_op(waiting.pop())
        if op is None or op in seen:
            continue
        if op == product:
            return True
        seen.add(op)
        if places.get(op, len(places)) > places[product]:
            waiting += [*op.operands, *captured_values(op)]
    return False


def cached_columns(ops: Sequence[ir.Operation]) -> list[RowColumns]:
    """What a kernel's ops put into caches of its product."""
    found = [row_columns(CacheWrite(op)) for op in ops if is_cache_write(op)]
    return [one for one in found if one is not None]


def are_only_cached(ops: Sequence[ir.Operation], outputs: Sequence[ir.Value]) -> bool:
    """Whether nobody reads columns that go to caches from a kernel's other results.  outputs: as the entry has them."""
    found = cached_columns(ops)
    taken = {column for one in found for run in one.runs for column in range(*run)}
    others = [output for output in outputs if not is_cache_write(defining_op(output))] if found else []
    return bool(others) and all(taken.isdisjoint(columns_read(v, found[0].columns, set(ops))) for v in others)
