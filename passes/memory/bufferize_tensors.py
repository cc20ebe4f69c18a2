"""bufferize-tensors: tensors of a program with a main become memory.

Before:  %b = linalg.add ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
After:   %m = memref.alloc() : memref<4xf32>
         linalg.add ins(%a, %a : memref<4xf32>, memref<4xf32>) outs(%m : memref<4xf32>)

Function boundaries included, with plain row-major memory.  What it allocates is freed again, unless the program frees
memory by itself: MLIR's deallocation does not work beside explicit memref.dealloc.  A module without tensors is left
as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lispgpt.ir.mlir import ir, passmanager
from lispgpt.passes.base import Pass

if TYPE_CHECKING:
    from lispgpt.passes.targets import Target

TO_MEMORY = (
    "eliminate-empty-tensors,"
    "one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map}"
)
FREE = "drop-equivalent-buffer-results,buffer-deallocation-pipeline"


@dataclass(frozen=True)
class BufferizeTensors(Pass):
    name: ClassVar[str] = "bufferize-tensors"

    def run(self, module: ir.Module, target: Target) -> None:
        facts = {"tensors": False, "frees": False}

        def look(op: Any) -> Any:
            values = [*op.operation.operands, *op.operation.results]
            facts["tensors"] |= any(isinstance(v.type, (ir.RankedTensorType, ir.UnrankedTensorType)) for v in values)
            facts["frees"] |= op.operation.name in ("memref.dealloc", "memref.realloc", "gpu.dealloc")
            return ir.WalkResult.ADVANCE

        module.operation.walk(look)
        if facts["tensors"]:
            passes = TO_MEMORY if facts["frees"] else f"{TO_MEMORY},{FREE}"
            passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)
