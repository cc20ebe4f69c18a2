"""Macros that are native code, as Lispier has them: a func.func on forms, compiled and called while compiling.

(extern :value-ffi)
(func.func {:sym_name "twice" :function_type (-> [!llvm.ptr] [!llvm.ptr])}
  (region (block [(: forms !llvm.ptr)] … (func.return `(arith.addi ~x ~x)))))
(defmacro twice)

The function gets the address of the list of its arguments and returns that of the form to evaluate (see
`reader.handles`).  A template in it becomes the calls that build the form when the function runs: where it stands if it
holds such an address, else where an address is wanted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import execution_engine, ir, passmanager
from lispgpt.ir.structure import nested_operations
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import special
from lispgpt.language.core.values import Macro, Special, describe
from lispgpt.language.forms import calls, functions, modules
from lispgpt.language.forms.structs import Strings, string_pointer
from lispgpt.language.ops.function_table import Functions
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Symbol, Value, Vector
from lispgpt.language.reader.handles import PREFIX, FormHandles

INTERFACE = "value-ffi"
LOWERING = "builtin.module(convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts)"
_libc = ctypes.CDLL(None)


@dataclass
class Natives:
    """declared: whether the program uses the interface.  names: the functions that are macros.  engines: their code."""

    declared: bool = False
    names: list[str] = field(default_factory=list)
    engines: list[Any] = field(default_factory=list)


@special("extern", 1, 1)
def _extern(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(extern :value-ffi)`: forms can be handled by native code."""
    name = form.items[1]
    if not isinstance(name, Keyword) or name.name != INTERFACE:
        ways = '(link-library "lib.so") loads functions of yours, and (extern-fn name (-> [T] [R])) declares one'
        evaluator.site.fail(f"no functions but :{INTERFACE} are built in; {ways}", form)
    evaluator.states.of(Natives).declared = True
    return None


def define(evaluator: Evaluator, symbol: Symbol, environment: Environment) -> None:
    """`(defmacro name)`: from here on the function of this name is a macro."""
    name, natives = symbol.name, evaluator.states.of(Natives)
    pointer = attributes.parse_type(evaluator.builder, "!llvm.ptr", symbol)
    found = evaluator.states.of(Functions).defined.get(name)
    if found is None or found.type != ir.FunctionType.get([pointer], [pointer]):
        has = "there is none before this" if found is None else f"this one is {found.type}"
        wanted = f"a function {name} of type (!llvm.ptr) -> !llvm.ptr"
        evaluator.site.fail(f"`(defmacro {name})` makes {wanted} a macro, and {has}", symbol)
    handles = FormHandles()
    natives.names += [op for op in _needed(evaluator.builder.module, name) if op not in natives.names]
    expand = _compiled(evaluator, name, handles, symbol)

    def run(evaluator: Evaluator, form: List, environment: Environment) -> Any:
        expanded = _expansion(evaluator, name, expand, handles, form)
        with evaluator.site.frame(name, form):
            return evaluator.evaluate(expanded, environment)

    environment.define(symbol, Special(name, run))


def _expansion(
    evaluator: Evaluator, name: str, expand: Callable[[int], int | None], handles: FormHandles, form: List
) -> Form:
    """What the native code makes of a macro call."""
    address = expand(handles.give(List(form.span, form.items[1:])))
    expanded = handles.take(address, form.span)
    if handles.error is not None:
        problem, handles.error = handles.error, None
        evaluator.site.fail(f"the macro `{name}` failed: {problem}", form)
    if expanded is None:
        evaluator.site.fail(f"the macro `{name}` gave no form", form)
    return expanded


def _compiled(evaluator: Evaluator, name: str, handles: FormHandles, form: Form) -> Callable[[int], int | None]:
    """A function of the module, and those that it calls, as native code from address to address."""
    needed = _needed(evaluator.builder.module, name)
    module = ir.Module.create(evaluator.builder.unknown)
    for operation in needed.values():
        module.body.append(operation.clone())
    try:
        passmanager.PassManager.parse(LOWERING).run(module.operation)
    except ir.MLIRError as error:
        raise evaluator.site.diagnosed(error, form) from None
    addresses = {}
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "llvm.func" and not list(operation.regions[0].blocks):
            called = ir.StringAttr(operation.attributes["sym_name"]).value
            function = handles.functions().get(called) or getattr(_libc, called, None)
            if function is None:
                evaluator.site.fail(f"the macro `{name}` calls {called}, which is nowhere while compiling", form)
            addresses[called] = ctypes.cast(function, ctypes.c_void_p)
    engine = execution_engine.ExecutionEngine(module, opt_level=1)
    for called, address in addresses.items():
        engine.raw_register_runtime(called, address)
    engine.initialize()
    packed_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup(name))

    def expand(address: int) -> int | None:
        given, result = ctypes.c_void_p(address), ctypes.c_void_p()
        packed = (ctypes.c_void_p * 2)(ctypes.addressof(given), ctypes.addressof(result))
        packed_function(ctypes.addressof(packed))
        return result.value

    evaluator.states.of(Natives).engines.append(engine)
    return expand


