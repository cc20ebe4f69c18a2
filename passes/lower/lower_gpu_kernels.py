"""lower-gpu-kernels: from the gpu dialect to the vendor's, with the chip that the target names.

Before: gpu.module @kernels { gpu.func @k … gpu.thread_id … }
After:  gpu.module @kernels [#nvvm.target or #rocdl.target] { llvm.func @k … }

Requires: control flow in cf, no strided metadata.  Ensures: kernels take bare pointers; what is left is `vector`
and `arith`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.ir.mlir import ir, passmanager
from lispgpt.ir.structure import operations
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Gpu

DYNAMIC = "__dynamic_shmem__"


@dataclass(frozen=True)
class LowerGpuKernels(Pass):
    name: ClassVar[str] = "lower-gpu-kernels"

    def run(self, module: ir.Module, target: Gpu) -> None:
        passmanager.PassManager.parse(target.lowering()).run(module.operation)
        _link_dynamic_memory(module)


def _link_dynamic_memory(module: ir.Module) -> None:
    """Give dynamic shared memory, which lowering makes an internal array of no elements, the size of the launch."""
    for holder in operations(module.body):
        if holder.name != "gpu.module":
            continue
        for op in operations(holder.regions[0].blocks[0]):
            if op.name == "llvm.mlir.global" and ir.StringAttr(op.attributes["sym_name"]).value.startswith(DYNAMIC):
                op.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
