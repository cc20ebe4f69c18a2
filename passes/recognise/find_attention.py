"""Recognising attention in an entry: scores, elementwise ops, softmax, weighted sum, and writes of the rows' own keys.

What is recognised here is certain; what is not in all of it stays products, softmax and elementwise ops, which compute
the same.  Scores may be weighed by any elementwise ops that read each score where it is (masks, scales, biases).
Beside the softmax, only each row's log-sum-exp and gradients may be made from scores or what they are weighed to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, is_elementwise, operations, shape_of
from lispgpt.passes.recognise.attention import Attention, OwnRows, attention_in
from lispgpt.passes.recognise.bf16_parts import parts_made
from lispgpt.passes.recognise.cache_writes import (
    CacheWrite,
    RowPlace,
    cache_view,
    is_cache_write,
    is_written_in_place,
    readers_of,
    readers_of_numbers,
    row_place,
    same_tensor,
    stored_rows,
)
from lispgpt.passes.recognise.find_gradients import find_gradients, find_log_sum, is_f32_product, is_product
from lispgpt.passes.recognise.placements import placements_among
from lispgpt.passes.recognise.score_operands import POSITION, Operand


def find_attentions(ops: list[ir.Operation], packed: bool = False) -> list[Attention]:
    """Every attention among the ops of an entry's block.  packed: with the writes of own keys and values that are
    packed, too, of sequences that have one row each."""
    places = {op: number for number, op in enumerate(ops)}
    found = (_find(op, places) for op in ops if op.name == "linalg.softmax")
    placements = placements_among(ops)
    return [_with_own_rows(attention, placements, packed) for attention in found if attention is not None]


def _find(softmax: ir.Operation, places: dict[ir.Operation, int]) -> Attention | None:
    rank = len(shape_of(softmax.operands[0]))
    if ir.IntegerAttr(softmax.attributes["dimension"]).value != rank - 1 or rank < 2:
        return None
    rounded = _rounding(softmax.results[0])
    users = list((softmax if rounded is None else rounded).results[0].uses)
    weighted = users[0].owner.operation if len(users) == 1 else None
    if weighted is None or weighted not in places or not is_f32_product(weighted):
        return None
    parts = parts_made(weighted.results[0])
    rounding = (rounded, _rounding(weighted.results[0]) if parts is None else parts[0])
    for scores, weigh in _chains(softmax):
        ordered = tuple(sorted(weigh, key=places.__getitem__))
        found = attention_in(scores, ordered, softmax, weighted, rounding) if is_f32_product(scores) else None
        found = None if found is None else _with_other_readers(found)
        if found is not None:
            return found if parts is None else replace(found, rest=parts[1])
    return None


def _rounding(value: ir.Value) -> ir.Operation | None:
    """The op that alone reads a value and rounds it, point by point."""
    users = [use.owner.operation for use in value.uses]
    op = users[0] if len(users) == 1 else None
    if op is None or not is_elementwise(op) or len(op.operands) != 2:
        return None
    names = [inner.name for inner in operations(op.regions[0].blocks[0])]
    in_place = all(dim_positions(map_) == list(range(map_.n_dims)) for map_ in indexing_maps(op))
    return op if names == ["arith.truncf", "linalg.yield"] and in_place else None


def _with_other_readers(attention: Attention) -> Attention | None:
    """With the log-sum-exp and the gradients made from its scores; None where anything else is."""
    log_sum = find_log_sum(attention.softmax.operands[0])
    own = [attention.scores, *attention.weigh, attention.softmax, *log_sum]
    gradients = find_gradients(attention.scores, attention.weigh, own)
    return None if gradients is None else replace(attention, log_sum=log_sum, gradients=gradients)


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
        yield product, _made_from(product, reached)


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


# ---- own keys and values


def _with_own_rows(attention: Attention, placements: set[ir.Operation], packed: bool) -> Attention:
    """With the writes of the rows' own keys and values, where they are all that their kernel needs to know."""
    in_bytes = stored_rows(attention.keys.tensor) != attention.keys.tensor
    if in_bytes and not packed:
        return attention
    loops = _writes_before(attention, placements)
    if loops is None:
        return attention
    for writes in (loops, loops[::-1]):
        places = [_row_place(*given) for given in zip(writes, (attention.keys, attention.values), strict=True)]
        if places[0] is not None and places[0] == places[1]:
            own = _own_rows(attention, places[0])
            if own is not None and not (in_bytes and own.each > 1):
                return replace(attention, writes=writes, own=own)
            return attention
    return attention


def _writes_before(attention: Attention, placements: set[ir.Operation]) -> tuple[CacheWrite, CacheWrite] | None:
    """The two loops that made the cache which keys and values are views of, and that nothing but these reads."""
    caches = [defining_op(stored_rows(operand.tensor)) for operand in (attention.keys, attention.values)]
    if any(view is None or view.name != "tensor.extract_slice" for view in caches):
        return None
    last = defining_op(caches[0].operands[0])
    if caches[0].operands[0] != caches[1].operands[0] or last is None or not is_cache_write(last):
        return None
    first = defining_op(last.operands[3])
    if first is None or not is_cache_write(first) or not is_written_in_place(last, placements):
        return None
    before = defining_op(first.operands[3])
    if before is not None and is_cache_write(before):
        return None
    only = (attention.scores, attention.weighted)
    if readers_of(first.results[0]) != [last]:
        return None
    if not all(op in only or op in placements for op in readers_of_numbers(last.results[0])):
        return None
    return CacheWrite(first), CacheWrite(last)


def _row_place(write: CacheWrite, operand: Operand) -> RowPlace | None:
    """With the attention's dimension that the view's sequences are."""
    view = cache_view(stored_rows(operand.tensor))
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
