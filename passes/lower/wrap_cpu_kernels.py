"""wrap-cpu-kernels: give every kernel the one signature through which threads call its blocks.

Before:                                              After:
  llvm.func @k(%block: i64, %x: !llvm.ptr) {           llvm.func internal @k_body(%block: i64, %x: !llvm.ptr) { … }
    …                                                  llvm.func @k(%arguments: !llvm.ptr, %block: i64) {
                                                         … llvm.load each argument's address, call @k_body …

Requires: kernels in the LLVM dialect whose first argument is the block's number (number-blocks), with bare pointers.
Ensures: kernels that differ only in how many rows their buffers have share a body.
"""

from __future__ import annotations

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.places import forms_of
from lispgpt.ir.structure import everything_in, operations, symbol_of
from lispgpt.passes.base import Pass

OF_LLVM = ("CConv", "function_type", "linkage", "sym_name", "unnamed_addr", "visibility_")
"""The attributes of a kernel that make code; others say of it what passes and the plan have read."""


class WrapCpuKernels(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        bodies: dict[str, str] = {}
        for op in operations(module.body):
            if op.name == "llvm.func" and "kernel" in op.attributes:
                _check_arguments(op)
                _wrap(module, op, bodies)


def _check_arguments(kernel: ir.Operation) -> None:
    """UserError where they are others than earlier passes give a kernel."""
    kinds = [str(argument.type) for argument in kernel.regions[0].blocks[0].arguments]
    if kinds[:1] != ["i64"] or any(kind != "!llvm.ptr" for kind in kinds[1:]):
        raise UserError(
            f"kernel {symbol_of(kernel)!r} takes ({', '.join(kinds)}), and should take a block's number and bare "
            "pointers: number-blocks and convert-func-to-llvm{use-bare-ptr-memref-call-conv=true} make them"
        )


def _wrap(module: ir.Module, kernel: ir.Operation, bodies: dict[str, str]) -> None:
    """Add a kernel's public function; bodies maps the text of those already there to their symbols."""
    symbol, place = symbol_of(kernel), kernel.location
    for name in [name for name in kernel.attributes if name not in OF_LLVM]:
        del kernel.attributes[name]
    kernel.attributes["sym_name"] = ir.StringAttr.get("body")
    kernel.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    kernel.attributes["no_inline"] = ir.UnitAttr.get()  # LLVM would optimise it twice, with its caller again
    count = len(kernel.regions[0].blocks[0].arguments) - 1
    _sort_constants(kernel)
    text = kernel.get_asm(assume_verified=True, use_local_scope=True)
    body = bodies.setdefault(text, f"{symbol}_body")
    if body == f"{symbol}_body":
        kernel.attributes["sym_name"] = ir.StringAttr.get(body)
    else:
        kernel.erase()
    loads = "\n".join(
        f"%p{i} = llvm.getelementptr %arguments[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
        f"%a{i} = llvm.load %p{i} : !llvm.ptr -> !llvm.ptr"
        for i in range(count)
    )
    operands = "".join(f", %a{i}" for i in range(count))
    types = "".join(", !llvm.ptr" for _ in range(count))
    parsed = ir.Module.parse(
        f"""llvm.func @{body}(i64{types})
        llvm.func @{symbol}(%arguments: !llvm.ptr, %block: i64) {{
          {loads}
          llvm.call @{body}(%block{operands}) : (i64{types}) -> ()
          llvm.return
        }}"""
    )
    wrapper = operations(parsed.body)[1]
    if forms_of(place):
        for op in everything_in(wrapper):
            op.location = place
    module.body.append(wrapper)


def _sort_constants(kernel: ir.Operation) -> None:
    """Put the constants of the first block into one order, so that equal bodies have equal texts."""
    block = kernel.regions[0].blocks[0]
    constants = [op for op in operations(block) if op.name == "llvm.mlir.constant"]
    anchor = next((op for op in operations(block) if op.name != "llvm.mlir.constant"), None)
    for op in sorted(constants, key=lambda op: f"{op.results[0].type} {op.attributes['value']}"):
        if anchor is not None:
            op.move_before(anchor)
