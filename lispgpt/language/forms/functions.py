"""Functions that exist at run time: func.func definitions, foreign declarations, and calls by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.parameters import parse_parameters
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Closure, Function, Special, describe
from lispgpt.language.ops import attributes, regions
from lispgpt.language.ops.signatures import coerce
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Symbol, Vector, head_name

if TYPE_CHECKING:
    from lispgpt.language.core.evaluator import Evaluator

_SYMBOL_TABLES = ("builtin.module", "gpu.module")


@special("->", 2, 2)
def _function_type(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(-> [T …] [R …])`; a trailing `...` makes a variadic LLVM function type."""
    _, inputs, results = form.items
    if not isinstance(inputs, Vector) or not isinstance(results, Vector):
        evaluator.fail("a function type is (-> [T …] [R …])", form)
    parts = inputs.items
    variadic = bool(parts) and isinstance(parts[-1], Symbol) and parts[-1].name == "..."
    arguments = _types(evaluator, parts[:-1] if variadic else parts, environment)
    returned = _types(evaluator, results.items, environment)
    if not variadic:
        return ir.FunctionType.get(arguments, returned)
    result = ", ".join(map(str, returned)) or "void"
    listed = ", ".join([*map(str, arguments), "..."])
    return attributes.parse_type(evaluator, f"!llvm.func<{result} ({listed})>", form)


def _types(evaluator: Evaluator, forms: tuple[Form, ...], environment: Environment) -> list[ir.Type]:
    return [attributes.type_of(evaluator, evaluator.single(form, environment), form) for form in forms]


