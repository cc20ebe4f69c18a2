"""The core forms that are not ops: binding, functions, macros, quoting, choosing, unrolling."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator, as_form
from lispgpt.language.core.numbers import numbers_attribute
from lispgpt.language.core.parameters import check_pattern, destructure, parse_parameters
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Closure, Macro, describe, items_of
from lispgpt.language.forms import native_macros
from lispgpt.language.reader.forms import Form, List, Literal, Mark, Sequence, Symbol, Vector, head_name, show


@special("def", 2, 2)
def _def(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    _, pattern, expression = form.items
    check_pattern(evaluator.site, pattern)
    bind_results(evaluator, pattern, expression, evaluator.evaluate(expression, environment), environment)
    return None


def bind_results(evaluator: Evaluator, pattern: Form, expression: Form, value: Any, scope: Environment) -> None:
    """Bind a name to an expression's one value, or the names of a vector to all its results."""
    if isinstance(pattern, Symbol):
        value = evaluator.value_of(value, expression)
    destructure(evaluator.site, pattern, value, scope)


@special("let", 1, None)
def _let(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    scope = Environment(environment)
    for pattern, expression in binding_pairs(evaluator, form.items[1], "let"):
        bound = evaluator.evaluate(expression, scope)
        if scope.captured:
            scope = Environment(scope)
        bind_results(evaluator, pattern, expression, bound, scope)
    return evaluator.body(form.items[2:], scope)


def binding_pairs(evaluator: Evaluator, form: Form, what: str) -> list[tuple[Form, Form]]:
    """`[name value name value]`"""
    if not isinstance(form, Vector):
        evaluator.site.fail(f"`{what}` wants its bindings in a vector: ({what} [name value …] …)", form)
    if len(form.items) % 2:
        evaluator.site.fail(
            f"`{show(form.items[-1])}` has no value: a `{what}` binds names and values in pairs", form.items[-1]
        )
    pairs = list(zip(form.items[::2], form.items[1::2], strict=True))
    for pattern, _ in pairs:
        check_pattern(evaluator.site, pattern)
    return pairs


@special("do", 0, None)
def _do(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    return evaluator.body(form.items[1:], environment)


@special("fn", 1, None)
def _fn(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    parameters = parse_parameters(evaluator.site, form.items[1], "fn")
    return Closure("fn", parameters, form.items[2:], environment.capture(), form)


@special("defmacro", 1, None)
def _defmacro(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    name = form.items[1]
    if not isinstance(name, Symbol):
        evaluator.site.fail("`defmacro` wants a name: (defmacro name [x] template)", name)
    if len(form.items) == 2:
        native_macros.define(evaluator, name, environment)
        return None
    parameters = parse_parameters(evaluator.site, form.items[2], "defmacro")
    environment.define(name, Macro(name.name, parameters, form.items[3:], environment.capture(), form))
    return None


@special("quote", 1, 1)
def _quote(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    quoted = form.items[1]
    return quoted.value if isinstance(quoted, Literal) else quoted


@special("quasiquote", 1, 1)
def _quasiquote(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    marks: dict[Mark | None, Mark] = {}
    built = _template(evaluator, form.items[1], environment, marks, 1)
    if native_macros.holds_address(built):
        return native_macros.template(evaluator, built, form)
    return built.value if isinstance(built, Literal) else built


def _template(
    evaluator: Evaluator, form: Form, environment: Environment, marks: dict[Mark | None, Mark], depth: int
) -> Form:
    """A template's form with the unquoted parts filled in; its own names are marked as this expansion's."""
    if isinstance(form, Symbol):
        mark = marks.get(form.mark) or marks.setdefault(form.mark, Mark(environment.of_template().capture(), form.mark))
        return Symbol(form.span, form.name, mark)
    if not isinstance(form, Sequence):
        return form
    head = head_name(form)
    if head == "unquote" and len(form.items) == 2:
        if depth == 1:
            return as_form(evaluator.single(form.items[1], environment), form.span)
        depth -= 1
    elif head == "quasiquote":
        depth += 1
    items: list[Form] = []
    for item in form.items:
        if head_name(item) == "splice" and depth == 1 and isinstance(item, List) and len(item.items) == 2:
            value = evaluator.single(item.items[1], environment)
            members = items_of(value)
            if members is None:
                evaluator.site.fail(f"`~@` splices a list, and `{show(item.items[1])}` is {describe(value)}", item)
            items.extend(as_form(member, item.span) for member in members)
        else:
            items.append(_template(evaluator, item, environment, marks, depth))
    return type(form)(form.span, tuple(items))


@special("unquote", 0, None)
def _unquote(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    evaluator.site.fail("`~` has a meaning inside a quasiquoted template `…` only", form)


@special("splice", 0, None)
def _splice(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    evaluator.site.fail("`~@` has a meaning inside a quasiquoted template `…` only", form)


@special("for", 1, None)
def _for(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(for [i (range n)] body…)`: the body once for each member, while compiling; a list of the values."""
    pairs = binding_pairs(evaluator, form.items[1], "for")
    if len(pairs) != 1:
        evaluator.site.fail("`for` goes over one list: (for [i (range n)] …)", form.items[1])
    (pattern, expression) = pairs[0]
    value = evaluator.single(expression, environment)
    members = items_of(value)
    if members is None:
        evaluator.site.fail(f"`for` goes over a list, like (range n), and this is {describe(value)}", expression)
    values = []
    for member in members:
        scope = Environment(environment)
        destructure(evaluator.site, pattern, member, scope)
        values.append(evaluator.body(form.items[2:], scope))
    return tuple(values)


@special("error", 1, 2)
def _error(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    message = evaluator.single(form.items[1], environment)
    place = evaluator.single(form.items[2], environment) if len(form.items) > 2 else form
    evaluator.site.refuse(str(message), place if isinstance(place, Form) else form)


@special(":", 2, 2)
def _typed(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(: 3 i32)` and `(: [1.5 2.5] tensor<2xf32>)`, constant ops; `(: expr T)`, checked."""
    _, value_form, type_form = form.items
    kind = attributes.type_of(evaluator.builder, evaluator.single(type_form, environment), type_form)
    spelled = attributes.typed_attribute(evaluator.builder, value_form, kind)
    if spelled is not None:
        return evaluator.builder.emit("arith.constant", [], [kind], {"value": spelled}, form)
    value = evaluator.ssa(evaluator.evaluate(value_form, environment), value_form)
    if isinstance(value, (bool, int, float)):
        return evaluator.builder.constant(value, kind, form)
    if isinstance(value, tuple) and value and all(isinstance(one, (bool, int, float)) for one in value):
        numbers = numbers_attribute(evaluator.site, value, kind, form)
        return evaluator.builder.emit("arith.constant", [], [kind], {"value": numbers}, form)
    if isinstance(value, ir.Value):
        if value.type != kind:
            evaluator.site.fail(f"`{show(value_form)}` has type {value.type}, and not {kind}", form)
        return value
    evaluator.site.fail(f"`{show(value_form)}` is {describe(value)}, of which there is no constant", value_form)
