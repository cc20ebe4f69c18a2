"""wrap-cpu-kernels: give every kernel the one signature through which threads call its blocks.

Before:                                              After:
  llvm.func @k(%block: i64, %x: !llvm.ptr) {           llvm.func internal @k_body(%arguments: !llvm.ptr, %block: i64) {
    …                                                    … llvm.load each argument's address …
                                                       llvm.mlir.alias external @k { llvm.mlir.addressof @k_body … }

Requires: kernels in the LLVM dialect whose first argument is the block's number (number-blocks), with bare pointers.
Ensures: kernels that differ only in how many rows their buffers have share a body; where code is made quickly, LLVM
optimises none that has little to do.  Functions that are seen from outside are aliases: MLIR's execution engine makes a
function of its own for each other one.
"""

from __future__ import annotations

from lispgpt.base.errors import UserError
from lispgpt.ir.calls import llvm_alias
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.places import forms_of
from lispgpt.ir.structure import operations, symbol_of
from lispgpt.passes.base import Pass
from lispgpt.passes.model.kernel_work import recorded_work
from lispgpt.passes.targets import Cpu

OF_LLVM = ("CConv", "function_type", "linkage", "no_inline", "optimize_none", "sym_name", "unnamed_addr", "visibility_")
"""The attributes of a kernel that make code; others say of it what passes and the plan have read."""

LITTLE = 1 << 15
"""Operations of a kernel, at most, that better instructions would not save as much time as choosing them takes."""

SIGNATURE = "!llvm.func<void (ptr, i64)>"


class WrapCpuKernels(Pass):
    def run(self, module: ir.Module, target: Cpu) -> None:
        bodies: dict[str, str] = {}
        for op in operations(module.body):
            if op.name == "llvm.func" and "kernel" in op.attributes:
                _check_arguments(op)
                work = recorded_work(op)
                if target.optimisation == 0 and work is not None and work["operations"] <= LITTLE:
                    op.attributes["no_inline"] = op.attributes["optimize_none"] = ir.UnitAttr.get()
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
    """Have a kernel be an alias of its body; bodies maps the text of those already there to their symbols."""
    symbol = symbol_of(kernel)
    for name in [name for name in kernel.attributes if name not in OF_LLVM]:
        del kernel.attributes[name]
    kernel.attributes["sym_name"] = ir.StringAttr.get("body")
    kernel.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    _sort_constants(kernel)
    text = kernel.get_asm(assume_verified=True, use_local_scope=True)
    body = bodies.setdefault(text, f"{symbol}_body")
    if body == f"{symbol}_body":
        kernel.attributes["sym_name"] = ir.StringAttr.get(body)
        _load_arguments(kernel)
    else:
        kernel.erase()
    with ir.InsertionPoint(module.body):
        llvm_alias(symbol, body, ir.Type.parse(SIGNATURE))


def _load_arguments(kernel: ir.Operation) -> None:
    """Have a kernel take the address of its arguments' addresses, and the block's number."""
    block, place = kernel.regions[0].blocks[0], kernel.location
    if not forms_of(place):
        place = ir.Location.unknown()
    own = list(block.arguments)
    pointer, number = ir.Type.parse("!llvm.ptr"), own[0].type
    arguments, block_number = (block.add_argument(kind, place) for kind in (pointer, number))
    own[0].replace_all_uses_with(block_number)
    with ir.InsertionPoint.at_block_begin(block), place:
        for index, value in enumerate(own[1:]):
            static = {"rawConstantIndices": ir.DenseI32ArrayAttr.get([index]), "elem_type": pointer}
            address = create_op("llvm.getelementptr", [arguments], [pointer], static).results[0]
            value.replace_all_uses_with(create_op("llvm.load", [address], [pointer]).results[0])
    for _ in own:
        block.erase_argument(0)
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.Type.parse(SIGNATURE))


def _sort_constants(kernel: ir.Operation) -> None:
    """Put the constants of the first block into one order, so that equal bodies have equal texts."""
    block = kernel.regions[0].blocks[0]
    constants = [op for op in operations(block) if op.name == "llvm.mlir.constant"]
    anchor = next((op for op in operations(block) if op.name != "llvm.mlir.constant"), None)
    for op in sorted(constants, key=lambda op: f"{op.results[0].type} {op.attributes['value']}"):
        if anchor is not None:
            op.move_before(anchor)
