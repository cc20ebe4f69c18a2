"""Types and attributes: from symbols and strings that spell them, and from compile-time values."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.values import describe
from lispgpt.language.reader.forms import Form, Keyword, Literal, Symbol, show

if TYPE_CHECKING:
    from lispgpt.language.core.evaluator import Evaluator

_SIMPLE_TYPE = re.compile(r"(index|none|bf16|tf32|f\d+\w*|[su]?i\d+)\Z")
_TYPE_OPENING = re.compile(r"(memref|tensor|vector|tuple|complex|!.*)\s*<|!")
_ATTRIBUTE_OPENING = re.compile(
    r"#|(array|dense|dense_resource|sparse|affine_map|affine_set|strided|opaque|loc|distinct|complex)\s*[<\[(]"
)


def parse_symbol(evaluator: Evaluator, symbol: Symbol) -> Any:
    """The type or attribute that a symbol spells, or None where it is an ordinary name."""
    text = symbol.name
    if _SIMPLE_TYPE.match(text) or _TYPE_OPENING.match(text):
        return parse_type(evaluator, text, symbol)
    if _ATTRIBUTE_OPENING.match(text):
        return parse_attribute(evaluator, text, symbol)
    if text.startswith("@") and len(text) > 1:
        return symbol_reference(evaluator, text, symbol)
    return None


def parse_type(evaluator: Evaluator, text: str, form: Form) -> ir.Type:
    """A type as MLIR writes it."""
    found = evaluator.parsed.get(text)
    if found is None:
        _check_text(evaluator, text, form, "type")
        try:
            found = ir.Type.parse(text, evaluator.context)
        except ir.MLIRError as error:
            evaluator.fail(f"`{text}` is not a type: {_first_message(error)}", form)
        evaluator.parsed[text] = found
    if not isinstance(found, ir.Type):
        evaluator.fail(f"`{text}` is an attribute, and a type is wanted here", form)
    return found


def parse_attribute(evaluator: Evaluator, text: str, form: Form) -> ir.Attribute:
    """An attribute as MLIR writes it; spaces do for the commas of `array<i32: 0 1>`."""
    found = evaluator.parsed.get(text)
    if found is None:
        _check_text(evaluator, text, form, "attribute")
        spelled = text
        match = re.match(r"array<\s*(\w+)\s*:(.*)>\Z", text, re.S)
        if match:
            spelled = f"array<{match[1]}: {', '.join(match[2].replace(',', ' ').split())}>"
        if re.match(r"dense\s*<[^:]*>\Z", text):
            evaluator.fail(f"`{text}` needs its type: (: {text} tensor<…>)", form)
        try:
            found = ir.Attribute.parse(spelled, evaluator.context)
        except ir.MLIRError as error:
            evaluator.fail(f"`{text}` is not an attribute: {_first_message(error)}", form)
        evaluator.parsed[text] = found
    return found


def _check_text(evaluator: Evaluator, text: str, form: Form, what: str) -> None:
    """Turn away what MLIR's parser would not report but abort on: text without a token, and comments."""
    if not any(character.isalnum() for character in text) or "//" in text or "\0" in text:
        evaluator.fail(f"`{text}` is not the text of {'an' if what[0] == 'a' else 'a'} {what}", form)


def symbol_reference(evaluator: Evaluator, text: str, form: Form) -> ir.Attribute:
    """`@name` or `@module::@name`."""
    parts = text.split("::")
    if any(not part.startswith("@") or len(part) < 2 for part in parts):
        evaluator.fail(f"`{text}` is not a symbol reference; write @name or @module::@name", form)
    names = [part[1:].strip('"') for part in parts]
    if len(names) == 1:
        return ir.FlatSymbolRefAttr.get(names[0], evaluator.context)
    return ir.SymbolRefAttr.get(names, evaluator.context)


def type_of(evaluator: Evaluator, value: Any, form: Form) -> ir.Type:
    """A value that should be a type, or a string that spells one."""
    if isinstance(value, ir.Type):
        return value
    if isinstance(value, str):
        return parse_type(evaluator, value, form)
    if isinstance(value, ir.TypeAttr):
        return value.value
    evaluator.fail(f"a type is wanted here, and `{show(form)}` is {describe(value)}", form)


