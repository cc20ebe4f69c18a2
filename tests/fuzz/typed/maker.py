"""Grows the values of an entry or of a function, one random step after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.typed import functions
from fuzz.typed.approx import Approx, Unfit, exact
from fuzz.typed.comprehensions import Comprehensions
from fuzz.typed.graph import Dim, Env, Node, Scope
from fuzz.typed.layers import Layers, plain_attention
from fuzz.typed.parts import Declared, Parts
from fuzz.typed.products import Products
from fuzz.typed.views import Views


class Maker:
    """parts: the program.  in_layer: whether weights are a layer's own.  dims: sizes to draw from."""

    def __init__(self, parts: Parts, scope: Scope, dims: list[int], in_layer: bool = False) -> None:
        self.rng, self.parts, self.scope, self.dims, self.in_layer = parts.rng, parts, scope, dims, in_layer
        self.comprehensions = Comprehensions(self.rng, scope)
        self.views = Views(self.rng, scope)
        self.products = Products(self.rng, scope, self.other, dims)
        self.layers = Layers(self.rng, scope, self.weight, dims)

    def pick(self, options: Any) -> Any:
        if not options:
            raise Unfit("nothing to choose from")
        return options[int(self.rng.integers(len(options)))]

    # ---- leaves

    def weight(self, shape: tuple[Dim, ...], dtype: str | None = None) -> Node:
        """A weight, at times one that was there before."""
        if any(not isinstance(d, int) for d in shape):
            return self.other(shape)
        same = [d for d in self.parts.weights.values() if d.shape == shape and bool(d.layers) == self.in_layer]
        if not shape:
            return self.comprehensions.tensor((), self.readable(), real=True)
        if same and self.rng.random() < 0.25:
            made = self.pick(same)
        else:
            fan = shape[-1] if len(shape) > 1 else 1
            made = self.parts.weight(shape, dtype, self.in_layer, self.parts.scale / fan**0.5)
            self.scope.env.held[made.name] = exact(made.value)
        return self.weight_node(made)

    def weight_node(self, made: Declared) -> Node:
        text = f"({made.name} l)" if made.layers else made.name

        def compute(env: Env) -> Approx:
            held = env.held[made.name]
            return held.each(lambda a: a[env.layer]) if made.layers else held

        node = self.scope.add(made.shape, made.dtype, [], lambda: text, compute, leaf=True)
        if self.rng.random() < 0.7:
            self.scope.pool.remove(node)
        return node

    def other(self, shape: tuple[Dim, ...]) -> Node:
        """Something of this shape: what is there, a weight, or made of others."""
        there = [n for n in self.scope.pool if n.shape == shape and n.dtype != "i32"]
        if there and self.rng.random() < 0.4:
            return self.pick(there)
        if shape and all(isinstance(d, int) for d in shape) and self.rng.random() < 0.9:
            return self.weight(shape)
        return self.comprehensions.tensor(shape, self.readable(), real=True)

    # ---- steps

    def readable(self) -> list[Node]:
        """Values of which elements may be read, later ones more often."""
        return self.scope.pool + self.scope.pool[-4:]

    def floats(self, *ranks: int) -> list[Node]:
        pool = self.scope.pool + self.scope.pool[-3:]
        return [n for n in pool if n.dtype != "i32" and (not ranks or n.rank in ranks)]

    def step(self) -> Node:
        """One more value; Unfit where a choice came to nothing."""
        steps = {
            self.tensor: 4, self.elementwise: 3, self.operators: 3, self.contract: 5, self.reduce: 3, self.argmax: 1,
            self.softmax: 1.5, self.reshape: 2, self.slice: 2, self.insert: 1, self.cast: 1, self.concatenated: 1,
            self.layer: 4, self.heads: 1, self.attention: 1.5, self.function: 1.5, self.rows: 1, self.chosen: 0.5,
        }  # fmt: skip
        weights = np.array(list(steps.values()))
        return list(steps)[int(self.rng.choice(len(weights), p=weights / weights.sum()))]()

    def grow(self, count: int) -> None:
        """So many steps; those that come to nothing are left out."""
        done = 0
        for _ in range(6 * count):
            before = len(self.scope.nodes)
            try:
                self.step()
                done += 1
            except Unfit:
                self.undo(before)
            if done >= count:
                return

    def undo(self, count: int) -> None:
        """Take back all values from this one on."""
        for node in self.scope.nodes[count:]:
            for parent in node.parents:
                parent.uses -= 1
            if node in self.scope.pool:
                self.scope.pool.remove(node)
            del self.scope.values[node]
        del self.scope.nodes[count:]

    def shape(self) -> tuple[Dim, ...]:
        rank = int(self.rng.choice([0, 1, 2, 3, 4], p=[0.05, 0.25, 0.4, 0.2, 0.1]))
        known = [d for n in self.scope.pool for d in n.shape if not isinstance(d, tuple)] + self.dims
        return tuple(self.pick(known) for _ in range(rank))

    def tensor(self) -> Node:
        base = self.pick(self.scope.pool)
        shape = self.shape() if self.rng.random() < 0.4 else base.shape
        if self.rng.random() < 0.4:
            shape = tuple(shape[int(i)] for i in self.rng.permutation(len(shape)))
        return self.comprehensions.tensor(shape, self.readable())

    def elementwise(self) -> Node:
        return self.comprehensions.elementwise(self.together(allow_whole=True))

    def operators(self) -> Node:
        return self.comprehensions.operators(self.together(allow_whole=False))

    def together(self, allow_whole: bool) -> list[Node]:
        """One to three tensors that broadcast."""
        nodes = [self.pick(self.floats())]
        for _ in range(int(self.rng.integers(0, 3))):
            shape = nodes[0].shape
            if self.rng.random() < 0.5 and shape:
                tail = shape[int(self.rng.integers(len(shape))) :]
                nodes.append(self.other(tuple(1 if self.rng.random() < 0.15 else d for d in tail)))
            else:
                nodes.append(self.pick(self.scope.pool if allow_whole else self.floats()))
        if not allow_whole and all(n.rank == 0 for n in nodes) and self.rng.random() < 0.5:
            raise Unfit("scalars only")
        return list(dict.fromkeys(nodes))

    def contract(self) -> Node:
        return self.products.contract(self.pick([n for n in self.floats() if n.rank <= 4]))

    def reduce(self) -> Node:
        return self.products.reduce(self.pick([n for n in self.scope.pool if n.rank]))

    def argmax(self) -> Node:
        return self.products.argmax(self.pick([n for n in self.floats(2) if n.dtype == "f32"]))

    def softmax(self) -> Node:
        return self.products.softmax(self.pick([n for n in self.floats(1, 2, 3, 4) if n.dtype == "f32"]))

    def reshape(self) -> Node:
        return self.views.reshape(self.pick(self.scope.pool))

    def slice(self) -> Node:
        return self.views.slice(self.pick([n for n in self.scope.pool if n.rank]))

    def insert(self) -> Node:
        whole = self.pick([n for n in self.scope.pool if n.rank])
        part = self.views.slice(self.pick([n for n in self.scope.pool if n.shape == whole.shape]))
        if self.rng.random() < 0.7 and part.dtype == "f32" and part.rank:
            part = self.comprehensions.tensor(part.shape, self.readable(), real=True)
        return self.views.insert(whole, part)

    def cast(self) -> Node:
        node = self.pick(self.scope.pool)
        return self.views.to_bf16(node) if node.dtype == "f32" else self.views.to_f32(node)

    def concatenated(self) -> Node:
        x = self.pick(self.floats(1, 2, 3))
        return self.views.concatenated(
            x, self.pick([n for n in self.floats() if n.shape[:-1] == x.shape[:-1] and n.rank])
        )

    def layer(self) -> Node:
        return self.layers.any_of_rows(self.pick(self.floats(2)))

    def rows(self) -> Node:
        return self.layers.rows(self.pick([n for n in self.scope.pool if n.dtype == "i32" and n.rank == 1]))

    def heads(self) -> Node:
        return self.layers.rotated(self.pick(self.floats(3)))

    def attention(self) -> Node:
        """Of queries [batch length heads size] over keys and values of as many heads or fewer."""
        q = self.pick(self.floats(4))
        length = q.shape[1] if self.rng.random() < 0.6 else self.pick([3, 5, 8, q.shape[1]])
        if not isinstance(q.shape[2], int) or not isinstance(q.shape[3], int):
            raise Unfit("heads of a free size")
        groups = self.pick([g for g in range(1, q.shape[2] + 1) if q.shape[2] % g == 0])
        k, v = (self.other((q.shape[0], length, groups, q.shape[3])) for _ in "kv")
        window = int(self.rng.choice([1, 2, 3, 100])) if length == q.shape[1] and self.rng.random() < 0.7 else None
        return plain_attention(self.rng, self.scope, q, k, v, window, self.pick([0, 0, 0.25, 0.0625]))

    def chosen(self) -> Node:
        """What is decided while compiling leaves no trace but its value."""
        node = self.pick(self.floats())
        form = self.pick([
            "(if (= (rank {0}) {1}) {0} nil)", "(first [{0} 1])", "(nth [2 {0}] 1)", "(fold (fn [a i] (+ a i)) {0} [])",
            "(let [[a b] [{0} {0}]] b)", "(identity {0})",
        ])  # fmt: skip
        made = self.scope.add(
            node.shape, node.dtype, [node], lambda t: form.format(t, node.rank), lambda e, v: v, below=node.below
        )
        node.uses += 1
        return made

    def function(self) -> Node:
        """A function of some values, called once."""
        if self.in_layer or len(self.parts.functions) > 3:
            raise Unfit("enough functions")
        arguments = list(dict.fromkeys(self.pick(self.floats()) for _ in range(int(self.rng.integers(1, 4)))))
        return functions.call(self, functions.define(self, arguments, int(self.rng.integers(1, 5))), arguments)
