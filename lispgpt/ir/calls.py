"""Functions of a module, and calls of them and of LLVM's intrinsics, at the current insertion point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lispgpt.ir.mlir import create_op, ir


def private_function(name: str, inputs: Sequence[ir.Type] = (), **attributes: Any) -> ir.Operation:
    """A function of the module without a body as yet, which nothing outside it calls."""
    fields = {"sym_name": name, "function_type": ir.FunctionType.get(list(inputs), []), "sym_visibility": "private"}
    return create_op("func.func", attributes=fields | attributes, regions=1)


def call(name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] = ()) -> ir.Operation:
    """A call of a function of the module."""
    return create_op("func.call", operands, results, {"callee": ir.FlatSymbolRefAttr.get(name)})


def llvm_call(name: str, operands: Sequence[ir.Value]) -> None:
    """The same of one that is in LLVM's dialect and gives nothing."""
    create_op("llvm.call", operands, [], {"callee": ir.FlatSymbolRefAttr.get(name), **_segments(operands)})


def llvm_alias(name: str, function: str, type_: ir.Type, hidden: bool = False) -> ir.Operation:
    """Another name of a function of the module that is in LLVM's dialect.  hidden: from who loads the shared object."""
    linkage, visibility = ir.Attribute.parse("#llvm.linkage<external>"), ir.IntegerType.get_signless(64)
    fields = {"sym_name": name, "alias_type": type_, "linkage": linkage}
    fields["visibility_"] = ir.IntegerAttr.get(visibility, int(hidden))
    op = create_op("llvm.mlir.alias", attributes=fields, regions=1)
    with ir.InsertionPoint(op.regions[0].blocks.append()):
        target = {"global_name": ir.FlatSymbolRefAttr.get(function)}
        address = create_op("llvm.mlir.addressof", results=[ir.Type.parse("!llvm.ptr")], attributes=target)
        create_op("llvm.return", address.results)
    return op


def instruction(name: str, operands: Sequence[ir.Value], result: ir.Type | None) -> Any:
    """A call of an LLVM intrinsic on its operands as they are: its value, or the op where it has none."""
    results = [] if result is None else [result]
    op = create_op("llvm.call_intrinsic", operands, results, {"intrin": name, **_segments(operands)})
    return op if result is None else op.results[0]


def _segments(operands: Sequence[ir.Value]) -> dict[str, ir.Attribute]:
    """That all of a call's operands are its arguments."""
    sizes = {"operandSegmentSizes": [len(operands), 0], "op_bundle_sizes": []}
    return {name: ir.DenseI32ArrayAttr.get(size) for name, size in sizes.items()}
