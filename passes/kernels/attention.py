"""Reading attention's operands in a schedule: queries, keys, values, what a row may see, and its own key and value."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, indexing_maps, integers
from lispgpt.passes.kernels.elementwise import attributes_of
from lispgpt.passes.kernels.packed_rows import packed_kind
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.views import mapped, sliced_index
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.attention_gradients import AttentionGradients
from lispgpt.passes.recognise.cache_writes import CacheWrite, cache_view, stored_rows
from lispgpt.passes.recognise.mask_bounds import Bound
from lispgpt.passes.recognise.score_operands import DEPTH, Operand

Place = Sequence[Index]
"""Indices of the leading loops of attention's scores."""


def read_operand(reader: Reader, operand: Operand, place: Place, t: Index, d: Index, width: int) -> ir.Value:
    """`width` numbers of a query, key or value from `d` on, a multiple of it, in its own type."""
    if operand.has_rows or width == 1:
        with reader.stepping(reader.in_step or packed_kind(operand.tensor) != ""):
            return reader.read(operand.tensor, operand.index(place, t, d), width)
    return b.vector_of([reader.read(operand.tensor, operand.index(place, t, b.add(d, i))) for i in range(width)])


def store_operand(
    value: ir.Value, buffer: ir.Value, operand: Operand, place: Place, t: Index, d: Index, aligned: bool = False
) -> None:
    """Neighbouring numbers of a result from the d-th on."""
    if operand.has_rows:
        b.store(value, buffer, operand.index(place, t, d), aligned)
        return
    for lane in range(b.width_of(value)):
        b.store(b.lane_of(value, lane), buffer, operand.index(place, t, b.add(d, lane)))


def result_buffer(kernel: ir.Operation, attention: Attention) -> ir.Value:
    return next(buffer for tensor, buffer in outputs_of(kernel) if tensor == attention.out.tensor)


def store_result(kernel: ir.Operation, attention: Attention, value: ir.Value, where: Place) -> None:
    """Some neighbouring f32 of a row's result, as they are stored: rounded where it is, in parts where it has them."""
    upper = value if attention.rest is None else b.upper_half(value)
    b.store(b.shortened(upper, attention.out.element), result_buffer(kernel, attention), where)
    if attention.rest is not None:
        rest = b.shortened(b.binary("arith.subf", value, upper), attention.out.element)
        (tensor,) = attention.rest.results
        b.store(rest, dict(outputs_of(kernel))[tensor], where)


def store_log_sum(kernel: ir.Operation, attention: Attention, place: Place, top: ir.Value, total: ir.Value) -> None:
    """A row's log-sum-exp, where the kernel has it as a result: of the largest score and of what is summed below it."""
    wanted = [op.results[0] for op in attention.log_sum[-1:]]
    for tensor, buffer in outputs_of(kernel):
        if tensor in wanted:
            b.store(b.binary("arith.addf", top, b.emit("math.log", [total], [total.type])), buffer, place)


def score_at(reader: Reader, attention: Attention, place: Place, t: Index, score: ir.Value) -> ir.Value:
    """What the ops between product and softmax make of a score."""
    reader.hold(attention.scores.results[0], score)
    return reader.read(attention.softmax.operands[0], [*place, t])


# ---- what a row may see


def last_position(attention: Attention | AttentionGradients, reader: Reader, place: Place) -> Index:
    """The largest position that the mask lets through for a row; 0 where it lets none."""
    bound = attention.upper
    if bound is None:
        return attention.context - 1
    value = bound_value(bound, reader, place)
    if attention.own is not None or _is_within(bound, attention):
        return value
    return b.clamped(value, attention.context - 1)


def first_position(attention: Attention | AttentionGradients, reader: Reader, place: Place) -> Index:
    """The smallest position that the mask lets through for a row; the last of all where it lets none."""
    bound = attention.lower
    return 0 if bound is None else b.clamped(bound_value(bound, reader, place), attention.context - 1)


