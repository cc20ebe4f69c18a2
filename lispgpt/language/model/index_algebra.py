"""Sums, products and copies of tensors along numbered or named dimensions: what gradients are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import LoopIndex
from lispgpt.language.forms import shapes, tensors
from lispgpt.language.forms.tensors import Comprehension
from lispgpt.language.model.table import Model
from lispgpt.language.reader.forms import Form

SHARES, SHORTEST_SHARE = (512, 256, 128, 64, 32, 16, 8, 4, 2), 16
"""How many sums a long one is taken apart into on each device, the most that divides it, and how long each is at
least."""


def summed_to(evaluator: Evaluator, tensor: ir.Value, kept: tuple[int, ...], form: Form) -> ir.Value:
    """The sum over all dimensions that are not kept; kept says in which order the others come."""
    dropped = [d for d in range(len(shape_of(tensor))) if d not in kept]
    if dropped:
        tensor = _sum_of_shares(evaluator, tensor, dropped, form)
    order = sorted(kept)
    return permuted(evaluator, tensor, tuple(order.index(d) for d in kept), form)


def _sum_of_shares(evaluator: Evaluator, tensor: ir.Value, dropped: list[int], form: Form) -> ir.Value:
    """The sum over dimensions, in two steps where the first is long: sums of shares of it, which are independent, and
    the sum of those."""
    extents = shape_of(tensor)
    counts = [n * evaluator.states.of(Model).devices for n in SHARES]
    share = next((extents[0] // n for n in counts if extents[0] % n == 0 and extents[0] // n >= SHORTEST_SHARE), 0)
    building = evaluator.states.of(Model).building
    if building is not None and building.any_size:
        share = 0  # one that divides a size does not divide another
    if share and dropped[0] == 0 and len(dropped) < len(extents):
        split = shapes.reshape(evaluator, tensor, (extents[0] // share, share, *extents[1:]), form)
        tensor, dropped = summed(evaluator, split, [d + 1 for d in dropped], form), [0]
    return summed(evaluator, tensor, dropped, form)


def summed(evaluator: Evaluator, tensor: ir.Value, dropped: list[int], form: Form) -> ir.Value:
    """The sum over dimensions, in f32, of f64 in f64."""
    shape = tuple(extent for d, extent in enumerate(shape_of(tensor)) if d not in dropped)
    start = tensors.filled(evaluator, shape, 0.0, tensors.summed_in(evaluator, tensor), form)
    return reduced(evaluator, tensor, dropped, "arith.addf", start, form)


def reduced(
    evaluator: Evaluator, tensor: ir.Value, dropped: list[int], combiner: str, start: ir.Value, form: Form
) -> ir.Value:
    """A tensor over dimensions by an op of two numbers, from the start's elements on, in their type."""
    dimensions = {"dimensions": ir.DenseI64ArrayAttr.get(dropped)}
    made = evaluator.builder.emit("linalg.reduce", [tensor, start], [start.type], dimensions, form, 1)
    kind = start.type.element_type

    def combine(arguments: Any) -> ir.Value:
        values = [arguments[1], tensors.widened(evaluator, arguments[0], form)]
        return evaluator.builder.emit(combiner, values, [kind], {}, form)

    tensors.body(evaluator, made.regions[0], [tensor.type.element_type, kind], combine, form)
    return made.results[0]


def permuted(evaluator: Evaluator, tensor: ir.Value, order: tuple[int, ...], form: Form) -> ir.Value:
    """Dimension i of the result is dimension order[i]."""
    if order == tuple(range(len(order))):
        return tensor
    shape = tuple(shape_of(tensor)[d] for d in order)
    along = tuple(order.index(d) for d in range(len(order)))
    return tensors.generic(evaluator, shape, lambda made: made.read(evaluator, tensor, along, form), form)


def repeated(
    evaluator: Evaluator, tensor: ir.Value, along: tuple[int, ...], shape: tuple[int, ...], form: Form
) -> ir.Value:
    """A tensor whose dimensions are these of a shape, the same along the others."""
    return tensors.generic(evaluator, shape, lambda made: made.read(evaluator, tensor, along, form), form)


def padded(evaluator: Evaluator, part: ir.Value, shape: tuple[int, ...], form: Form) -> ir.Value:
    """A tensor with zeros behind it, to a larger shape."""
    own = shape_of(part)
    if own == shape:
        return part
    zeros = tensors.filled(evaluator, shape, 0.0, part.type.element_type, form)
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get([0] * len(shape)),
        "static_sizes": ir.DenseI64ArrayAttr.get(list(own)),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0]),
    }
    return evaluator.builder.emit("tensor.insert_slice", [part, zeros], [zeros.type], attributes, form)


