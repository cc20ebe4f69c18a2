"""schedule-generic: run whatever no other schedule took as plain loops in one block.

Before:                                            After:
  func.func private @k(%x: memref<…>)                func.func private @k(%x: memref<…>)
      {kernel = …} {                                     {kernel = …, grid = [1, 1, 1]} {
    %t = bufferization.to_tensor %x …                  scf.for … memref.load … memref.store …
    %y = linalg.generic ins(%t) …

Requires: kernels without a `grid` hold linalg and tensor ops that MLIR's bufferization knows.
Ensures: every kernel has a `grid`, no tensors are left in any, and what they allocate they free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lispgpt.ir.mlir import create_op, ir, passmanager
from lispgpt.ir.structure import kernel_functions, nested_operations
from lispgpt.passes.base import Pass
from lispgpt.passes.schedule.loop_softmax import LoopSoftmax

TO_MEMORY = (
    "builtin.module(func.func(eliminate-empty-tensors),one-shot-bufferize{allow-return-allocs-from-loops},func.func(buffer-hoisting),"
    "func.func(promote-buffers-to-stack{max-alloc-size-in-bytes=65536}),"
    "buffer-deallocation-pipeline,func.func(canonicalize,cse))"
)
TO_LOOPS = "builtin.module(func.func(convert-linalg-to-loops))"


@dataclass(frozen=True)
class ScheduleGeneric(Pass):
    name: ClassVar[str] = "schedule-generic"

    def run(self, module: ir.Module, target: Any) -> None:
        left = [k for k in kernel_functions(module) if "grid" not in k.attributes]
        if not left:
            return
        passmanager.PassManager.parse(TO_MEMORY).run(module.operation)
        LoopSoftmax().run(module, target)
        for kernel in kernel_functions(module):
            for op in list(nested_operations(kernel)):
                if op.name == "memref.copy":
                    _copy_elements(op)
        passmanager.PassManager.parse(TO_LOOPS).run(module.operation)
        for kernel in kernel_functions(module):
            if "grid" not in kernel.attributes:
                kernel.attributes["grid"] = ir.DenseI64ArrayAttr.get([1, 1, 1])


def _copy_elements(op: ir.Operation) -> None:
    """memref.copy becomes linalg.copy: the former is a call into a runtime library where layouts differ."""
    source, target = op.operands
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])}
    with ir.InsertionPoint(op), op.location:
        copy = create_op("linalg.copy", [source, target], [], segments, regions=1)
        elements = [source.type.element_type, target.type.element_type]
        block = ir.Block.create_at_start(copy.regions[0], elements)
        with ir.InsertionPoint(block):
            create_op("linalg.yield", [block.arguments[0]])
    op.erase()
