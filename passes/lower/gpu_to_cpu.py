"""gpu-to-cpu: run GPU kernels on the host, barriers and subgroup operations included.

Before (kernels outlined, structured control flow lowered):

    gpu.module @k { gpu.func @k(%m: memref<64xf32>) kernel { … gpu.barrier … gpu.return } }
    gpu.launch_func @k::@k blocks in (%g, %c1, %c1) threads in (%b, %c1, %c1) args(%m : memref<64xf32>)

After:

    func.func @k_k_thread(%m, …ids, sizes…)    one thread; a coroutine where it has to wait for others
    func.func @k_k(%from, %to, …sizes…, %m)    loops over blocks and threads, and resumes waiting threads
    func.call @k_k(%c0, %blocks, %g, %c1, %c1, %b, %c1, %c1, %bytes, %m)

A kernel without barriers becomes plain loops.  Otherwise each thread is a coroutine that suspends where it waits: the
threads of a subgroup take turns from one subgroup operation to the next, the subgroups from one barrier to the next, so
any control flow between them works.  Blocks may run side by side, unless they print.

Requires: gpu.launch outlined (gpu-kernel-outlining), kernels in `cf` form, functions that wait inlined into them.
Ensures: no gpu op and no memory space is left; device memory is host memory.  Structured loops appear again, so
convert-scf-to-cf has to follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import nested_operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.lower.gpu_launchers import Launcher, launcher_text
from lispgpt.passes.lower.gpu_threads import make_thread_function

PRINTF = "llvm.func @gpu_printf(!llvm.ptr, ...) -> i32"

HOST_OPS_WITHOUT_EFFECT = {"gpu.host_register", "gpu.host_unregister", "gpu.set_default_device", "gpu.wait"}


@dataclass(frozen=True)
class GpuToCpu(Pass):
    """subgroup_size: threads that exchange values directly, 32 as on RDNA and NVIDIA chips."""

    subgroup_size: int = 32

    def run(self, module: ir.Module, target: object) -> None:
        """Rewrite in place.  UserError names the first GPU op that has no meaning on a CPU."""
        strip_memory_spaces(module.operation)
        prints = any(op.name == "gpu.printf" for op in list(nested_operations(module.operation)))
        launchers: dict[str, Launcher] = {}
        for op in [op.operation for op in module.body.operations]:
            if op.name == "gpu.module":
                launchers |= _convert_gpu_module(module, op, self.subgroup_size)
        if any(launcher.waits for launcher in launchers.values()):
            _declare(module, "gpu_thread_alloc", "(i64, i64) -> !llvm.ptr")
            _declare(module, "gpu_thread_free", "(!llvm.ptr) -> ()")
        if prints:
            _append(module, PRINTF)
        for op in list(nested_operations(module.operation)):
            if op.name.startswith("gpu."):
                _convert_host_op(op, launchers)
        for op in reversed([op for op in list(nested_operations(module.operation)) if op.name == "gpu.wait"]):
            op.erase()


def strip_memory_spaces(root: ir.Operation) -> None:
    """Give every memref under root the default memory space: a CPU has one memory."""
    for op in list(nested_operations(root)):
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_type(_in_host_memory(argument.type))
        for result in op.results:
            result.set_type(_in_host_memory(result.type))
        for key in ("function_type", "type"):
            if key in op.attributes and isinstance(op.attributes[key], ir.TypeAttr):
                op.attributes[key] = ir.TypeAttr.get(_in_host_memory(op.attributes[key].value))
        if op.name == "memref.memory_space_cast":
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def _in_host_memory(type_: ir.Type) -> ir.Type:
    if isinstance(type_, ir.MemRefType) and type_.memory_space is not None:
        return ir.MemRefType.get(type_.shape, type_.element_type, type_.layout, None, ir.Location.unknown())
    if isinstance(type_, ir.UnrankedMemRefType) and type_.memory_space is not None:
        return ir.UnrankedMemRefType.get(type_.element_type, None, ir.Location.unknown())
    if isinstance(type_, ir.FunctionType):
        return ir.FunctionType.get(
            [_in_host_memory(t) for t in type_.inputs], [_in_host_memory(t) for t in type_.results]
        )
    return type_


def _append(module: ir.Module, text: str) -> None:
    """The first op of a module in text, at the end of this one."""
    parsed = ir.Module.parse(text, module.context)
    module.body.append(parsed.body.operations[0].operation.clone())


def _declare(module: ir.Module, name: str, type_: str) -> None:
    """A function that the runtime of programs provides."""
    with module.operation.location, ir.InsertionPoint(module.body):
        attributes = {
            "sym_name": name,
            "function_type": ir.Type.parse(type_),
            "sym_visibility": "private",
        }
        create_op("func.func", attributes=attributes, regions=1)


def _convert_gpu_module(module: ir.Module, gpu_module: ir.Operation, subgroup_size: int) -> dict[str, Launcher]:
    """Move a gpu.module's functions to the top; returns the launcher of each kernel by `module::kernel`."""
    prefix = symbol_of(gpu_module)
    functions = [op.operation for op in gpu_module.regions[0].blocks[0].operations]
    launchers: dict[str, Launcher] = {}
    for op in functions:
        if op.name == "gpu.func" and "gpu.kernel" not in op.attributes and "kernel" not in op.attributes:
            raise UserError(f"gpu.func {op.attributes['sym_name']} is no kernel and was not inlined into one")
        if op.name == "gpu.func":
            kernel = symbol_of(op)
            thread = make_thread_function(module, op, f"{prefix}_{kernel}", subgroup_size)
            _append(module, launcher_text(thread))
            launchers[f"{prefix}::{kernel}"] = thread
        elif "sym_name" in op.attributes:
            _move_to_top(module, op, prefix, functions)
    gpu_module.erase()
    return launchers


