"""What ops want beside their operands: operandSegmentSizes, enumerations by name, typed attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lispgpt.frontend import attributes
from lispgpt.frontend.environment import Environment, did_you_mean
from lispgpt.frontend.forms import Form, List, head_name
from lispgpt.mlir import ir

if TYPE_CHECKING:
    from lispgpt.frontend.evaluator import Evaluator
    from lispgpt.frontend.ops import Arguments

_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
_PREDICATES = {
    "arith.cmpi": _INTEGER_PREDICATES,
    "llvm.icmp": _INTEGER_PREDICATES,
    "arith.cmpf": _FLOAT_PREDICATES,
    "llvm.fcmp": ("_false", *_FLOAT_PREDICATES[1:-1], "_true"),
}


def attribute(evaluator: Evaluator, op: str, key: str, form: Form, environment: Environment) -> ir.Attribute:
    """The attribute for one `:key value` of an op."""
    if head_name(form) == ":" and isinstance(form, List) and len(form.items) == 3:
        return _typed(evaluator, form, environment)
    value = evaluator.single(form, environment)
    if key == "predicate" and op in _PREDICATES and isinstance(value, str):
        names = _PREDICATES[op]
        if value not in names:
            evaluator.fail(f'`{op}` has no predicate "{value}"{did_you_mean(value, names)}', form)
        value = names.index(value)
    return attributes.from_value(evaluator, value, form, key)


def _typed(evaluator: Evaluator, form: List, environment: Environment) -> ir.Attribute:
    _, value_form, type_form = form.items
    kind = attributes.type_of(evaluator, evaluator.single(type_form, environment), type_form)
    value = evaluator.single(value_form, environment)
    if isinstance(value, (bool, int, float)):
        return attributes.number_attribute(evaluator, value, kind, form)
    if isinstance(value, ir.Attribute):
        return attributes.parse_attribute(evaluator, f"{str(value).split(' : ')[0]} : {kind}", form)
    if isinstance(value, str):
        return attributes.parse_attribute(evaluator, f"{value} : {kind}", form)
    evaluator.fail("a typed attribute is a number or dense<…> with its type", form)


def complete(evaluator: Evaluator, name: str, arguments: Arguments, operands: list[ir.Value], form: Form) -> None:
    """Work out operandSegmentSizes where the operands settle it."""
    if "operandSegmentSizes" in arguments.attributes:
        return
    sizes = _sizes(name, arguments, operands)
    if sizes is None:
        return
    if any(size < 0 for size in sizes) or sum(sizes) != len(operands):
        evaluator.fail(f"`{name}` has {len(operands)} operands, and its groups want {sizes}", form)
    arguments.attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)


def _sizes(name: str, arguments: Arguments, operands: list[ir.Value]) -> list[int] | None:
    count = len(operands)
    if name.startswith("linalg.") and name not in ("linalg.yield", "linalg.index", "linalg.softmax"):
        outs = arguments.hints.get("outs", 1)
        ins = arguments.hints.get("ins", count - outs)
        return [ins, outs] if "ins" in arguments.hints or "outs" in arguments.hints or count else None
    return None
