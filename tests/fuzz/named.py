"""linalg's named ops, by their MLIR names, with starts of their own."""

from __future__ import annotations

import numpy as np
from fuzz import exact
from fuzz.exact import Exact, monotone
from fuzz.generate import Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run

EQUATIONS = {
    "linalg.matmul": "mk,kn->mn",
    "linalg.batch_matmul": "bmk,bkn->bmn",
    "linalg.matvec": "mk,k->m",
    "linalg.vecmat": "k,kn->n",
    "linalg.dot": "k,k->",
}
FUNCTIONS = {"linalg.abs": np.abs, "linalg.negf": np.negative, "linalg.tanh": np.tanh}


def _type(kind: Kind) -> str:
    return f"tensor<{''.join(f'{size}x' for size in kind.shape)}{kind.dtype}>"


def _write_product(node: Node, names: list[str]) -> str:
    return f"({node.facts['named']} {{:result {_type(node.kind)}}} {' '.join(names)})"


def _product(node: Node, operands: list[Exact], run: Run) -> Exact:
    x, w, start = operands
    return exact.product(EQUATIONS[node.facts["named"]], x, w, run.precision) + start


OPS["named-product"] = Op(_write_product, _product)


@offers("f32", weight=0.7)
def make_product(builder: Builder, kind: Kind) -> Node | None:
    fitting = [n for n, e in EQUATIONS.items() if len(e.split("->")[1]) == len(kind.shape)]
    if not fitting:
        return None
    named = builder.random.choice(fitting)
    inputs, result = EQUATIONS[named].split("->")
    sizes = dict(zip(result, kind.shape, strict=True)) | {"k": builder.size(64)}
    shapes = [tuple(sizes[n] for n in side) for side in inputs.split(",")]
    return builder.add("named-product", kind, *(builder.need(s) for s in shapes), builder.need(kind.shape), named=named)


def _write_function(node: Node, names: list[str]) -> str:
    kind = _type(node.kind)
    return f"({node.facts['named']} {{:result {kind}}} {names[0]} (tensor.empty {{:result {kind}}}))"


def _function(node: Node, operands: list[Exact], _: Run) -> Exact:
    if node.facts["named"] == "linalg.tanh":
        return monotone(np.tanh, operands[0])
    return Exact(FUNCTIONS[node.facts["named"]](operands[0].value), operands[0].error)


OPS["named-function"] = Op(_write_function, _function)


@offers("f32", weight=0.3)
def make_function(builder: Builder, kind: Kind) -> Node:
    return builder.add("named-function", kind, builder.need(kind.shape), named=builder.random.choice(list(FUNCTIONS)))


def _write_fill(node: Node, names: list[str]) -> str:
    kind = _type(node.kind)
    return f"(linalg.fill {{:result {kind}}} {node.facts['number']} (tensor.empty {{:result {kind}}}))"


OPS["fill"] = Op(_write_fill, lambda node, _, run: Exact.of(np.full(node.kind.shape, node.facts["number"])))


@offers("f32", weight=0.2)
def make_fill(builder: Builder, kind: Kind) -> Node:
    return builder.add("fill", kind, number=builder.random.choice([0.0, 1.5, -0.25]))
