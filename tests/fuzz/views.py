"""Views of the same elements: slices that keep or drop dimensions, reshapes, parts put into others."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from fuzz.exact import Exact
from fuzz.generate import MOST_ELEMENTS, Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run

ANY = ("f32", "bf16", "i32")


def _window(facts: dict[str, Any]) -> tuple[Any, ...]:
    pairs = zip(facts["offsets"], facts["sizes"], strict=True)
    return tuple(offset if size is None else slice(offset, offset + size) for offset, size in pairs)


def _window_text(facts: dict[str, Any]) -> str:
    sizes = " ".join("nil" if size is None else str(size) for size in facts["sizes"])
    return f"[{' '.join(map(str, facts['offsets']))}] [{sizes}]"


def _insert_value(node: Node, operands: list[Exact], _: Run) -> Exact:
    part, whole = operands
    value, error = whole.value.copy(), whole.error.copy()
    value[_window(node.facts)], error[_window(node.facts)] = part.value, part.error
    return Exact(value, error)


OPS["slice"] = Op(
    lambda node, names: f"(slice {names[0]} {_window_text(node.facts)})",
    lambda node, values, _: values[0][_window(node.facts)],
)
OPS["reshape"] = Op(
    lambda node, names: f"(reshape {names[0]} [{' '.join(map(str, node.kind.shape))}])",
    lambda node, values, _: values[0].view(lambda a: a.reshape(node.kind.shape)),
)
OPS["insert"] = Op(lambda node, names: f"(insert {names[0]} {names[1]} {_window_text(node.facts)})", _insert_value)


@offers(*ANY, weight=1.5)
def make_slice(builder: Builder, kind: Kind) -> Node | None:
    shape, sizes = list(kind.shape), list[Any](kind.shape)
    while len(shape) < 5 and builder.chance(0.4):
        place = builder.random.randint(0, len(shape))
        shape.insert(place, 1)
        sizes.insert(place, None)
    offsets = []
    for i in range(len(shape)):
        before, after = (builder.random.choice([0, 0, 0, 1, 2, 5]) for _ in range(2))
        offsets.append(before)
        shape[i] += before + after
    if not shape or prod(shape) > 2 * MOST_ELEMENTS or shape == list(kind.shape):
        return None
    operand = builder.need(tuple(shape), kind.dtype)
    return builder.add("slice", kind, operand, offsets=offsets, sizes=sizes)


@offers(*ANY, weight=1.5)
def make_reshape(builder: Builder, kind: Kind) -> Node | None:
    left, shape = prod(kind.shape), []
    if left == 1 and not kind.shape:
        return None
    while left > 1 and len(shape) < 4:
        divisors = [d for d in range(2, left + 1) if left % d == 0]
        shape.append(builder.random.choice([*divisors[:6], left]))
        left //= shape[-1]
    shape += [left] if left > 1 or not shape else []
    if builder.chance(0.2):
        shape.insert(builder.random.randint(0, len(shape)), 1)
    if tuple(shape) == kind.shape:
        return None
    return builder.add("reshape", kind, builder.need(tuple(shape), kind.dtype))


@offers(*ANY, weight=0.8)
def make_insert(builder: Builder, kind: Kind) -> Node | None:
    """One part put into another value: two of them side by side are a concatenation."""
    if not kind.shape:
        return None
    sizes = [builder.random.randint(1, size) if builder.chance(0.6) else size for size in kind.shape]
    offsets = [builder.random.randint(0, whole - part) for whole, part in zip(kind.shape, sizes, strict=True)]
    dropped: list[Any] = [None if builder.chance(0.15) else size for size in sizes]
    shape = tuple(size for size in dropped if size is not None)
    part = builder.need(shape, kind.dtype)
    whole = builder.need(kind.shape, kind.dtype)
    return builder.add("insert", kind, part, whole, offsets=offsets, sizes=dropped)


@offers(*ANY, weight=0.6)
def make_concatenation(builder: Builder, kind: Kind) -> Node | None:
    wide = [d for d, size in enumerate(kind.shape) if size > 1]
    if not wide:
        return None
    along = builder.random.choice(wide)
    cut = builder.random.randint(1, kind.shape[along] - 1)
    value = builder.need(kind.shape, kind.dtype)
    for start, size in ((0, cut), (cut, kind.shape[along] - cut)):
        sizes = [size if d == along else n for d, n in enumerate(kind.shape)]
        offsets = [start if d == along else 0 for d in range(len(kind.shape))]
        part = builder.need(tuple(sizes), kind.dtype)
        value = builder.add("insert", kind, part, value, offsets=offsets, sizes=sizes)
    return value


def _transposed(node: Node, operands: list[Exact], _: Run) -> Exact:
    return operands[0].view(lambda a: np.transpose(a, node.facts["order"]))


def _write_transpose(node: Node, names: list[str]) -> str:
    order, shape = node.facts["order"], "x".join(map(str, node.kind.shape))
    kind = f"tensor<{shape}x{node.kind.dtype}>"
    attributes = f"{{:permutation array<i64: {', '.join(map(str, order))}> :result {kind}}}"
    return f"(linalg.transpose {attributes} {names[0]} (tensor.empty {{:result {kind}}}))"


OPS["transpose"] = Op(_write_transpose, _transposed)


@offers(*ANY, weight=0.6)
def make_transpose(builder: Builder, kind: Kind) -> Node | None:
    if len(kind.shape) < 2:
        return None
    order = builder.random.sample(range(len(kind.shape)), len(kind.shape))
    shape = [0] * len(order)
    for place, source in enumerate(order):
        shape[source] = kind.shape[place]
    return builder.add("transpose", kind, builder.need(tuple(shape), kind.dtype), order=order)
