"""Choosing and repeating: while compiling where the condition is known, with scf ops where it is an SSA value."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import OpResults, describe
from lispgpt.language.forms import tensors
from lispgpt.language.forms.launches import Launches
from lispgpt.language.ops import regions
from lispgpt.language.reader.forms import Form, Keyword, List, Map, Symbol, Vector, show


def holds(value: Any) -> bool:
    """What counts as true while compiling: everything but false and nil."""
    return value is not None and value is not False


def _result_types(
    evaluator: Evaluator, form: List, environment: Environment
) -> tuple[list[ir.Type] | None, tuple[Form, ...]]:
    """The types of a leading `{:result T}`, if any, and the forms after it."""
    items = form.items[1:]
    if not items or not isinstance(items[0], Map):
        return None, items
    types: list[ir.Type] | None = None
    given = items[0].items
    for key, value in zip(given[::2], given[1::2], strict=False):
        if not isinstance(key, Keyword) or key.name != "result":
            evaluator.site.fail(f"`{show(key)}` stands where :result is wanted", key)
        found = evaluator.evaluate(value, environment)
        many = found if isinstance(found, tuple) else (found,)
        types = [attributes.type_of(evaluator.builder, kind, value) for kind in many]
    return types, items[1:]


@special("if", 2, 4)
def _if(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    types, items = _result_types(evaluator, form, environment)
    if len(items) not in (2, 3):
        evaluator.site.fail(f"`if` is (if condition then else), and this has {len(items)} parts", form)
    return choose(evaluator, types, items[0], items[1:2], items[2:3], form, environment)


@special("when", 1, None)
def _when(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    types, items = _result_types(evaluator, form, environment)
    if not items:
        evaluator.site.fail("`when` is (when condition body…)", form)
    return choose(evaluator, types, items[0], items[1:], (), form, environment)


@special("cond", 2, None)
def _cond(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(cond test value test value :else value)`"""
    types, items = _result_types(evaluator, form, environment)
    if len(items) % 2:
        evaluator.site.fail("`cond` is tests and values in pairs, the last test :else", form)
    return _pairs(evaluator, types, items, form, environment)


def _pairs(
    evaluator: Evaluator, types: list[ir.Type] | None, items: tuple[Form, ...], form: List, environment: Environment
) -> Any:
    if not items:
        return None
    test = items[0]
    if isinstance(test, Keyword) and test.name == "else":
        return evaluator.evaluate(items[1], environment)
    rest: tuple[Form, ...] = ()
    if len(items) > 2:
        rest = (List(form.span, (form.items[0], *(form.items[1:2] if types else ()), *items[2:])),)
        if isinstance(items[2], Keyword) and items[2].name == "else":
            rest = (items[3],)
    return choose(evaluator, types, test, items[1:2], rest, form, environment)


def choose(
    evaluator: Evaluator,
    types: list[ir.Type] | None,
    test: Form,
    then: tuple[Form, ...],
    otherwise: tuple[Form, ...],
    form: List,
    environment: Environment,
) -> Any:
    """One branch while compiling, or an scf.if with both."""
    condition = evaluator.ssa(evaluator.evaluate(test, environment), test)
    if not isinstance(condition, ir.Value):
        return evaluator.body(then if holds(condition) else otherwise, Environment(environment))
    if condition.type != evaluator.builder.i1:
        evaluator.site.fail(f"a condition is an i1, and `{show(test)}` has type {condition.type}", test)
    return _emit_if(evaluator, types, condition, then, otherwise, form, environment)


def _emit_if(
    evaluator: Evaluator,
    types: list[ir.Type] | None,
    condition: ir.Value,
    then: tuple[Form, ...],
    otherwise: tuple[Form, ...],
    form: List,
    environment: Environment,
) -> Any:
    builder = evaluator.builder
    holder = builder.emit("scf.if", [condition], [], {}, form, 2)
    branches = []
    for region, forms in zip(holder.regions, (then, otherwise), strict=True):
        block = ir.Block.create_at_start(region, [])
        value = evaluator.body_in(block, forms, Environment(environment)) if forms else None
        branches.append((block, forms, value))
    if types is None:
        types = _common_types(evaluator, branches) if otherwise else []
    yields = []
    for block, forms, value in branches:
        if not regions.ends(block):
            place = forms[-1] if forms else form
            with builder.at(block):
                yields.append(_yield(evaluator, types, value, place))
    if not types:
        if not otherwise:
            yields[-1].erase()
            _drop_else(evaluator, holder, condition, form)
        return OpResults("if", ())
    operation = builder.emit("scf.if", [condition], types, {}, form, 2)
    for (block, _, _), region in zip(branches, operation.regions, strict=True):
        block.append_to(region)
    holder.erase()
    return operation.results[0] if len(types) == 1 else OpResults("if", operation.results)


def _drop_else(evaluator: Evaluator, holder: Any, condition: ir.Value, form: Form) -> None:
    """Move the one branch to an scf.if without an else region."""
    operation = evaluator.builder.emit("scf.if", [condition], [], {}, form, 2)
    holder.regions[0].blocks[0].append_to(operation.regions[0])
    holder.erase()


