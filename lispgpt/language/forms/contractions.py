"""Sums over dimensions of tensors: `contract`, products of two tensors, and `reduce`, any function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import describe
from lispgpt.language.forms.casts import cast, fitting, is_float
from lispgpt.language.forms.shapes import tensor_of
from lispgpt.language.forms.tensors import body, filled, iterators, projection, widened
from lispgpt.language.reader.forms import Form, List, Symbol, Vector, show


@special("contract", 5, 5)
def _contract(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(contract [n o] x [n k] w [o k])`: products of elements, summed over the indices not in the result.

    Sums are in f32; of f64 in f64, of whole numbers in i32, of i64 in i64.
    """
    _, result, *parts = form.items
    tensors = [tensor_of(evaluator, evaluator.single(part, environment), part, "contract") for part in parts[::2]]
    kept = _index_names(evaluator, result)
    groups = [_index_names(evaluator, names) for names in parts[1::2]]
    sizes = _index_sizes(evaluator, tensors, parts[1::2], form)
    for name in kept:
        if name not in sizes:
            evaluator.site.fail(f"`{name}` is an index of the result and of neither operand", result)
    dtypes = [tensor.type.element_type for tensor in tensors]
    kind = _kind_of_sums(evaluator, dtypes)
    if kind is None:
        given = " and ".join(str(tensor.type) for tensor in tensors)
        evaluator.site.fail(f"`contract` multiplies floats, or whole numbers, and got {given}; `cast` converts", form)
    order = kept + [name for name in sizes if name not in kept]
    maps = [projection(len(order), tuple(order.index(name) for name in names)) for names in (*groups, kept)]
    start = filled(evaluator, tuple(sizes[name] for name in kept), fitting(0, kind), kind, form)
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
    }
    emit = evaluator.builder.emit
    summed = set(order) - set(kept)
    shared = summed & set(groups[0]) & set(groups[1])
    in_f32 = is_float(kind) and kind.width == 32
    name = "linalg.contract" if in_f32 and shared and shared == summed else "linalg.generic"
    if name == "linalg.generic":
        attributes["iterator_types"] = iterators(evaluator, len(kept), len(summed))
    operation = emit(name, [*tensors, start], [start.type], attributes, form, 1)

    times, plus = ("arith.mulf", "arith.addf") if is_float(kind) else ("arith.muli", "arith.addi")

    def compute(arguments: Any) -> Any:
        product = emit(times, [cast(evaluator, a, kind, form) for a in list(arguments)[:2]], [kind], {}, form)
        return emit(plus, [arguments[2], product], [kind], {}, form)

    body(evaluator, operation.regions[0], [*dtypes, kind], compute, form)
    return operation.results[0]


def _kind_of_sums(evaluator: Evaluator, dtypes: Sequence[ir.Type]) -> ir.Type | None:
    """What products of two types are summed in; None where they are of two kinds."""
    builder = evaluator.builder
    if all(isinstance(dtype, ir.FloatType) for dtype in dtypes):
        return builder.f64 if any(dtype.width > 32 for dtype in dtypes) else builder.f32
    if all(isinstance(dtype, ir.IntegerType) and dtype.width > 1 for dtype in dtypes):
        return builder.i64 if any(dtype.width > 32 for dtype in dtypes) else builder.i32
    return None


def _index_sizes(evaluator: Evaluator, tensors: list[ir.Value], names_of: Sequence[Form], form: Form) -> dict[str, int]:
    """The size of every index, in the order that the tensors name them; an error where two tensors differ in one."""
    found: dict[str, tuple[int, ir.Value]] = {}
    for tensor, names in zip(tensors, names_of, strict=True):
        if len(_index_names(evaluator, names)) != len(tensor.type.shape):
            evaluator.site.fail(f"`{show(names)}` does not name the dimensions of {tensor.type}", names)
        for name, size in zip(_index_names(evaluator, names), tensor.type.shape, strict=True):
            known, where = found.setdefault(name, (size, tensor))
            if known != size:
                message = f"the shapes of {where.type} and {tensor.type} differ in `{name}`: {known} and {size}"
                evaluator.site.fail(message, form)
    return {name: size for name, (size, _) in found.items()}


def _index_names(evaluator: Evaluator, form: Form) -> list[str]:
    if not isinstance(form, Vector) or not all(isinstance(item, Symbol) for item in form.items):
        evaluator.site.fail(f"`{show(form)}` stands where index names are wanted, like [n k]", form)
    names = [item.name for item in form.items if isinstance(item, Symbol)]
    if len(set(names)) != len(names):
        evaluator.site.fail(f"`{show(form)}` names an index twice", form)
    return names


@builtin("reduce", 3, 3)
def _reduce(evaluator: Evaluator, form: Form, function: Any, start: Any, tensor: Any) -> Any:
    """`(reduce f start x)`: f over the last dimension of a tensor, from a start value; of whole numbers, from the least
    and the greatest that there are in place of -inf and inf."""
    tensor = tensor_of(evaluator, tensor, form, "reduce")
    if len(tensor.type.shape) < 1:
        evaluator.site.fail(f"`reduce` needs a dimension to go over, and {tensor.type} has none", form)
    kind = tensor.type.element_type
    dtype = evaluator.builder.f32 if isinstance(kind, ir.FloatType) and kind.width < 32 else kind
    if not isinstance(start, (int, float)):
        evaluator.site.fail(f"`reduce` starts from a number, as in (reduce + 0 x), and got {describe(start)}", form)
    rank = len(tensor.type.shape)
    if isinstance(dtype, ir.IntegerType) and start in (-math.inf, math.inf):
        most = (1 << (dtype.width - 1)) - 1
        start = most if start > 0 else -most - 1
    accumulator = filled(evaluator, tuple(tensor.type.shape)[:-1], start, dtype, form)
    dimensions = {"dimensions": ir.DenseI64ArrayAttr.get([rank - 1])}
    operands = [tensor, accumulator]
    operation = evaluator.builder.emit("linalg.reduce", operands, [accumulator.type], dimensions, form, 1)

    def compute(arguments: Any) -> Any:
        value = evaluator.call(function, [arguments[1], widened(evaluator, arguments[0], form)], form)
        if not isinstance(value, ir.Value) or value.type != dtype:
            evaluator.site.fail(f"the function of `reduce` gives {describe(value)}, and {dtype} is wanted", form)
        return value

    body(evaluator, operation.regions[0], [kind, dtype], compute, form)
    return operation.results[0]
