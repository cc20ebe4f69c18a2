"""Rows kernels as tile programs see them: results over the same leading dimensions, each row of which is computed by
itself, and sums of such rows' columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    indexing_maps,
    is_elementwise,
    nested_operations,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.block_memory import ALIGNMENT
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.model.column_sums import ColumnSum, column_sum
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.model.widen_weights import WIDENS
from lispgpt.passes.targets import Cpu, Gpu

OTHER_BYTES = 1024
"""Of a block's shared memory, for reductions."""

CHEAP = ("math.absf", "math.fma", "math.rsqrt", "math.sqrt")
"""Functions that are an instruction or few."""

ENDS = ("bufferization.to_tensor", "bufferization.materialize_in_destination")


@dataclass(frozen=True)
class RowsKernel:
    kernel: ir.Operation

    @cached_property
    def ops(self) -> list[ir.Operation]:
        return operations(self.kernel.regions[0].blocks[0])

    @cached_property
    def sums(self) -> list[ColumnSum]:
        return [one for tensor, _ in outputs_of(self.kernel) if (one := column_sum(defining_op(tensor))) is not None]

    @cached_property
    def results(self) -> list[ir.Value]:
        """Those of rows."""
        summed = [one.result for one in self.sums]
        return [tensor for tensor, _ in outputs_of(self.kernel) if tensor not in summed]

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The leading extents that all results of rows share: one that a reduction made has nothing else."""
        if self.sums:
            return self.sums[0].rows
        for tensor in self.results:
            if any(_is_row_value(tensor, op) for op in self.ops):
                return shape_of(tensor)
        return max(map(shape_of, self.results), key=len)[:-1]

    @property
    def count(self) -> int:
        return prod(self.rows)

    def columns_of(self, tensor: ir.Value) -> int:
        """Of a row of a tensor; 1 where it has one number for each row."""
        summed = [one.columns for one in self.sums if one.result == tensor]
        return (summed or [shape_of(tensor)[-1] if len(shape_of(tensor)) > len(self.rows) else 1])[0]

    @property
    def leading(self) -> int:
        """How many of the rows' dimensions programs go along by themselves, those that shares are of."""
        return 1 if self.sums else 0

    @property
    def sums_are_alike(self) -> bool:
        """Whether all sums are of the same rows in the same shares."""
        return len({(one.rows, one.columns, one.shares) for one in self.sums}) == 1

    @cached_property
    def longest(self) -> int:
        """The most elements that a row has of what the kernel computes; what has the shape of the rows has one."""
        extents = [1, *(one.columns for one in self.sums[:1])]
        for op in self.ops if not self.sums else ():
            if op.name == "linalg.reduce":
                extents.append(shape_of(op.operands[0])[-1])
            elif (
                not is_inline(op)
                and op.name in ("linalg.generic", "linalg.softmax")
                and shape_of(op.results[0]) != self.rows
            ):
                extents.append((1, *shape_of(op.results[0]))[-1])
        return max(extents)

    @property
    def narrowest(self) -> int:
        """Bytes of the shortest elements in memory of which there are rows that long, 4 at most."""
        types = [ir.MemRefType(argument.type) for argument in self.kernel.regions[0].blocks[0].arguments]
        return min([4, *(b.item_bytes(t.element_type) for t in types if t.rank and t.shape[-1] == self.longest)])

    @property
    def widest(self) -> int:
        """The same of the longest elements of rows."""
        rows = [(*op.operands, *op.results)[0] for op in self.ops if op.name in ENDS]
        found = [min(4, b.item_bytes(v.type)) for v in rows if len(shape_of(v)) > 1 and shape_of(v)[-1] == self.longest]
        return max(found, default=4)

    @property
    def reduces(self) -> bool:
        """Whether a team of threads reduces its rows."""
        summed = [one.result for one in self.sums]
        return any(op.name in ("linalg.reduce", "linalg.softmax") and op.results[0] not in summed for op in self.ops)

    @property
    def is_costly(self) -> bool:
        """Whether functions that take many operations are in what its rows are made of."""
        inner = {one.name for op in self.ops for one in (op, *nested_operations(op))}
        return any(name.startswith("math.") and name not in CHEAP for name in inner) or "linalg.softmax" in inner

    @property
    def widened(self) -> list[ir.Value]:
        """Matrices in blocks that the kernel does nothing but round."""
        return [op.operands[0] for op in self.ops if WIDENS in op.attributes]

    @property
    def constants(self) -> list[ir.Value]:
        """Tensors in memory of one row, the same for all rows."""
        return [
            op.results[0]
            for op in self.ops
            if op.name == "bufferization.to_tensor" and shape_of(op.results[0]) == (self.longest,)
        ]

    def repeated(self, blocks: int, target: Gpu | Cpu) -> ir.Value | None:
        """The tensor of an argument whose rows are worth keeping in shared memory: read more than once, each by its own
        team, and short enough for so many blocks of a core; None where there is none."""
        over_rows = ("linalg.reduce", "linalg.softmax", "bufferization.materialize_in_destination")
        whole = (*self.rows, self.longest)
        walked = [op.operands[0] for op in self.ops if op.name in over_rows and shape_of(op.operands[0]) == whole]
        for op in self.ops:
            if op.name != "bufferization.to_tensor" or shape_of(op.results[0]) != whole:
                continue
            tensor = op.results[0]
            nbytes = b.item_bytes(tensor.type) * self.longest + ALIGNMENT + OTHER_BYTES
            repeats = sum(_reads(row, tensor) for row in walked) > 1
            in_place = all(_reads_in_place(use.owner.operation, tensor) for use in tensor.uses)
            if repeats and in_place and nbytes * blocks <= target.dynamic_shared_bytes:
                return tensor
        return None


