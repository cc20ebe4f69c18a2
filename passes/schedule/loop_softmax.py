"""loop-softmax: linalg.softmax on memory, which MLIR cannot turn into loops, as three linalg.generic ops.

Before:  linalg.softmax dimension(1) ins(%x : memref<4x8xf32>) outs(%y : memref<4x8xf32>)
After:   m[i] = max over j of x[i, j];   s[i] = sum over j of exp(x[i, j] - m[i])
         y[i, j] = exp(x[i, j] - m[i]) / s[i]

m and s are allocated, filled and freed around the three.  Softmax on tensors is left as it is.
"""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in
from lispgpt.passes.base import Pass
from lispgpt.passes.schedule.softmax_parts import loop_softmax


class LoopSoftmax(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for op in everything_in(module.operation):
            if op.name == "linalg.softmax" and isinstance(op.operands[0].type, ir.MemRefType):
                loop_softmax(op)
