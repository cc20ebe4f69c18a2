"""check-device-calls: no GPU kernel may call a function that only a vendor's device library has.

Before and after: the same module.  A declaration such as `llvm.func @__nv_sinf(f32) -> f32` in a gpu.module is a
UserError, because neither library is used here and the code object would not load.  `vprintf`, which NVIDIA's driver
provides, may stay.  Requires: kernels lowered to LLVM.
"""

from __future__ import annotations

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Target

PROVIDED = ("vprintf", "llvm.")


class CheckDeviceCalls(Pass):
    def run(self, module: ir.Module, target: Target) -> None:
        for gpu_module in operations(module.body):
            if gpu_module.name != "gpu.module":
                continue
            for op in operations(gpu_module.regions[0].blocks[0]):
                if op.name == "llvm.func" and not list(op.regions[0].blocks):
                    name: str = symbol_of(op)
                    if not name.startswith(PROVIDED):
                        function = name.removeprefix("__nv_").removeprefix("__ocml_").removesuffix("_f32")
                        raise UserError(
                            f"a kernel calls {function}, for which {target} has no instruction and no library is "
                            "used here; write it with exp, exp2, tanh, sqrt and arithmetic"
                        )
