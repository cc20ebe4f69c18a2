"""Row norms as linalg ops have them: layer norm and RMS norm, recognised by what each op does."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir.combiners import combiner_of, starts_neutral
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, is_elementwise, operations, viewed


@dataclass(frozen=True)
class Norm:
    """(x - mean) / sqrt(variance + epsilon) · gamma + beta of each row, or x / sqrt(mean square + epsilon) · gamma.

    source, gamma, beta: tensors; beta is None where there is none.  centred: whether the mean is subtracted.
    """

    source: ir.Value
    gamma: ir.Value
    beta: ir.Value | None
    centred: bool
    epsilon: float

    def resembles(self, other: Norm) -> bool:
        """Whether it does the same, to whatever and with whatever weights."""
        return (self.centred, self.epsilon, self.beta is None) == (other.centred, other.epsilon, other.beta is None)


def norm_of(value: ir.Value) -> Norm | None:
    """The norm that makes a tensor of rows; None where none does."""
    scaled = defining_op(viewed(value))
    if _chain(scaled) not in (["mulf", "mulf", "addf"], ["mulf", "mulf"]):
        return None
    row, factor, gamma, *beta = list(scaled.operands)[:-1]
    *rows, width = row.type.shape
    if [v.type.shape for v in (row, factor, gamma, *beta)] != [[*rows, width], rows, *[[width]] * (1 + len(beta))]:
        return None
    if len(rows) != 1:
        return None
    root = defining_op(factor)
    squares = _summed(root.operands[0]) if _chain(root) == ["divf", "addf", "rsqrt"] else None
    if squares is None or not _squares(defining_op(squares), row):
        return None
    numbers = _constants(root)
    if len(numbers) != 2 or numbers[0] != width:
        return None
    centred, source = defining_op(row), row
    if _chain(centred) == ["subf"]:
        mean = defining_op(centred.operands[1])
        source = _summed(mean.operands[0]) if _chain(mean) == ["divf"] else None
        if source is None or source != centred.operands[0] or _constants(mean) != [width]:
            return None
    return Norm(source, gamma, beta[0] if beta else None, source != row, numbers[1])


def _chain(op: ir.Operation | None) -> list[str] | None:
    """The arithmetic of an elementwise op, where each of its ops takes what the one before has made, then an operand of
    its own or a constant; None for any other."""
    if op is None or not is_elementwise(op):
        return None
    block = op.regions[0].blocks[0]
    now, *others = list(block.arguments)[:-1]
    *inside, end = operations(block)
    ops = [inner for inner in inside if inner.name != "arith.constant"]
    for inner in ops:
        taken = list(inner.operands)
        if not taken or (taken[0] != now and not (inner.name == "arith.mulf" and taken[1] == now)):
            return None
        for other in taken if taken[0] != now else taken[1:]:
            if other == now or (defining_op(other) is not None and defining_op(other).name == "arith.constant"):
                continue
            if not others or other != others.pop(0):
                return None
        now = inner.results[0]
    return None if others or end.operands[0] != now else [inner.name.partition(".")[2] for inner in ops]


def _squares(op: ir.Operation | None, row: ir.Value) -> bool:
    """Whether an op squares a row's elements."""
    if op is None or not is_elementwise(op) or set(list(op.operands)[:-1]) != {row}:
        return False
    names = [inner.name for inner in operations(op.regions[0].blocks[0])]
    return names == ["arith.mulf", "linalg.yield"]


def _summed(value: ir.Value) -> ir.Value | None:
    """What a sum over a row, from zero on, sums."""
    op = defining_op(value)
    if op is None or op.name != "linalg.reduce" or combiner_of(op) != "arith.addf" or not starts_neutral(op):
        return None
    return op.operands[0]


def _constants(op: ir.Operation) -> list[float]:
    """The constants that an elementwise op's body takes, in order."""
    found = []
    for inner in operations(op.regions[0].blocks[0]):
        for operand in inner.operands:
            made = defining_op(operand)
            if made is not None and made.name == "arith.constant":
                found.append(ir.FloatAttr(made.attributes["value"]).value)
    return found
