"""States that add up sums over the batch from run to run, as gradients of micro-batches: each device keeps its own part
of them; an entry that asks for the sum adds it up, and makes zeros of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import elementwise
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, entry_arguments, entry_results, is_elementwise
from lispgpt.passes.distribute.linearity import LINEAR, NOTHING, PLAIN, is_nothing, results_of
from lispgpt.passes.distribute.sharded_values import ShardedValues


def find(entries: Iterable[ir.Operation], is_sharded: Callable[[ir.Operation], bool]) -> set[str]:
    """The states ("state:…") to which divided entries add, and of which each other entry makes zeros."""
    added, forgotten, others = set(), set(), set()
    for entry in entries:
        results = entry_results(entry)
        for name, state in entry_arguments(entry).items():
            if not name.startswith("state:") or (name not in results and not any(True for _ in state.uses)):
                continue
            if name in results and addend_of(results[name], state) is not None and is_sharded(entry):
                added.add(name)
            elif name in results and _is_zeros(results[name]):
                forgotten.add(name)
            else:
                others.add(name)
    return (added & forgotten) - others


def addend_of(result: ir.Value, state: ir.Value) -> int | None:
    """Which operand of the op that made a result is added to what was in a state, and does nothing else with that."""
    op = defining_op(result)
    if op is None or not is_elementwise(op) or any(len(list(v.uses)) != 1 for v in (state, result)):
        return None
    uniform = [n for n, v in enumerate(list(op.operands)[:-1]) if v.type == state.type and v != state]
    if state not in list(op.operands) or len(uniform) != 1 or not isinstance(state.type.element_type, ir.F32Type):
        return None
    parts = (state, op.operands[uniform[0]])
    both = results_of(op, lambda value: LINEAR if value in parts else PLAIN)
    alone = results_of(op, lambda value: LINEAR if value == state else PLAIN)
    return uniform[0] if both == [LINEAR] and alone is None else None


def _is_zeros(result: ir.Value) -> bool:
    op = defining_op(result)
    return op is not None and (is_nothing(op) or results_of(op, lambda value: PLAIN) == [NOTHING])


def on_one_device(values: ShardedValues, value: ir.Value, op: ir.Operation) -> ir.Value:
    """A part of a sum that is a value which every device has: the value on the first device, and zeros on others."""
    device = values.number_of_device(op)

    def first_alone(element: ir.Value) -> ir.Value:
        number = b.emit("tensor.extract", [device], [device.type.element_type])
        return b.select(b.equal(number, b.constant(0, number.type)), element, b.constant(0.0, element.type))

    with ir.InsertionPoint(op), op.location:
        part = elementwise([value], value.type, first_alone)
    values.parts.add(part)
    return part
