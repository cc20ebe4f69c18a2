"""Calls of functions by name: `(f a)`, `(call T f a)`, `(call! f a)`, `(vararg-call T f (-> …) a)`."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Function, OpResults
from lispgpt.language.forms.functions import declare
from lispgpt.language.ops.function_table import Functions
from lispgpt.language.ops.signatures import coerce, parts_of, promoted
from lispgpt.language.reader.forms import Form, List, Literal, Symbol, show


@special("call", 2, None)
def _call_form(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(call T f a…)`"""
    kind = attributes.type_of(evaluator.builder, evaluator.single(form.items[1], environment), form.items[1])
    found = _named(evaluator, form.items[2] if len(form.items) > 2 else form, environment)
    results = _results_of(found)
    if results != [kind]:
        has = ", ".join(map(str, results)) or "nothing"
        evaluator.site.fail(f"{found.name} returns {has}, and not {kind}", form.items[1])
    return call(evaluator, found, [evaluator.single(item, environment) for item in form.items[3:]], form)


@special("call!", 1, None)
def _call_for_effect(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(call! f a…)`: without a value."""
    found = _named(evaluator, form.items[1], environment)
    call(evaluator, found, [evaluator.single(item, environment) for item in form.items[2:]], form)
    return None


@special("vararg-call", 3, None)
def _vararg_call(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(vararg-call T f (-> [… ...] [R]) a…)`: declares f where it is not."""
    kind = attributes.type_of(evaluator.builder, evaluator.single(form.items[3], environment), form.items[3])
    name = _name_of(evaluator, form.items[2])
    found = evaluator.states.of(Functions).get(name) or declare(evaluator, name, kind, form)
    return call(evaluator, found, [evaluator.single(item, environment) for item in form.items[4:]], form)


def _name_of(evaluator: Evaluator, form: Form) -> str:
    name = form.name if isinstance(form, Symbol) else form.value if isinstance(form, Literal) else None
    if not isinstance(name, str):
        evaluator.site.fail(f"`{show(form)}` is not the name of a function", form)
    return name.removeprefix("@")


def _named(evaluator: Evaluator, form: Form, environment: Environment) -> Function:
    name = _name_of(evaluator, form)
    found = evaluator.states.of(Functions).get(name.rpartition("/")[2] if "/" in name else name)
    if found is None:
        declared = did_you_mean(
            name, evaluator.states.of(Functions).names(), f"; (extern-fn {name} (-> [T] [R])) declares it"
        )
        evaluator.site.fail(f"there is no function {name}{declared}", form)
    return found


def _results_of(found: Function) -> list[ir.Type]:
    return parts_of(found.type)[1]


def call(evaluator: Evaluator, found: Function, arguments: list[Any], form: Form) -> Any:
    """func.call, or llvm.call of a foreign function."""
    inputs, results, variadic = parts_of(found.type)
    if len(arguments) < len(inputs) or (len(arguments) > len(inputs) and not variadic):
        wanted = ", ".join(map(str, inputs)) or "no arguments"
        more = " and more" if variadic else ""
        evaluator.site.fail(f"{found.name} takes ({wanted}){more}, and got {len(arguments)}", form)
    places = form.items[-len(arguments) :] if isinstance(form, List) and len(arguments) < len(form.items) else ()
    operands = []
    for position, argument in enumerate(arguments):
        place = places[position] if position < len(places) else form
        if position < len(inputs):
            operands.append(coerce(evaluator, argument, inputs[position], place, f"{found.name} takes"))
        else:
            operands.append(promoted(evaluator, argument, place))
    attrs: dict[str, Any] = {"callee": ir.FlatSymbolRefAttr.get(found.name)}
    if found.foreign:
        attrs["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(operands), 0])
        attrs["op_bundle_sizes"] = ir.DenseI32ArrayAttr.get([])
        if variadic:
            attrs["var_callee_type"] = ir.TypeAttr.get(found.type)
    made = evaluator.builder.emit("llvm.call" if found.foreign else "func.call", operands, results, attrs, form)
    if len(results) == 1:
        return made
    return OpResults(found.name, made.owner.results if results else ())
