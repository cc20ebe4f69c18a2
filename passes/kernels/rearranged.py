"""One element of what `tensor` ops put together from other tensors: parts replaced, joined, padded, gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import element_type, integers, kept_dimensions, operations, shape_of, symbol_of
from lispgpt.passes.kernels.elementwise import Body, Values
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.views import DYNAMIC, slice_numbers

ALIGNMENT = 64
"""Bytes to which constants in memory are aligned, so that any vector of theirs that starts in step can be loaded."""


def rearranged(reader: Values, op: ir.Operation, index: Sequence[Index]) -> ir.Value:
    """One element of the op's result; Refused where this file does not know the op."""
    if op.name not in REARRANGEMENTS:
        raise Refused(f"it reads the result of {op.name}")
    return REARRANGEMENTS[op.name](reader, op, list(index))


def either(
    reader: Values, condition: ir.Value, type_: ir.Type, then: Callable[[], ir.Value], other: Callable[[], ir.Value]
) -> ir.Value:
    """The value of one side; the other is not computed."""

    def side(value: Callable[[], ir.Value]) -> Callable[[], list[ir.Value]]:
        def inside() -> list[ir.Value]:
            with reader.scope():
                return [value()]

        return inside

    return b.choose(condition, [type_], side(then), side(other))[0]


def vectors_of_part(op: ir.Operation) -> int:
    """The most neighbours, a power of two, that are never some of a part that was put in and some of what is around."""
    offset, size, stride = (numbers[-1] for numbers in slice_numbers(op)) if shape_of(op.results[0]) else (0, 1, 1)
    kept = shape_of(op.operands[0])[-1:] == (size,)
    if stride != 1 or offset == DYNAMIC or not kept:
        return 1
    common = gcd(offset, size, shape_of(op.results[0])[-1])
    return common & -common


def insert_slice(reader: Values, op: ir.Operation, index: list[Index], width: int = 1) -> ir.Value:
    """Elements of a tensor with a part put in; width: of which `vectors_of_part` is a multiple."""
    part, whole = op.operands[0], op.operands[1]
    offsets, sizes, strides = slice_numbers(op)
    dynamic = iter(list(op.operands)[2:])
    kept = kept_dimensions(sizes, shape_of(part))
    conditions, where = [], []
    for i, offset, size, stride, keep, extent in zip(
        index, offsets, sizes, strides, kept, shape_of(whole), strict=True
    ):
        start = reader.index_of(next(dynamic)) if offset == DYNAMIC else offset
        behind = b.sub(i, start)
        if size != extent or start != 0:
            conditions.append(b.less(behind, (size - 1) * stride + 1))
        if stride > 1:
            conditions.append(b.equal(b.mod(behind, stride), 0))
        if keep:
            where.append(b.div(behind, stride))
    condition = b.both(*conditions)
    if condition is None:
        return reader.read(part, where, width)
    return either(
        reader,
        condition,
        b.with_width(element_type(whole), width),
        lambda: reader.read(part, where, width),
        lambda: reader.read(whole, index, width),
    )


