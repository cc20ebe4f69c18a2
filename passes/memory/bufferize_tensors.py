"""bufferize-tensors: tensors of a program with a main become memory.

Before:  %b = linalg.add ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
After:   %m = memref.alloc() : memref<4xf32>
         linalg.add ins(%a, %a : memref<4xf32>, memref<4xf32>) outs(%m : memref<4xf32>)

Function boundaries included, with plain row-major memory.  What it allocates is freed again, unless the program frees
memory by itself: MLIR's deallocation does not work beside explicit memref.dealloc.  A module without tensors is left
as it is.
"""

from __future__ import annotations

from lispgpt.ir.diagnostics import run_passes
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in
from lispgpt.passes.base import Pass

TO_MEMORY = (
    "eliminate-empty-tensors,"
    "one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map}"
)
FREE = "drop-equivalent-buffer-results,buffer-deallocation-pipeline"


class BufferizeTensors(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        ops = everything_in(module.operation)
        tensors = (ir.RankedTensorType, ir.UnrankedTensorType)
        if any(isinstance(value.type, tensors) for op in ops for value in (*op.operands, *op.results)):
            frees = any(op.name in ("memref.dealloc", "memref.realloc", "gpu.dealloc") for op in ops)
            passes = TO_MEMORY if frees else f"{TO_MEMORY},{FREE}"
            run_passes(f"builtin.module({passes})", module)
