"""Functions that exist at run time: func.func definitions, foreign declarations, and calls by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import MISSING, Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.parameters import parse_parameters
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Closure, Function, describe
from lispgpt.language.ops import regions
from lispgpt.language.ops.function_table import Functions, register
from lispgpt.language.ops.signatures import coerce
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Symbol, Vector, head_name

_SYMBOL_TABLES = ("builtin.module", "gpu.module")


@special("->", 2, 2)
def _function_type(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(-> [T …] [R …])`; a trailing `...` makes a variadic LLVM function type."""
    _, inputs, results = form.items
    if not isinstance(inputs, Vector) or not isinstance(results, Vector):
        evaluator.site.fail("a function type is (-> [T …] [R …])", form)
    parts = inputs.items
    variadic = bool(parts) and isinstance(parts[-1], Symbol) and parts[-1].name == "..."
    arguments = _types(evaluator, parts[:-1] if variadic else parts, environment)
    returned = _types(evaluator, results.items, environment)
    if not variadic:
        return ir.FunctionType.get(arguments, returned)
    result = ", ".join(map(str, returned)) or "void"
    listed = ", ".join([*map(str, arguments), "..."])
    return attributes.parse_type(evaluator.builder, f"!llvm.func<{result} ({listed})>", form)


def _types(evaluator: Evaluator, forms: tuple[Form, ...], environment: Environment) -> list[ir.Type]:
    return [attributes.type_of(evaluator.builder, evaluator.single(form, environment), form) for form in forms]


