"""Shapes of tensors: reading them, and views of the same elements (reshape, slice, insert)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lispgpt.base.dtypes import MOST_DIMENSIONS
from lispgpt.ir.mlir import ir
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.registry import builtin
from lispgpt.language.core.values import LoopIndex, describe, items_of
from lispgpt.language.reader.forms import Form, show

MOST_ELEMENTS = 1 << 48
_DYNAMIC = -(1 << 63)


def is_tensor(value: Any) -> bool:
    """Whether a value is an SSA tensor."""
    return isinstance(value, ir.Value) and isinstance(value.type, ir.RankedTensorType)


def tensor_type(evaluator: Evaluator, shape: Sequence[int], dtype: ir.Type, form: Form) -> ir.Type:
    """The type of a tensor; an error for one that no machine, or no array, holds."""
    if len(shape) > MOST_DIMENSIONS:
        evaluator.site.fail(f"a tensor has at most {MOST_DIMENSIONS} dimensions, and this {len(shape)}", form)
    if math.prod(shape) >= MOST_ELEMENTS:
        evaluator.site.fail(f"a tensor of {'x'.join(map(str, shape))} elements is too large for any machine", form)
    return ir.RankedTensorType.get(shape, dtype, loc=evaluator.builder.unknown)


def tensor_of(evaluator: Evaluator, value: Any, form: Form, what: str) -> ir.Value:
    """A value that must be a tensor."""
    if not is_tensor(value):
        evaluator.site.fail(f"`{what}` wants a tensor, and got {describe(value)}", form)
    return value


def as_index(evaluator: Evaluator, value: Any, form: Form) -> ir.Value:
    """A number, integer or loop index as a value of type index."""
    value = evaluator.ssa(value, form)
    if isinstance(value, int):
        return evaluator.builder.constant(value, evaluator.builder.index, form)
    if isinstance(value, ir.Value) and isinstance(value.type, ir.IndexType):
        return value
    if isinstance(value, ir.Value) and isinstance(value.type, ir.IntegerType):
        return evaluator.builder.emit("arith.index_cast", [value], [evaluator.builder.index], {}, form)
    evaluator.site.fail(f"an index is a whole number, and this is {describe(value)}", form)


def _shaped(evaluator: Evaluator, value: Any, form: Form, what: str) -> Any:
    kind = value.type if isinstance(value, ir.Value) else value
    if not isinstance(kind, ir.ShapedType) or not kind.has_rank:
        evaluator.site.fail(f"`{what}` wants a value with a shape, and got {describe(value)}", form)
    return kind


@builtin("shape", 1, 1)
def _shape(evaluator: Evaluator, form: Form, value: Any) -> Any:
    return tuple(size if size >= 0 else None for size in _shaped(evaluator, value, form, "shape").shape)


@builtin("dim", 2, 2)
def _dim(evaluator: Evaluator, form: Form, value: Any, position: Any) -> Any:
    sizes = _shape(evaluator, form, value)
    if not isinstance(position, int) or not -len(sizes) <= position < len(sizes):
        evaluator.site.fail(
            f"{describe(position)} is not one of the {len(sizes)} dimensions of {describe(value)}", form
        )
    return sizes[position]


@builtin("rank", 1, 1)
def _rank(evaluator: Evaluator, form: Form, value: Any) -> Any:
    return len(_shaped(evaluator, value, form, "rank").shape)


@builtin("dtype", 1, 1)
def _dtype(evaluator: Evaluator, form: Form, value: Any) -> Any:
    kind = value.type if isinstance(value, ir.Value) else value
    if not isinstance(kind, ir.Type):
        evaluator.site.fail(f"`dtype` wants an SSA value or a type, and got {describe(value)}", form)
    return kind.element_type if isinstance(kind, ir.ShapedType) else kind


@builtin("type", 1, 1)
def _type(evaluator: Evaluator, form: Form, value: Any) -> Any:
    value = evaluator.ssa(value, form)
    if not isinstance(value, ir.Value):
        evaluator.site.fail(f"`type` wants an SSA value, and got {describe(value)}", form)
    return value.type


@builtin("reshape", 2, 2)
def _reshape(evaluator: Evaluator, form: Form, tensor: Any, shape: Any) -> Any:
    """`(reshape x [n h d])`: the same elements in the same order."""
    tensor = tensor_of(evaluator, tensor, form, "reshape")
    given = items_of(shape)
    sizes = tuple(map(_whole, given or ()))
    if given is None or not all(isinstance(size, int) for size in sizes):
        evaluator.site.fail(f"`reshape` wants its sizes in a vector of whole numbers, and got {describe(shape)}", form)
    return reshape(evaluator, tensor, sizes, form)


def _whole(value: Any) -> Any:
    """A real that is whole as the integer that it is, as sizes may come of shares."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def reshape(evaluator: Evaluator, tensor: ir.Value, shape: tuple[int, ...], form: Form) -> ir.Value:
    """The same elements in another shape, through collapse_shape and expand_shape."""
    old = tuple(tensor.type.shape)
    if old == shape:
        return tensor
    if math.prod(old) != math.prod(shape) or min(shape, default=1) < 0:
        sizes = "x".join(map(str, shape))
        evaluator.site.fail(
            f"`{show(form)}`: {tensor.type} cannot become {sizes}, which counts {math.prod(shape)}", form
        )
    groups = _groups(old, shape)
    middle = tuple(math.prod(old[i] for i in ours) for ours, _ in groups)
    element = tensor.type.element_type
    if len(middle) < len(old):
        ours = [list(group) for group, _ in groups]
        tensor = _change(evaluator, "tensor.collapse_shape", tensor, middle, element, ours, {}, form)
    if len(middle) < len(shape):
        static = {"static_output_shape": ir.DenseI64ArrayAttr.get(list(shape))}
        theirs = [list(group) for _, group in groups]
        tensor = _change(evaluator, "tensor.expand_shape", tensor, shape, element, theirs, static, form)
    return tensor