def reductions_behind(tensor: ir.Value) -> list[ir.Operation]:
    """The ops that reduce rows of which elements of a tensor are made."""
    waiting, seen, found = [tensor], {tensor}, []
    while waiting:
        op = defining_op(waiting.pop())
        if op is not None and op.name in ("linalg.reduce", "linalg.softmax"):
            found.append(op)
        new = [v for v in ([] if op is None else op.operands) if v not in seen]
        waiting += new
        seen.update(new)
    return found


def _is_row_value(tensor: ir.Value, op: ir.Operation) -> bool:
    """Whether a reduction op makes the tensor, or elementwise ops on its result and on what else has its shape."""
    if op.name != "linalg.reduce" or shape_of(tensor) != shape_of(op.results[0]):
        return False
    waiting, seen = [tensor], {tensor}
    while waiting:
        made = defining_op(waiting.pop())
        if made == op:
            return True
        if made is not None and made.name in ("linalg.generic", "tensor.expand_shape"):
            tensors = [v for v in made.operands if v not in seen and isinstance(v.type, ir.RankedTensorType)]
            found = [v for v in tensors if shape_of(v) == shape_of(tensor)]
            waiting += found
            seen.update(found)
    return False


def _reads(row: ir.Value, tensor: ir.Value) -> bool:
    """Whether elements of a row are computed from those of a tensor's."""
    op = defining_op(row)
    operands: Sequence[ir.Value] = list(op.operands)[:-1] if op is not None and is_elementwise(op) else []
    return row == tensor or any(_reads(operand, tensor) for operand in operands)


def _reads_in_place(op: ir.Operation, tensor: ir.Value) -> bool:
    """Whether an op reads a tensor at the place that it computes."""
    if not is_elementwise(op):
        return op.name in ("linalg.reduce", "linalg.softmax")
    maps = [map_ for operand, map_ in zip(op.operands, indexing_maps(op), strict=True) if operand == tensor]
    return all(dim_positions(map_) == list(range(map_.n_dims)) for map_ in maps)
