"""A warning where broadcasting means another thing for another number of rows.

(+ (last x) w) with [1 32] and [32 32]: the one row of a single sequence is added to every row of a weight, and two
sequences do not go together with it.  Without the 1, by `reshape`, it is meant; so is a 1 that reshape puts there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, nested_operations
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.reader.forms import Form, show


@dataclass
class Inputs:
    """What an entry that is being built is given at each run; known: whether other values are computed from it."""

    known: dict[ir.Value, bool] = field(default_factory=dict)

    def start(self, values: list[ir.Value]) -> None:
        """Begin an entry with these inputs and states."""
        self.known = dict.fromkeys(values, True)

    def reach(self, value: ir.Value) -> bool:
        """Whether a value depends on them."""
        waiting = [value]
        while waiting:
            current = waiting[-1]
            sources = [] if current in self.known else _sources(current)
            unknown = [source for source in sources if source not in self.known]
            if unknown:
                waiting += unknown
                continue
            self.known.setdefault(current, any(self.known[source] for source in sources))
            waiting.pop()
        return self.known[value]


def _sources(value: ir.Value) -> list[ir.Value]:
    op = defining_op(value)
    if op is None:
        return []
    inner = [operand for nested in nested_operations(op) for operand in nested.operands]
    outside = [operand for operand in inner if defining_op(operand) is not None]
    return [*op.operands, *(operand for operand in outside if defining_op(operand).block == op.block)]


def check(evaluator: Evaluator, tensors: list[ir.Value], form: Form) -> None:
    """Warn where one row that depends on the inputs is repeated to the rows of what does not."""
    inputs = evaluator.states.of(Inputs)
    if not inputs.known or len(tensors) < 2:
        return
    rank = max(len(tensor.type.shape) for tensor in tensors)
    whole = [tensor for tensor in tensors if len(tensor.type.shape) == rank > 1]
    single = [tensor for tensor in whole if tensor.type.shape[0] == 1 and not _is_reshaped(tensor)]
    for row in single if len(single) < len(whole) else []:
        fixed = [tensor for tensor in whole if tensor.type.shape[0] > 1 and not inputs.reach(tensor)]
        if fixed and inputs.reach(row):
            sizes = " ".join(map(str, row.type.shape[1:]))
            message = (
                f"`{show(form)}` repeats the one row of {row.type} for each row of {fixed[0].type}, and does not fit "
                f"where there are more rows; (reshape x [{sizes}]) says that one is meant"
            )
            evaluator.site.warn(message, form)


def _is_reshaped(tensor: ir.Value) -> bool:
    op = defining_op(tensor)
    return op is not None and op.name == "tensor.expand_shape"
