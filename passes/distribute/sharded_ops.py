"""What each kind of op does when its operands are divided among devices, or are parts of sums."""

from __future__ import annotations

from collections.abc import Mapping

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    captured_values,
    defining_op,
    integers,
    kept_dimensions,
    loop_extents,
    nested_operations,
    operand_loops,
    replace_captured,
    reshape_groups,
    shape_of,
)
from lispgpt.passes.distribute.batch_dims import ALL, BatchDim, collapsed, expanded, fail
from lispgpt.passes.distribute.linearity import LINEAR, NOTHING, PLAIN, SUM, is_nothing, reduction_of, results_of
from lispgpt.passes.distribute.sharded_loops import divide_loop
from lispgpt.passes.distribute.sharded_values import ShardedValues, add_up_all, same, takes_parts


def visit(values: ShardedValues, op: ir.Operation) -> None:
    """Divide what an op makes, once its operands are as they are to be."""
    _visit(values, op)
    while values.copies:
        number_rows(values, *values.copies.pop())
    values.uniform.note(op)
    values.find_extremes()


def _visit(values: ShardedValues, op: ir.Operation) -> None:
    for number, value in enumerate(op.operands):
        if value in values.summed:
            op.operands[number] = values.summed[value]
    replace_captured(op, {v: values.summed[v] for v in captured_values(op) if v in values.summed})
    if is_nothing(op):
        values.nothing.update(op.results)
        return
    if not any(values.touches(v) for v in [*op.operands, *captured_values(op)]):
        return
    if op.name.startswith("linalg."):
        _linalg(values, op)
    elif op.name in _HANDLERS:
        _HANDLERS[op.name](values, op)
    else:
        add_up_all(values, op)
        if any(v in values.dims for v in [*op.operands, *captured_values(op)]):
            fail(op, "nothing says what it does with a part of the batch")


def _moved(values: ShardedValues, op: ir.Operation) -> None:
    """Note that what an op moves is what it was."""
    takes_parts(values, op)
    if op.operands[0] in values.parts:
        values.parts.update(op.results)
    elif op.operands[0] in values.nothing:
        values.nothing.update(op.results)


# ---- linalg

_NO_REDUCTION = "what it makes of all sequences together is no sum, and neither their largest nor their least"


def _linalg(values: ShardedValues, op: ir.Operation) -> None:
    positions = _positions(op)
    loops = _batch_loops(values, op, positions)
    if len(loops) > 1:
        fail(op, "it reads each of the batch's sequences with each other")
    count = len(op.results)
    summed = [loop for loop in loops if all(loop not in where for where in positions[-count:])]
    reduction = reduction_of(op) if summed else None
    if summed and reduction is None:
        fail(op, _NO_REDUCTION)
    kinds = results_of(op, values.kind) if not loops else None
    if kinds is None or not _starts_with_nothing(values, op, positions):
        add_up_all(values, op)
        kinds = [LINEAR if reduction == SUM else PLAIN] * count
    if LINEAR in kinds and not _starts_with_nothing(values, op, positions):
        fail(op, "it adds a sum over the batch to what is there")
    for number, where in enumerate(positions):
        wanted = {d: loops[loop] for d, loop in enumerate(where) if loop in loops}
        op.operands[number] = values.fitted(op.operands[number], wanted, op)
    number_rows(values, op, loops)
    takes_parts(values, op)
    for result, where, kind in zip(op.results, positions[-count:], kinds, strict=True):
        values.divide(result, {d: loops[loop] for d, loop in enumerate(where) if loop in loops}, op)
        if kind == LINEAR:
            values.parts.add(result)
        elif kind == NOTHING:
            values.nothing.add(result)
        elif reduction is not None:
            values.extremes[result] = reduction


def _positions(op: ir.Operation) -> list[list[int | None]]:
    """For each operand of a linalg op, the loop of each of its dimensions."""
    found = operand_loops(op) if op.name != "linalg.fill" else None
    return found if found is not None else fail(op, "nothing says what it does with a part of the batch")


