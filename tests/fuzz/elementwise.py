"""Elementwise ops on whole tensors: broadcasting operators, casts, and functions of several operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz import exact
from fuzz.exact import Exact
from fuzz.generate import Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run
from fuzz.scalars import DTYPES, LETTERS, SCALARS, giving

CASTS = {("f32", "bf16"), ("bf16", "f32"), ("i32", "f32"), ("i1", "f32"), ("i1", "i32"), ("i32", "bf16")}


def _leaf_value(node: Node, _: list[Exact], run: Run) -> Exact:
    return run.weights[node.facts["name"]]


def _scalar_value(node: Node, operands: list[Exact], run: Run) -> Exact:
    found = SCALARS[node.facts["name_of"]].compute(*operands)
    return Exact(np.broadcast_to(found.value, node.kind.shape), np.broadcast_to(found.error, node.kind.shape))


def cast(x: Exact, dtype: str) -> Exact:
    """A cast that loses nothing, or rounds to BF16."""
    if dtype == "bf16":
        return exact.to_bf16(exact.to_float(x))
    return exact.to_float(x) if dtype == "f32" else Exact(x.value.astype(np.int64), x.error)


OPS["weight"] = Op(lambda node, _: node.facts["name"], _leaf_value)
OPS["scalar"] = Op(lambda node, names: SCALARS[node.facts["name_of"]].write(*names), _scalar_value)
OPS["cast"] = Op(
    lambda node, names: f"(cast {names[0]} {node.kind.dtype})", lambda node, values, _: cast(values[0], node.kind.dtype)
)
OPS["drop"] = Op(
    lambda node, names: f"(slice {names[0]} [0] [nil])", lambda node, values, _: values[0].view(lambda a: a[0])
)


def operand(builder: Builder, shape: tuple[int, ...], letter: str, broadcasts: bool) -> Node:
    """An operand that broadcasts to a shape, of a dtype that counts as the letter's."""
    if broadcasts:
        shape = tuple(1 if builder.chance(0.3) else size for size in shape)
        shape = shape[builder.random.randint(0, len(shape)) :] if builder.chance(0.4) else shape
    if letter == "f":
        return builder.need(shape, "bf16" if builder.chance(0.12) else "f32")
    return builder.need(shape, DTYPES[letter])


@offers("f32", "i32", "i1", weight=4.0)
def make_scalar(builder: Builder, kind: Kind) -> Node:
    name = builder.random.choice(giving(LETTERS[kind.dtype]))
    scalar = SCALARS[name]
    whole = builder.random.randrange(len(scalar.arguments))
    operands = [
        operand(builder, kind.shape, letter, i != whole and builder.chance(0.4))
        for i, letter in enumerate(scalar.arguments)
    ]
    return builder.add("scalar", kind, *operands, name_of=name)


@offers("f32", "bf16", "i32", weight=0.7)
def make_cast(builder: Builder, kind: Kind) -> Node:
    source = builder.random.choice([a for a, b in sorted(CASTS) if b == kind.dtype])
    return builder.add("cast", kind, builder.need(kind.shape, source))


Tree = tuple[Any, ...]
"""A function of elements: ("argument", n), or the name of a scalar function and its arguments' trees."""


def random_tree(builder: Builder, letter: str, letters: list[str], depth: int) -> Tree:
    fitting = [i for i, have in enumerate(letters) if have == letter]
    if (depth == 0 or builder.chance(0.2)) and fitting:
        return ("argument", builder.random.choice(fitting))
    if depth <= 0:
        return ("number", {"f": 0.75, "i": 2, "b": True}[letter])
    name = builder.random.choice([n for n in giving(letter) if n not in ("relu", "sigmoid", "silu", "gelu")])
    arguments = SCALARS[name].arguments
    return (name, *(random_tree(builder, a, letters, depth - 1) for a in arguments))


def write_tree(tree: Tree, names: list[str]) -> str:
    head, *rest = tree
    if head == "argument":
        return names[rest[0]]
    if head == "number":
        return {True: "(= 1 1)"}.get(rest[0], str(rest[0])) if isinstance(rest[0], bool) else _number(rest[0])
    return SCALARS[head].write(*(write_tree(part, names) for part in rest))


def _number(value: float) -> str:
    return f"(: {value} f32)" if isinstance(value, float) else f"(: {value} i32)"


def tree_value(tree: Tree, values: list[Exact]) -> Exact:
    head, *rest = tree
    if head == "argument":
        return values[rest[0]]
    if head == "number":
        return Exact.of(rest[0])
    return SCALARS[head].compute(*(tree_value(part, values) for part in rest))


def _map_value(node: Node, operands: list[Exact], run: Run) -> Exact:
    found = tree_value(node.facts["tree"], operands)
    return Exact(np.broadcast_to(found.value, node.kind.shape), np.broadcast_to(found.error, node.kind.shape))


def _write_map(node: Node, names: list[str]) -> str:
    parameters = [f"a{i}" for i in range(len(names))]
    body = write_tree(node.facts["tree"], parameters)
    return f"(elementwise (fn [{' '.join(parameters)}] {body}) {' '.join(names)})"


OPS["map"] = Op(_write_map, _map_value)


@offers("f32", "i32", weight=1.5)
def make_map(builder: Builder, kind: Kind) -> Node:
    letters = [LETTERS[kind.dtype], *(builder.random.choice("ffi") for _ in range(builder.random.randint(0, 2)))]
    tree = random_tree(builder, letters[0], letters, builder.random.randint(1, 3))
    if tree[0] in ("argument", "number"):
        tree = ({"f": "neg", "i": "neg-i"}[letters[0]], tree)
    operands = [operand(builder, kind.shape, letter, i > 0) for i, letter in enumerate(letters)]
    return builder.add("map", kind, *operands, tree=tree)
