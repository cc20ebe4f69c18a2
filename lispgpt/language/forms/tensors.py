"""Tensors: comprehensions and elementwise functions, as linalg.generic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin, special
from lispgpt.language.core.values import LoopIndex, describe, not_whole
from lispgpt.language.forms import hoisting, stretching
from lispgpt.language.forms.shapes import as_index, extract, is_tensor, reshape, tensor_of, tensor_type
from lispgpt.language.reader.forms import Form, List, Symbol, Vector, show


def empty(evaluator: Evaluator, shape: tuple[int, ...], dtype: ir.Type, form: Form) -> ir.Value:
    kind = tensor_type(evaluator, shape, dtype, form)
    return evaluator.builder.emit("tensor.empty", [], [kind], {}, form)


def filled(evaluator: Evaluator, shape: tuple[int, ...], number: Any, dtype: ir.Type, form: Form) -> ir.Value:
    """A tensor of one number, through linalg.fill."""
    value = evaluator.builder.constant(number, dtype, form)
    start = empty(evaluator, shape, dtype, form)
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])}
    fill = evaluator.builder.emit("linalg.fill", [value, start], [start.type], segments, form, 1)
    body(evaluator, fill.regions[0], [dtype, dtype], lambda arguments: arguments[0], form)
    return fill.results[0]


def body(
    evaluator: Evaluator, region: ir.Region, types: list[ir.Type], compute: Callable[[Any], ir.Value], form: Form
) -> None:
    """Fill a linalg region: its arguments through compute to linalg.yield."""
    place = evaluator.site.location(form)
    block = ir.Block.create_at_start(region, types, [place] * len(types))
    with evaluator.builder.at(block):
        evaluator.builder.emit("linalg.yield", [compute(block.arguments)], [], {}, form)
    hoisting.hoist_tensors(evaluator.site, block, region.owner, form)


@dataclass(eq=False)
class Comprehension:
    """A linalg.generic in the making: its block, and the tensors that it reads along its dimensions."""

    shape: tuple[int, ...]
    block: ir.Block
    inputs: list[tuple[ir.Value, tuple[int, ...], ir.Value]] = field(default_factory=list)

    def read(self, evaluator: Evaluator, tensor: ir.Value, dimensions: tuple[int, ...], form: Form) -> ir.Value:
        """The element of a tensor at these of the dimensions: an argument of the block."""
        for known, along, argument in self.inputs:
            if known == tensor and along == dimensions:
                return argument
        argument = self.block.add_argument(tensor.type.element_type, evaluator.site.location(form))
        self.inputs.append((tensor, dimensions, argument))
        return argument

    def index(self, evaluator: Evaluator, loop: LoopIndex, form: Form) -> ir.Value:
        """The position along a dimension, as a value of this block before the loop or branch that first asks for it:
        others may share it."""
        if loop.value is None:
            attribute = {"dim": ir.IntegerAttr.get(evaluator.builder.i64, loop.dimension)}
            holder = holder_in(self.block, evaluator.builder.insertion.block)
            with evaluator.builder.at(self.block if holder is None else ir.InsertionPoint(holder)):
                loop.value = evaluator.builder.emit("linalg.index", [], [evaluator.builder.index], attribute, form)
        return loop.value


def holder_in(block: ir.Block, inner: ir.Block) -> ir.Operation | None:
    """The op of a block that holds another block, however deep; None where that is the block itself."""
    holder = None
    while inner != block:
        holder = inner.owner.operation
        inner = holder.block
    return holder


def generic(
    evaluator: Evaluator, shape: tuple[int, ...], compute: Callable[[Comprehension], ir.Value], form: Form
) -> ir.Value:
    """A linalg.generic whose body compute makes; what it reads becomes operands."""
    builder = evaluator.builder
    holder = builder.emit("scf.execute_region", [], [], {}, form, 1)
    block = ir.Block.create_at_start(holder.regions[0], [])
    made = Comprehension(shape, block)
    with builder.at(block):
        value = compute(made)
        if not isinstance(value, ir.Value) or isinstance(value.type, ir.ShapedType):
            evaluator.site.fail(f"an element of a tensor is a scalar, and this is {describe(value)}", form)
        builder.emit("linalg.yield", [value], [], {}, form)
    hoisting.hoist_tensors(evaluator.site, block, holder, form)
    dtype = value.type
    block.add_argument(dtype, evaluator.site.location(form))
    start = empty(evaluator, shape, dtype, form)
    maps = [projection(len(shape), along) for _, along, _ in made.inputs]
    maps.append(projection(len(shape), tuple(range(len(shape)))))
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": iterators(evaluator, len(shape)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(made.inputs), 1]),
    }
    operands = [_beginning(evaluator, tensor, [shape[d] for d in along], form) for tensor, along, _ in made.inputs]
    operands.append(start)
    operation = builder.emit("linalg.generic", operands, [start.type], attributes, form, 1)
    block.append_to(operation.regions[0])
    holder.erase()
    return operation.results[0]


def of_scalar(evaluator: Evaluator, value: Any, form: Form) -> Any:
    """A tensor of rank 0 of a float or an i32 that is computed, such as an element of another; else what is given."""
    kind = value.type if isinstance(value, ir.Value) else None
    if isinstance(kind, ir.FloatType) or kind == ir.IntegerType.get_signless(32):
        return generic(evaluator, (), lambda _: value, form)
    return value


def _beginning(evaluator: Evaluator, tensor: ir.Value, sizes: list[int], form: Form) -> ir.Value:
    """The first elements along each dimension: a loop need not go to a tensor's end."""
    return extract(evaluator, tensor, (0,) * len(sizes), tuple(sizes), form)