def _batch_loops(values: ShardedValues, op: ir.Operation, positions: list[list[int | None]]) -> dict[int, BatchDim]:
    """The loops of a linalg op that count sequences."""
    loops: dict[int, BatchDim] = {}
    for value, where in zip(op.operands, positions, strict=True):
        for d, dim in values.dims_of(value).items():
            loop = where[d]
            if loop is None:
                fail(op, "it reckons with the numbers of the batch's sequences")
            same(loops, loop, dim, op)
    for inner in nested_operations(op):
        if inner.name == "tensor.extract":
            for d, dim in values.dims_of(inner.operands[0]).items():
                same(loops, _loop_of(inner.operands[1 + d], op), dim, op)
    if op.name == "linalg.softmax" and ir.IntegerAttr(op.attributes["dimension"]).value in loops:
        fail(op, _NO_REDUCTION)
    return loops


def _loop_of(index: ir.Value, op: ir.Operation) -> int:
    """The loop whose number an index is."""
    made_by = defining_op(index)
    if made_by is None or made_by.name != "linalg.index":
        fail(op, "it reads sequences of the batch by reckoned numbers")
    return int(ir.IntegerAttr(made_by.attributes["dim"]).value)


def _starts_with_nothing(values: ShardedValues, op: ir.Operation, positions: list[list[int | None]]) -> bool:
    """Whether an op that sums up starts with zeros, or with parts of sums."""
    made = set(positions[-1])
    if all(loop in made for where in positions for loop in where):
        return True
    return all(values.kind(v) in (LINEAR, NOTHING) for v in list(op.operands)[-len(op.results) :])


# ---- moving


def _collapse(values: ShardedValues, op: ir.Operation) -> None:
    source = op.operands[0]
    found = collapsed(values.dims_of(source), values.shape(source), reshape_groups(op))
    if found is None:
        fail(op, "two dimensions that count the batch become one")
    values.divide(op.results[0], found, op)
    _moved(values, op)


def _expand(values: ShardedValues, op: ir.Operation) -> None:
    result = op.results[0]
    found = expanded(values.dims_of(op.operands[0]), shape_of(result), reshape_groups(op))
    if found is None:
        fail(op, "a dimension that counts the batch's rows is parted between sequences")
    values.divide(result, found, op)
    if found:
        op.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape_of(result)))
    _moved(values, op)


def _cast(values: ShardedValues, op: ir.Operation) -> None:
    values.divide(op.results[0], values.dims_of(op.operands[0]), op)
    _moved(values, op)


def _extract_slice(values: ShardedValues, op: ir.Operation) -> None:
    source, result = op.operands[0], op.results[0]
    dims, offsets = values.dims_of(source), integers(op.attributes["static_offsets"])
    kept = kept_dimensions(integers(op.attributes["static_sizes"]), shape_of(result))
    found: dict[int, BatchDim] = {}
    for d, dim in dims.items():
        if not kept[d] or not _is_static(op, d):
            fail(op, "it takes sequences of the batch by their numbers")
        found[sum(kept[:d])] = BatchDim(dim.count, dim.inner, dim.offset + offsets[d])
    values.divide(result, found, op)
    _cut(values, op, list(dims))
    _moved(values, op)