def joined(evaluator: Evaluator, parts: Sequence[ir.Value], dimension: int, form: Form) -> ir.Value:
    """Tensors of one type side by side along a dimension."""
    shape = shape_of(parts[0])
    own = tuple(d + (d >= dimension) for d in range(len(shape)))

    def compute(made: Comprehension) -> ir.Value:
        emit = evaluator.builder.emit
        number = made.index(evaluator, LoopIndex(dimension, made), form)
        value = made.read(evaluator, parts[-1], own, form)
        for i, part in enumerate(parts[:-1]):
            predicate = {"predicate": ir.IntegerAttr.get(evaluator.builder.i64, 0)}
            here = evaluator.builder.constant(i, evaluator.builder.index, form)
            mine = emit("arith.cmpi", [number, here], [evaluator.builder.i1], predicate, form)
            choices = [mine, made.read(evaluator, part, own, form), value]
            value = emit("arith.select", choices, [value.type], {}, form)
        return value

    apart = tensors.generic(evaluator, (*shape[:dimension], len(parts), *shape[dimension:]), compute, form)
    whole = (*shape[:dimension], len(parts) * shape[dimension], *shape[dimension + 1 :])
    return shapes.reshape(evaluator, apart, whole, form)


def contraction(
    evaluator: Evaluator,
    shape: tuple[int, ...] | None,
    kept: Sequence[Any],
    left: tuple[ir.Value, Sequence[Any]],
    right: tuple[ir.Value, Sequence[Any]],
    form: Form,
) -> ir.Value:
    """Products of elements, summed in f32, or in f64 where some are of it, over the indices that are not kept.

    left, right: a tensor and the names of its indices.  shape: that of the result, where it has indices that neither
    has; it is the same along those.
    """
    pair = []
    for (tensor, names), (_, others) in ((left, right), (right, left)):
        alone = [d for d, n in enumerate(names) if n not in kept and n not in others]
        if alone:
            tensor = _sum_of_shares(evaluator, tensor, alone, form)
        pair.append((tensor, [n for d, n in enumerate(names) if d not in alone]))
    sizes = {n: s for tensor, names in pair for n, s in zip(names, shape_of(tensor), strict=True)}
    made = [n for n in kept if n in sizes]
    order = made + [n for n in sizes if n not in made]
    if len(order) == len(made):
        product = _product(evaluator, pair, made, tuple(sizes[n] for n in made), form)
        return product if len(made) == len(kept) else _spread_over(evaluator, product, made, kept, shape, form)
    wide = tensors.summed_in(evaluator, pair[0][0], pair[1][0])
    start = tensors.filled(evaluator, tuple(sizes[n] for n in made), 0.0, wide, form)
    groups = [names for _, names in pair] + [made]
    maps = [tensors.projection(len(order), tuple(order.index(n) for n in names)) for names in groups]
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
    }
    emit = evaluator.builder.emit
    product = emit("linalg.contract", [pair[0][0], pair[1][0], start], [start.type], attributes, form, 1)

    def compute(arguments: Any) -> ir.Value:
        factors = [tensors.widened_to(evaluator, a, wide, form) for a in list(arguments)[:2]]
        return emit("arith.addf", [arguments[2], emit("arith.mulf", factors, [wide], {}, form)], [wide], {}, form)

    types = [pair[0][0].type.element_type, pair[1][0].type.element_type, wide]
    tensors.body(evaluator, product.regions[0], types, compute, form)
    value = product.results[0]
    return value if len(made) == len(kept) else _spread_over(evaluator, value, made, kept, shape, form)


def _product(
    evaluator: Evaluator, pair: list[tuple[ir.Value, list[Any]]], names: list[Any], shape: tuple[int, ...], form: Form
) -> ir.Value:
    """Products of elements, of which nothing is summed."""
    wide = tensors.summed_in(evaluator, *(tensor for tensor, _ in pair))

    def compute(made: Comprehension) -> ir.Value:
        factors = [
            tensors.widened_to(evaluator, made.read(evaluator, t, tuple(names.index(n) for n in own), form), wide, form)
            for t, own in pair
        ]
        return evaluator.builder.emit("arith.mulf", factors, [wide], {}, form)

    return tensors.generic(evaluator, shape, compute, form)


def _spread_over(
    evaluator: Evaluator,
    value: ir.Value,
    names: list[Any],
    kept: Sequence[Any],
    shape: tuple[int, ...] | None,
    form: Form,
) -> ir.Value:
    assert shape is not None
    return repeated(evaluator, value, tuple(kept.index(n) for n in names), shape, form)
