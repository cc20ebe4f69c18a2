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
from lispgpt.language.core.values import Closure, Function, LaterFunction, describe
from lispgpt.language.ops import regions
from lispgpt.language.ops.function_table import Functions, register
from lispgpt.language.ops.signatures import coerce, foreign_type
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Symbol, Vector, head_name, show

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
    if len(returned) > 1:
        evaluator.site.fail("a variadic function has at most one result", results)
    return foreign_type(evaluator, arguments, returned, True, form)


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
    environment.define(name, Closure(name.name, parameters, form.items[3:], environment.capture(), form))
    return None


def _is_typed(form: List) -> bool:
    """Whether a defn is a function of the program, rather than one that is inlined while compiling."""
    parameters = form.items[2]
    if any(head_name(item) == ":" for item in getattr(parameters, "items", ())):
        return True
    body = form.items[3:]
    if _written_results(body) is not None:
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
    written = _written_results(body)
    if written is None:
        return pairs, None, body
    results, rest = written
    if results is None:
        evaluator.site.fail("`->` is followed by the result's type", body[0])
    return pairs, _types(evaluator, results, environment), rest


def _written_results(body: tuple[Form, ...]) -> tuple[tuple[Form, ...] | None, tuple[Form, ...]] | None:
    """The result types and the rest of a body that starts with `-> T`, `-> [T …]` or `[-> T …]`; None where it starts
    with neither, and None for the types of a `->` with nothing behind it."""
    first = body[0] if body else None
    if isinstance(first, Vector) and first.items and _is_arrow(first.items[0]):
        return first.items[1:], body[1:]
    if not _is_arrow(first):
        return None
    if len(body) < 2:
        return None, ()
    return (body[1].items if isinstance(body[1], Vector) else (body[1],)), body[2:]


def _is_arrow(form: Form | None) -> bool:
    return isinstance(form, Symbol) and form.name == "->"


def declare_ahead(evaluator: Evaluator, forms: tuple[Form, ...], environment: Environment) -> None:
    """Make the typed functions of a file known before their bodies are, so that they can call each other."""
    for form in forms:
        head = head_name(form)
        if not isinstance(form, List):
            continue
        if head in ("module", "do"):
            declare_ahead(evaluator, form.items[1:], environment)
        elif head == "defn" and len(form.items) > 2 and isinstance(form.items[1], Symbol) and _is_typed(form):
            _declare_later(evaluator, form, form.items[1], environment)


def _declare_later(evaluator: Evaluator, form: List, symbol: Symbol, environment: Environment) -> None:
    name = symbol.name
    environment.capture()

    def declared() -> Function:
        pairs, results, _ = _signature(evaluator, form, environment)
        if results is None:
            evaluator.site.fail(f"`{name}` is called before its result type is known; write it: {_model(form)}", symbol)
        return Function(name, ir.FunctionType.get([kind for _, kind in pairs], results))

    evaluator.states.of(Functions).later[name] = declared
    environment.define(symbol, LaterFunction(name))


def _model(form: List) -> str:
    """How a typed function is written, for a message."""
    return f"(defn {show(form.items[1])} {show(form.items[2])} -> T …)"


def call_later(evaluator: Evaluator, named: LaterFunction, arguments: list[Any], form: Form) -> Any:
    """Call a function by a name whose definition comes later, or is just being evaluated."""
    return evaluator.call(evaluator.states.of(Functions).get(named.name), arguments, form)


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
    if results is None:
        _declare_later(evaluator, form, name, environment)
    else:
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


@special("module", 0, None)
def _module(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(module …)`: its forms, into the program's one module."""
    for item in form.items[1:]:
        forms = item.items[1:] if isinstance(item, List) and head_name(item) in ("do", "region") else (item,)
        for inner in forms:
            evaluator.evaluate(inner, environment)
    return None
