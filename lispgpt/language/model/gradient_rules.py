"""What gradient rules are written with: `defgradient`, `stop-gradient`, `recompute`, and the dual forms of slices,
sums and products that rules of whole tensors use (lib/gradients.lisp)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, nested_operations, shape_of
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.parameters import parse_parameters
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import Closure, Record, describe, items_of
from lispgpt.language.forms import arithmetic, modules, shapes, tensors
from lispgpt.language.model import index_algebra
from lispgpt.language.model.table import Building, Model
from lispgpt.language.reader.forms import Form, List, Symbol, head_name, show


@dataclass(eq=False)
class GradientRules:
    """What `defgradient` has said of ops, by their names (a reduction's with its combiner's behind it); and the values
    that calls of functions with gradients of their own, `stop-gradient` and `recompute` gave.

    calls: for the (first) tensor that a function gave the rule, all that it gave, and its arguments.  recomputed: the
    function, its arguments, and how the entry stood when it was called.  rewritten: what loops and branches gave, and
    what gives it in their place since gradients went through them.
    """

    of_ops: dict[str, Closure] = field(default_factory=dict)
    calls: dict[ir.Value, tuple[Closure, Any, list[Any]]] = field(default_factory=dict)
    stopped: set[ir.Value] = field(default_factory=set)
    recomputed: dict[ir.Value, tuple[Any, tuple[Any, ...], Building | None]] = field(default_factory=dict)
    rewritten: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)

    def settle(self) -> None:
        """Have forms behind a gradient use what it has made of loops and branches: nothing is computed twice."""
        for old, new in self.rewritten:
            old.replace_all_uses_with(new)
        self.rewritten.clear()

    def erase(self, op: ir.Operation) -> None:
        """Erase an op, and what is known of its values: others may come to stand where they stood, and values are told
        apart by where they stand."""
        for each in (op, *nested_operations(op)):
            for value in each.results:
                self.calls.pop(value, None)
                self.recomputed.pop(value, None)
                self.stopped.discard(value)
        op.erase()


def without_rule(evaluator: Evaluator, what: str) -> str:
    """What to say of an op that has no rule; what: it, in a user's words.  The language's own rules are a library."""
    if (LIBRARY / "gradients.lisp").resolve() not in evaluator.states.of(modules.Files).loaded:
        return "the gradients of the language's forms stand in a library: (require gradients), or nn, which has it"
    return f"there is no gradient rule for {what}; (defgradient …) adds one"


@dataclass(frozen=True, eq=False)
class Differentiable:
    """A function whose calls are differentiated as a whole, by a rule of their own."""

    function: Closure
    rule: Closure


def call(evaluator: Evaluator, made: Differentiable, arguments: list[Any], form: Form) -> Any:
    """Call the function, and remember the rule for what it gives: for the first value, where it gives several.

    The rule is of the call: an argument, or another tensor that was there before, that the function gives back has
    another name from then on."""
    result = evaluator.value_of(evaluator.call(made.function, arguments, form), form)
    several = items_of(result)
    first = next(iter(several or [result]), None)
    if isinstance(first, ir.Value):
        if shapes.is_tensor(first) and (isinstance(first.owner, ir.Block) or first in _tensors_in(arguments)):
            first = same_value(evaluator, first, form)
            result = first if several is None else _with_first(result, several, first)
        evaluator.states.of(GradientRules).calls[first] = (made.rule, result, arguments)
    return result


def _with_first(result: Any, several: tuple[Any, ...], first: ir.Value) -> Any:
    """A list or a map with another first member."""
    if isinstance(result, Record):
        return Record(dict(zip(result.values, (first, *several[1:]), strict=True)))
    return (first, *several[1:])


def _tensors_in(values: Iterable[Any]) -> list[ir.Value]:
    """Those among arguments, those in lists too."""
    inside = [items_of(value) for value in values]
    lists = [value for items in inside if items is not None for value in _tensors_in(items)]
    return [*(value for value in values if isinstance(value, ir.Value)), *lists]


@special("defgradient", 3, None)
def _defgradient(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(defgradient math.exp [g y x] [(* g y)])`: g is the gradient of the result y; the value has, for each operand,
    its gradient or nil.  Instead of an op: `(linalg.reduce arith.addf)`, a reduction by its combiner, or a function's
    name, whose calls are then differentiated as a whole; of a function that gives several values, y is the vector of
    them, and the first one is what is differentiated."""
    rules = evaluator.states.of(GradientRules)
    subject = form.items[1]
    parameters = parse_parameters(evaluator.site, form.items[2], "defgradient")
    rule = Closure(f"defgradient {show(subject)}", parameters, form.items[3:], environment.capture(), form)
    if isinstance(subject, Symbol):
        function = environment.lookup(subject)
        if isinstance(function, (Closure, Differentiable)):
            plain = function.function if isinstance(function, Differentiable) else function
            environment.define(subject, Differentiable(plain, rule))
            return None
        if "." not in subject.name or not evaluator.builder.context.is_registered_operation(subject.name):
            evaluator.site.fail(f"`{subject.name}` is neither a function nor an op", subject)
        rules.of_ops[subject.name] = rule
        return None
    names = [item.name for item in subject.items if isinstance(item, Symbol)] if isinstance(subject, List) else []
    if len(names) != 2 or head_name(subject) != "linalg.reduce":
        evaluator.site.fail("a gradient is of an op, of a function or of (linalg.reduce combiner)", subject)
    rules.of_ops[" ".join(names)] = rule
    return None


