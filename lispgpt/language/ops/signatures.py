"""The types of functions, and values that have to fit them."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import LLVMFunctionType, ir
from lispgpt.language.core import attributes
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import describe
from lispgpt.language.reader.forms import Form, show


def coerce(evaluator: Evaluator, value: Any, kind: ir.Type, form: Form, what: str) -> ir.Value:
    """A value that has to be of a type; a number becomes its constant."""
    value = evaluator.ssa(value, form)
    if isinstance(value, (bool, int, float)):
        return evaluator.builder.constant(value, kind, form)
    if not isinstance(value, ir.Value) or value.type != kind:
        evaluator.site.fail(f"{what} {kind}, and `{show(form)}` is {describe(value)}", form)
    return value


def promoted(evaluator: Evaluator, value: Any, form: Form) -> ir.Value:
    """An argument of a variadic C function: what C itself would make of a small number."""
    builder = evaluator.builder
    value = evaluator.ssa(value, form)
    if isinstance(value, (bool, int, float)):
        return builder.constant(value, builder.f64 if isinstance(value, float) else builder.i64, form)
    if not isinstance(value, ir.Value):
        evaluator.site.fail(f"`{show(form)}` is {describe(value)}, and an argument is wanted", form)
    kind = value.type
    if isinstance(kind, ir.FloatType) and kind.width < 64:
        return builder.emit("arith.extf", [value], [builder.f64], {}, form)
    if isinstance(kind, ir.IndexType):
        return builder.emit("arith.index_cast", [value], [builder.i64], {}, form)
    if isinstance(kind, ir.IntegerType) and kind.width < 32:
        op = "arith.extui" if kind.width == 1 else "arith.extsi"
        return builder.emit(op, [value], [builder.i32], {}, form)
    return value


def foreign_type(
    evaluator: Evaluator, inputs: list[ir.Type], results: list[ir.Type], variadic: bool, form: Form
) -> ir.Type:
    """LLVM's type of a function; no result is void.  An error for types that LLVM does not have."""
    result = ", ".join(map(str, results)) or "void"
    listed = ", ".join([*map(str, inputs), *["..."] * variadic])
    return attributes.parse_type(evaluator.builder, f"!llvm.func<{result} ({listed})>", form)


def parts_of(kind: ir.Type) -> tuple[list[ir.Type], list[ir.Type], bool]:
    """The argument types, the result types, and whether more arguments may follow, of a function's type."""
    if isinstance(kind, ir.FunctionType):
        return list(kind.inputs), list(kind.results), False
    foreign = LLVMFunctionType(kind)
    results = [] if str(foreign.return_type) == "!llvm.void" else [foreign.return_type]
    return list(foreign.inputs), results, foreign.is_var_arg
