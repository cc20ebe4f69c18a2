"""collect-gpu-kernels: move scheduled kernels into one gpu.module.

Before: func.func private @k(%x: memref<…>) attributes {kernel, grid, block} { … memref.alloca() in workgroup memory … }
After:  gpu.module @kernels { gpu.func @k(%x: memref<…>) workgroup(…) kernel { … } }

Requires: every kernel has been scheduled and emit-plan has dropped the calls.
Ensures: no kernel is left outside the gpu.module; the module has `gpu.container_module`.
"""

from __future__ import annotations

from lispgpt.base.errors import InternalError
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import everything_in, integers, kernel_functions, operations, symbol_of
from lispgpt.ir.tensor_maps import map_uses, maps_of
from lispgpt.passes.base import Pass
from lispgpt.passes.states import PLANNED

MODULE_NAME = "kernels"
SHARED_ALIGNMENT = 16
MAP_ALIGNMENT = 64
"""Of tensor maps, which are kernels' last arguments and their only aligned ones."""


class CollectGpuKernels(Pass):
    starts_from = (PLANNED,)

    def run(self, module: ir.Module, target: object) -> None:
        kernels = kernel_functions(module)
        body = _holder(module)
        for kernel in kernels:
            if "grid" not in kernel.attributes:
                name = symbol_of(kernel)
                raise InternalError(f"no GPU schedule took the kernel {name}")
            _move(kernel, body)
        for op in operations(module.body):
            if op.name == "memref.global":
                op.move_before(operations(body)[0])
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _holder(module: ir.Module) -> ir.Block:
    """The gpu.module's block: what is there of an earlier run, or a new one ahead of all."""
    for op in operations(module.body):
        if op.name == "gpu.module" and symbol_of(op) == MODULE_NAME:
            return op.regions[0].blocks[0]
    attributes = {"sym_name": MODULE_NAME}
    holder = create_op("gpu.module", attributes=attributes, regions=1, ip=ir.InsertionPoint.at_block_begin(module.body))
    return holder.regions[0].blocks.append()


def _move(kernel: ir.Operation, body: ir.Block) -> None:
    old = kernel.regions[0].blocks[0]
    maps, uses = maps_of(kernel), map_uses(kernel)
    address = ir.Type.parse("!llvm.ptr")
    function_type = ir.FunctionType.get([a.type for a in old.arguments] + [address] * len(maps), [])
    shared = _shared_allocations(kernel)
    attributes = {
        "sym_name": kernel.attributes["sym_name"],
        "function_type": function_type,
        "kernel": ir.UnitAttr.get(),
        "workgroup_attributions": len(shared),
        "known_block_size": ir.DenseI32ArrayAttr.get(integers(kernel.attributes["block"])),
    }
    if shared:
        attributes["workgroup_attrib_attrs"] = [{"llvm.align": SHARED_ALIGNMENT}] * len(shared)
    if maps:
        attributes["arg_attrs"] = [*[{}] * len(old.arguments), *[{"llvm.align": MAP_ALIGNMENT}] * len(maps)]
    if "residency" in kernel.attributes:
        attributes["nvvm.minctasm"] = kernel.attributes["residency"]
    if "cluster" in kernel.attributes:
        attributes["nvvm.cluster_dim"] = kernel.attributes["cluster"]
    func = create_op("gpu.func", attributes=attributes, regions=1, loc=kernel.location, ip=ir.InsertionPoint(body))
    types = [a.type for a in old.arguments] + [address] * len(maps) + [a.results[0].type for a in shared]
    block = func.regions[0].blocks.append(*types, arg_locs=[kernel.location] * len(types))
    for mine, other in zip(old.arguments, block.arguments, strict=False):
        mine.replace_all_uses_with(other)
    more = list(block.arguments)[len(old.arguments) :]
    for place, argument in [*((use, more[i]) for i, use in uses), *zip(shared, more[len(maps) :], strict=True)]:
        place.results[0].replace_all_uses_with(argument)
        place.erase()
    *ops, terminator = operations(old)
    for op in ops:
        block.append(op)
    with ir.InsertionPoint(block):
        create_op("gpu.return")
    terminator.erase()
    kernel.erase()


def _shared_allocations(kernel: ir.Operation) -> list[ir.Operation]:
    ops = everything_in(kernel)
    return [op for op in ops if op.name == "memref.alloca" and "workgroup" in str(op.results[0].type)]
