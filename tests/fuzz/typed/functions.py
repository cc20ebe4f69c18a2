"""Functions of random programs: their values, calls of them, and layers that a fold goes through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from fuzz.typed.approx import Approx, Unfit, through
from fuzz.typed.graph import Env, Node, Scope, names_in, replay, written
from fuzz.typed.layers import linear


class Function:
    """A defn with its values."""

    def __init__(
        self, name: str, parameters: list[Node], nodes: list[Node], result: Node, layer: bool, rng: Any
    ) -> None:
        self.name, self.parameters, self.nodes, self.result = name, parameters, nodes, result
        free = {n for node in nodes for d in node.shape for n in names_in(d)}
        self.names = sorted(free | {n for node in parameters for d in node.shape for n in names_in(d)})
        body = written(nodes, lambda text: text(result), rng)
        taken = " ".join([f"p{n}" for n in range(len(parameters))] + self.names + (["l"] if layer else []))
        self.text = f"(defn {name} [{taken}]\n  {body})"

    def run(self, env: Env, *values: Approx) -> Approx:
        return replay(self.nodes, env, dict(zip(self.parameters, values, strict=True)))[self.result]


def define(maker: Any, arguments: list[Node], steps: int, layer: bool = False) -> Function:
    """A function of some values; of a layer, the first and something added to it, and of the layer's number."""
    name = maker.parts.fresh("f")
    inner = Scope(replace(maker.scope.env), prefix=f"{name}v".replace("f", "u"))
    parameters = []
    for number, node in enumerate(arguments):
        value = maker.scope.values[node]
        parameter = inner.add(
            node.shape, node.dtype, [], lambda n=number: f"p{n}", lambda e, v=value: v, leaf=True, below=node.below
        )
        parameters.append(parameter)
    grown = type(maker)(maker.parts, inner, maker.dims, layer)
    grown.grow(steps)
    result = residual(grown, parameters[0]) if layer else grown.pick(inner.nodes[-2:])
    if result in parameters or result.leaf:
        raise Unfit("an empty function")
    result.uses += 1
    return Function(name, parameters, inner.nodes, result, layer, maker.rng)


def residual(maker: Any, x: Node) -> Node:
    """x and something of its shape."""
    same = [n for n in maker.scope.pool if n.shape == x.shape and n is not x and n.dtype == "f32" and not n.leaf]
    if not same:
        last = maker.pick([n for n in maker.floats() if not n.leaf] or maker.floats())
        if x.rank == 2 and last.rank == 2 and last.shape[0] == x.shape[0]:
            w = maker.weight((x.shape[1], last.shape[1]))
            same = [maker.layers.add(x.shape, [last, w], "(matmul-transposed {} {})", linear)]
        else:
            same = [maker.comprehensions.tensor(x.shape, [last, x], real=True)]
    other = same[-1]
    if other.dtype == "i32":
        raise Unfit("no reals")
    return maker.scope.add(
        x.shape, "f32", [x, other], lambda a, b: f"(+ {a} {b})", lambda e, a, b: through(np.add, a, b)
    )


def call(maker: Any, made: Function, arguments: list[Node]) -> Node:
    """A call of a function."""
    node = maker.scope.add(
        made.result.shape, made.result.dtype, arguments,
        lambda *t: f"({made.name} {' '.join([*t, *made.names])})", made.run, below=made.result.below, pinned=True,
        inside=made.result,
    )  # fmt: skip
    maker.parts.functions.append(made.text)
    return node


def fold(maker: Any, x: Node) -> Node:
    """The layers of a model, each with weights of its own."""
    made = define(maker, [x], int(maker.rng.integers(2, 6)), layer=True)
    count = maker.parts.layers

    def compute(env: Env, v: Approx) -> Approx:
        for layer in range(count):
            v = made.run(replace(env, layer=layer), v)
        return v

    extra = "".join(f" {n}" for n in made.names)
    step = f"(fn [x l] ({made.name} x{extra} l))"
    forms = ["(fold STEP {} (range layers))", "(fold STEP {} (for [i (range layers)] i))"]
    if count == 2:
        forms.append("(let [step STEP] (step (step {} 0) 1))")
    form = maker.pick(forms).replace("STEP", step)
    node = maker.scope.add(
        x.shape, x.dtype, [x], lambda t: form.replace("{}", t), compute, pinned=True, inside=made.result
    )
    maker.parts.functions.append(made.text)
    return node