def projection(rank: int, dimensions: tuple[int, ...]) -> ir.AffineMap:
    """(d0, …) -> (those of the dimensions)."""
    return ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(d) for d in dimensions])


def iterators(evaluator: Evaluator, parallel: int, summed: int = 0) -> ir.Attribute:
    """The iterator types of loops of which so many are parallel and the last ones are summed over."""
    kinds = ["parallel"] * parallel + ["reduction"] * summed
    text = "[" + ", ".join(f"#linalg.iterator_type<{kind}>" for kind in kinds) + "]"
    found = evaluator.builder.spelled.get(text)
    if found is None:
        found = evaluator.builder.spelled[text] = ir.Attribute.parse(text)
    return found


def widened(evaluator: Evaluator, value: ir.Value, form: Form) -> ir.Value:
    """A bf16 or f16 scalar as f32: everything is computed in f32."""
    if isinstance(value.type, ir.FloatType) and value.type.width < 32:
        return evaluator.builder.emit("arith.extf", [value], [evaluator.builder.f32], {}, form)
    return value


def summed_in(evaluator: Evaluator, *values: ir.Value) -> ir.Type:
    """The type in which numbers of floats, scalars or tensors, are summed: f64 where some are of it, else f32."""
    types = [getattr(value.type, "element_type", value.type) for value in values]
    return evaluator.builder.f64 if evaluator.builder.f64 in types else evaluator.builder.f32


def widened_to(evaluator: Evaluator, value: ir.Value, dtype: ir.Type, form: Form) -> ir.Value:
    """A scalar in a float type that holds more than its own."""
    if value.type != dtype:
        return evaluator.builder.emit("arith.extf", [value], [dtype], {}, form)
    return value


def elementwise(
    evaluator: Evaluator, function: Callable[..., Any], values: tuple[Any, ...], form: Form, widen: bool = True
) -> ir.Value:
    """A function of scalars on tensors, broadcast against each other from the last dimension on; scalars are the same
    everywhere."""
    tensors = [value for value in values if is_tensor(value)]
    shape = _broadcast(evaluator, tensors, form)
    stretching.check(evaluator, tensors, form)
    values = tuple(_without_ones(evaluator, v, shape, form) if is_tensor(v) else v for v in values)

    def compute(made: Comprehension) -> Any:
        scalars = []
        for value in values:
            if isinstance(value, tuple):
                value = made.read(evaluator, value[0], value[1], form)
                value = widened(evaluator, value, form) if widen else value
            scalars.append(value)
        result = function(*scalars)
        return (
            evaluator.builder.constant(result, evaluator.builder.f32, form)
            if isinstance(result, (int, float))
            else result
        )

    return generic(evaluator, shape, compute, form)


def _broadcast(evaluator: Evaluator, values: list[ir.Value], form: Form) -> tuple[int, ...]:
    shapes = [tuple(value.type.shape) for value in values]
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        larger = {size for size in sizes if size != 1}
        if len(larger) > 1:
            types = " and ".join(dict.fromkeys(str(value.type) for value in values))
            evaluator.site.fail(f"`{show(form)}`: the shapes of {types} do not go together", form)
        result.append(larger.pop() if larger else 1)
    return tuple(result)


