"""What several devices do together, between kernels: functions without a body, whose `collective` says what they do.

Each device calls them with its own memory.  "all_reduce": every argument becomes the sum of all devices'.
"reduce_scatter": of pairs of arguments the second becomes this device's part of the sum of the first ones, where each
device's part is as many elements further on as its number.  "all_gather": of pairs the second becomes all devices'
first ones, by their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.base.access import READ, READ_WRITE, WRITE
from lispgpt.ir.access import set_access
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import callee_of, operations, symbol_of

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all_reduce", "reduce_scatter", "all_gather"


def collective_functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions that are collectives, by their names."""
    found = [op for op in operations(module.body) if op.name == "func.func" and "collective" in op.attributes]
    return {symbol_of(op): op for op in found}


def declare_collective(
    module: ir.Module, name: str, operation: str, types: Sequence[ir.Type], on_tensors: bool = False
) -> str:
    """Have the module have a collective of these arguments; its name.

    on_tensors: whether it gives its results as values, each in place of an argument.
    """
    if name in collective_functions(module):
        return name
    results = list(types) if on_tensors else []
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), results)),
        "sym_visibility": ir.StringAttr.get("private"),
        "collective": ir.StringAttr.get(operation),
    }
    with ir.InsertionPoint.at_block_begin(module.body), ir.Location.unknown():
        function = create_op("func.func", attributes=attributes, regions=1)
    each = [READ_WRITE] if operation == ALL_REDUCE else [READ, WRITE]
    set_access(function, each * (len(types) // len(each)))
    return name


def collective_of(call: ir.Operation, known: dict[str, ir.Operation]) -> str | None:
    """What a call has all devices do, of the module's collectives; None where it calls a kernel."""
    function = known.get(callee_of(call)) if call.name == "func.call" else None
    return None if function is None else ir.StringAttr(function.attributes["collective"]).value
