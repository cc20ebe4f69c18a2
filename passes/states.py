"""What a pipeline has made of a module so far, told from its IR: passes name the state that they start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import callee_of, defining_op, entry_functions, operations, strings, symbol_of


@dataclass(frozen=True)
class State:
    """holds: of an entry.  made_by: the pass that leads to it, if any.  lacking: what to say where it does not hold."""

    holds: Callable[[ir.Operation], bool]
    made_by: str
    lacking: str

    def missing(self, module: ir.Module) -> str | None:
        """Why a pass that wants this state cannot run on a module, and what to run first; None where it can."""
        for entry in entry_functions(module):
            if len(list(entry.regions[0].blocks)) != 1:  # of which all states are told
                return f"control flow has become branches already in @{symbol_of(entry)}"
            if not self.holds(entry):
                name = symbol_of(entry)
                advice = f": run {self.made_by} before it" if self.made_by else ""
                return f"{self.lacking} in @{name}{advice}"
        return None


def _outlined(entry: ir.Operation) -> bool:
    return not any(op.name.startswith("linalg.") for op in operations(entry.regions[0].blocks[0]))


def _on_tensors(entry: ir.Operation) -> bool:
    return "types" not in entry.attributes


def _has_no_kernels(entry: ir.Operation) -> bool:
    return not any("tied" in op.attributes for op in operations(entry.parent.regions[0].blocks[0]))


def _in_arena(entry: ir.Operation) -> bool:
    return _outlined(entry) and not _on_tensors(entry) and "arena:arena" in strings(entry.attributes["arguments"])


def _calls_views(entry: ir.Operation) -> bool:
    """Whether kernels are called with what they were made for: each argument a part of the entry's memory.  What has no
    body, as collectives, is none."""
    functions = {symbol_of(op): op for op in operations(entry.parent.regions[0].blocks[0]) if op.name == "func.func"}
    calls = [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]
    declared = {name for name, function in functions.items() if not list(function.regions[0].blocks)}
    return all(callee_of(c) in declared or _takes_views(c, functions.get(callee_of(c))) for c in calls)


def _takes_views(call: ir.Operation, kernel: ir.Operation | None) -> bool:
    if kernel is None or len(list(kernel.regions[0].blocks[0].arguments)) != len(call.operands):
        return False
    views = [defining_op(value) for value in call.operands]
    return all(
        view is not None
        and view.name == "memref.view"
        and isinstance(view.operands[0], ir.BlockArgument)
        and (offset := defining_op(view.operands[1])) is not None
        and offset.name == "arith.constant"
        for view in views
    )


OUTLINED = State(_outlined, "outline-kernels", "ops are not kernels yet")
NOT_OUTLINED = State(_has_no_kernels, "", "ops have become kernels already")
UNPLACED = State(_on_tensors, "", "values are in memory already")
PLACED = State(lambda e: _outlined(e) and not _on_tensors(e), "destination-passing", "values are tensors still")
NO_ARENA = State(lambda e: not _in_arena(e), "", "values are in an arena already")
PLANNED = State(lambda _: False, "emit-plan", "the plan has not been written down, whose launches are still calls")
CALLS_VIEWS = State(
    _calls_views, "", "kernels are no longer called with parts of the arena, which a pass before this has lowered,"
)
IN_ARENA = State(_in_arena, "plan-arena", "values have no place in an arena yet")