def _change(
    evaluator: Evaluator,
    op: str,
    tensor: ir.Value,
    shape: tuple[int, ...],
    element: ir.Type,
    groups: list[list[int]],
    attributes: dict[str, Any],
    form: Form,
) -> ir.Value:
    kind = tensor_type(evaluator, shape, element, form)
    index_groups = [ir.ArrayAttr.get([ir.IntegerAttr.get(evaluator.builder.i64, i) for i in group]) for group in groups]
    reassociation = {"reassociation": ir.ArrayAttr.get(index_groups)}
    return evaluator.builder.emit(op, [tensor], [kind], reassociation | attributes, form)


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes that count the same elements, as short as they come."""
    if not old or not new:
        return []
    if 0 in old:  # whose elements any dimensions count together
        return [(list(range(len(old))), list(range(len(new))))]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        ours, theirs, a, b = [i], [j], old[i], new[j]
        while a != b:
            if a < b:
                i += 1
                a *= old[i]
                ours.append(i)
            else:
                j += 1
                b *= new[j]
                theirs.append(j)
        i, j = i + 1, j + 1
        groups.append((ours, theirs))
    groups[-1][0].extend(range(i, len(old)))
    groups[-1][1].extend(range(j, len(new)))
    return groups


@builtin("slice", 3, 3)
def _slice(evaluator: Evaluator, form: Form, tensor: Any, offsets: Any, sizes: Any) -> Any:
    """`(slice x [offset …] [size …])`: so many from each offset on; nil is not the rest: it takes one, and drops the
    dimension.

    All columns from the third on are `(slice x [0 2] [(dim x 0) (- (dim x 1) 2)])`."""
    tensor = tensor_of(evaluator, tensor, form, "slice")
    return extract(evaluator, tensor, _parts(evaluator, offsets, form), _parts(evaluator, sizes, form), form)


def extract(
    evaluator: Evaluator, tensor: ir.Value, offsets: tuple[Any, ...], sizes: tuple[Any, ...], form: Form
) -> ir.Value:
    """tensor.extract_slice; None among the sizes drops the dimension."""
    attributes, dynamic = _window(evaluator, tensor.type, offsets, sizes, form, [1, 1, 0, 0])
    shape = [size for size in sizes if size is not None]
    if shape == list(tensor.type.shape):
        return tensor
    kind = tensor_type(evaluator, shape, tensor.type.element_type, form)
    if 0 in tensor.type.shape:  # in which no offset is a place
        return reshape(evaluator, tensor, tuple(shape), form)
    if 0 in shape:
        attributes["static_offsets"] = ir.DenseI64ArrayAttr.get([0] * len(offsets))
        attributes["operandSegmentSizes"], dynamic = ir.DenseI32ArrayAttr.get([1, 0, 0, 0]), []
    return evaluator.builder.emit("tensor.extract_slice", [tensor, *dynamic], [kind], attributes, form)


@builtin("insert", 4, 4)
def _insert(evaluator: Evaluator, form: Form, part: Any, whole: Any, offsets: Any, sizes: Any) -> Any:
    """`(insert part whole [offset …] [size …])`: whole with a part replaced; sizes as for `slice`."""
    part, whole = tensor_of(evaluator, part, form, "insert"), tensor_of(evaluator, whole, form, "insert")
    return insert(evaluator, part, whole, _parts(evaluator, offsets, form), _parts(evaluator, sizes, form), form)


def insert(
    evaluator: Evaluator,
    part: ir.Value,
    whole: ir.Value,
    offsets: tuple[Any, ...],
    sizes: tuple[Any, ...],
    form: Form,
) -> ir.Value:
    """tensor.insert_slice; None among the sizes is a dimension that the part does not have."""
    attributes, dynamic = _window(evaluator, whole.type, offsets, sizes, form, [1, 1, 1, 0, 0])
    if [size for size in sizes if size is not None] != list(part.type.shape):
        wanted = "x".join(str(size) for size in sizes if size is not None)
        evaluator.site.fail(f"a part of shape {wanted} is replaced, and {part.type} is given", form)
    if part.type.element_type != whole.type.element_type:
        evaluator.site.fail(f"{part.type} does not go into {whole.type}; `cast` it first", form)
    if 0 in part.type.shape:
        return whole
    return evaluator.builder.emit("tensor.insert_slice", [part, whole, *dynamic], [whole.type], attributes, form)


def _parts(evaluator: Evaluator, value: Any, form: Form) -> tuple[Any, ...]:
    parts = items_of(value)
    if parts is None:
        evaluator.site.fail(f"offsets and sizes are vectors, like [0 0], and this is {describe(value)}", form)
    return tuple(map(_whole, parts))


def _window(
    evaluator: Evaluator, kind: Any, offsets: tuple[Any, ...], sizes: tuple[Any, ...], form: Form, segments: list[int]
) -> tuple[dict[str, ir.Attribute], list[ir.Value]]:
    """The attributes and operands of a slice op, checked against the tensor's type."""
    shape = tuple(kind.shape)
    if len(offsets) != len(shape) or len(sizes) != len(shape):
        evaluator.site.fail(f"{kind} has {len(shape)} dimensions: give as many offsets and sizes", form)
    static, dynamic = [], []
    for offset, size, end in zip(offsets, sizes, shape, strict=True):
        length = 1 if size is None else size
        if not isinstance(length, int) or not 0 <= length <= end:
            evaluator.site.fail(f"{describe(size)} is not a size within {kind}", form)
        if isinstance(offset, int):
            if not 0 <= offset <= end - length:
                evaluator.site.fail(f"{length} from {offset} on reaches past a dimension of {end} in {kind}", form)
            static.append(offset)
        elif isinstance(offset, (ir.Value, LoopIndex)):
            static.append(_DYNAMIC)
            dynamic.append(as_index(evaluator, offset, form))
        else:
            evaluator.site.fail(f"an offset is a whole number, and this is {describe(offset)}", form)
    counts = [len(dynamic) if i == len(segments) - 3 else c for i, c in enumerate(segments)]
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(static),
        "static_sizes": ir.DenseI64ArrayAttr.get([1 if size is None else size for size in sizes]),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(counts),
    }
    return attributes, dynamic
