"""Row norms as a kernel's linalg ops have them: layer norm and RMS norm, recognised by what each op does."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, is_elementwise, operations, viewed


@dataclass(frozen=True)
class Norm:
    """(x - mean) / sqrt(variance + epsilon) · gamma + beta of a row, or x / sqrt(mean square + epsilon) · gamma.

    source, gamma, beta: tensors; beta is None where there is none.  centred: whether the mean is subtracted.
    """

    source: ir.Value
    gamma: ir.Value
    beta: ir.Value | None
    centred: bool
    epsilon: float


def norm_of(value: ir.Value) -> Norm | None:
    """The norm that makes a tensor of one row; None where none does."""
    scaled = defining_op(viewed(value))
    names = _names(scaled)
    if names not in (["mulf", "mulf", "addf"], ["mulf", "mulf"]):
        return None
    row, factor, gamma, *beta = list(scaled.operands)[:-1]
    root = _row_op(factor, ["divf", "addf", "rsqrt"])
    squares = _reduced(root.operands[0]) if root is not None else None
    if squares is None or _names(defining_op(squares)) != ["mulf"]:
        return None
    (squared,) = set(list(defining_op(squares).operands)[:-1])
    if squared != row:
        return None
    numbers = _constants(root)
    if len(numbers) != 2 or numbers[0] != row.type.shape[-1]:
        return None
    centred = defining_op(row)
    source = row
    if _names(centred) == ["subf"]:
        mean = _row_op(centred.operands[1], ["divf"])
        summed = _reduced(mean.operands[0]) if mean is not None else None
        if summed is None or summed != centred.operands[0] or _constants(mean) != [row.type.shape[-1]]:
            return None
        source = summed
    return Norm(source, gamma, beta[0] if beta else None, source != row, numbers[1])


def _names(op: ir.Operation | None) -> list[str] | None:
    """The arithmetic of an elementwise op, in order."""
    if op is None or not is_elementwise(op):
        return None
    return [inner.name.partition(".")[2] for inner in operations(op.regions[0].blocks[0])][:-1]


def _row_op(value: ir.Value, names: list[str]) -> ir.Operation | None:
    op = defining_op(value)
    return op if _names(op) == names else None


def _reduced(value: ir.Value) -> ir.Value | None:
    """What a sum over a row sums."""
    op = defining_op(value)
    if op is None or op.name != "linalg.reduce":
        return None
    names = [inner.name for inner in operations(op.regions[0].blocks[0])]
    return op.operands[0] if names[:1] == ["arith.addf"] else None


def _constants(op: ir.Operation) -> list[float]:
    """The constants that an elementwise op's body takes, in order."""
    found = []
    for inner in operations(op.regions[0].blocks[0]):
        for operand in inner.operands:
            made = defining_op(operand)
            if made is not None and made.name == "arith.constant":
                found.append(ir.FloatAttr(made.attributes["value"]).value)
    return found
