"""What is known of an entry's values while they are divided among devices."""

from __future__ import annotations

from math import prod

from lispgpt.base.dtypes import COLLECTIVE_DTYPES
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    replace_captured,
    shape_of,
)
from lispgpt.passes.distribute.batch_dims import BatchDim, Dims, collapsed, expanded, fail
from lispgpt.passes.distribute.linearity import LINEAR, NOTHING, PLAIN, SUM
from lispgpt.passes.distribute.uniformity import Uniformity

DEVICES = "devices"
"""The symbol of the grid that has all of them."""

OWN_NUMBER = "device:number"
"""What an entry's argument is that says which of them this is."""

RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
MOVES = (*RESHAPES, "tensor.insert_slice")
"""Ops that put parts of a sum elsewhere: those are added up before, as soon as they are there."""


class ShardedValues:
    """dims: of values that have a part on each device, which dimensions count the batch.  parts: values whose sum over
    the devices is what the program means.  extremes: values whose "max" or "min" over the devices is, until that is
    made.  nothing: zeros, and what is still to be written.  shapes: what divided values were before.  summed: values
    that were combined, and what that made.  readers: the ops that took a value as a part.  copies: ops that were made
    anew, and their loops that count the batch, until the numbers of those rows are the batch's.  alike: what parts of
    the batch are treated alike."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.dims: dict[ir.Value, Dims] = {}
        self.parts: set[ir.Value] = set()
        self.nothing: set[ir.Value] = set()
        self.shapes: dict[ir.Value, tuple[int, ...]] = {}
        self.summed: dict[ir.Value, ir.Value] = {}
        self.extremes: dict[ir.Value, str] = {}
        self.readers: dict[ir.Value, list[ir.Operation]] = {}
        self.copies: list[tuple[ir.Operation, Dims]] = []
        self.uniform = Uniformity(self.dims, self.shapes, self.parts, self.nothing)
        self._own: ir.Value | None = None

    def number_of_device(self, op: ir.Operation) -> ir.Value:
        """Which device this is, tensor<i32>: one more argument of the entry that an op is in."""
        if self._own is None:
            entry = op
            while "entry" not in entry.attributes:
                entry = entry.parent.operation
            type_ = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
            self._own = entry.regions[0].blocks[0].add_argument(type_, entry.location)
            names = [*entry.attributes["arguments"], ir.StringAttr.get(OWN_NUMBER)]
            entry.attributes["arguments"] = ir.ArrayAttr.get(names)
        return self._own

    def dims_of(self, value: ir.Value) -> Dims:
        return self.dims.get(value, {})

    def kind(self, value: ir.Value) -> str:
        """What a value is to a sum: see `linear_values`."""
        return LINEAR if value in self.parts else NOTHING if value in self.nothing else PLAIN

    def touches(self, value: ir.Value) -> bool:
        return value in self.dims or value in self.parts

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """A value's shape in the program."""
        return self.shapes.get(value, shape_of(value))

    def local(self, shape: tuple[int, ...], dims: Dims, op: ir.Operation) -> list[int]:
        """What one device has of a shape."""
        for number, dim in dims.items():
            if not dim.divisible(shape[number], self.devices):
                fail(op, f"{shape[number]} of {list(shape)} cannot be shared by {self.devices} devices alike")
        return [n // self.devices if number in dims else n for number, n in enumerate(shape)]

    def divide(self, value: ir.Value, dims: Dims, op: ir.Operation) -> None:
        """Leave one device's part of a value.  op: what to name where that cannot be."""
        if dims:
            self.shapes[value], self.dims[value] = shape_of(value), dims
            value.set_type(self.local_type(value, dims, op))

    def local_type(self, value: ir.Value, dims: Dims, op: ir.Operation) -> ir.Type:
        shape = self.local(self.shape(value), dims, op)
        return ir.RankedTensorType.get(shape, value.type.element_type)

    def add_up(self, value: ir.Value) -> ir.Value:
        """The whole sum that a value is a part of: made where the value is, or where it was before it was moved."""
        op = defining_op(value)
        if op is not None and op.name in MOVES and not self.readers.get(value):
            for number in range(2 if op.name == "tensor.insert_slice" else 1):
                source = op.operands[number]
                if source in self.parts:
                    self.readers[source].remove(op)
                    op.operands[number] = self.add_up(source)
            self.parts.discard(value)
            return value
        self.uniform.check(value)
        if value not in self.summed and sum(map(_count, self._spread_from(value))) < _count(value):
            self._spread_again(value)
        if value not in self.summed:
            self._combine(value, SUM)
        return self.summed[value]

    def find_extremes(self) -> None:
        """Make what the program means of the extremes of each device's rows, which are known by now."""
        while self.extremes:
            value, reduction = self.extremes.popitem()
            self.uniform.check(value)
            self._combine(value, reduction)

    def _combine(self, value: ir.Value, reduction: str) -> None:
        op, dtype = defining_op(value), str(value.type.element_type)
        if op is not None and dtype not in COLLECTIVE_DTYPES:
            fail(op, f"devices combine numbers of {', '.join(COLLECTIVE_DTYPES)}, and these are {dtype}")
        attributes = {**grid_attributes(), "reduction": ir.Attribute.parse(f"#shard<partial {reduction}>")}
        place = ir.InsertionPoint.at_block_begin(value.owner) if op is None else ir.InsertionPoint.after(op)
        with place, ir.Location.unknown() if op is None else op.location:
            self.summed[value] = create_op("shard.all_reduce", [value], [value.type], attributes).results[0]

    def _spread_from(self, value: ir.Value) -> list[ir.Value]:
        """The parts of sums of which a part is made element by element: none where it is added up itself."""
        found, seen, waiting = [], set(), [value]
        while waiting:
            value = waiting.pop()
            if value not in seen:
                seen.add(value)
                op = defining_op(value)
                if op is None or not (op.name in RESHAPES or (op.name == "linalg.generic" and _is_spread(op))):
                    found.append(value)
                else:
                    waiting += reversed(self._parts_of(op))
        return found

    def _spread_again(self, value: ir.Value) -> ir.Value:
        """A whole sum, made of the sums of those parts: a number of the whole batch that is spread over rows is added
        up as the number that it is."""
        if value in self.summed or self._spread_from(value) == [value]:
            return self.add_up(value)
        op = defining_op(value)
        sums = {part: self._spread_again(part) for part in self._parts_of(op)}
        with ir.InsertionPoint.after(op), op.location:
            copy = op.clone().operation
        for number, operand in enumerate(op.operands):
            if operand in sums:
                copy.operands[number] = sums[operand]
        self.uniform.note(copy)
        self.summed[value] = copy.results[0]
        return self.summed[value]

    def _parts_of(self, op: ir.Operation) -> list[ir.Value]:
        return [v for v in op.operands if v in self.parts]

    def fitted(self, value: ir.Value, dims: Dims, op: ir.Operation) -> ir.Value:
        """A value as an op reads it that is divided so: what every device has is made anew in one's part of it."""
        if dict(self.dims_of(value)) == dict(dims):
            return value
        made_by = defining_op(value)
        if self.touches(value) or made_by is None:
            fail(op, _NOT_SHARDED if not self.touches(value) else _OTHERWISE)
        with ir.InsertionPoint(op), made_by.location:
            new = self._again(value, made_by, dims, op)
        self.shapes[new], self.dims[new] = shape_of(value), dims
        if value in self.nothing:
            self.nothing.add(new)
        self.uniform.note(defining_op(new))
        return new

    def _again(self, value: ir.Value, made_by: ir.Operation, dims: Dims, op: ir.Operation) -> ir.Value:
        type_ = self.local_type(value, dims, op)
        if made_by.name == "tensor.empty":
            return create_op("tensor.empty", [], [type_]).results[0]
        if made_by.name == "arith.constant" and ir.DenseElementsAttr(made_by.attributes["value"]).is_splat:
            splat = ir.DenseElementsAttr(made_by.attributes["value"]).get_splat_value()
            attributes = {"value": ir.DenseElementsAttr.get_splat(type_, splat)}
            return create_op("arith.constant", [], [type_], attributes).results[0]
        if made_by.name in RESHAPES:
            return self._moved_again(value, made_by, dims, op)
        if made_by.name not in ("linalg.fill", "linalg.generic") or len(made_by.results) != 1:
            fail(op, _NOT_SHARDED)
        positions = [[], [*range(len(shape_of(value)))]]
        if made_by.name == "linalg.generic":
            positions = [dim_positions(map_) for map_ in indexing_maps(made_by)]
        loops = {loop: dims[d] for d, loop in enumerate(positions[-1]) if d in dims}
        wanted = [{d: loops[loop] for d, loop in enumerate(where) if loop in loops} for where in positions]
        operands = [self.fitted(v, dims, op) for v, dims in zip(made_by.operands, wanted, strict=True)]
        copy = made_by.clone().operation
        for number, operand in enumerate(operands):
            copy.operands[number] = operand
        copy.results[0].set_type(type_)
        self.copies.append((copy, loops))
        return copy.results[0]

    def _moved_again(self, value: ir.Value, made_by: ir.Operation, dims: Dims, op: ir.Operation) -> ir.Value:
        """The same for what is only shaped otherwise."""
        source, found = made_by.operands[0], dict(dims)
        if made_by.name != "tensor.cast":
            groups = [integers(group) for group in made_by.attributes["reassociation"]]
            shaped = made_by.name == "tensor.expand_shape"
            before = collapsed if shaped else expanded
            moved = before(dims, shape_of(value if shaped else source), groups)
            if moved is None or (shaped and expanded(moved, shape_of(value), groups) != dims):
                fail(op, _NOT_SHARDED)
            found = moved
        operand, type_ = self.fitted(source, found, op), self.local_type(value, dims, op)
        attributes = {name: made_by.attributes[name] for name in made_by.attributes}
        if "static_output_shape" in attributes:
            attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(type_.shape))
        return create_op(made_by.name, [operand], [type_], attributes).results[0]


