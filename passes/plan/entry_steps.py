"""The steps of an entry as its plan has them, of the calls that are left of it: launches, collectives, and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import InternalError
from lispgpt.ir.access import access_of
from lispgpt.ir.loops import LOOP, Move, loop_facts
from lispgpt.ir.mlir import ir
from lispgpt.ir.places import forms_of
from lispgpt.ir.structure import callee_of, defining_op, integers, operations, strings
from lispgpt.passes.memory.kernel_buffers import byte_size

Step = dict[str, Any]


@dataclass(frozen=True)
class Rounds:
    """The body of a loop.  names: of its arguments, whose numbers its steps have in place of buffers."""

    names: list[str]
    steps: list[Step]
    forms: list[Any]


@dataclass(frozen=True)
class Called:
    """What entries call: functions by their names, and the bodies of loops.  elements: gets what the arguments of each
    kernel hold, such as "f32"."""

    functions: dict[str, ir.Operation]
    rounds: dict[str, Rounds]
    elements: dict[str, list[str]]

    def steps(self, entry: ir.Operation, names: Sequence[Any]) -> list[Step]:
        """names: of the entry's arguments, the buffers."""
        return [self._step(call, names) for call in _calls(entry)]

    def forms(self, entry: ir.Operation) -> list[Any]:
        """The forms that each step is made of; of a loop, a list of its own."""
        return [self._forms(call) for call in _calls(entry)]

    def body(self, entry: ir.Operation) -> Rounds:
        names = strings(entry.attributes["arguments"])
        return Rounds(names, self.steps(entry, range(len(names))), self.forms(entry))

    def _forms(self, call: ir.Operation) -> list[Any]:
        function = self.functions[callee_of(call)]
        return (
            self.rounds[loop_facts(function).body].forms
            if LOOP in function.attributes
            else list(forms_of(call.location))
        )

    def _step(self, call: ir.Operation, names: Sequence[Any]) -> Step:
        function = self.functions[callee_of(call)]
        arguments = [_argument(v, how, names) for v, how in zip(call.operands, access_of(function), strict=True)]
        if LOOP in function.attributes:
            return self._loop(function, arguments)
        if "collective" not in function.attributes:
            self.elements[callee_of(call)] = [str(value.type.element_type) for value in call.operands]
            return _launch(callee_of(call), function, arguments)
        return {
            "kind": "collective",
            "operation": ir.StringAttr(function.attributes["collective"]).value,
            "devices": _devices(call),
            "dtypes": [str(value.type.element_type) for value in call.operands],
            "arguments": arguments,
        }

    def _loop(self, function: ir.Operation, arguments: list[Step]) -> Step:
        facts = loop_facts(function)
        body, scratch = self.rounds[facts.body], Move(len(arguments) - 1, 0, 0)
        moves = [scratch if name == "arena:arena" else facts.moves[name] for name in body.names]
        return {
            "kind": "loop",
            "rounds": facts.rounds,
            "arguments": arguments,
            "steps": [_bound(step, arguments, moves) for step in body.steps],
            "moves": [[moves[argument["buffer"]].stride for argument in _reached(step)] for step in body.steps],
        }


def _calls(entry: ir.Operation) -> list[ir.Operation]:
    return [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]


def _reached(step: Step) -> list[Step]:
    """The arguments of a launch, or of all launches in a loop."""
    if step["kind"] != "loop":
        return list(step["arguments"])
    return [argument for inner in step["steps"] for argument in _reached(inner)]


def _bound(step: Step, given: list[Step], moves: list[Move]) -> Step:
    """A step of a body as it is in the first round."""

    def bound(argument: Step) -> Step:
        move = moves[argument["buffer"]]
        whole = given[move.operand]
        return {**argument, "buffer": whole["buffer"], "offset": whole["offset"] + move.start + argument["offset"]}

    found = {**step, "arguments": [bound(argument) for argument in step["arguments"]]}
    if step["kind"] == "loop":
        found["steps"] = [_bound(inner, given, moves) for inner in step["steps"]]
    return found


def _launch(symbol: str, kernel: ir.Operation, arguments: list[Step]) -> Step:
    attributes = kernel.attributes
    if "grid" not in attributes:
        raise InternalError(f"emit-plan: no schedule has set the grid of kernel {symbol}")
    return {
        "kind": "launch",
        "kernel": symbol,
        "grid": integers(attributes["grid"]),
        "block": integers(attributes["block"]) if "block" in attributes else [1, 1, 1],
        "shared_bytes": ir.IntegerAttr(attributes["shared_bytes"]).value if "shared_bytes" in attributes else 0,
        "arguments": arguments,
    }


def _devices(call: ir.Operation) -> int:
    """How many devices the module's one grid has."""
    module = call.parent.parent
    (grid,) = (op for op in operations(module.regions[0].blocks[0]) if op.name == "shard.grid")
    return int(ir.DenseI64ArrayAttr(grid.attributes["shape"])[0])


def _argument(value: ir.Value, access: str, names: Sequence[Any]) -> Step:
    view = defining_op(value)
    if view is None or view.name != "memref.view":
        raise InternalError("emit-plan: a kernel's argument is not a view of an entry's buffer")
    offset = ir.IntegerAttr(defining_op(view.operands[1]).attributes["value"]).value
    buffer = names[ir.BlockArgument(view.operands[0]).arg_number]
    return {"buffer": buffer, "offset": offset, "nbytes": byte_size(value.type), "access": access}
