"""share-calls: calls of functions that are marked `parallel` are shared among the CPU's threads.

Before:  llvm.call @product(%from, %to, %a, %b)                  llvm.func @product(…) attributes {parallel}
After:   %all = llvm.alloca …; llvm.store {%a, %b}, %all
         llvm.call @share_work(@product_part, %all, %from, %to)
         llvm.func internal @product_part(%from, %to, %all)      unpacks %all and calls @product

Requires: the LLVM dialect; a marked function takes two i64 first, the range of independent items that it works on,
and returns nothing.  Ensures: the same items are done before the call returns, in any order.  `share_work` is the
runtime's.
"""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import callee_of, everything_in, operations, symbol_of
from lispgpt.passes.base import Pass

SHARE_WORK = "llvm.func @share_work(!llvm.ptr, !llvm.ptr, i64, i64)"


class ShareCalls(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        shared = {
            symbol_of(op): op
            for op in operations(module.body)
            if op.name == "llvm.func" and "parallel" in op.attributes
        }
        calls = [op for op in everything_in(module.operation) if op.name == "llvm.call" and "callee" in op.attributes]
        calls = [call for call in calls if callee_of(call) in shared]
        if not calls:
            return
        _append(module, SHARE_WORK)
        for name, function in shared.items():
            _append(module, _part(name, function))
        for call in calls:
            _share(call)


def _append(module: ir.Module, text: str) -> None:
    parsed = ir.Module.parse(text, module.context)
    module.body.append(operations(parsed.body)[0].clone())


def _part(name: str, function: ir.Operation) -> str:
    """A function of the uniform type (from, to, everything else in memory)."""
    types = [str(a.type) for a in function.regions[0].blocks[0].arguments]
    struct = _struct(types[2:])
    loads = "\n".join(f"%{i} = llvm.extractvalue %s[{i}] : {struct}" for i in range(len(types) - 2))
    values = ", ".join(["%from", "%to", *(f"%{i}" for i in range(len(types) - 2))])
    return f"""llvm.func internal @"{name}_part"(%from: i64, %to: i64, %all: !llvm.ptr) {{
      %s = llvm.load %all : !llvm.ptr -> {struct}
      {loads}
      llvm.call @"{name}"({values}) : ({", ".join(types)}) -> ()
      llvm.return
    }}
    llvm.func @"{name}"({", ".join(types)})"""


def _struct(types: list[str]) -> str:
    return f"!llvm.struct<({', '.join(types)})>"


def _share(call: ir.Operation) -> None:
    start, stop, *rest = call.operands
    pointer = ir.Type.parse("!llvm.ptr")
    struct = ir.Type.parse(_struct([str(v.type) for v in rest]))
    function = call.parent
    while function.operation.name != "llvm.func":
        function = function.operation.parent
    i32 = ir.IntegerType.get_signless(32)
    # In the entry block, so that a call in a loop does not grow the stack.
    with call.location, ir.InsertionPoint.at_block_begin(function.operation.regions[0].blocks[0]):
        one = create_op("llvm.mlir.constant", [], [i32], {"value": ir.IntegerAttr.get(i32, 1)}).results[0]
        packed = create_op("llvm.alloca", [one], [pointer], {"elem_type": struct}).results[0]
    part = ir.FlatSymbolRefAttr.get(callee_of(call) + "_part")
    with call.location, ir.InsertionPoint(call):
        value = create_op("llvm.mlir.poison", [], [struct]).results[0]
        for i, field in enumerate(rest):
            position = {"position": [i]}
            value = create_op("llvm.insertvalue", [value, field], [struct], position).results[0]
        create_op("llvm.store", [value, packed])
        address = create_op("llvm.mlir.addressof", [], [pointer], {"global_name": part}).results[0]
        b.llvm_call("share_work", [address, packed, start, stop])
    call.erase()