def _without_ones(
    evaluator: Evaluator, value: ir.Value, shape: tuple[int, ...], form: Form
) -> tuple[ir.Value, tuple[int, ...]]:
    own = tuple(value.type.shape)
    offset = len(shape) - len(own)
    kept = tuple(i for i, size in enumerate(own) if size == shape[i + offset])
    if len(kept) < len(own):
        value = reshape(evaluator, value, tuple(own[i] for i in kept), form)
    return value, tuple(i + offset for i in kept)


@special("tensor", 2, 2)
def _tensor(evaluator: Evaluator, form: List, environment: Environment) -> Any:
    """`(tensor [i n j m] element)`: the n by m tensor of element, in which `(at x i j)` reads others."""
    _, dimensions, element = form.items
    if not isinstance(dimensions, Vector) or len(dimensions.items) % 2:
        evaluator.site.fail("`tensor` wants its dimensions as [index size …]: (tensor [i n j m] element)", dimensions)
    sizes = tuple(dimension(evaluator, item, environment) for item in dimensions.items[1::2])

    def compute(made: Comprehension) -> Any:
        scope = Environment(environment)
        for position, name in enumerate(dimensions.items[::2]):
            if not isinstance(name, Symbol):
                evaluator.site.fail(f"`{show(name)}` is not a name for an index", name)
            scope.define(name, LoopIndex(position, made))
        value = evaluator.ssa(evaluator.evaluate(element, scope), element)
        if isinstance(value, (int, float)):
            value = evaluator.builder.constant(value, evaluator.builder.f32, element)
        return value

    return generic(evaluator, sizes, compute, form)


LARGEST = 1 << 40
"""No dimension has so many."""


def dimension(evaluator: Evaluator, form: Form, environment: Environment) -> int:
    """A size: a whole number, known while compiling."""
    value = evaluator.single(form, environment)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST:
        return value
    most = f", below {LARGEST:,}" if isinstance(value, int) and value >= LARGEST else ""
    names = _names_in(form)
    given = [f"{n.name} is {v}" for n in names if isinstance(v := environment.lookup(n), (int, float))]
    values = f" ({', '.join(given)})" if given and isinstance(form, List) else ""
    evaluator.site.fail(
        f"a size is a whole number from 0 on{most}, and `{show(form)}` is {not_whole(value, form)}{values}", form
    )


def _names_in(form: Form) -> list[Symbol]:
    if isinstance(form, Symbol):
        return [form]
    return [name for item in form.items for name in _names_in(item)] if isinstance(form, (List, Vector)) else []


@builtin("at", 1, None)
def _at(evaluator: Evaluator, form: Form, tensor: Any, *indices: Any) -> Any:
    """`(at x i j)`: one element of a tensor; bf16 comes as f32.

    In an entry nothing outside of a tensor is read or written.  An index that loops alone make is an error where it
    leaves the tensor, one that an input gives, plus or minus a number, is checked when the entry is called, and any
    other is held to the range: below 0 it is the first element, past the end the last.
    """
    tensor = tensor_of(evaluator, tensor, form, "at")
    sizes = tuple(tensor.type.shape)
    if len(indices) != len(sizes):
        evaluator.site.fail(f"`{show(form)}` gives {len(indices)} indices, and {tensor.type} has {len(sizes)}", form)
    loops = [i for i in indices if isinstance(i, LoopIndex)]
    own = len({id(loop.comprehension) for loop in loops}) == 1  # else one `tensor` stands in another
    if own and len(loops) == len(indices) == len({loop.dimension for loop in loops}):
        made = loops[0].comprehension
        along = tuple(loop.dimension for loop in loops)
        for position, (size, d) in enumerate(zip(sizes, along, strict=True)):
            if made.shape[d] > size:
                message = (
                    f"index {position} of `{show(form)}` goes to {made.shape[d]}, and {tensor.type} ends at {size}"
                )
                evaluator.site.fail(message, form)
        if all(made.shape[d] == size for size, d in zip(sizes, along, strict=True)):  # else it is read only in part
            return widened(evaluator, made.read(evaluator, tensor, along, form), form)
    places = [as_index(evaluator, index, form) for index in indices]
    element = evaluator.builder.emit("tensor.extract", [tensor, *places], [tensor.type.element_type], {}, form)
    return widened(evaluator, element, form)


@builtin("elementwise", 2, None)
def _elementwise(evaluator: Evaluator, form: Form, function: Any, *values: Any) -> Any:
    """`(elementwise f x y)`: f of the elements; on scalars, `(f x y)`."""
    if not any(is_tensor(value) for value in values):
        return evaluator.call(function, list(values), form)
    return elementwise(evaluator, lambda *scalars: evaluator.call(function, list(scalars), form), values, form)