def typed_attribute(evaluator: Evaluator, form: Form, kind: ir.Type) -> ir.Attribute | None:
    """`(: dense<…> T)`: the attribute that a symbol or string spells together with its type; None for other forms."""
    text = form.name if isinstance(form, Symbol) else literal(form)
    if isinstance(text, str) and re.match(r"(dense|dense_resource|sparse)\s*<", text):
        return parse_attribute(evaluator, f"{text} : {kind}", form)
    return None


def number_attribute(evaluator: Evaluator, value: Any, kind: ir.Type, form: Form) -> ir.Attribute:
    """A number, or true or false, of a scalar type, or spread over a vector or tensor type."""
    if isinstance(kind, ir.ShapedType) and not isinstance(kind, (ir.MemRefType, ir.UnrankedMemRefType)):
        if not kind.has_static_shape:
            evaluator.fail(f"a constant of type {kind} needs every dimension known", form)
        return ir.DenseElementsAttr.get_splat(kind, number_attribute(evaluator, value, kind.element_type, form))
    if isinstance(value, bool):
        value = int(value)
    if isinstance(kind, ir.FloatType):
        if isinstance(value, int) and abs(value) > 1 << 1020:
            evaluator.fail(f"{describe(value)} is too large for {kind}", form)
        return ir.FloatAttr.get(kind, float(value), evaluator.unknown)
    if not isinstance(kind, (ir.IntegerType, ir.IndexType)):
        evaluator.fail(f"there is no constant of type {kind} for {describe(value)}", form)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            evaluator.fail(f"{describe(value)} is not whole, and {kind} holds whole numbers", form)
        value = int(value)
    width = kind.width if isinstance(kind, ir.IntegerType) else 64
    if not -(1 << max(width - 1, 0)) <= value < 1 << width:
        evaluator.fail(f"{value} does not fit into {kind}", form)
    if width > 63:
        signed = value - (1 << width) if value >= 1 << max(width - 1, 0) else value
        if isinstance(kind, ir.IntegerType) and kind.is_unsigned:
            signed = value % (1 << width)
        return ir.Attribute.parse(f"{signed} : {kind}", evaluator.context)
    if value >= 1 << max(width - 1, 0) and isinstance(kind, ir.IntegerType) and not kind.is_unsigned:
        value -= 1 << width
    return ir.IntegerAttr.get(kind, value)


def from_value(evaluator: Evaluator, value: Any, form: Form, key: str = "") -> ir.Attribute:
    """The attribute for a compile-time value: integers are i64, reals f64, types TypeAttr, lists arrays."""
    match value:
        case ir.Attribute():
            return value
        case ir.Type():
            return ir.TypeAttr.get(value, evaluator.context)
        case bool():
            return ir.UnitAttr.get(evaluator.context) if value and "." in key else ir.BoolAttr.get(value)
        case int():
            return number_attribute(evaluator, value, evaluator.i64, form)
        case float():
            return ir.FloatAttr.get(evaluator.f64, value, evaluator.unknown)
        case str():
            return _from_string(evaluator, value, form, key)
        case tuple():
            if key == "iterator_types":
                value = tuple(_iterator(evaluator, v, form) for v in value)
            return ir.ArrayAttr.get([from_value(evaluator, v, form) for v in value], evaluator.context)
        case Keyword():
            return ir.StringAttr.get(value.name, evaluator.context)
        case None:
            return ir.UnitAttr.get(evaluator.context)
    evaluator.fail(f"{describe(value)} cannot be an attribute", form)


def _from_string(evaluator: Evaluator, text: str, form: Form, key: str) -> ir.Attribute:
    if text.startswith("@") and len(text) > 1:
        return symbol_reference(evaluator, text, form)
    if _ATTRIBUTE_OPENING.match(text) and key != "sym_name":
        return parse_attribute(evaluator, text, form)
    return ir.StringAttr.get(text, evaluator.context)


def _iterator(evaluator: Evaluator, value: Any, form: Form) -> Any:
    if isinstance(value, str) and value in ("parallel", "reduction", "window"):
        return parse_attribute(evaluator, f"#linalg.iterator_type<{value}>", form)
    return value


def literal(form: Form) -> Any:
    """The Python value of a literal form, else None."""
    return form.value if isinstance(form, Literal) else None


def _first_message(error: ir.MLIRError) -> str:
    return error.error_diagnostics[0].message if error.error_diagnostics else str(error)
