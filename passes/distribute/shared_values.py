"""Values of which each device has a part, beside others that all have whole: parts are taken, and put together."""

from __future__ import annotations

from collections.abc import Callable

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, is_elementwise, shape_of
from lispgpt.passes.distribute.batch_dims import Dims
from lispgpt.passes.distribute.sharded_values import ShardedValues, grid_attributes
from lispgpt.passes.recognise.placements import row_slice


class SharedValues(ShardedValues):
    """Like `ShardedValues`; what every device has is cut where a part of it is read with parts of others."""

    def __init__(self, devices: int) -> None:
        super().__init__(devices)
        self._cut: dict[ir.Value, ir.Value] = {}

    def fitted(self, value: ir.Value, dims: Dims, op: ir.Operation) -> ir.Value:
        made_by = defining_op(value)
        again = made_by is not None and (
            made_by.name in ("tensor.empty", "linalg.fill", "arith.constant")
            or (is_elementwise(made_by) and not self.touches(value))
        )
        if dict(self.dims_of(value)) == dict(dims) or self.touches(value) or again:
            return super().fitted(value, dims, op)
        if value not in self._cut:
            (axis,) = dims
            type_ = self.local_type(value, dims, op)
            with ir.InsertionPoint(op), op.location:
                made = self._by_rows(value, type_, axis, _own_part, None)
            self.shapes[made], self.dims[made] = shape_of(value), dims
            self._cut[value] = made
        return self._cut[value]

    def gathered(self, value: ir.Value, into: ir.Value | None) -> ir.Value:
        """All of a value, on every device.  into: what it replaces, which nothing reads any more."""
        dims = self.dims_of(value)
        if not dims:
            return value
        (axis,) = dims
        type_ = ir.RankedTensorType.get(self.shape(value), value.type.element_type)
        return self._by_rows(value, type_, axis, _all_parts, into)

    def _by_rows(
        self,
        value: ir.Value,
        type_: ir.Type,
        axis: int,
        make: Callable[[ir.Value, ir.Type], ir.Value],
        into: ir.Value | None,
    ) -> ir.Value:
        """What an op on the first dimension makes of a value, or of each of its rows where the second is divided."""
        if axis == 0:
            return make(value, type_)
        whole = create_op("tensor.empty", [], [type_]).results[0] if into is None else into
        row = ir.RankedTensorType.get(list(type_.shape)[1:], type_.element_type)
        for number in range(type_.shape[0]):
            taken = row_slice("tensor.extract_slice", [value], _row_of(value), number, shape_of(value))
            made = make(taken, row)
            whole = row_slice("tensor.insert_slice", [made, whole], whole.type, number, tuple(type_.shape))
        return whole


def _row_of(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType.get(list(shape_of(value))[1:], value.type.element_type)


def _own_part(value: ir.Value, type_: ir.Type) -> ir.Value:
    axis = {"slice_axis": ir.IntegerAttr.get(ir.IndexType.get(), 0)}
    return create_op("shard.all_slice", [value], [type_], grid_attributes() | axis).results[0]


def _all_parts(value: ir.Value, type_: ir.Type) -> ir.Value:
    axis = {"gather_axis": ir.IntegerAttr.get(ir.IndexType.get(), 0)}
    return create_op("shard.all_gather", [value], [type_], grid_attributes() | axis).results[0]