@special("defn", 2, None)
def _defn(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    name = form.items[1]
    if not isinstance(name, Symbol):
        evaluator.site.fail("`defn` wants a name: (defn name [x y] body)", name)
    if _is_typed(form):
        _define(evaluator, form, name, environment)
        return None
    parameters = parse_parameters(evaluator.site, form.items[2], "defn")
    environment.define(name, Closure(name.name, parameters, form.items[3:], environment, form))
    return None


def _is_typed(form: List) -> bool:
    """Whether a defn is a function of the program, rather than one that is inlined while compiling."""
    parameters = form.items[2]
    if any(head_name(item) == ":" for item in getattr(parameters, "items", ())):
        return True
    body = form.items[3:]
    if body and isinstance(body[0], Symbol) and body[0].name == "->":
        return True
    empty = isinstance(parameters, Vector) and not parameters.items
    name = form.items[1]
    is_main = isinstance(name, Symbol) and name.name == "main"
    return empty and bool(body) and (is_main or (head_name(body[-1]) or "").endswith(("func.return", "/return")))


def _signature(
    evaluator: Evaluator, form: List, environment: Environment
) -> tuple[list[tuple[Symbol, ir.Type]], list[ir.Type] | None, tuple[Form, ...]]:
    """Parameters, result types (None where they are not written) and body of a typed defn."""
    parameters, body = form.items[2], form.items[3:]
    if not isinstance(parameters, Vector):
        evaluator.site.fail("`defn` wants its parameters in a vector, like [(: x i64)]", parameters)
    pairs = [regions.typed_name(evaluator, item, environment) for item in parameters.items]
    if not (body and isinstance(body[0], Symbol) and body[0].name == "->"):
        return pairs, None, body
    if len(body) < 2:
        evaluator.site.fail("`->` is followed by the result's type", body[0])
    written = body[1].items if isinstance(body[1], Vector) else (body[1],)
    return pairs, _types(evaluator, written, environment), body[2:]


def declare_ahead(evaluator: Evaluator, forms: tuple[Form, ...], environment: Environment) -> None:
    """Make the typed functions of a file known before their bodies are, so that they can call each other."""
    for form in forms:
        head = head_name(form)
        if not isinstance(form, List):
            continue
        if head in ("module", "do"):
            declare_ahead(evaluator, form.items[1:], environment)
        elif head == "defn" and len(form.items) > 2 and isinstance(form.items[1], Symbol) and _is_typed(form):
            names = [item for item in getattr(form.items[2], "items", ()) if isinstance(item, List)]
            types = [item.items[2] for item in names if len(item.items) == 3]
            spelled = [t for t in types if isinstance(t, (Symbol, Literal))]
            if len(spelled) == len(types) and len(form.items) > 4 and isinstance(form.items[4], Symbol):
                _declare_later(evaluator, form, form.items[1].name, environment)


def _declare_later(evaluator: Evaluator, form: List, name: str, environment: Environment) -> None:
    def declared() -> Function:
        pairs, results, _ = _signature(evaluator, form, environment)
        return Function(name, ir.FunctionType.get([kind for _, kind in pairs], results or []))

    evaluator.states.of(Functions).later[name] = declared


def head(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> Any:
    """What a list's head stands for that is a function of the module: one defined later, or inside another scope."""
    return evaluator.states.of(Functions).get(symbol.name) or MISSING


def _define(evaluator: Evaluator, form: List, name: Symbol, environment: Environment) -> None:
    pairs, results, body = _signature(evaluator, form, environment)
    owner = evaluator.builder.insertion.block.owner
    if owner is not None and owner.operation.name not in _SYMBOL_TABLES:
        evaluator.site.fail(f"the function {name.name} is defined inside `{owner.operation.name}`; move it out", form)
    _check_new(evaluator, name.name, form)
    kind = ir.FunctionType.get([kind for _, kind in pairs], results or [])
    attrs = {
        "sym_name": ir.StringAttr.get(name.name),
        "function_type": ir.TypeAttr.get(kind),
        "llvm.emit_c_interface": ir.UnitAttr.get(),
    }
    defined = evaluator.builder.emit("func.func", [], [], attrs, form, 1)
    if results is not None:
        register(evaluator, Function(name.name, kind), name, environment)
    places = [evaluator.site.location(parameter) for parameter, _ in pairs]
    block = ir.Block.create_at_start(defined.regions[0], list(kind.inputs), places)
    scope = Environment(environment)
    for (parameter, _), argument in zip(pairs, block.arguments, strict=True):
        scope.define(parameter, argument)
    with evaluator.states.of(regions.Labels).inside({}):
        value = evaluator.body_in(block, body, scope)
    if not regions.ends(block):
        _return(evaluator, name, results or [], value, block, body[-1] if body else form)
    if results is None:
        last = block.operations[len(block.operations) - 1].operation
        kind = ir.FunctionType.get(list(kind.inputs), [o.type for o in last.operands])
        defined.attributes["function_type"] = ir.TypeAttr.get(kind)
        register(evaluator, Function(name.name, kind), name, environment)
    evaluator.site.verify(defined, form)


def _return(
    evaluator: Evaluator, name: Symbol, results: list[ir.Type], value: Any, block: ir.Block, form: Form
) -> None:
    """Return a body's last value where no func.return was written."""
    values: list[Any] = list(value) if isinstance(value, tuple) else [value]
    if not results:
        values = []
    if len(values) != len(results) or any(v is None for v in values):
        wanted = ", ".join(map(str, results))
        evaluator.site.fail(f"`{name.name}` returns {wanted}, and its body ends with {describe(value)}", form)
    wanted = f"`{name.name}` returns"
    with evaluator.builder.at(block):
        operands = [coerce(evaluator, v, kind, form, wanted) for v, kind in zip(values, results, strict=True)]
        evaluator.builder.emit("func.return", operands, [], {}, form)


def _check_new(evaluator: Evaluator, name: str, form: Form) -> None:
    if name in evaluator.states.of(Functions).defined:
        evaluator.site.fail(f"a second function is called {name}", form)


@special("extern-fn", 2, 2)
def _extern_fn(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    _, name, type_form = form.items
    if not isinstance(name, Symbol):
        evaluator.site.fail("`extern-fn` wants a name and a type: (extern-fn free (-> [!llvm.ptr] []))", name)
    kind = attributes.type_of(evaluator.builder, evaluator.single(type_form, environment), type_form)
    made = declare(evaluator, name.name, kind, form)
    register(evaluator, made, name, environment)
    return None


def declare(evaluator: Evaluator, name: str, kind: ir.Type, form: Form) -> Function:
    """A declaration of a foreign function; llvm.func for a variadic one."""
    functions = evaluator.states.of(Functions)
    known = functions.defined.get(name)
    foreign = not isinstance(kind, ir.FunctionType)
    if name == "printf" and not foreign:
        kind, foreign = attributes.parse_type(evaluator.builder, "!llvm.func<i32 (ptr, ...)>", form), True
    if known is not None:
        if known.type != kind:
            evaluator.site.fail(f"{name} is declared as {kind} here, and as {known.type} before", form)
        return known
    attrs = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(kind)}
    if not foreign:
        attrs["sym_visibility"] = ir.StringAttr.get("private")
    with evaluator.builder.at_module_start():
        evaluator.builder.emit("llvm.func" if foreign else "func.func", [], [], attrs, form, 1)
    made = functions.defined[name] = Function(name, kind, foreign)
    return made


@dataclass
class Libraries:
    """The libraries that a program links, as written, without doubles."""

    linked: list[str] = field(default_factory=list)


@special("link-library", 1, 1)
def _link_library(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    library = form.items[1]
    name = library.name if isinstance(library, Keyword) else library.value if isinstance(library, Literal) else None
    if not isinstance(name, str):
        evaluator.site.fail('`link-library` wants :c or a file: (link-library "libm.so")', library)
    linked = evaluator.states.of(Libraries).linked
    if name not in linked:
        linked.append(name)
    return None


@special("extern", 1, 1)
def _extern(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    evaluator.site.fail("`extern` is not part of the language; (extern-fn name (-> [T] [R])) declares a function", form)


@special("module", 0, None)
def _module(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(module …)`: its forms, into the program's one module."""
    for item in form.items[1:]:
        forms = item.items[1:] if isinstance(item, List) and head_name(item) in ("do", "region") else (item,)
        for inner in forms:
            evaluator.evaluate(inner, environment)
    return None
