"""The kinds of attributes: enumerations by name or number, plain values that take a type from the op."""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.op_facts import ENUMERATIONS, LINKAGES, facts
from lispgpt.language.core import attributes
from lispgpt.language.core.environment import Environment, did_you_mean
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.numbers import number_attribute
from lispgpt.language.reader.forms import Form, List, head_name


def attribute(
    evaluator: Evaluator, op: str, key: str, form: Form, environment: Environment, results: list[ir.Type] | None
) -> ir.Attribute:
    """The attribute for one `:key value` of an op; a plain :value takes the type of the op's result."""
    if head_name(form) == ":" and isinstance(form, List) and len(form.items) == 3:
        return _typed(evaluator, form, environment)
    value = evaluator.single(form, environment)
    names = facts(op).numbered.get(key)
    if names is not None and isinstance(value, str):
        if value not in names:
            evaluator.site.fail(f'`{op}` has no {key} "{value}"{did_you_mean(value, names)}', form)
        value = names.index(value)
    if key == "value" and results and isinstance(value, (bool, int, float)) and _is_number(results[0]):
        return number_attribute(evaluator.site, value, results[0], form)
    if key == "sym_name" and isinstance(value, str):
        return ir.StringAttr.get(value.removeprefix("@"))
    if key == "linkage" and isinstance(value, int) and 0 <= value < len(LINKAGES):
        value = LINKAGES[value]
    if key == "linkage" and isinstance(value, str) and not value.startswith("#"):
        if value not in LINKAGES:
            evaluator.site.fail(f'there is no linkage "{value}"{did_you_mean(value, LINKAGES)}', form)
        return attributes.parse_attribute(evaluator.builder, f"#llvm.linkage<{value}>", form)
    return attributes.from_value(evaluator.builder, value, form, key)


def _is_number(kind: ir.Type) -> bool:
    if isinstance(kind, (ir.VectorType, ir.RankedTensorType)):
        return bool(kind.has_static_shape)
    return isinstance(kind, (ir.IntegerType, ir.IndexType, ir.FloatType))


def _typed(evaluator: Evaluator, form: List, environment: Environment) -> ir.Attribute:
    _, value_form, type_form = form.items
    kind = attributes.type_of(evaluator.builder, evaluator.single(type_form, environment), type_form)
    spelled = attributes.typed_attribute(evaluator.builder, value_form, kind)
    if spelled is not None:
        return spelled
    value = evaluator.single(value_form, environment)
    if isinstance(value, (bool, int, float)):
        return number_attribute(evaluator.site, value, kind, form)
    if isinstance(value, str):
        return attributes.parse_attribute(evaluator.builder, f"{value} : {kind}", form)
    evaluator.site.fail("a typed attribute is a number or dense<…> with its type", form)


def alternatives(evaluator: Evaluator, key: str, value: ir.Attribute) -> list[ir.Attribute | None]:
    """The other kinds that what was written may have been meant as; None is leaving it out."""
    if value == ir.BoolAttr.get(True):
        return [ir.UnitAttr.get()]
    if value == ir.BoolAttr.get(False):
        return [None]
    if isinstance(value, ir.ArrayAttr):
        members = list(value)
        if members and all(isinstance(m, ir.BoolAttr) for m in members):
            return [ir.DenseBoolArrayAttr.get([ir.BoolAttr(m).value for m in members])]
        if all(isinstance(m, ir.IntegerAttr) for m in members):
            numbers = [ir.IntegerAttr(m).value for m in members]
            return _integer_arrays(numbers)
        return []
    if isinstance(value, ir.StringAttr):
        return _from_text(key, value.value)
    if isinstance(value, ir.IntegerAttr) and value.type == evaluator.builder.i64:
        number = value.value
        kinds = [evaluator.builder.i32, evaluator.builder.index, *(ir.IntegerType.get_signless(w) for w in (16, 8, 1))]
        fitting = [k for k in kinds if isinstance(k, ir.IndexType) or -(1 << k.width - 1) <= number < 1 << k.width - 1]
        return [ir.IntegerAttr.get(kind, number) for kind in fitting]
    return []


def _integer_arrays(numbers: list[int]) -> list[ir.Attribute | None]:
    small = all(-(1 << 31) <= n < 1 << 31 for n in numbers)
    arrays: list[ir.Attribute | None] = [ir.DenseI64ArrayAttr.get(numbers)]
    if small:
        arrays.append(ir.DenseI32ArrayAttr.get(numbers))
    if numbers:
        listed = ", ".join(map(str, numbers))
        arrays.append(ir.Attribute.parse(f"dense<[{listed}]> : tensor<{len(numbers)}xi64>"))
        arrays.append(ir.Attribute.parse(f"dense<[{listed}]> : vector<{len(numbers)}xi64>"))
    return arrays


def _from_text(key: str, text: str) -> list[ir.Attribute | None]:
    found: list[ir.Attribute | None] = []
    for pattern in ENUMERATIONS.get(key, ()):
        try:
            found.append(ir.Attribute.parse(pattern.format(text)))
        except ir.MLIRError:
            continue
    if text and all(c.isalnum() or c in "_.$-" for c in text):
        found.append(ir.FlatSymbolRefAttr.get(text))
    return found
