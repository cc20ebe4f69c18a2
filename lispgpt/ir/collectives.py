"""What several devices do together, between kernels: functions without a body, whose `collective` says what they do.

Each device calls them with its own memory.  "all_reduce": every argument becomes the sum of all devices', by
"all_reduce_max" and "all_reduce_min" the largest and the least of them.  "reduce_scatter": of pairs of arguments the
second becomes this device's part of the sum of the first ones, where each device's part is as many parts further on as
its number.  "all_slice": of pairs the second becomes this device's part of the first, for which it needs no other.
"all_gather": of pairs the second becomes all devices' first ones, by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.base.access import READ, READ_WRITE, WRITE
from lispgpt.ir.access import set_access
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import callee_of, operations, symbol_of

_BY_REDUCTION = {
    "#shard<partial sum>": "all_reduce",
    "#shard<partial max>": "all_reduce_max",
    "#shard<partial min>": "all_reduce_min",
}
REDUCING = tuple(_BY_REDUCTION.values())
"""Those that change their arguments; the others read one and write one."""


def operation_of(op: ir.Operation) -> str:
    """What the plan calls an op of `shard` that all devices of a grid do together, or each by its number."""
    word = op.name.partition(".")[2]
    return _BY_REDUCTION[str(op.attributes["reduction"])] if word == "all_reduce" else word


def collective_functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions that are collectives, by their names."""
    found = [op for op in operations(module.body) if op.name == "func.func" and "collective" in op.attributes]
    return {symbol_of(op): op for op in found}


def declare_collective(
    module: ir.Module, name: str, operation: str, types: Sequence[ir.Type], results: Sequence[ir.Type] = ()
) -> str:
    """Have the module have a collective of these arguments; its name.

    results: what it gives, where arguments are tensors; in memory all that it makes is in arguments.
    """
    if name in collective_functions(module):
        return name
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), list(results))),
        "sym_visibility": ir.StringAttr.get("private"),
        "collective": ir.StringAttr.get(operation),
    }
    with ir.InsertionPoint.at_block_begin(module.body), ir.Location.unknown():
        function = create_op("func.func", attributes=attributes, regions=1)
    each = [READ_WRITE] if operation in REDUCING else [READ, WRITE]
    count = len(types) + (0 if operation in REDUCING else len(results))
    set_access(function, each * (count // len(each)))
    return name


def to_memory(function: ir.Operation, memory: Callable[[ir.Type], ir.Type]) -> list[int]:
    """Have a collective of tensors take memory; for each of its results the argument in whose place it is, or -1."""
    type_ = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    in_place = ir.StringAttr(function.attributes["collective"]).value in REDUCING
    taken = [memory(t) for t in (type_.inputs if in_place else [*type_.inputs, *type_.results])]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(taken, []))
    return [0 if in_place else -1]


def collective_of(call: ir.Operation, known: dict[str, ir.Operation]) -> str | None:
    """What a call has all devices do, of the module's collectives; None where it calls a kernel."""
    function = known.get(callee_of(call)) if call.name == "func.call" else None
    return None if function is None else ir.StringAttr(function.attributes["collective"]).value
