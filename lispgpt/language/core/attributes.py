"""Types and attributes: from symbols and strings that spell them, and from compile-time values."""

from __future__ import annotations

import re
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.builder import Builder
from lispgpt.language.core.numbers import number_attribute
from lispgpt.language.core.values import describe
from lispgpt.language.reader.forms import Form, Keyword, Literal, Symbol, show

_SIMPLE_TYPE = re.compile(r"(index|none|bf16|tf32|f\d+\w*|[su]?i\d+)\Z")
_TYPE_OPENING = re.compile(r"(memref|tensor|vector|tuple|complex|!.*)\s*<|!")
_ATTRIBUTE_OPENING = re.compile(
    r"#|(array|dense|dense_resource|sparse|affine_map|affine_set|strided|opaque|loc|distinct|complex)\s*[<\[(]"
)


def parse_symbol(builder: Builder, symbol: Symbol) -> Any:
    """The type or attribute that a symbol spells, or None where it is an ordinary name."""
    text = symbol.name
    if _SIMPLE_TYPE.match(text) or _TYPE_OPENING.match(text):
        return parse_type(builder, text, symbol)
    if _ATTRIBUTE_OPENING.match(text):
        return parse_attribute(builder, text, symbol)
    if text.startswith("@") and len(text) > 1:
        return symbol_reference(builder, text, symbol)
    return None


NARROW = re.compile(r"(?<![a-wyz])(f32|bf16|f16)\b")
"""Floats in a type's text, those behind a dimension's `x` among them."""


def parse_type(builder: Builder, text: str, form: Form) -> ir.Type:
    """A type as MLIR writes it."""
    found = builder.spelled.get(text)
    if found is None:
        _check_text(builder, text, form, "type")
        try:
            found = ir.Type.parse(NARROW.sub("f64", text) if builder.wide else text, builder.context)
        except ir.MLIRError as error:
            builder.site.fail(f"`{text}` is not a type: {_first_message(error)}", form)
        builder.spelled[text] = found
    if not isinstance(found, ir.Type):
        builder.site.fail(f"`{text}` is an attribute, and a type is wanted here", form)
    return found


def parse_attribute(builder: Builder, text: str, form: Form) -> ir.Attribute:
    """An attribute as MLIR writes it; spaces do for the commas of `array<i32: 0 1>`."""
    found = builder.spelled.get(text)
    if found is None:
        _check_text(builder, text, form, "attribute")
        spelled = text
        match = re.match(r"array<\s*(\w+)\s*:(.*)>\Z", text, re.S)
        if match:
            spelled = f"array<{match[1]}: {', '.join(match[2].replace(',', ' ').split())}>"
        if re.match(r"dense\s*<[^:]*>\Z", text):
            builder.site.fail(f"`{text}` needs its type: (: {text} tensor<…>)", form)
        try:
            found = ir.Attribute.parse(spelled, builder.context)
        except ir.MLIRError as error:
            builder.site.fail(f"`{text}` is not an attribute: {_first_message(error)}", form)
        builder.spelled[text] = found
    return found


def _check_text(builder: Builder, text: str, form: Form, what: str) -> None:
    """Turn away what MLIR's parser would not report but abort on: text without a token, and comments."""
    if not any(character.isalnum() for character in text) or "//" in text or "\0" in text:
        builder.site.fail(f"`{text}` is not the text of {'an' if what[0] == 'a' else 'a'} {what}", form)


def symbol_reference(builder: Builder, text: str, form: Form) -> ir.Attribute:
    """`@name` or `@module::@name`."""
    parts = text.split("::")
    if any(not part.startswith("@") or len(part) < 2 for part in parts):
        builder.site.fail(f"`{text}` is not a symbol reference; write @name or @module::@name", form)
    names = [part[1:].strip('"') for part in parts]
    if len(names) == 1:
        return ir.FlatSymbolRefAttr.get(names[0], builder.context)
    return ir.SymbolRefAttr.get(names, builder.context)


def type_of(builder: Builder, value: Any, form: Form) -> ir.Type:
    """A value that should be a type, or a string that spells one."""
    if isinstance(value, ir.Type):
        return value
    if isinstance(value, str):
        return parse_type(builder, value, form)
    if isinstance(value, ir.TypeAttr):
        return value.value
    builder.site.fail(f"a type is wanted here, and `{show(form)}` is {describe(value)}", form)


def typed_attribute(builder: Builder, form: Form, kind: ir.Type) -> ir.Attribute | None:
    """`(: dense<…> T)`: the attribute that a symbol or string spells together with its type; None for other forms."""
    text = form.name if isinstance(form, Symbol) else literal(form)
    if isinstance(text, str) and re.match(r"(dense|dense_resource|sparse)\s*<", text):
        return parse_attribute(builder, f"{text} : {kind}", form)
    return None


def from_value(builder: Builder, value: Any, form: Form, key: str = "") -> ir.Attribute:
    """The attribute for a compile-time value: integers are i64, reals f64, types TypeAttr, lists arrays."""
    match value:
        case ir.Attribute():
            return value
        case ir.Type():
            return ir.TypeAttr.get(value, builder.context)
        case bool():
            return ir.UnitAttr.get(builder.context) if value and "." in key else ir.BoolAttr.get(value)
        case int():
            return number_attribute(builder.site, value, builder.i64, form)
        case float():
            return ir.FloatAttr.get(builder.f64, value, builder.unknown)
        case str():
            return _from_string(builder, value, form, key)
        case tuple():
            if key == "iterator_types":
                value = tuple(_iterator(builder, v, form) for v in value)
            return ir.ArrayAttr.get([from_value(builder, v, form) for v in value], builder.context)
        case Keyword():
            return ir.StringAttr.get(value.name, builder.context)
        case None:
            return ir.UnitAttr.get(builder.context)
    builder.site.fail(f"{describe(value)} cannot be an attribute", form)


def _from_string(builder: Builder, text: str, form: Form, key: str) -> ir.Attribute:
    if text.startswith("@") and len(text) > 1:
        return symbol_reference(builder, text, form)
    if _ATTRIBUTE_OPENING.match(text) and key != "sym_name":
        return parse_attribute(builder, text, form)
    return ir.StringAttr.get(text, builder.context)


def _iterator(builder: Builder, value: Any, form: Form) -> Any:
    if isinstance(value, str) and value in ("parallel", "reduction", "window"):
        return parse_attribute(builder, f"#linalg.iterator_type<{value}>", form)
    return value


def literal(form: Form) -> Any:
    """The Python value of a literal form, else None."""
    return form.value if isinstance(form, Literal) else None


def _first_message(error: ir.MLIRError) -> str:
    return error.error_diagnostics[0].message if error.error_diagnostics else str(error)