def _concat(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    dim = ir.IntegerAttr(op.attributes["dim"]).value

    def from_part(parts: list[ir.Value], start: int) -> ir.Value:
        part = parts[0]
        where = [*index[:dim], b.sub(index[dim], start), *index[dim + 1 :]]
        if len(parts) == 1:
            return reader.read(part, where)
        end = start + shape_of(part)[dim]
        return either(
            reader,
            b.less(index[dim], end),
            element_type(part),
            lambda: reader.read(part, where),
            lambda: from_part(parts[1:], end),
        )

    return from_part(list(op.operands), 0)


def _pad(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    source = op.operands[0]
    low = integers(op.attributes["static_low"])
    if DYNAMIC in low:
        raise Refused("tensor.pad pads by what is not known while compiling")
    where = [b.sub(i, before) for i, before in zip(index, low, strict=True)]
    shapes = zip(where, shape_of(source), shape_of(op.results[0]), strict=True)
    condition = b.both(*(b.less(i, inner) for i, inner, outer in shapes if inner != outer))
    if condition is None:
        return reader.read(source, where)
    return either(
        reader,
        condition,
        element_type(source),
        lambda: reader.read(source, where),
        lambda: _in_block(reader, op, index),
    )


def _in_block(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    """What an op's block yields for the element, whose index are the block's arguments."""
    arguments = op.regions[0].blocks[0].arguments
    body = Body(reader, op, [], 1)
    return body.results(dict(zip(arguments, map(b.as_value, index), strict=True)))[0]


def _from_elements(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    elements, shape = list(op.operands), shape_of(op.results[0])
    linear: Index = 0
    for i, extent in zip(index, shape, strict=True):
        linear = b.add(b.mul(linear, extent), i if extent > 1 else 0)
    if isinstance(linear, int):
        return reader.scalar(elements[linear])
    value = reader.scalar(elements[-1])
    for number, element in enumerate(elements[:-1]):
        value = b.select(b.equal(linear, number), reader.scalar(element), value)
    return value


def _gather(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    """source[…, indices[…], …]: the coordinates of gather_dims come from the last dimension of the indices."""
    source, indices = op.operands
    dims = integers(op.attributes["gather_dims"])
    batch = len(shape_of(indices)) - 1
    rank = len(shape_of(source))
    inner = index[batch:]
    if len(inner) == rank:
        inner = [i for d, i in enumerate(inner) if d not in dims]
    free = iter(inner)
    where: list[Index] = []
    for d in range(rank):
        if d in dims:
            number = reader.read(indices, [*index[:batch], dims.index(d)])
            is_index = isinstance(number.type, ir.IndexType)
            where.append(number if is_index else b.emit("arith.index_cast", [number], [ir.IndexType.get()]))
        else:
            where.append(next(free))
    return reader.read(source, where)


def _constant(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    """Of a number everywhere, that number; else from read-only memory of the module."""
    dense, type_ = ir.DenseElementsAttr(op.attributes["value"]), op.results[0].type
    if dense.is_splat:
        value = dense.get_splat_value()
        return create_op("arith.constant", [], [type_.element_type], {"value": value}).results[0]
    memref = ir.MemRefType.get(type_.shape, type_.element_type)
    name = {"name": ir.FlatSymbolRefAttr.get(_global(dense, memref))}
    memory = create_op("memref.get_global", [], [memref], name).results[0]
    return b.load(memory, index, 1)


def _global(dense: ir.Attribute, memref: ir.Type) -> str:
    """The symbol of a constant with these elements in the module of what is emitted, made where there is none."""
    module = ir.InsertionPoint.current.block.owner
    while module.name != "builtin.module":
        module = module.parent.operation
    body, taken = module.regions[0].blocks[0], 0
    for other in operations(body):
        if other.name == "memref.global":
            taken += 1
            if other.attributes["initial_value"] == dense:
                return symbol_of(other)
    attributes = {
        "sym_name": f"constant_{taken}",
        "sym_visibility": "private",
        "type": memref,
        "initial_value": dense,
        "constant": ir.UnitAttr.get(),
        "alignment": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT),
    }
    create_op("memref.global", attributes=attributes, ip=ir.InsertionPoint.at_block_begin(body))
    return f"constant_{taken}"


def _reshape(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    """Row-major, from any shape to any other that is known."""
    linear: Index = 0
    for i, extent in zip(index, shape_of(op.results[0]), strict=True):
        linear = b.add(b.mul(linear, extent), i)
    where: list[Index] = []
    for extent in reversed(shape_of(op.operands[0])):
        where.insert(0, 0 if extent == 1 else b.mod(linear, extent))
        linear = b.div(linear, extent)
    return reader.read(op.operands[0], where)


def branch(reader: Values, op: ir.Operation, number: int, index: list[Index]) -> ir.Value:
    """One element of an scf.if's result `number`."""
    values = [operations(region.blocks[0])[-1].operands[number] for region in op.regions]
    return either(
        reader,
        reader.scalar(op.operands[0]),
        element_type(op.results[number]),
        lambda: reader.read(values[0], index),
        lambda: reader.read(values[1], index),
    )


def iterated(reader: Values, op: ir.Operation, number: int, index: list[Index]) -> ir.Value:
    """One element of an scf.for's result `number`, where every round needs that element alone of the rounds before."""
    block = op.regions[0].blocks[0]
    counter, *carried = block.arguments
    if not isinstance(counter.type, ir.IndexType):
        raise Refused("a loop counts in something else than indices")
    shapes = {shape_of(v) for v in carried if isinstance(v.type, ir.RankedTensorType)}
    if shapes - {shape_of(op.results[number])}:
        raise Refused("a loop carries tensors of several shapes")

    def element(value: ir.Value) -> ir.Value:
        return reader.read(value, index) if isinstance(value.type, ir.RankedTensorType) else reader.scalar(value)

    def same(value: ir.Value, where: Sequence[Index], width: int) -> ir.Value:
        if list(where) != index:
            raise Refused("a loop reads what it made in earlier rounds at another place")
        return value

    def body(i: ir.Value, *values: ir.Value) -> list[ir.Value]:
        with reader.scope():
            reader.indices[counter] = i
            for argument, value in zip(carried, values, strict=True):
                if isinstance(argument.type, ir.RankedTensorType):
                    reader.bind(argument, partial(same, value))
                else:
                    reader.indices[argument] = value
            return [element(v) for v in operations(block)[-1].operands]

    low, high, step = (reader.index_of(v) for v in list(op.operands)[:3])
    return b.loop(low, high, step, [element(v) for v in list(op.operands)[3:]], body)[number]


def _bitcast(reader: Values, op: ir.Operation, index: list[Index]) -> ir.Value:
    return b.emit("arith.bitcast", [reader.read(op.operands[0], index)], [element_type(op.results[0])])


REARRANGEMENTS: dict[str, Callable[[Values, ir.Operation, list[Index]], ir.Value]] = {
    "arith.constant": _constant,
    "tensor.bitcast": _bitcast,
    "tensor.concat": _concat,
    "tensor.empty": lambda reader, op, index: b.constant(0, element_type(op.results[0])),
    "tensor.from_elements": _from_elements,
    "tensor.gather": _gather,
    "tensor.generate": _in_block,
    "tensor.insert_slice": insert_slice,
    "tensor.pad": _pad,
    "tensor.reshape": _reshape,
    "tensor.splat": lambda reader, op, index: reader.scalar(op.operands[0]),
}