@builtin("stop-gradient", 1, 1)
def _stop_gradient(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(stop-gradient x)`: x, through which no gradient goes."""
    value = shapes.tensor_of(evaluator, value, form, "stop-gradient")
    stopped = same_value(evaluator, value, form)
    evaluator.states.of(GradientRules).stopped.add(stopped)
    return stopped


@builtin("recompute", 1, None)
def _recompute(evaluator: Evaluator, form: Form, function: Any, *arguments: Any) -> Any:
    """`(recompute f x …)`: (f x …), of which a gradient computes the inner values again instead of keeping them."""
    now = evaluator.states.of(Model).building
    before = None if now is None else now.copied()
    result = evaluator.call(function, list(arguments), form)
    if not shapes.is_tensor(result):
        evaluator.site.fail(f"`recompute` wants a function that gives a tensor, and got {describe(result)}", form)
    evaluator.states.of(GradientRules).recomputed[result] = (function, arguments, before)
    return result


def same_value(evaluator: Evaluator, value: ir.Value, form: Form) -> ir.Value:
    """A tensor under another name, which no pass takes for the first."""
    return evaluator.builder.emit("tensor.cast", [value], [value.type], {}, form)


def window(evaluator: Evaluator, tensor: ir.Value, op: ir.Operation, form: Form) -> ir.Value:
    """The part of a tensor that a tensor.insert_slice is about."""
    offsets = list(op.operands)[2:]
    kind = shapes.tensor_type(evaluator, shape_of(op.operands[0]), tensor.type.element_type, form)
    attributes = _place(op, [1, len(offsets), 0, 0])
    return evaluator.builder.emit("tensor.extract_slice", [tensor, *offsets], [kind], attributes, form)


def _place(op: ir.Operation, segments: list[int]) -> dict[str, ir.Attribute]:
    """The attributes of another slice op that is about the same part, which has so many operands of each kind."""
    names = ("static_offsets", "static_sizes", "static_strides")
    return {n: op.attributes[n] for n in names} | {"operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments)}


# ---- what rules of whole tensors are written with


def _made_by(evaluator: Evaluator, value: Any, ops: tuple[str, ...], form: Form) -> ir.Operation:
    """The op, one of these, that made a tensor."""
    op = defining_op(value) if isinstance(value, ir.Value) else None
    if op is None or op.name not in ops:
        names = " or ".join(f"`{name}`" for name in ops)
        evaluator.site.fail(f"`{show(form)}` is about what {names} made, and got {describe(value)}", form)
    return op


def _numbers(evaluator: Evaluator, value: Any, form: Form) -> tuple[int, ...]:
    numbers = items_of(value)
    if numbers is None or not all(isinstance(number, int) and number >= 0 for number in numbers):
        evaluator.site.fail(f"`{show(form)}` wants lists of numbers from 0 on, and got {describe(value)}", form)
    return numbers


@builtin("indices", 1, 1)
def _indices(evaluator: Evaluator, form: Form, result: Any) -> Any:
    """`(indices y)`: for each operand of the contraction that made y, and for y, the numbers of its indices."""
    op = _made_by(evaluator, result, ("linalg.contract", "linalg.generic"), form)
    maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
    return tuple(tuple(ir.AffineDimExpr(e).position for e in m.results) for m in maps)


@builtin("factors", 1, 1)
def _factors(evaluator: Evaluator, form: Form, value: Any) -> Any:
    """`(factors y)`: [x w] where y [n o] is the sums of x [n k] times w [o k], [x w b] where b [o] was added to them;
    nil where y is anything else."""
    op = defining_op(value) if isinstance(value, ir.Value) else None
    bias: tuple[ir.Value, ...] = ()
    if op is not None and (parts := _parts_of_sum(op)):
        op, bias = defining_op(parts[0]), parts[1:]
    if op is None or op.name != "linalg.contract" or not is_filled_with(op.operands[2], 0.0):
        return None
    maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
    x, w, y = ([ir.AffineDimExpr(e).position for e in m.results] for m in maps)
    if len(x) != 2 or len(w) != 2 or y != [x[0], w[0]] or x[1] != w[1]:
        return None
    return (op.operands[0], op.operands[1], *bias)


def _parts_of_sum(op: ir.Operation) -> tuple[ir.Value, ...]:
    """Of `(+ y b)`, a matrix and what is added to each of its rows, those; nothing for what else an op may be."""
    if op.name != "linalg.generic" or len(op.operands) != 3 or len(shape_of(op.results[0])) != 2:
        return ()
    block = op.regions[0].blocks[0]
    maps = [str(a) for a in op.attributes["indexing_maps"]]
    names = [inner.name for inner in block.operations]
    along = ["affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d1)>"]
    plain = names == ["arith.addf", "linalg.yield"] and list(block.operations[0].operands) == list(block.arguments)[:2]
    return (op.operands[0], op.operands[1]) if plain and maps[:2] == along else ()


@builtin("contraction", 6, 6)
def _contraction(
    evaluator: Evaluator, form: Form, shape: Any, kept: Any, x: Any, x_indices: Any, w: Any, w_indices: Any
) -> Any:
    """`(contraction shape out x xi w wi)`: `contract` with numbered indices; what neither operand has is repeated."""
    x, w = (shapes.tensor_of(evaluator, tensor, form, "contraction") for tensor in (x, w))
    kept, *indices = (_numbers(evaluator, list_, form) for list_ in (kept, x_indices, w_indices))
    shape = _numbers(evaluator, shape, form)
    return index_algebra.contraction(evaluator, shape, kept, (x, indices[0]), (w, indices[1]), form)


@builtin("scaled", 2, 2)
def _scaled(evaluator: Evaluator, form: Form, value: Any, gradient: Any) -> Any:
    """`(scaled x g)`: x times a gradient of one number; x itself where that is known to be 1, as a loss's own is."""
    gradient = shapes.tensor_of(evaluator, gradient, form, "scaled")
    if is_filled_with(gradient, 1.0):
        return value
    return arithmetic.binary(evaluator, "*", value, shapes.reshape(evaluator, gradient, (), form), form)


def is_filled_with(value: ir.Value, number: float) -> bool:
    """Whether a tensor is made of one number that is known while compiling."""
    op = defining_op(value)
    constant = defining_op(op.operands[0]) if op is not None and op.name == "linalg.fill" else None
    return constant is not None and constant.name == "arith.constant" and constant.attributes["value"].value == number


@builtin("spread", 3, 3)
def _spread(evaluator: Evaluator, form: Form, value: Any, reduced: Any, whole: Any) -> Any:
    """`(spread g y x)`: g, of the shape of the reduction y of x, repeated to the shape of x."""
    value, whole = (shapes.tensor_of(evaluator, tensor, form, "spread") for tensor in (value, whole))
    dropped = set(integers(_made_by(evaluator, reduced, ("linalg.reduce",), form).attributes["dimensions"]))
    kept = tuple(d for d in range(len(shape_of(whole))) if d not in dropped)
    return index_algebra.repeated(evaluator, value, kept, shape_of(whole), form)


@builtin("multiplied-as", 2, 2)
def _multiplied_as(evaluator: Evaluator, form: Form, reduced: Any, whole: Any) -> Any:
    """`(multiplied-as y x)`: the product of x over the dimensions over which y was reduced, from where y started."""
    whole = shapes.tensor_of(evaluator, whole, form, "multiplied-as")
    op = _made_by(evaluator, reduced, ("linalg.reduce",), form)
    dimensions = integers(op.attributes["dimensions"])
    return index_algebra.reduced(evaluator, whole, dimensions, "arith.mulf", op.operands[1], form)


@builtin("summed-as", 2, 2)
def _summed_as(evaluator: Evaluator, form: Form, reduced: Any, whole: Any) -> Any:
    """`(summed-as y x)`: the sum of x over the dimensions over which y was reduced."""
    whole = shapes.tensor_of(evaluator, whole, form, "summed-as")
    op = _made_by(evaluator, reduced, ("linalg.reduce",), form)
    return index_algebra.summed(evaluator, whole, integers(op.attributes["dimensions"]), form)


@builtin("inserted", 2, 2)
def _inserted(evaluator: Evaluator, form: Form, gradient: Any, part: Any) -> Any:
    """`(inserted g y)`: zeros of the tensor that the slice y was taken from, with g where y was."""
    op = _made_by(evaluator, part, ("tensor.extract_slice",), form)
    gradient = shapes.tensor_of(evaluator, gradient, form, "inserted")
    offsets = list(op.operands)[1:]
    zeros = tensors.filled(evaluator, shape_of(op.operands[0]), 0.0, gradient.type.element_type, form)
    attributes = _place(op, [1, 1, len(offsets), 0, 0])
    return evaluator.builder.emit("tensor.insert_slice", [gradient, zeros, *offsets], [zeros.type], attributes, form)


@builtin("window", 2, 2)
def _window(evaluator: Evaluator, form: Form, gradient: Any, result: Any) -> Any:
    """`(window g y)`: the part of g that y = (insert part whole …) took from part."""
    op = _made_by(evaluator, result, ("tensor.insert_slice",), form)
    gradient = shapes.tensor_of(evaluator, gradient, form, "window")
    return window(evaluator, gradient, op, form)


@builtin("without-window", 2, 2)
def _without_window(evaluator: Evaluator, form: Form, gradient: Any, result: Any) -> Any:
    """`(without-window g y)`: g with zeros where y = (insert part whole …) has part."""
    op = _made_by(evaluator, result, ("tensor.insert_slice",), form)
    gradient = shapes.tensor_of(evaluator, gradient, form, "without-window")
    zeros = tensors.filled(evaluator, shape_of(op.operands[0]), 0.0, gradient.type.element_type, form)
    attributes = {name: op.attributes[name] for name in op.attributes}
    operands = [zeros, gradient, *list(op.operands)[2:]]
    return evaluator.builder.emit("tensor.insert_slice", operands, [gradient.type], attributes, form)
