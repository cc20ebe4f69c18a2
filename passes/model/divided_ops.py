"""What each kind of op does when its operands are divided among devices, or are parts of sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    captured_values,
    constant_number,
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    kept_dimensions,
    loop_extents,
    nested_operations,
    operations,
    replace_captured,
    shape_of,
)
from lispgpt.passes.model.batch_dims import BatchDim, collapsed, expanded
from lispgpt.passes.model.divided_values import DividedValues, fail, same
from lispgpt.passes.model.linear_values import LINEAR, NOTHING, adds_up, is_zero, results_of


def visit(values: DividedValues, op: ir.Operation) -> None:
    """Divide what an op makes, once its operands are as they are to be."""
    for number, value in enumerate(op.operands):
        if value in values.summed:
            op.operands[number] = values.summed[value]
    replace_captured(op, {v: values.summed[v] for v in captured_values(op) if v in values.summed})
    if _is_nothing(values, op):
        values.nothing.update(op.results)
        return
    if not any(values.touches(v) for v in [*op.operands, *captured_values(op)]):
        return
    if op.name.startswith("linalg."):
        _linalg(values, op)
    elif op.name in _HANDLERS:
        _HANDLERS[op.name](values, op)
    else:
        _add_up_all(values, op)
        if any(v in values.dims for v in [*op.operands, *captured_values(op)]):
            fail(op, "nothing says what it does with a part of the batch")


def _is_nothing(values: DividedValues, op: ir.Operation) -> bool:
    if op.name == "tensor.empty":
        return True
    number = defining_op(op.operands[0]) if op.name == "linalg.fill" else None
    return number is not None and number.name == "arith.constant" and is_zero(number)


def _add_up_all(values: DividedValues, op: ir.Operation) -> None:
    """Have an op read whole sums."""
    for number, value in enumerate(op.operands):
        if value in values.parts:
            op.operands[number] = values.add_up(value)
    replace_captured(op, {v: values.add_up(v) for v in captured_values(op) if v in values.parts})


def _takes_parts(values: DividedValues, op: ir.Operation) -> None:
    """Note that an op has read parts of sums as such."""
    for value in [*op.operands, *captured_values(op)]:
        if value in values.parts:
            values.readers.setdefault(value, []).append(op)


def _moved(values: DividedValues, op: ir.Operation) -> None:
    """Note that what an op moves is what it was."""
    _takes_parts(values, op)
    if op.operands[0] in values.parts:
        values.parts.update(op.results)
    elif op.operands[0] in values.nothing:
        values.nothing.update(op.results)


# ---- linalg


def _linalg(values: DividedValues, op: ir.Operation) -> None:
    positions = _positions(op)
    loops = _batch_loops(values, op, positions)
    count = len(op.results)
    summed = [loop for loop in loops if all(loop not in where for where in positions[-count:])]
    if summed and not adds_up(op):
        fail(op, "what it makes of all sequences together is no sum")
    kinds = results_of(op, values.kind) if not loops else None
    if kinds is None or not _starts_with_nothing(values, op, positions):
        _add_up_all(values, op)
        kinds = [LINEAR if summed else "plain"] * count
    if LINEAR in kinds and not _starts_with_nothing(values, op, positions):
        fail(op, "it adds a sum over the batch to what is there")
    for number, where in enumerate(positions):
        wanted = {d: loops[loop] for d, loop in enumerate(where) if loop in loops}
        op.operands[number] = values.fitted(op.operands[number], wanted, op)
    number_rows(values, op, loops)
    _takes_parts(values, op)
    for result, where, kind in zip(op.results, positions[-count:], kinds, strict=True):
        values.divide(result, {d: loops[loop] for d, loop in enumerate(where) if loop in loops}, op)
        if kind == LINEAR:
            values.parts.add(result)
        elif kind == NOTHING:
            values.nothing.add(result)


def _positions(op: ir.Operation) -> list[list[int | None]]:
    """For each operand of a linalg op, the loop of each of its dimensions."""
    if "indexing_maps" in op.attributes:
        return [dim_positions(map_) for map_ in indexing_maps(op)]
    rank = len(shape_of(op.operands[0]))
    if op.name == "linalg.softmax":
        return [[*range(rank)]] * 2
    if op.name == "linalg.reduce":
        kept = [d for d in range(rank) if d not in integers(op.attributes["dimensions"])]
        return [[*range(rank)]] * (len(op.operands) // 2) + [kept] * (len(op.operands) // 2)
    fail(op, "nothing says what it does with a part of the batch")


def _batch_loops(values: DividedValues, op: ir.Operation, positions: list[list[int | None]]) -> dict[int, BatchDim]:
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
        fail(op, "what it makes of all sequences together is no sum")
    return loops


def number_rows(values: DividedValues, op: ir.Operation, loops: Mapping[int, BatchDim]) -> None:
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
            with ir.InsertionPoint.after(inner), inner.location:
                whole = _in_batch(values, op, number, loops[loop], extents[loop])
            for user, place in read:
                user.operands[place] = whole


def _reads_own(values: DividedValues, user: ir.Operation, place: int) -> bool:
    """Whether an index says which of this device's rows is read."""
    return user.name == "tensor.extract" and place > 0 and place - 1 in values.dims_of(user.operands[0])


