"""Which kernel and which form of the program a failed pass was working on, read off the variables that it held."""

from __future__ import annotations

from typing import Any

from lispgpt.base.bugs import held, quoted
from lispgpt.ir.diagnostics import users_span
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import nested_operations


def culprit(error: BaseException, module: ir.Module) -> str:
    """ ", kernel NAME, for FILE:LINE:COLUMN `(form …`", as far as it is known; "" where nothing is.

    An op counts only while it is in the module: one that the pass has erased must not be looked at.
    """
    functions: dict[Any, ir.Operation] = {}
    for top in module.body.operations:
        functions[top.operation] = top.operation
        functions.update((nested, top.operation) for nested in nested_operations(top.operation))
    op = next((found for value in held(error) if (found := _operation(value)) in functions), None)
    if op is None:
        return ""
    function = functions[op]
    named = ""
    if "sym_name" in function.attributes:
        kind = "kernel" if "kernel" in function.attributes else "function"
        named = f", {kind} {ir.StringAttr(function.attributes['sym_name']).value}"
    places = (users_span(around.location) for around in (op, *nested_operations(function)))
    span = next((place for place in places if place is not None), None)
    return named + (f", for {quoted(span)}" if span is not None else "")


def _operation(value: Any) -> ir.Operation | None:
    if isinstance(value, ir.OpView):
        value = value.operation
    return value if isinstance(value, ir.Operation) else None