def _is_within(bound: Bound, attention: Attention | AttentionGradients) -> bool:
    """Whether a bound is the row's number among no more rows than there are positions."""
    if bound.constant or len(bound.terms) != 1 or bound.terms[0][0] != 1:
        return False
    op = defining_op(bound.terms[0][1])
    index = op is not None and op.name == "linalg.index"
    return index and attention.extents[ir.IntegerAttr(op.attributes["dim"]).value] <= attention.context


def bound_value(bound: Bound, reader: Reader, place: Place) -> Index:
    total: Index = bound.constant
    for sign, value in bound.terms:
        term = _body_value(bound.op, value, reader, place)
        if not isinstance(term.type, ir.IndexType):
            term = b.emit("arith.index_cast", [term], [ir.IndexType.get()])
        total = b.add(total, term) if sign == 1 else b.emit("arith.subi", [b.as_value(total), term], [term.type])
    return total


def _body_value(op: ir.Operation, value: ir.Value, reader: Reader, place: Place) -> ir.Value:
    """A value of an elementwise op's body, for a row: none that changes along the positions."""
    block = op.regions[0].blocks[0]
    if isinstance(value.owner, ir.Block) and value.owner == block:
        number = ir.BlockArgument(value).arg_number
        tensor = op.operands[number]
        if not isinstance(tensor.type, ir.RankedTensorType):
            return reader.scalar(tensor)
        return reader.read(tensor, mapped(indexing_maps(op)[number], [*place, None]))
    made = defining_op(value)
    if made is None or made.block != block or made.name == "arith.constant":
        return reader.scalar(value)
    if made.name == "linalg.index":
        return b.as_value(place[ir.IntegerAttr(made.attributes["dim"]).value])
    operands = [
        _body_value(op, v, reader, place) for v in made.operands if isinstance(v.type, ir.IntegerType | ir.IndexType)
    ]
    if made.name == "tensor.extract":
        return reader.read(made.operands[0], operands)
    return create_op(made.name, operands, [value.type], attributes_of(made)).results[0]


# ---- the rows' own keys and values


def cache_of(attention: Attention) -> ir.Value:
    """The buffer that the kernel writes its rows' keys and values to."""
    start = defining_op(attention.writes[0].loop.operands[3])
    while start.name == "scf.for":
        start = defining_op(start.operands[3])
    buffer: ir.Value = start.operands[0]
    return buffer


def bind_cache(attention: Attention, reader: Reader) -> None:
    """Read keys and values from the cache's buffer, as it is when they are read."""
    for tensor in attention.updated:
        reader.bind(tensor, lambda index, width: b.load(cache_of(attention), index, width))


def own_row(attention: Attention, place: Place) -> Index:
    """The number of a row, among those that are written, at leading indices."""
    assert attention.own is not None
    sequence, row, each = attention.own.sequence, attention.own.row, attention.own.each
    first = 0 if sequence is None else b.mul(place[sequence], each)
    return b.add(first, 0 if row is None else place[row])


def own_index(attention: Attention, number: int, place: Place, d: Index) -> list[Index]:
    """Where in what a row writes (0: its key, 1: its value) the numbers, or bytes of packed ones, from `d` on are."""
    write, operand = attention.writes[number], (attention.keys, attention.values)[number]
    view = cache_view(stored_rows(operand.tensor))
    assert view is not None
    index: list[Index] = []
    sizes = integers(write.insert.attributes["static_sizes"])
    for kept, size, (_, where) in zip(write.kept(), sizes, view.places, strict=True):
        if kept:
            dim = operand.dims[where] if size > 1 else None
            index.append(0 if dim is None else d if dim == DEPTH else place[dim])
    return index


def place_of_row(write: CacheWrite, reader: Reader, row: Index, index: list[Index]) -> list[Index]:
    """Where in the cache element `index` of row `row` goes."""
    reader.indices[write.counter] = row
    return sliced_index(write.insert, list(write.insert.operands[2:]), write.shape, index, reader)


def read_row(write: CacheWrite, reader: Reader, row: Index, index: list[Index], width: int) -> ir.Value:
    """Elements of row `row`, as they are stored."""
    reader.indices[write.counter] = row
    return reader.read(write.source, index, width)