def _needed(module: ir.Module, name: str) -> dict[str, ir.Operation]:
    """The ops of a module that a symbol's op refers to, itself included, by their symbols."""
    ops = {
        op.operation.attributes["sym_name"].value: op.operation
        for op in module.body.operations
        if "sym_name" in op.operation.attributes
    }
    found: dict[str, ir.Operation] = {}
    waiting = [name]
    while waiting:
        symbol = waiting.pop()
        if symbol in found or symbol not in ops:
            continue
        found[symbol] = ops[symbol]
        for nested in nested_operations(ops[symbol]):
            attributes_of = [nested.attributes[i].attr for i in range(len(nested.attributes))]
            waiting += [a.value for a in attributes_of if isinstance(a, ir.FlatSymbolRefAttr)]
    return found


@special("require-macros", 1, None)
def _require_macros(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(require-macros "file")`: the macros of a file; its functions stay out of the program."""
    for item in form.items[1:]:
        with _apart(evaluator):
            required = modules.load(evaluator, modules.path_of(evaluator, item), item)
        macros = {name: value for name, value in required.names.items() if isinstance(value, (Macro, Special))}
        environment.names.update(macros)
    return None


@contextmanager
def _apart(evaluator: Evaluator) -> Iterator[None]:
    """Emit into a module of its own, with functions and texts of its own, for a while."""
    states, builder = [evaluator.states.of(kind) for kind in (Functions, Strings)], evaluator.builder
    kept = [dict(vars(state)) for state in states]
    module, builder.module = builder.module, ir.Module.create(builder.unknown)
    for state in states:
        vars(state).update({name: type(value)() for name, value in vars(state).items()})
    try:
        with builder.at(builder.module.body):
            yield
    finally:
        builder.module = module
        for state, values in zip(states, kept, strict=True):
            vars(state).update(values)


def take_out(evaluator: Evaluator) -> None:
    """Leave out of the finished module what only macros use."""
    natives = evaluator.states.of(Natives)
    if not natives.names:
        return
    for op in evaluator.builder.module.body.operations:
        symbol = op.operation.attributes["sym_name"].value if "sym_name" in op.operation.attributes else None
        if symbol in natives.names and symbol != "main":
            op.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
    passmanager.PassManager.parse("builtin.module(symbol-dce)").run(evaluator.builder.module.operation)


def template(evaluator: Evaluator, value: Any, form: Form) -> Any:
    """What a template is where a value at run time is wanted: the address that calls give which build the form.

    Of a program without `(extern :value-ffi)`, and of what is no template, it is the value itself.
    """
    if not isinstance(value, (List, Vector, Symbol, Keyword, Value)) or not evaluator.states.of(Natives).declared:
        return value
    return _built(evaluator, value, form)


def holds_address(form: Form) -> bool:
    """Whether a template has an address of native code in it."""
    if isinstance(form, (List, Vector)):
        return any(holds_address(item) for item in form.items)
    value = form.value if isinstance(form, Value) else None
    return isinstance(value, ir.Value) and str(value.type) == "!llvm.ptr"


def _built(evaluator: Evaluator, part: Form, form: Form) -> Any:
    match part:
        case List() | Vector():
            made = _call(evaluator, "list_new" if isinstance(part, List) else "vector_new", [], form)
            for item in part.items:
                _call(evaluator, "list_push", [made, _built(evaluator, item, form)], form)
            return made
        case Symbol() | Keyword():
            name = string_pointer(evaluator, part.name, form)
            return _call(evaluator, "symbol_new" if isinstance(part, Symbol) else "keyword_new", [name], form)
        case Literal(value=str() as text):
            return _call(evaluator, "string_new", [string_pointer(evaluator, text, form)], form)
        case Literal(value=None):
            return _call(evaluator, "nil_new", [], form)
        case Literal(value=bool() as truth):
            return _call(evaluator, "bool_new", [int(truth)], form)
        case Literal(value=int() | float() as number):
            return _call(evaluator, "number_new", [float(number)], form)
        case Value(value=ir.Value() as value):
            return value
    evaluator.site.fail(f"a template in native code cannot hold {describe(part)}", form)


_TYPES = {
    "list_new": "() -> !llvm.ptr",
    "vector_new": "() -> !llvm.ptr",
    "list_push": "(!llvm.ptr, !llvm.ptr) -> ()",
    "symbol_new": "(!llvm.ptr) -> !llvm.ptr",
    "keyword_new": "(!llvm.ptr) -> !llvm.ptr",
    "string_new": "(!llvm.ptr) -> !llvm.ptr",
    "nil_new": "() -> !llvm.ptr",
    "bool_new": "(i1) -> !llvm.ptr",
    "number_new": "(f64) -> !llvm.ptr",
}


def _call(evaluator: Evaluator, name: str, arguments: list[Any], form: Form) -> Any:
    kind = attributes.parse_type(evaluator.builder, _TYPES[name], form)
    found = evaluator.states.of(Functions).get(PREFIX + name) or functions.declare(evaluator, PREFIX + name, kind, form)
    return calls.call(evaluator, found, arguments, form)
