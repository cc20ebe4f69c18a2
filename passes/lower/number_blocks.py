"""number-blocks: give a CPU kernel the number of its block as an argument.

Before:                                              After:
  func.func private @k(%x: memref<4xf32>) {            func.func private @k(%block: index, %x: memref<4xf32>) {
    %b = gpu.block_id x                                  … %block …

Requires: kernels with a `grid` and no thread ids: a block is one call.  Nothing calls them (after emit-plan).
Ensures: no gpu.block_id is left; the number counts blocks row-major, x fastest.
"""

from __future__ import annotations

import math

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in, integers, kernel_functions, retype
from lispgpt.passes.base import Pass
from lispgpt.passes.states import PLANNED


class NumberBlocks(Pass):
    starts_from = (PLANNED,)

    def run(self, module: ir.Module, target: object) -> None:
        for kernel in kernel_functions(module):
            _number_blocks(kernel)


def _number_blocks(kernel: ir.Operation) -> None:
    grid = integers(kernel.attributes["grid"])
    block = kernel.regions[0].blocks[0]
    index = ir.IndexType.get()
    old = list(block.arguments)
    number = block.add_argument(index, ir.Location.unknown())
    moved = [block.add_argument(a.type, ir.Location.unknown()) for a in old]
    for before, after in zip(old, moved, strict=True):
        before.replace_all_uses_with(after)
    for _ in old:
        block.erase_argument(0)
    ids = [op for op in everything_in(kernel) if op.name == "gpu.block_id"]
    last = max(("xyz".index(str(op.attributes["dimension"])[-2]) for op in ids), default=0)
    for op in ids:
        axis = "xyz".index(str(op.attributes["dimension"])[-2])
        with ir.InsertionPoint(op), op.location:
            value: b.Index = number
            if axis:
                value = b.div(value, math.prod(grid[:axis]))
            if axis < last:
                value = b.mod(value, grid[axis])
            op.results[0].replace_all_uses_with(b.as_value(value))
        op.erase()
    retype(kernel)
