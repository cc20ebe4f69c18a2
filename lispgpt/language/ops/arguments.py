"""What stands in an op's form after the op's name: attributes, operands, regions, successors."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import facts
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import describe
from lispgpt.language.ops import kinds, regions
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, show


@dataclass
class Arguments:
    """The parts of an op's form, evaluated; place is the form."""

    place: Form
    operands: list[Any] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    regions: list[List] = field(default_factory=list)
    successors: list[ir.Block] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    results: list[ir.Type] | None = None
    attributes: dict[str, ir.Attribute] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)


def collect(evaluator: Evaluator, name: str, form: List, environment: Environment) -> Arguments:
    """Evaluate everything after the op's name."""
    found = Arguments(form)
    items = form.items[1:]
    if items and isinstance(items[0], Map):
        _attributes(evaluator, name, items[0], environment, found)
        items = items[1:]
    if name in ("func.call", "llvm.call") and items:
        items = _callee(items, found)
    for item in items:
        if isinstance(item, Symbol) and item.name.startswith("^"):
            found.successors.append(regions.label(evaluator, item))
            found.groups.append(len(found.operands))
        elif regions.is_region(item, environment):
            assert isinstance(item, List)
            found.regions.append(item)
        elif isinstance(item, Vector):
            for member in item.items:
                _operand(evaluator, evaluator.evaluate(member, environment), member, found)
        elif isinstance(item, Map):
            evaluator.site.fail("attributes `{…}` come first, right after the op's name", item)
        else:
            _operand(evaluator, evaluator.evaluate(item, environment), item, found)
    return found


def _callee(items: tuple[Form, ...], found: Arguments) -> tuple[Form, ...]:
    """`(func.call {:result T} "f" a…)`: the name may stand before the operands; its type settles the results."""
    first = items[0] if items else None
    text = first.value if isinstance(first, Literal) else first.name if isinstance(first, Symbol) else None
    if not isinstance(text, str) or "callee" in found.attributes:
        return items
    if isinstance(first, Literal) or text.startswith("@"):
        found.attributes["callee"] = ir.FlatSymbolRefAttr.get(text.removeprefix("@"))
        return items[1:]
    return items


def _operand(evaluator: Evaluator, value: Any, form: Form, found: Arguments) -> None:
    value = evaluator.ssa(value, form)
    if isinstance(value, tuple):
        for member in value:
            _operand(evaluator, member, form, found)
    elif isinstance(value, (ir.Value, bool, int, float)):
        found.operands.append(value)
        found.forms.append(form)
    else:
        evaluator.site.fail(f"an operand is an SSA value or a number, and `{show(form)}` is {describe(value)}", form)


def _attributes(evaluator: Evaluator, name: str, form: Map, environment: Environment, found: Arguments) -> None:
    """Evaluate `{:key value …}`."""
    items = form.items
    pairs: dict[str, Form] = {}
    for index in range(0, len(items), 2):
        key = items[index]
        if not isinstance(key, Keyword):
            evaluator.site.fail(f"`{show(key)}` stands where a :key is wanted; attributes are {{:key value …}}", key)
        if index + 1 == len(items):
            evaluator.site.fail(f"`:{key.name}` has no value", key)
        if key.name in pairs:
            evaluator.site.fail(f"`:{key.name}` is given twice", key)
        pairs[key.name] = items[index + 1]
    for name_of_types in ("result", "results"):
        value_form = pairs.pop(name_of_types, None)
        if value_form is not None:
            value = evaluator.evaluate(value_form, environment)
            many = value if isinstance(value, tuple) else (value,)
            found.results = [attributes.type_of(evaluator.builder, v, value_form) for v in many]
    for key_name, value_form in pairs.items():
        if key_name not in ("result", "resultType") and get_close_matches(key_name, ["result"], cutoff=0.8):
            evaluator.site.fail(f"`:{key_name}`: did you mean `:result`?", value_form)
        if key_name in ("ins", "outs") and name.startswith("linalg."):
            found.hints[key_name] = _count(evaluator, value_form, environment)
        else:
            key_name = facts(name).attribute_names.get(key_name, key_name)
            found.attributes[key_name] = kinds.attribute(
                evaluator, name, key_name, value_form, environment, found.results
            )


def _count(evaluator: Evaluator, form: Form, environment: Environment) -> int:
    value = evaluator.single(form, environment)
    if not isinstance(value, int) or value < 0:
        evaluator.site.fail(f"a count of operands is wanted here, and `{show(form)}` is {describe(value)}", form)
    return value