def _in_batch(values: DividedValues, op: ir.Operation, number: ir.Value, dim: BatchDim, extent: int) -> ir.Value:
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


def _loop_of(index: ir.Value, op: ir.Operation) -> int:
    """The loop whose number an index is."""
    made_by = defining_op(index)
    if made_by is None or made_by.name != "linalg.index":
        fail(op, "it reads sequences of the batch by reckoned numbers")
    return int(ir.IntegerAttr(made_by.attributes["dim"]).value)


def _starts_with_nothing(values: DividedValues, op: ir.Operation, positions: list[list[int | None]]) -> bool:
    """Whether an op that sums up starts with zeros, or with parts of sums."""
    made = set(positions[-1])
    if all(loop in made for where in positions for loop in where):
        return True
    return all(values.kind(v) in (LINEAR, NOTHING) for v in list(op.operands)[-len(op.results) :])


# ---- moving


def _collapse(values: DividedValues, op: ir.Operation) -> None:
    source = op.operands[0]
    found = collapsed(values.dims_of(source), values.shape(source), _groups(op))
    if found is None:
        fail(op, "two dimensions that count the batch become one")
    values.divide(op.results[0], found, op)
    _moved(values, op)


def _expand(values: DividedValues, op: ir.Operation) -> None:
    result = op.results[0]
    found = expanded(values.dims_of(op.operands[0]), shape_of(result), _groups(op))
    if found is None:
        fail(op, "a dimension that counts the batch's rows is parted between sequences")
    values.divide(result, found, op)
    if found:
        op.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape_of(result)))
    _moved(values, op)


def _groups(op: ir.Operation) -> list[list[int]]:
    return [integers(group) for group in op.attributes["reassociation"]]


def _cast(values: DividedValues, op: ir.Operation) -> None:
    values.divide(op.results[0], values.dims_of(op.operands[0]), op)
    _moved(values, op)


def _extract_slice(values: DividedValues, op: ir.Operation) -> None:
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


def _insert_slice(values: DividedValues, op: ir.Operation) -> None:
    part, whole = list(op.operands)[:2]
    kinds = {values.kind(part), values.kind(whole)}
    if LINEAR in kinds and not kinds <= {LINEAR, NOTHING}:
        _add_up_all(values, op)
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
    _takes_parts(values, op)
    if LINEAR in kinds and all(values.kind(v) in (LINEAR, NOTHING) for v in list(op.operands)[:2]):
        values.parts.add(op.results[0])


def _is_static(op: ir.Operation, dimension: int) -> bool:
    return all(integers(op.attributes[name])[dimension] >= 0 for name in ("static_offsets", "static_sizes"))


