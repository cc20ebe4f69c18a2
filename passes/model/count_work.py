"""count-work: write down how many bytes each kernel has to move and how many operations it has to do.

Before: func.func private @contraction_1x2304(%x: memref<…>, …) attributes {kernel = "contraction", tied = [-1]} { … }
After:  … attributes {kernel = "contraction", tied = [-1],
                      work = {bytes = 3560448, operations = 3541248, position_bytes = 0, …}} { … }

Requires: what destination-passing ensures, and no schedule yet: work is counted on tensors, whatever a schedule makes
of them (`kernel_work` says how).  Ensures: every kernel has `work`.  Bodies stay as they are.
"""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.base import Pass
from lispgpt.passes.model.kernel_work import kernel_work, record_work


class CountWork(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for kernel in kernel_functions(module):
            record_work(kernel, kernel_work(kernel))
