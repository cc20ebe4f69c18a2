"""lower-gpu-kernels: from the gpu dialect to the vendor's, with the chip that the target names.

Before: gpu.module @kernels { gpu.func @k … gpu.thread_id … }
After:  gpu.module @kernels [#nvvm.target or #rocdl.target] { llvm.func @k … }

Requires: control flow in cf, no strided metadata.  Ensures: kernels take bare pointers; what is left is `vector`
and `arith`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.mlir import ir, passmanager
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class LowerGpuKernels(Pass):
    name: ClassVar[str] = "lower-gpu-kernels"

    def run(self, module: ir.Module, target: Gpu) -> None:
        passmanager.PassManager.parse(target.lowering()).run(module.operation)