def grid_attributes() -> dict[str, ir.Attribute]:
    """What an op says that all devices do together."""
    return {"grid": ir.FlatSymbolRefAttr.get(DEVICES), "grid_axes": ir.DenseI16ArrayAttr.get([0])}


def _count(value: ir.Value) -> int:
    return prod(shape_of(value))


def _is_spread(op: ir.Operation) -> bool:
    """Whether an op makes one tensor, each element of which is one turn of its loops, of others element by element."""
    kinds = {str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])}
    return len(op.results) == 1 and not captured_values(op) and all("parallel" in kind for kind in kinds)


_NOT_SHARDED = "it reads by sequence what is not divided by sequences"
_OTHERWISE = "two values that it reads are divided in different ways"


def same(dims: dict[int, BatchDim], loop: int, dim: BatchDim, op: ir.Operation) -> None:
    """Record that a loop counts a batch; it is an error where it counts it in another way, too."""
    if dims.setdefault(loop, dim) != dim:
        fail(op, _OTHERWISE)


def add_up_all(values: ShardedValues, op: ir.Operation) -> None:
    """Have an op read whole sums."""
    for number, value in enumerate(op.operands):
        if value in values.parts:
            op.operands[number] = values.add_up(value)
    replace_captured(op, {v: values.add_up(v) for v in captured_values(op) if v in values.parts})


def takes_parts(values: ShardedValues, op: ir.Operation) -> None:
    """Note that an op has read parts of sums as such."""
    for value in [*op.operands, *captured_values(op)]:
        if value in values.parts:
            values.readers.setdefault(value, []).append(op)
