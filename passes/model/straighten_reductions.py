"""straighten-reductions: sums over any dimension read a tensor as it lies, and what is spread is spread in order.

Before:  %t = linalg.generic {(i, j) -> (j, i)} ins(%x : tensor<16384x32xf32>) → tensor<32x16384xf32>   a copy, turned
         %s = linalg.reduce {addf} ins(%t) dimensions = [1]
After:   %s = linalg.reduce {addf} ins(%x) dimensions = [0]

Likewise where a copy that repeats a tensor's elements is turned: the op that turns it repeats them in the right order.

Requires: entries on tensors.
Ensures: no reduction reads a copy whose dimensions are in another order, where those that it keeps are in theirs.
"""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    entry_functions,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
)
from lispgpt.passes.base import Pass


class StraightenReductions(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for function in entry_functions(module):
            for op in operations(function.regions[0].blocks[0]):
                copied = _copied(defining_op(op.operands[0])) if len(op.operands) else None
                if copied is None:
                    continue
                if op.name == "linalg.reduce" and len(op.results) == 1:
                    _straighten(op, *copied)
                elif _copied(op) is not None:
                    _spread_in_order(op, *copied)


def _copied(op: ir.Operation | None) -> tuple[ir.Value, list[int]] | None:
    """What an op that only copies reads, and of each of its dimensions the loop; None where an op does more."""
    if op is None or not is_elementwise(op) or len(op.operands) != 2:
        return None
    block = op.regions[0].blocks[0]
    (last,) = list(operations(block)[-1].operands)
    loops = dim_positions(indexing_maps(op)[0])
    if len(operations(block)) > 1 or last != block.arguments[0] or None in loops or len(set(loops)) < len(loops):
        return None
    return op.operands[0], loops


def _straighten(op: ir.Operation, source: ir.Value, loops: list[int]) -> None:
    """Have a reduction read what was copied, where it is as large."""
    reduced = set(integers(op.attributes["dimensions"]))
    kept = [loop for loop in loops if loop not in reduced]
    if len(loops) != source.type.rank or len(loops) != op.operands[0].type.rank or kept != sorted(kept):
        return
    op.operands[0] = source
    places = [place for place, loop in enumerate(loops) if loop in reduced]
    op.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(places)


def _spread_in_order(op: ir.Operation, source: ir.Value, loops: list[int]) -> None:
    """Have a copy of a copy read what the first one reads, where the two together change no order."""
    maps = indexing_maps(op)
    outer = dim_positions(maps[0])
    both = [outer[loop] for loop in loops]
    if both != sorted(both):
        return
    op.operands[0] = source
    read = ir.AffineMap.get(maps[0].n_dims, 0, [ir.AffineDimExpr.get(loop) for loop in both])
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(read), ir.AffineMapAttr.get(maps[1])])