def _insert_slice(values: ShardedValues, op: ir.Operation) -> None:
    part, whole = list(op.operands)[:2]
    kinds = {values.kind(part), values.kind(whole)}
    if LINEAR in kinds and not kinds <= {LINEAR, NOTHING}:
        add_up_all(values, op)
        part, whole = list(op.operands)[:2]
    kept = kept_dimensions(integers(op.attributes["static_sizes"]), values.shape(part))
    homes, offsets = [d for d, is_kept in enumerate(kept) if is_kept], integers(op.attributes["static_offsets"])
    wanted: dict[int, BatchDim] = dict(values.dims_of(whole))
    for d, dim in values.dims_of(part).items():
        if not _is_static(op, homes[d]):
            fail(op, "it puts sequences of the batch where numbers say")
        same(wanted, homes[d], BatchDim(dim.count, dim.inner, dim.offset - offsets[homes[d]]), op)
    if any(not kept[d] for d in wanted):
        fail(op, "it puts sequences of the batch where numbers say")
    own = {homes.index(d): BatchDim(m.count, m.inner, m.offset + offsets[d]) for d, m in wanted.items()}
    op.operands[0] = values.fitted(part, own, op)
    op.operands[1] = values.fitted(whole, wanted, op)
    values.divide(op.results[0], wanted, op)
    _cut(values, op, list(wanted))
    takes_parts(values, op)
    if LINEAR in kinds and all(values.kind(v) in (LINEAR, NOTHING) for v in list(op.operands)[:2]):
        values.parts.add(op.results[0])


def _is_static(op: ir.Operation, dimension: int) -> bool:
    """Whether it is known while compiling which elements, next to each other, a slice has of a dimension."""
    numbers = [integers(op.attributes[f"static_{name}"])[dimension] for name in ("offsets", "sizes", "strides")]
    return min(numbers) >= 0 and numbers[-1] == 1


def _cut(values: ShardedValues, op: ir.Operation, dimensions: list[int]) -> None:
    """Have a slice of divided dimensions be that of one device's part."""
    for name in ("static_offsets", "static_sizes"):
        numbers = integers(op.attributes[name])
        for d in dimensions:
            if numbers[d] % values.devices:
                fail(op, f"{numbers[d]} rows cannot be shared by {values.devices} devices alike")
            numbers[d] //= values.devices
        op.attributes[name] = ir.DenseI64ArrayAttr.get(numbers)


_HANDLERS = {
    "tensor.collapse_shape": _collapse,
    "tensor.expand_shape": _expand,
    "tensor.cast": _cast,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "scf.for": divide_loop,
}


# ---- numbers of rows in a whole batch, of which a device has a part


def number_rows(values: ShardedValues, op: ir.Operation, loops: Mapping[int, BatchDim]) -> None:
    """Have what an op makes of the numbers of its rows be made of those that they have in the whole batch."""
    extents = loop_extents(op)
    for inner in list(nested_operations(op)):
        loop = int(ir.IntegerAttr(inner.attributes["dim"]).value) if inner.name == "linalg.index" else -1
        if loop not in loops:
            continue
        number = inner.results[0]
        uses = [(use.owner.operation, use.operand_number) for use in number.uses]
        read = [(user, place) for user, place in uses if not _reads_own(values, user, place)]
        if read:
            if loops[loop].span(values.devices * extents[loop]) != ALL:
                fail(op, "it reckons with the numbers of rows in a part of the batch")
            with ir.InsertionPoint.after(inner), inner.location:
                whole = _in_batch(values, op, number, loops[loop], extents[loop])
            for user, place in read:
                user.operands[place] = whole


def _reads_own(values: ShardedValues, user: ir.Operation, place: int) -> bool:
    """Whether an index says which of this device's rows is read."""
    return user.name == "tensor.extract" and place > 0 and place - 1 in values.dims_of(user.operands[0])


def _in_batch(values: ShardedValues, op: ir.Operation, number: ir.Value, dim: BatchDim, extent: int) -> ir.Value:
    """The number in the whole batch of one of the rows that a device has; extent: how many those are."""
    own = values.number_of_device(op)
    device = b.emit("arith.index_cast", [b.emit("tensor.extract", [own], [own.type.element_type])], [number.type])
    together = extent if dim.offset else min(extent, dim.count * dim.inner // values.devices)
    first = b.emit("arith.muli", [device, b.as_value(together)], [number.type])
    if together < extent:
        rounds = b.emit("arith.divui", [number, b.as_value(together)], [number.type])
        others = b.as_value(together * (values.devices - 1))
        first = b.emit("arith.addi", [first, b.emit("arith.muli", [rounds, others], [number.type])], [number.type])
    return b.emit("arith.addi", [number, first], [number.type])
