"""lower-gpu-kernels: from the gpu dialect to the vendor's, with the chip that the target names.

Before: gpu.module @kernels { gpu.func @k … gpu.thread_id … }
After:  gpu.module @kernels [#nvvm.target or #rocdl.target] { llvm.func @k … }

Requires: control flow in cf, no strided metadata.  Ensures: kernels take bare pointers; what is left is `vector`
and `arith`.
"""

from __future__ import annotations

from lispgpt.ir.diagnostics import run_passes
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Gpu

DYNAMIC = "__dynamic_shmem__"
MAP = "!llvm.array<128 x i8>"
"""A tensor map, encoded."""


class LowerGpuKernels(Pass):
    def run(self, module: ir.Module, target: Gpu) -> None:
        run_passes(target.lowering(), module)
        for holder in operations(module.body):
            if holder.name == "gpu.module":
                for op in operations(holder.regions[0].blocks[0]):
                    _link_dynamic_memory(op)
                    _pass_maps_by_value(op)


def _link_dynamic_memory(op: ir.Operation) -> None:
    """Give dynamic shared memory, which lowering makes an internal array of no elements, the size of the launch."""
    if op.name == "llvm.mlir.global" and symbol_of(op).startswith(DYNAMIC):
        op.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")


def _pass_maps_by_value(op: ir.Operation) -> None:
    """Let a launch hold tensor maps, the only aligned arguments, themselves: copies take no others."""
    if op.name != "llvm.func" or "arg_attrs" not in op.attributes:
        return
    by_value = {"llvm.byval": ir.Attribute.parse(MAP), "nvvm.grid_constant": ir.UnitAttr.get()}
    arguments = [{a.name: a.attr for a in ir.DictAttr(fields)} for fields in op.attributes["arg_attrs"]]
    arguments = [fields | (by_value if "llvm.align" in fields else {}) for fields in arguments]
    op.attributes["arg_attrs"] = ir.ArrayAttr.get(list(map(ir.DictAttr.get, arguments)))
