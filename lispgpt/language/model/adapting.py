"""What is added to products with a program's weights by another program, which does not change the first: adapters.

    (adapt (known-weight "qkv-w") (fn [y x l] (+ y …)))

has every `matmul-transposed` with that weight, and `linear` with it, give what the function makes of it.  How such
weights are declared and added is the library's business (lora.lisp).
"""

from __future__ import annotations

from typing import Any

from lispgpt.base.dtypes import MODEL_DTYPES
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import Weight, WeightReference, describe, items_of
from lispgpt.language.forms import shapes
from lispgpt.language.model.declarations import DISTRIBUTIONS
from lispgpt.language.model.gradient_targets import WINDOWS
from lispgpt.language.model.table import Building, Model
from lispgpt.language.reader.forms import Form


@builtin("known-weight", 1, 1)
def _known_weight(evaluator: Evaluator, form: Form, name: Any) -> Any:
    """`(known-weight "qkv-w")`: the program's weight of that name; an error where it declares none."""
    found = evaluator.states.of(Model).weights.get(name) if isinstance(name, str) else None
    if found is None:
        evaluator.site.fail(f"the program has no weight {describe(name)}", form)
    return WeightReference(found)


@builtin("weight-beside", 5, 5)
def _weight_beside(
    evaluator: Evaluator, form: Form, weight: Any, suffix: Any, sizes: Any, dtype: Any, init: Any
) -> Any:
    """`(weight-beside w ".a" [rank in] f32 ["uniform" 0.1])`: a weight that is declared for another one, of as many
    layers as that has, named as it is with the suffix behind; the last says what training begins with: the name of a
    distribution and its number, or "constant" and a number."""
    model, kinds = evaluator.states.of(Model), (*DISTRIBUTIONS, "constant")
    shape, initial = items_of(sizes), items_of(init)
    right = isinstance(suffix, str) and shape is not None and all(type(size) is int and size > 0 for size in shape)
    right &= str(dtype) in MODEL_DTYPES and initial is not None and len(initial) == 2 and initial[0] in kinds
    if not right or not isinstance(weight, WeightReference):
        wanted = '(weight-beside w ".a" [rank in] f32 ["uniform" 0.1])'
        evaluator.site.fail(f"a weight beside another one is {wanted}", form)
    beside = weight.weight
    name = beside.name + suffix
    if name in model.weights:
        evaluator.site.fail(f"the weight {name} is declared twice", form)
    leading = beside.shape[:1] if beside.stacked else ()
    own = "f64" if evaluator.builder.wide else str(dtype)
    start = str(initial[0]), float(initial[1])  # type: ignore[index]
    model.weights[name] = Weight(name, leading + tuple(shape), own, beside.stacked, form, start, beside.layers)  # type: ignore[arg-type]
    return WeightReference(model.weights[name])


@builtin("adapt", 2, 2)
def _adapt(evaluator: Evaluator, form: Form, weight: Any, added: Any) -> Any:
    """`(adapt w (fn [y x l] …))`: has products y of rows x with a weight be what the function makes of them; l is the
    place of the weight's part in its stack of layers, 0 where it is none.  Several functions of a weight are called in
    turn."""
    if not isinstance(weight, WeightReference):
        evaluator.site.fail(
            f"`adapt` wants a weight, as (known-weight NAME) gives it, and got {describe(weight)}", form
        )
    evaluator.states.of(Model).adapted.setdefault(weight.weight.name, []).append(added)


@builtin("adapted", 3, 3)
def _adapted(evaluator: Evaluator, form: Form, product: Any, x: Any, w: Any) -> Any:
    """`(adapted y x w)`: y, the product of rows x with the transpose of w, or what was made of it for that weight by
    `adapt`."""
    model = evaluator.states.of(Model)
    now = model.building
    if not model.adapted or now is None or not isinstance(w, ir.Value):
        return product
    whole, place = _source(w)
    name = next((n for n in model.adapted if model.weights[n].value == whole), None)
    for added in model.adapted.get(name, ()):  # type: ignore[arg-type]
        now.adapted.add(str(name))
        product = evaluator.call(added, [product, x, place], form)
    return shapes.tensor_of(evaluator, product, form, "adapted")


def _source(value: ir.Value) -> tuple[ir.Value, int]:
    """What a value is a window of, and the first offset of the outermost window."""
    op, place = defining_op(value), 0
    while op is not None and op.name in WINDOWS:
        if op.name == "tensor.extract_slice":
            place = ir.DenseI64ArrayAttr(op.attributes["static_offsets"])[0]
        value = op.operands[0]
        op = defining_op(value)
    return value, place


def check_adapted(evaluator: Evaluator, model: Model, now: Building) -> None:
    """An error at an entry that runs the model, where products with a weight that is adapted are no `linear`."""
    missing = [name for name in model.adapted if name not in now.adapted]
    if missing and now.multiplied is not None:
        what = f"{missing[0]} is adapted, and {now.entry.name} multiplies by it in another way than by `linear`"
        evaluator.site.fail(f"{what} or `matmul-transposed` of nn", now.entry.form)
