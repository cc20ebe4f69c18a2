"""store-parts: what products alone read in F32 is stored as two BF16 parts that add up to it.

Before:                                         After:
  %y = linalg.generic … -> tensor<64x8xf32>       %y = linalg.generic … -> tensor<64x8xf32>
  %s = linalg.contract ins(%y, %w) …              %u = linalg.generic ins(%y) { y & 0xffff0000 } -> tensor<64x8xbf16>
    tensor<64x8xf32>, tensor<6x8xbf16>            %l = linalg.generic ins(%y) { truncf(y - (y & 0xffff0000)) } …
                                                  %p = linalg.generic ins(%u, %l) { extf + extf } {inline} …
                                                  %s = linalg.contract ins(%p, %w) …

Requires: entries on tensors, and what contract-products ensures.
Ensures: where the target multiplies BF16 by warpgroups, which would split an operand in F32 into such parts again for
every tile, what an elementwise op or a product makes in F32 and only products of many rows with weights in BF16 or in
blocks read, directly or reshaped, is their sum, which keeps 16 bits.  The kernel that makes it stores both,
and each of those that multiply brings them to where it multiplies from.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import elementwise
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    RESHAPES,
    defining_op,
    dim_positions,
    entry_functions,
    indexing_maps,
    is_elementwise,
    loop_extents,
    operations,
    shape_of,
    viewed,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.recognise.find_gradients import is_product
from lispgpt.passes.states import UNPLACED
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class StoreParts(Pass):
    """rows: the fewest of a product to treat this way; fewer are multiplied by other instructions."""

    starts_from = (UNPLACED,)
    rows: int = 32

    def run(self, module: ir.Module, target: object) -> None:
        if not isinstance(target, Gpu) or target.warpgroup is None or target.copies is None:
            return
        for entry in entry_functions(module):
            for op in operations(entry.regions[0].blocks[0]):
                if self._suits(op):
                    _store_parts(op)

    def _suits(self, op: ir.Operation) -> bool:
        """Whether an op makes F32 by element or as a product, which products alone read, as many rows of theirs."""
        if not (is_elementwise(op) or is_product(op)) or len(op.results) != 1 or "inline" in op.attributes:
            return False
        value = op.results[0]
        readers = _readers(value) if value.type.element_type == b.f32() else []
        return bool(readers) and all(_rows(product, read) >= self.rows for product, read in readers)


def _readers(value: ir.Value) -> list[tuple[ir.Operation, ir.Value]]:
    """What reads a value or reshapes of it, and which of these."""
    found = []
    for use in value.uses:
        op = use.owner.operation
        found += _readers(op.results[0]) if op.name in RESHAPES else [(op, value)]
    return found


def _rows(op: ir.Operation, value: ir.Value) -> int:
    """How many rows a value is in an op that is a product of it and of something in BF16 or in blocks; 0 where it is
    none."""
    sides = list(op.operands)[:2]
    if not is_product(op) or sides.count(value) != 1:
        return 0
    own = sides.index(value)
    weights = defining_op(viewed(sides[1 - own]))
    in_blocks = weights is not None and "blocks" in weights.attributes
    if sides[1 - own].type.element_type != ir.BF16Type.get() and not in_blocks:
        return 0
    maps, extents = [dim_positions(map_) for map_ in indexing_maps(op)], loop_extents(op)
    return prod(extents[loop] for loop in maps[own] if loop not in maps[1 - own])


def _store_parts(op: ir.Operation) -> None:
    """Have what reads an op's result read the sum of two parts of it."""
    value, short = op.results[0], ir.BF16Type.get()
    readers = [(use.owner.operation, use.operand_number) for use in value.uses]
    type_ = ir.RankedTensorType.get(list(shape_of(value)), short)

    with ir.InsertionPoint.after(op), op.location:
        upper = elementwise([value], type_, lambda number: b.shortened(b.upper_half(number), short))
        lower = elementwise([value], type_, lambda n: b.shortened(b.binary("arith.subf", n, b.upper_half(n)), short))
        both = [upper, lower]
        whole = elementwise(both, value.type, lambda u, v: b.binary("arith.addf", b.extend(u), b.extend(v)))
    made = defining_op(whole)
    assert made is not None
    made.attributes["inline"] = ir.UnitAttr.get()
    for reader, number in readers:
        reader.operands[number] = whole