def _move_to_top(module: ir.Module, op: ir.Operation, prefix: str, users: list[ir.Operation]) -> None:
    """Move a helper function or global out of a gpu.module under a name that is free there."""
    old = symbol_of(op)
    new = f"{prefix}_{old}"
    for root in users:
        for user in list(nested_operations(root)):
            for key in ("callee", "name"):
                reference = user.attributes.get(key)
                if isinstance(reference, ir.FlatSymbolRefAttr) and reference.value == old:
                    user.attributes[key] = ir.FlatSymbolRefAttr.get(new)
    module.body.append(op)
    op.attributes["sym_name"] = ir.StringAttr.get(new)


def _convert_host_op(op: ir.Operation, launchers: dict[str, Launcher]) -> None:
    with ir.InsertionPoint(op), op.location:
        if op.name == "gpu.launch_func":
            _convert_launch(op, launchers)
        elif op.name == "gpu.alloc":
            _convert_alloc(op)
        elif op.name == "gpu.dealloc":
            create_op("memref.dealloc", [op.operands[-1]])
        elif op.name == "gpu.memcpy":
            create_op("memref.copy", [op.operands[-1], op.operands[-2]])
        elif op.name == "gpu.memset":
            _convert_memset(op.operands[-2], op.operands[-1])
        elif op.name not in HOST_OPS_WITHOUT_EFFECT:
            raise UserError(f"{op.name} has no meaning on the cpu target", span_of(op.location))
    if op.name == "gpu.wait":
        return
    for result in op.results:
        _use_instead_of_token(op, result)
    op.erase()


def _use_instead_of_token(op: ir.Operation, token: ir.Value) -> None:
    """Host execution is in order, so whoever waits for this op's token waits for nothing."""
    if list(token.uses):
        with ir.InsertionPoint(op), op.location:
            token.replace_all_uses_with(create_op("gpu.wait", [], [token.type]).results[0])


def _convert_launch(op: ir.Operation, launchers: dict[str, Launcher]) -> None:
    name = "::".join(ir.SymbolRefAttr(op.attributes["kernel"]).value)
    launcher = launchers.get(name)
    if launcher is None:
        raise UserError(f"gpu.launch_func names no kernel: @{name}")
    counts = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    groups, start = [], 0
    for count in counts:
        groups.append(list(op.operands)[start : start + count])
        start += count
    sizes = [_as_type(group[0], ir.IndexType.get()) for group in groups[1:7]]
    i32 = ir.IntegerType.get_signless(32)
    dynamic, arguments = groups[10], groups[11]
    shared = _as_type(dynamic[0], i32) if dynamic else b.constant(0, i32)
    blocks = b.mul(b.mul(sizes[0], sizes[1]), sizes[2])
    operands = [b.as_value(0), blocks, *sizes, shared, *arguments]
    b.call(launcher.name, operands)


def _as_type(value: ir.Value, type_: ir.Type) -> ir.Value:
    if value.type == type_:
        return value
    name = "arith.index_cast" if isinstance(type_, ir.IndexType) else "arith.trunci"
    return create_op(name, [value], [type_]).results[0]


def _convert_alloc(op: ir.Operation) -> None:
    memref = next(result for result in op.results if isinstance(result.type, ir.MemRefType))
    counts = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    sizes = list(op.operands)[counts[0] :]
    segments = ir.DenseI32ArrayAttr.get([counts[1], counts[2]])
    host = create_op("memref.alloc", sizes, [memref.type], {"operandSegmentSizes": segments})
    memref.replace_all_uses_with(host.results[0])


def _convert_memset(destination: ir.Value, value: ir.Value) -> None:
    """Write value to every element, in a loop over each dimension."""

    def loop(indices: list[Index]) -> None:
        if len(indices) == ir.MemRefType(destination.type).rank:
            b.store(value, destination, indices)
        else:
            size = b.emit("memref.dim", [destination, b.as_value(len(indices))], [ir.IndexType.get()])
            b.each(0, size, 1, lambda index: loop([*indices, index]))

    loop([])