@special("defn", 2, None)
def _defn(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    name = form.items[1]
    if not isinstance(name, Symbol):
        evaluator.fail("`defn` wants a name: (defn name [x y] body)", name)
    if _is_typed(form):
        _define(evaluator, form, name, environment)
        return None
    parameters = parse_parameters(evaluator, form.items[2], "defn")
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
        evaluator.fail("`defn` wants its parameters in a vector, like [(: x i64)]", parameters)
    pairs = [regions.typed_name(evaluator, item, environment) for item in parameters.items]
    if not (body and isinstance(body[0], Symbol) and body[0].name == "->"):
        return pairs, None, body
    if len(body) < 2:
        evaluator.fail("`->` is followed by the result's type", body[0])
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
                evaluator.ahead[form.items[1].name] = (form, environment)


def function(evaluator: Evaluator, name: str) -> Function | None:
    """The function of a name, also where its definition comes later in the file."""
    found = evaluator.functions.get(name)
    if found is None and name in evaluator.ahead:
        form, environment = evaluator.ahead[name]
        pairs, results, _ = _signature(evaluator, form, environment)
        found = Function(name, ir.FunctionType.get([kind for _, kind in pairs], results or []))
    return found


def _define(evaluator: Evaluator, form: List, name: Symbol, environment: Environment) -> None:
    pairs, results, body = _signature(evaluator, form, environment)
    owner = evaluator.insertion.block.owner
    if owner is not None and owner.operation.name not in _SYMBOL_TABLES:
        evaluator.fail(f"the function {name.name} is defined inside `{owner.operation.name}`; move it out", form)
    _check_new(evaluator, name.name, form)
    kind = ir.FunctionType.get([kind for _, kind in pairs], results or [])
    attrs = {
        "sym_name": ir.StringAttr.get(name.name),
        "function_type": ir.TypeAttr.get(kind),
        "llvm.emit_c_interface": ir.UnitAttr.get(),
    }
    defined = evaluator.emitter.emit("func.func", [], [], attrs, form, 1)
    if results is not None:
        register(evaluator, Function(name.name, kind), name, environment)
    places = [evaluator.location(parameter) for parameter, _ in pairs]
    block = ir.Block.create_at_start(defined.regions[0], list(kind.inputs), places)
    scope = Environment(environment)
    for (parameter, _), argument in zip(pairs, block.arguments, strict=True):
        scope.define(parameter, argument)
    evaluator.blocks.append({})
    value = regions.evaluate_in(evaluator, block, body, scope)
    evaluator.blocks.pop()
    if not regions.ends(block):
        _return(evaluator, name, results or [], value, block, body[-1] if body else form)
    if results is None:
        last = block.operations[len(block.operations) - 1].operation
        kind = ir.FunctionType.get(list(kind.inputs), [o.type for o in last.operands])
        defined.attributes["function_type"] = ir.TypeAttr.get(kind)
        register(evaluator, Function(name.name, kind), name, environment)
    evaluator.verify(defined, form)


def _return(
    evaluator: Evaluator, name: Symbol, results: list[ir.Type], value: Any, block: ir.Block, form: Form
) -> None:
    """Return a body's last value where no func.return was written."""
    outside, evaluator.insertion = evaluator.insertion, ir.InsertionPoint(block)
    values: list[Any] = list(value) if isinstance(value, tuple) else [value]
    if not results:
        values = []
    if len(values) != len(results) or any(v is None for v in values):
        wanted = ", ".join(map(str, results))
        evaluator.fail(f"`{name.name}` returns {wanted}, and its body ends with {describe(value)}", form)
    operands = [
        coerce(evaluator, v, kind, form, f"`{name.name}` returns") for v, kind in zip(values, results, strict=True)
    ]
    evaluator.emitter.emit("func.return", operands, [], {}, form)
    evaluator.insertion = outside


def _check_new(evaluator: Evaluator, name: str, form: Form) -> None:
    if name in evaluator.functions:
        evaluator.fail(f"a second function is called {name}", form)


def register(evaluator: Evaluator, made: Function, symbol: Symbol, environment: Environment) -> None:
    """Make a function callable by its name."""
    evaluator.functions[made.name] = made
    if not isinstance(environment.lookup(symbol), Special):
        environment.define(symbol, made)


def register_op(evaluator: Evaluator, operation: Any, form: List, environment: Environment) -> None:
    """Make a func.func or llvm.func that was written as an op callable by its name."""
    if "sym_name" not in operation.attributes or "function_type" not in operation.attributes:
        return
    name = ir.StringAttr(operation.attributes["sym_name"]).value
    kind = ir.TypeAttr(operation.attributes["function_type"]).value
    made = Function(name, kind, operation.name == "llvm.func")
    register(evaluator, made, Symbol(form.span, name), _file_scope(environment))


def _file_scope(environment: Environment) -> Environment:
    while environment.outer is not None and environment.outer.outer is not None:
        environment = environment.outer
    return environment


@special("extern-fn", 2, 2)
def _extern_fn(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    _, name, type_form = form.items
    if not isinstance(name, Symbol):
        evaluator.fail("`extern-fn` wants a name and a type: (extern-fn free (-> [!llvm.ptr] []))", name)
    kind = attributes.type_of(evaluator, evaluator.single(type_form, environment), type_form)
    made = declare(evaluator, name.name, kind, form)
    register(evaluator, made, name, environment)
    return None


def declare(evaluator: Evaluator, name: str, kind: ir.Type, form: Form) -> Function:
    """A declaration of a foreign function; llvm.func for a variadic one."""
    known = evaluator.functions.get(name)
    foreign = not isinstance(kind, ir.FunctionType)
    if name == "printf" and not foreign:
        kind, foreign = attributes.parse_type(evaluator, "!llvm.func<i32 (ptr, ...)>", form), True
    if known is not None:
        if known.type != kind:
            evaluator.fail(f"{name} is declared as {kind} here, and as {known.type} before", form)
        return known
    attrs = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(kind)}
    if not foreign:
        attrs["sym_visibility"] = ir.StringAttr.get("private")
    outside, evaluator.insertion = evaluator.insertion, ir.InsertionPoint.at_block_begin(evaluator.module.body)
    evaluator.emitter.emit("llvm.func" if foreign else "func.func", [], [], attrs, form, 1)
    evaluator.insertion = outside
    made = Function(name, kind, foreign)
    evaluator.functions[name] = made
    return made


@special("link-library", 1, 1)
def _link_library(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    library = form.items[1]
    name = library.name if isinstance(library, Keyword) else library.value if isinstance(library, Literal) else None
    if not isinstance(name, str):
        evaluator.fail('`link-library` wants :c or a file: (link-library "libm.so")', library)
    if name not in evaluator.libraries:
        evaluator.libraries.append(name)
    return None


@special("extern", 1, 1)
def _extern(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    evaluator.fail("`extern` is not part of the language; (extern-fn name (-> [T] [R])) declares a function", form)


@special("module", 0, None)
def _module(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(module …)`: its forms, into the program's one module."""
    for item in form.items[1:]:
        forms = item.items[1:] if isinstance(item, List) and head_name(item) in ("do", "region") else (item,)
        for inner in forms:
            evaluator.evaluate(inner, environment)
    return None
