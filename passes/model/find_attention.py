"""Recognising attention in an entry: scores, elementwise ops, softmax, weighted sum, and writes of the rows' own keys.

What is recognised here is certain; what is not in all of it stays products, softmax and elementwise ops, which compute
the same.  Scores may be weighed by any elementwise ops that read each score where it is (masks, scales, biases);
nothing beside the softmax may read scores or what they are weighed to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, is_elementwise, shape_of
from lispgpt.passes.model.attention import POSITION, Attention, Operand, OwnRows, attention_operands
from lispgpt.passes.model.cache_writes import (
    CacheWrite,
    RowPlace,
    cache_view,
    is_cache_write,
    is_written_in_place,
    readers_of,
    row_place,
    same_tensor,
)
from lispgpt.passes.model.placements import is_placement

INPUTS = ("f32", "bf16", "f16")


def find_attentions(ops: list[ir.Operation]) -> list[Attention]:
    """Every attention among the ops of an entry's block."""
    places = {op: number for number, op in enumerate(ops)}
    found = (_find(op, places) for op in ops if op.name == "linalg.softmax")
    return [_with_own_rows(attention) for attention in found if attention is not None]


def is_product(op: ir.Operation) -> bool:
    """Whether an op is a linalg.contract whose sums start at zero, as those of every schedule do."""
    if op.name != "linalg.contract":
        return False
    start = defining_op(op.operands[2])
    if start is None or start.name != "linalg.fill":
        return False
    number = defining_op(start.operands[0])
    if number is None or number.name != "arith.constant" or not isinstance(number.results[0].type, ir.FloatType):
        return False
    return ir.FloatAttr(number.attributes["value"]).value == 0


def _find(softmax: ir.Operation, places: dict[ir.Operation, int]) -> Attention | None:
    rank = len(shape_of(softmax.operands[0]))
    users = [use.owner.operation for use in softmax.results[0].uses]
    if ir.IntegerAttr(softmax.attributes["dimension"]).value != rank - 1 or rank < 2 or len(users) != 1:
        return None
    weighted = users[0]
    if weighted not in places or not _is_f32_product(weighted):
        return None
    for scores, weigh in _chains(softmax):
        operands = attention_operands(scores, softmax, weighted)
        if operands is not None and _is_f32_product(scores):
            return Attention(scores, tuple(sorted(weigh, key=places.__getitem__)), softmax, weighted, *operands)
    return None


def _is_f32_product(op: ir.Operation) -> bool:
    types = [str(operand.type.element_type) for operand in list(op.operands)[:2]] if is_product(op) else []
    return bool(types) and all(t in INPUTS for t in types) and str(op.results[0].type.element_type) == "f32"


def _chains(softmax: ir.Operation) -> Iterator[tuple[ir.Operation, list[ir.Operation]]]:
    """(product, elementwise ops from it to the softmax) where each of these reads the product at its own point."""
    reached: list[ir.Operation] = []
    products: list[ir.Operation] = []
    waiting = [softmax.operands[0]]
    while waiting:
        op = defining_op(waiting.pop())
        if op is None or op in reached or op in products:
            continue
        if is_elementwise(op):
            reached.append(op)
            waiting += [value for value, at_own_point in _operands(op) if at_own_point]
        elif is_product(op):
            products.append(op)
    for product in products:
        weigh = _made_from(product, reached)
        if all(_is_read_in_place(op.results[0], [*weigh, softmax]) for op in (product, *weigh)):
            yield product, weigh


def _operands(op: ir.Operation) -> Iterator[tuple[ir.Value, bool]]:
    """An elementwise op's operands, and whether each is read at the op's own point."""
    for value, map_ in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
        yield value, dim_positions(map_) == list(range(map_.n_dims))


def _made_from(product: ir.Operation, reached: list[ir.Operation]) -> list[ir.Operation]:
    """Those of the ops reached from the softmax that are computed from the product."""
    made: list[ir.Operation] = []
    values = {product.results[0]}
    growing = True
    while growing:
        more = [op for op in reached if op not in made and any(value in values for value in op.operands)]
        made += more
        values |= {op.results[0] for op in more}
        growing = bool(more)
    return made


def _is_read_in_place(value: ir.Value, allowed: list[ir.Operation]) -> bool:
    """Whether only those ops read a value, each at its own point."""
    for use in value.uses:
        op, number = use.owner.operation, use.operand_number
        if op not in allowed or number >= len(op.operands) - 1:
            return False
        map_ = None if op.name == "linalg.softmax" else indexing_maps(op)[number]
        if map_ is not None and dim_positions(map_) != list(range(map_.n_dims)):
            return False
    return True


# ---- own keys and values


def _with_own_rows(attention: Attention) -> Attention:
    """With the writes of the rows' own keys and values, where they are all that their kernel needs to know."""
    loops = _writes_before(attention)
    if loops is None:
        return attention
    for writes in (loops, loops[::-1]):
        places = [_row_place(*given) for given in zip(writes, (attention.keys, attention.values), strict=True)]
        if places[0] is not None and places[0] == places[1]:
            own = _own_rows(attention, places[0])
            return attention if own is None else replace(attention, writes=writes, own=own)
    return attention


def _writes_before(attention: Attention) -> tuple[CacheWrite, CacheWrite] | None:
    """The two loops that made the cache which keys and values are views of, and that nothing but these reads."""
    caches = [defining_op(operand.tensor) for operand in (attention.keys, attention.values)]
    if any(view is None or view.name != "tensor.extract_slice" for view in caches):
        return None
    last = defining_op(caches[0].operands[0])
    if caches[0].operands[0] != caches[1].operands[0] or last is None or not is_cache_write(last):
        return None
    first = defining_op(last.operands[3])
    if first is None or not is_cache_write(first) or not is_written_in_place(last):
        return None
    before = defining_op(first.operands[3])
    if before is not None and is_cache_write(before):
        return None
    only = (attention.scores, attention.weighted)
    if readers_of(first.results[0]) != [last]:
        return None
    if not all(op in only or is_placement(op) for op in readers_of(last.results[0])):
        return None
    return CacheWrite(first), CacheWrite(last)


def _row_place(write: CacheWrite, operand: Operand) -> RowPlace | None:
    """With the attention's dimension that the view's sequences are."""
    view = cache_view(operand.tensor)
    if view is None or operand.dims.index(POSITION) != len(operand.dims) - 2 or not operand.has_rows:
        return None
    place = row_place(write, view, operand.dims.index(POSITION))
    if place is None or place.sequence is None:
        return place
    return replace(place, sequence=operand.dims[place.sequence])


def _own_rows(attention: Attention, place: RowPlace) -> OwnRows | None:
    """None where a row's own position is not the last one that it sees."""
    keys, values = (set(operand.dims) for operand in (attention.keys, attention.values))
    upper = attention.upper
    number = None if upper is None else upper.operand()
    if upper is None or number is None or keys != values:
        return None
    positions = upper.op.operands[number]
    if not same_tensor(positions, place.positions):
        return None
    dims = dim_positions(indexing_maps(upper.op)[number])
    wide = [dim for dim, extent in zip(dims, shape_of(positions), strict=True) if extent > 1]
    wanted = [place.sequence] if place.sequence is not None else []
    rows = wide[len(wanted) :]
    if wide[: len(wanted)] != wanted or len(rows) != (place.each > 1):
        return None
    if rows and (rows[0] not in attention.query_dims or attention.extents[rows[0]] != place.each):
        return None
    return OwnRows(place.sequence, rows[0] if rows else None, place.each)
