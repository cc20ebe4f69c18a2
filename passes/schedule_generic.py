"""schedule-generic: run whatever no other schedule took as plain loops in one block.

Before:                                               After:
  func.func private @k(%x: memref<…>) {kernel = …}      func.func private @k(%x: memref<…>) {kernel = …, grid = [1, 1, 1]}
    %t = bufferization.to_tensor %x …                     scf.for … memref.load … memref.store …
    %y = linalg.generic ins(%t) …

Requires: kernels without a `grid` hold linalg and tensor ops that MLIR's bufferization knows; linalg.softmax is decomposed.
Ensures: every kernel has a `grid`, and no tensors are left in any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.mlir import ir, passmanager
from lispgpt.passes.base import Pass
from lispgpt.passes.structure import kernel_functions

LOWERING = (
    "builtin.module(func.func(eliminate-empty-tensors),one-shot-bufferize,func.func(buffer-hoisting),"
    "func.func(promote-buffers-to-stack{max-alloc-size-in-bytes=65536}),func.func(convert-linalg-to-loops))"
)


@dataclass(frozen=True)
class ScheduleGeneric(Pass):
    name: ClassVar[str] = "schedule-generic"

    def run(self, module: ir.Module, target: object) -> None:
        left = [k for k in kernel_functions(module) if "grid" not in k.attributes]
        if not left:
            return
        passmanager.PassManager.parse(LOWERING).run(module.operation)
        for kernel in kernel_functions(module):
            if "grid" not in kernel.attributes:
                kernel.attributes["grid"] = ir.DenseI64ArrayAttr.get([1, 1, 1])