def _common_types(evaluator: Evaluator, branches: list[Any]) -> list[ir.Type]:
    """The types of the first branch that has typed values; none where a branch has no value.  Plain reals are f32 in a
    model's entry, as everything that it computes, and f64 in a program."""
    listed = [_listed(value) for _, _, value in branches]
    if any(not values for values in listed) or len({len(values) for values in listed}) > 1:
        return []
    for values in listed:
        if all(isinstance(value, ir.Value) for value in values):
            return [value.type for value in values]
    first = listed[0]
    if all(isinstance(value, (int, float)) for values in listed for value in values):
        real = any(isinstance(value, float) for values in listed for value in values)
        wide = evaluator.builder.f32 if evaluator.states.of(Launches).in_entry else ir.F64Type.get()
        return [wide if real else ir.IntegerType.get_signless(64)] * len(first)
    return []


def _listed(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return list(value)
    return [value] if isinstance(value, (ir.Value, int, float)) else []


def _yield(evaluator: Evaluator, types: list[ir.Type], value: Any, form: Form) -> Any:
    values = _listed(value)[: len(types)]
    if len(values) < len(types):
        wanted = ", ".join(map(str, types))
        evaluator.site.fail(f"this branch gives {describe(value)}, and {wanted} is wanted", form)
    operands = []
    for item, kind in zip(values, types, strict=True):
        if not isinstance(item, ir.Value):
            item = evaluator.builder.constant(item, kind, form)
        if item.type != kind:
            evaluator.site.fail(
                f"the branches of an `if` have one type: this one gives {item.type}, and {kind} is wanted", form
            )
        operands.append(item)
    return evaluator.builder.emit("scf.yield", operands, [], {}, form)


def _define_logic(name: str, op: str, stops: bool) -> None:
    def both(evaluator: Evaluator, one: ir.Value, other: ir.Value, form: Form) -> ir.Value:
        if tensors.is_tensor(one) or tensors.is_tensor(other):
            return tensors.elementwise(evaluator, lambda a, b: both(evaluator, a, b, form), (one, other), form)
        return evaluator.builder.emit(op, [one, other], [evaluator.builder.i1], {}, form)

    @special(name, 0, None)
    def run(evaluator: Evaluator, form: List, environment: Environment) -> Any:
        """Of conditions; of tensors of them, element by element."""
        result: Any = not stops
        for item in form.items[1:]:
            value = evaluator.ssa(evaluator.evaluate(item, environment), item)
            if not isinstance(value, ir.Value):
                if holds(value) == stops and not isinstance(result, ir.Value):
                    return value
                if not isinstance(result, ir.Value):
                    result = value
                    continue
                value = evaluator.builder.constant(holds(value), evaluator.builder.i1, item)
            kind = value.type.element_type if tensors.is_tensor(value) else value.type
            if kind != evaluator.builder.i1:
                evaluator.site.fail(f"`{name}` wants conditions of type i1, and `{show(item)}` has {value.type}", item)
            result = both(evaluator, result, value, form) if isinstance(result, ir.Value) else value
        return result


_define_logic("and", "arith.andi", False)
_define_logic("or", "arith.ori", True)


@special("loop", 1, None)
def _loop(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(loop {:result T}? [x start] :while condition :do next)`: an scf.while; its value is the last x."""
    types, items = _result_types(evaluator, form, environment)
    shape = "(loop {:result T} [x start] :while condition :do next)"
    keys = [item.name for item in items[1:4:2] if isinstance(item, Keyword)]
    if len(items) < 5 or keys != ["while", "do"] or not isinstance(items[0], Vector) or len(items[0].items) % 2:
        evaluator.site.fail(f"a loop is {shape}", form)
    names, starts = items[0].items[::2], items[0].items[1::2]
    values = [evaluator.single(start, environment) for start in starts]
    if types is None:
        types = [value.type if isinstance(value, ir.Value) else evaluator.builder.i64 for value in values]
    if len(types) != len(values) or not all(isinstance(name, Symbol) for name in names):
        evaluator.site.fail(f"a loop has as many types as names: {shape}", form)
    operands = [_start(evaluator, value, kind, start) for value, kind, start in zip(values, types, starts, strict=True)]
    operation = evaluator.builder.emit("scf.while", operands, types, {}, form, 2)
    place = evaluator.site.location(form)
    for region, ends_with, body in zip(
        operation.regions, ("scf.condition", "scf.yield"), (items[2:3], items[4:]), strict=True
    ):
        block = ir.Block.create_at_start(region, types, [place] * len(types))
        scope = Environment(environment)
        for name, argument in zip(names, block.arguments, strict=True):
            assert isinstance(name, Symbol)
            scope.define(name, argument)
        value = evaluator.body_in(block, body, scope)
        with evaluator.builder.at(block):
            if ends_with == "scf.condition":
                value = evaluator.ssa(value, items[2])
                if not isinstance(value, ir.Value):
                    value = evaluator.builder.constant(holds(value), evaluator.builder.i1, items[2])
                evaluator.builder.emit("scf.condition", [value, *block.arguments], [], {}, form)
            elif not regions.ends(block):
                _yield(evaluator, types, value, body[-1])
    return operation.results[0] if len(types) == 1 else OpResults("loop", operation.results)


def _start(evaluator: Evaluator, value: Any, kind: ir.Type, form: Form) -> ir.Value:
    if isinstance(value, (int, float)):
        return evaluator.builder.constant(value, kind, form)
    if not isinstance(value, ir.Value):
        evaluator.site.fail(f"{describe(value)} cannot start a loop", form)
    return value


@special("region", 0, None)
def _region(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    evaluator.site.fail("a `region` is an argument of an op: (scf.execute_region (region …))", form)


@special("block", 0, None)
def _block(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    evaluator.site.fail("a `block` stands in a region: (region (block [(: x i32)] …))", form)
