"""`defstruct`, `new`, and printing through printf in programs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import Builtin, Struct, describe, items_of
from lispgpt.language.forms import calls, functions
from lispgpt.language.ops import signatures
from lispgpt.language.ops.function_table import Functions
from lispgpt.language.reader.forms import Form, List, Symbol, Vector, show


@special("defstruct", 2, None)
def _defstruct(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(defstruct Name [field T] …)`: `(new Name)`, `(Name/field p)`, `(Name/field! p v)`."""
    name = form.items[1]
    if not isinstance(name, Symbol):
        evaluator.site.fail("`defstruct` wants a name: (defstruct Point [x i64] [y i64])", name)
    fields: list[tuple[str, ir.Type]] = []
    for item in form.items[2:]:
        if not isinstance(item, Vector) or len(item.items) != 2 or not isinstance(item.items[0], Symbol):
            evaluator.site.fail(f"`{show(item)}` is not a field, like [x i64]", item)
        kind = attributes.type_of(evaluator.builder, evaluator.single(item.items[1], environment), item.items[1])
        fields.append((item.items[0].name, kind))
    body = ", ".join(str(kind) for _, kind in fields)
    made = Struct(name.name, attributes.parse_type(evaluator.builder, f"!llvm.struct<({body})>", form))
    environment.define(name, made)
    for position, (member, kind) in enumerate(fields):
        _define_field(environment, made, name, member, position, kind)
    return None


def _define_field(
    environment: Environment, struct: Struct, name: Symbol, field: str, position: int, kind: ir.Type
) -> None:
    def read(evaluator: Evaluator, form: Form, pointer: Any) -> Any:
        place = element_pointer(evaluator, pointer, struct.type, [0, position], form)
        return evaluator.builder.emit("llvm.load", [place], [kind], {}, form)

    def write(evaluator: Evaluator, form: Form, pointer: Any, value: Any) -> Any:
        place = element_pointer(evaluator, pointer, struct.type, [0, position], form)
        value = signatures.coerce(evaluator, value, kind, form, f"{name.name}/{field} holds")
        evaluator.builder.emit("llvm.store", [value, place], [], {}, form)
        return None

    for spelled, run, count in ((f"{name.name}/{field}", read, 1), (f"{name.name}/{field}!", write, 2)):
        environment.define(Symbol(name.span, spelled, name.mark), Builtin(spelled, run, count, count))


def element_pointer(evaluator: Evaluator, pointer: Any, kind: ir.Type, indices: list[int], form: Form) -> ir.Value:
    """llvm.getelementptr with constant indices."""
    pointer = evaluator.ssa(pointer, form)
    llvm_pointer = attributes.parse_type(evaluator.builder, "!llvm.ptr", form)
    if not isinstance(pointer, ir.Value) or pointer.type != llvm_pointer:
        evaluator.site.fail(f"a pointer is wanted in `{show(form)}`, and this is {describe(pointer)}", form)
    attrs = {
        "elem_type": ir.TypeAttr.get(kind),
        "rawConstantIndices": ir.DenseI32ArrayAttr.get(indices),
    }
    return evaluator.builder.emit("llvm.getelementptr", [pointer], [llvm_pointer], attrs, form)


@builtin("new", 1, 1)
def _new(evaluator: Evaluator, form: Form, struct: Any) -> Any:
    """`(new Name)`: a pointer to memory for a struct, from malloc."""
    if not isinstance(struct, Struct):
        evaluator.site.fail(f"`new` wants a struct, and got {describe(struct)}", form)
    pointer = attributes.parse_type(evaluator.builder, "!llvm.ptr", form)
    malloc = evaluator.states.of(Functions).get("malloc")
    if malloc is None:
        malloc = functions.declare(evaluator, "malloc", ir.FunctionType.get([evaluator.builder.i64], [pointer]), form)
    zero = evaluator.builder.emit("llvm.mlir.zero", [], [pointer], {}, form)
    end = element_pointer(evaluator, zero, struct.type, [1], form)
    size = evaluator.builder.emit("llvm.ptrtoint", [end], [evaluator.builder.i64], {}, form)
    return calls.call(evaluator, malloc, [size], form)


@dataclass
class Strings:
    """The constants of a module that hold texts: their names."""

    names: dict[str, str] = field(default_factory=dict)


def string_pointer(evaluator: Evaluator, text: str, form: Form) -> ir.Value:
    """The address of a constant with these characters and a NUL."""
    names = evaluator.states.of(Strings).names
    name = names.get(text)
    size = len(text.encode()) + 1
    if name is None:
        name = names[text] = f"string.{len(names)}"
        attrs = {
            "sym_name": ir.StringAttr.get(name),
            "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
            "global_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{size} x i8>")),
            "value": ir.StringAttr.get(text + "\0"),
            "addr_space": ir.IntegerAttr.get(evaluator.builder.i32, 0),
            "constant": ir.UnitAttr.get(),
        }
        with evaluator.builder.at_module_start():
            evaluator.builder.emit("llvm.mlir.global", [], [], attrs, form, 1)
    reference = {"global_name": ir.FlatSymbolRefAttr.get(name)}
    pointer = attributes.parse_type(evaluator.builder, "!llvm.ptr", form)
    return evaluator.builder.emit("llvm.mlir.addressof", [], [pointer], reference, form)


def print_format(evaluator: Evaluator, form: Form, name: str, end: str, text: Any = "", *arguments: Any) -> None:
    """A call of printf with a format, behind which stands an end, and what it takes; name: of the form."""
    listed = items_of(text)
    if listed and not arguments:
        text, *arguments = listed  # type: ignore[assignment]
    if not isinstance(text, str):
        evaluator.site.fail(f"`{name}` wants a format in quotes first, and got {describe(text)}", form)
    text += end
    _check_format(evaluator, text, len(arguments), form)
    kind = attributes.parse_type(evaluator.builder, "!llvm.func<i32 (ptr, ...)>", form)
    printf = evaluator.states.of(Functions).get("printf") or functions.declare(evaluator, "printf", kind, form)
    values = [string_pointer(evaluator, a, form) if isinstance(a, str) else a for a in arguments]
    calls.call(evaluator, printf, [string_pointer(evaluator, text, form), *values], form)


_CONVERSION = re.compile(r"%([-+ #0']*(?:\*|\d*)(?:\.(?:\*|\d*))?)(?:hh|h|ll|l|j|z|t|L)?([a-zA-Z%])")
"""What printf takes an argument for, and one more for each `*`; `%%` takes none."""


def _check_format(evaluator: Evaluator, text: str, given: int, form: Form) -> None:
    conversions = [found for found in _CONVERSION.finditer(text) if found[2] != "%"]
    wanted = sum(1 + found[1].count("*") for found in conversions)
    message = f"the format asks for {wanted} argument{'s' * (wanted != 1)} and gets {given}"
    if wanted > given:
        evaluator.site.fail(message, form)
    if wanted < given:
        evaluator.site.warn(f"{message}; the last are not printed", form)


@builtin("print-i64", 1, 1)
def _print_i64(evaluator: Evaluator, form: Form, value: Any) -> Any:
    return print_format(evaluator, form, "print-i64", "", "%ld", value)
