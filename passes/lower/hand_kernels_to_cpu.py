"""hand-kernels-to-cpu: kernels written by hand run on a CPU as programs' kernels do, threads and barriers included.

Before:                                         After:
  func.func private @row_softmax(%x: memref<…>,   llvm.func internal @row_softmax_block(%block: i64, %p: !llvm.ptr, …)
      %out: memref<…>) attributes                   every thread of one block (see gpu_to_cpu.py)
      {kernel = "hand", grid, block} {            func.func private @row_softmax(%x, %out) {
    %lane = gpu.thread_id x … gpu.shuffle … }       llvm.call @row_softmax_block(%block, %p, …) }

Kernels whose threads can go in step are for a block at once, as vectors (lockstep.py), and have none of this.

Requires: what place-hand-kernels ensures.
Ensures: a kernel's body is one call for the block whose number gpu.block_id x gives; the grid goes along x alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.diagnostics import run_passes
from lispgpt.ir.mlir import ir, numbers
from lispgpt.ir.structure import integers, kernel_functions, operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.lower.collect_gpu_kernels import MODULE_NAME, CollectGpuKernels
from lispgpt.passes.lower.expand_math import ExpandMath
from lispgpt.passes.lower.gpu_to_cpu import GpuToCpu
from lispgpt.passes.lower.lockstep import in_lockstep
from lispgpt.passes.targets import Target

TO_LLVM = (
    *("convert-scf-to-cf", "lower-affine", "arith-expand{include-bf16=true}", "convert-math-to-llvm"),
    *("convert-math-to-libm", "convert-func-to-llvm", "convert-vector-to-llvm", "finalize-memref-to-llvm"),
    *("convert-index-to-llvm", "convert-arith-to-llvm", "convert-cf-to-llvm", "reconcile-unrealized-casts"),
)

THREAD_MEMORY = """
llvm.func @aligned_alloc(i64, i64) -> !llvm.ptr
llvm.func @free(!llvm.ptr)
llvm.func internal @gpu_thread_alloc(%align: i64, %bytes: i64) -> !llvm.ptr {
  %memory = llvm.call @aligned_alloc(%align, %bytes) : (i64, i64) -> !llvm.ptr
  llvm.return %memory : !llvm.ptr
}
llvm.func internal @gpu_thread_free(%memory: !llvm.ptr) {
  llvm.call @free(%memory) : (!llvm.ptr) -> ()
  llvm.return
}
"""
"""What a waiting thread keeps its state in: vectors among it are stored aligned."""


@dataclass(frozen=True)
class HandKernelsToCpu(Pass):
    """subgroup_size: threads that exchange values directly, of the chip that the kernels were written for."""

    subgroup_size: int = 32

    def run(self, module: ir.Module, target: Target) -> None:
        kernels = [kernel for kernel in kernel_functions(module, "hand") if not in_lockstep(kernel, self.subgroup_size)]
        if not kernels:
            return
        apart = ir.Module.create(ir.Location.unknown())
        for kernel in kernels:
            apart.body.append(kernel.clone())
        CollectGpuKernels().run(apart, target)
        ExpandMath().run(apart, target)
        _run(apart, ["convert-vector-to-scf", "lower-affine", "expand-strided-metadata", "convert-scf-to-cf"])
        GpuToCpu(self.subgroup_size).run(apart, target)
        for kernel in kernels:
            _add_block_function(apart, kernel)
        _run(apart, list(TO_LLVM))
        _take_over(module, apart)
        for kernel in kernels:
            _call_block_function(kernel)


def _run(module: ir.Module, passes: list[str]) -> None:
    run_passes(f"builtin.module({','.join(passes)})", module)


def _types(kernel: ir.Operation) -> list[ir.Type]:
    return list(ir.TypeAttr(kernel.attributes["function_type"]).value.inputs)


def _add_block_function(apart: ir.Module, kernel: ir.Operation) -> None:
    """@NAME_block(block, pointers): the launcher of the kernel, for one block."""
    types = _types(kernel)
    sizes = [*integers(kernel.attributes["grid"]), *integers(kernel.attributes["block"])]
    pointers = "".join(f", %p{i}: !llvm.ptr" for i in range(len(types)))
    memrefs = "\n".join(_descriptor(i, kind) for i, kind in enumerate(types))
    constants = "\n".join(f"%s{i} = arith.constant {size} : index" for i, size in enumerate(sizes))
    operands = ", ".join(
        ["%block", "%next", *(f"%s{i}" for i in range(6)), "%bytes", *(f"%m{i}" for i in range(len(types)))]
    )
    launcher = f"{MODULE_NAME}_{symbol_of(kernel)}"
    signature = ", ".join([*["index"] * 8, "i32", *map(str, types)])
    text = f"""
    func.func private @{launcher}({signature})
    func.func @{symbol_of(kernel)}_block(%block: index{pointers}) {{
      %one = arith.constant 1 : index
      %bytes = arith.constant 0 : i32
      %next = arith.addi %block, %one : index
      {constants}
      {memrefs}
      func.call @{launcher}({operands}) : ({signature}) -> ()
      return
    }}"""
    parsed = ir.Module.parse(text)
    apart.body.append(operations(parsed.body)[1].clone())


def _descriptor(number: int, kind: ir.Type) -> str:
    """A memref in row-major order from a bare pointer."""
    shape = list(kind.shape)
    rank = len(shape)
    arrays = f", array<{rank} x i64>, array<{rank} x i64>" if rank else ""
    struct = f"!llvm.struct<(ptr, ptr, i64{arrays})>"
    strides = [prod(shape[i + 1 :]) for i in range(rank)]
    fields = [("0", f"%p{number}"), ("1", f"%p{number}")]
    lines = [f"%d{number}_0 = llvm.mlir.undef : {struct}"]
    for place, value in [
        ("2", 0),
        *((f"3, {i}", n) for i, n in enumerate(shape)),
        *((f"4, {i}", n) for i, n in enumerate(strides)),
    ]:
        name = f"%n{number}_{place.replace(', ', '_')}"
        lines.append(f"{name} = llvm.mlir.constant({value} : i64) : i64")
        fields.append((place, name))
    for step, (place, value) in enumerate(fields):
        lines.append(f"%d{number}_{step + 1} = llvm.insertvalue {value}, %d{number}_{step}[{place}] : {struct}")
    last = f"%d{number}_{len(fields)}"
    return "\n".join([*lines, f"%m{number} = builtin.unrealized_conversion_cast {last} : {struct} to {kind}"])


def _take_over(module: ir.Module, apart: ir.Module) -> None:
    """Move the functions into the model's module, known to nobody outside it."""
    there = {symbol_of(op) for op in operations(module.body) if "sym_name" in op.attributes}
    made = operations(apart.body)
    memory = ir.Module.parse(THREAD_MEMORY)
    if any(symbol_of(op) == "gpu_thread_alloc" for op in made):
        made += operations(memory.body)
    defined = {symbol_of(op) for op in made if op.regions[0].blocks}
    for op in made:
        name = symbol_of(op)
        has_body = len(list(op.regions[0].blocks)) > 0
        if name in there or (name in defined and not has_body):
            continue
        there.add(name)
        copy = op.clone().operation
        module.body.append(copy)
        if has_body:
            copy.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
            if "parallel" in copy.attributes:
                del copy.attributes["parallel"]


def _call_block_function(kernel: ir.Operation) -> None:
    """Replace a kernel's body by the call for its block."""
    block = kernel.regions[0].blocks[0]
    old = operations(block)
    with ir.InsertionPoint(old[-1]), kernel.location:
        number = b.emit("arith.index_cast", [b.block_id()], [b.i64()])
        b.llvm_call(f"{symbol_of(kernel)}_block", [number, *(b.pointer(b.address_of(a)) for a in block.arguments)])
    for op in reversed(old[:-1]):
        op.erase()
    blocks = prod(integers(kernel.attributes["grid"]))
    kernel.attributes["grid"] = numbers((blocks, 1, 1))
    for name in ("block", "shared_bytes"):
        del kernel.attributes[name]