def _cut(values: DividedValues, op: ir.Operation, dimensions: list[int]) -> None:
    """Have a slice of divided dimensions be that of one device's part."""
    for name in ("static_offsets", "static_sizes"):
        numbers = integers(op.attributes[name])
        for d in dimensions:
            if numbers[d] % values.devices:
                fail(op, f"{numbers[d]} rows cannot be shared by {values.devices} devices alike")
            numbers[d] //= values.devices
        op.attributes[name] = ir.DenseI64ArrayAttr.get(numbers)


# ---- loops, and the rest


def _loop(values: DividedValues, op: ir.Operation) -> None:
    """A loop over rows that adds each to what it carries, where that row says."""
    block = op.regions[0].blocks[0]
    counter, carried = block.arguments[0], list(block.arguments)[1:]
    dims = [
        dim
        for inner in operations(block)
        if inner.name in ("tensor.extract", "tensor.extract_slice")
        for d, dim in values.dims_of(inner.operands[0]).items()
        if _is_counted(inner, d, counter)
    ]
    captured = captured_values(op)
    if not dims:
        _add_up_all(values, op)
        if any(v in values.dims for v in [*op.operands, *captured]):
            fail(op, "it is a loop over something else than the batch")
        return
    if any(v in values.parts for v in captured):
        replace_captured(op, {v: values.add_up(v) for v in captured if v in values.parts})
    start = op.operands[3]
    last = constant_number(op.operands[1])
    if len(carried) != 1 or not _adds_rows(op) or values.kind(start) not in (LINEAR, NOTHING) or last is None:
        fail(op, "it is a loop over the batch, and no sum")
    for inner in operations(block):
        for d in values.dims_of(inner.operands[0]) if inner.name.startswith("tensor.extract") else ():
            if not _is_counted(inner, d, counter):
                fail(op, "it reads sequences of the batch by reckoned numbers")
    if last % values.devices:
        fail(op, f"{last} rows cannot be shared by {values.devices} devices alike")
    index = ir.IntegerAttr.get(ir.IndexType.get(), last // values.devices)
    with ir.InsertionPoint(op), op.location:
        op.operands[1] = create_op("arith.constant", [], [index.type], {"value": index}).results[0]
    _takes_parts(values, op)
    values.parts.add(op.results[0])


def _is_counted(op: ir.Operation, dimension: int, counter: ir.Value) -> bool:
    """Whether a dimension of what an op takes an element or a slice of goes with a loop's counter."""
    indices: list[Any] = list(op.operands)[1:]
    if op.name == "tensor.extract":
        return bool(indices[dimension] == counter)
    offsets = integers(op.attributes["static_offsets"])
    dynamic = [d for d, offset in enumerate(offsets) if offset < 0]
    return dimension in dynamic and bool(indices[dynamic.index(dimension)] == counter)


def _adds_rows(op: ir.Operation) -> bool:
    """Whether what a loop carries is changed by additions to a slice of it alone."""
    block = op.regions[0].blocks[0]
    carried, made = block.arguments[1], defining_op(operations(block)[-1].operands[0])
    if made is None or made.name != "tensor.insert_slice" or made.operands[1] != carried:
        return False
    total = defining_op(made.operands[0])
    if total is None or total.name != "linalg.generic":
        return False
    old = [v for v in total.operands if (o := defining_op(v)) is not None and carried in list(o.operands)]
    taken = [defining_op(v) for v in old]
    users = {use.owner.operation for use in carried.uses} - {made}
    if len(old) != 1 or taken[0].name != "tensor.extract_slice" or users != {taken[0]}:
        return False
    return results_of(total, lambda v: LINEAR if v in old else NOTHING) == [LINEAR] and _same_place(taken[0], made)


def _same_place(taken: ir.Operation, put: ir.Operation) -> bool:
    names = ("static_offsets", "static_sizes", "static_strides")
    return (
        all(taken.attributes[n] == put.attributes[n] for n in names)
        and list(taken.operands)[1:] == list(put.operands)[2:]
    )


def _return(values: DividedValues, op: ir.Operation) -> None:
    _add_up_all(values, op)


_HANDLERS = {
    "tensor.collapse_shape": _collapse,
    "tensor.expand_shape": _expand,
    "tensor.cast": _cast,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "scf.for": _loop,
    "func.return": _return,
}
