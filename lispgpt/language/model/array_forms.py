"""Forms on whole tensors that need to know their rank: the rest of the vocabulary is Lisp (lib/arrays.lisp)."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.structure import shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import describe, items_of
from lispgpt.language.forms import shapes
from lispgpt.language.model import index_algebra
from lispgpt.language.model.scattering import Scatter
from lispgpt.language.reader.forms import Form


@builtin("transpose", 2, 2)
def _transpose(evaluator: Evaluator, form: Form, tensor: Any, order: Any) -> Any:
    """`(transpose x [1 0])`: dimension i of the result is dimension order[i] of x."""
    tensor = shapes.tensor_of(evaluator, tensor, form, "transpose")
    given, rank = items_of(order), len(shape_of(tensor))
    if given is None or sorted(given, key=str) != sorted(range(rank), key=str):
        message = f"`transpose` wants each of the dimensions 0 to {rank - 1} once, and got {describe(order)}"
        evaluator.site.fail(message if rank else "`transpose` wants a tensor with dimensions", form)
    return index_algebra.permuted(evaluator, tensor, tuple(given), form)


@builtin("added-rows", 3, 3)
def _added_rows(evaluator: Evaluator, form: Form, base: Any, rows: Any, ids: Any) -> Any:
    """`(added-rows base rows ids)`: base [n ...] with each of rows [m ...] added where ids [m] of i32 say."""
    base, rows, ids = (shapes.tensor_of(evaluator, t, form, "added-rows") for t in (base, rows, ids))
    kinds = [t.type.element_type for t in (base, rows, ids)]
    fits = len(shape_of(ids)) == 1 and shape_of(base) and shape_of(rows) == (*shape_of(ids), *shape_of(base)[1:])
    floats = kinds[0] == kinds[1] and kinds[0] in (evaluator.builder.f32, evaluator.builder.f64)
    if not fits or not floats or kinds[2] != evaluator.builder.i32:
        got = ", ".join(str(t.type) for t in (base, rows, ids))
        wanted = "[n ...] and [m ...] of f32, or both of f64, and [m] of i32"
        evaluator.site.fail(f"`added-rows` wants {wanted}, and got {got}", form)
    return Scatter(evaluator, rows, ids, 0, shape_of(base), form).onto(base)
