"""lower-gpu-kernels: from the gpu dialect to the vendor's, with the chip that the target names.

Before: gpu.module @kernels { gpu.func @k … gpu.thread_id … }
After:  gpu.module @kernels [#nvvm.target or #rocdl.target] { llvm.func @k … }

Requires: control flow in cf, no strided metadata.  Ensures: kernels take bare pointers; what is left is `vector`
and `arith`.
"""

from __future__ import annotations

from lispgpt.ir.mlir import ir, passmanager
from lispgpt.ir.structure import operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Gpu

DYNAMIC = "__dynamic_shmem__"


class LowerGpuKernels(Pass):
    def run(self, module: ir.Module, target: Gpu) -> None:
        passmanager.PassManager.parse(target.lowering()).run(module.operation)
        _link_dynamic_memory(module)


def _link_dynamic_memory(module: ir.Module) -> None:
    """Give dynamic shared memory, which lowering makes an internal array of no elements, the size of the launch."""
    for holder in operations(module.body):
        if holder.name != "gpu.module":
            continue
        for op in operations(holder.regions[0].blocks[0]):
            if op.name == "llvm.mlir.global" and symbol_of(op).startswith(DYNAMIC):
                op.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
