"""Random programs that learn: a loss, its gradients, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from fuzz.typed.approx import Approx, Bounds, Unfit, exact, through
from fuzz.typed.graph import Env, Node, replay
from fuzz.typed.maker import Maker
from fuzz.typed.memory import change_weight, declare, held, keep
from fuzz.typed.parts import Declared

STEP = 1e-3


def loss_of(maker: Maker) -> Node:
    """A tensor of one number, made of the last values."""
    scope, rng = maker.scope, maker.rng
    node = maker.pick([n for n in maker.floats() if not n.leaf][-4:])
    if node.rank and rng.random() < 0.5:
        letters = "abcdefgh"[: node.rank]
        other = maker.other(node.shape) if rng.random() < 0.5 else node
        return maker.products.product(
            node, list(letters), other, list(letters), [], dict(zip(letters, node.shape, strict=True))
        )
    form = maker.pick(["(tanh {})", "(* 0.5 {} {})", "(sin {})"])
    compute = {"(tanh {})": np.tanh, "(* 0.5 {} {})": lambda v: 0.5 * v * v, "(sin {})": np.sin}[form]
    node = scope.add(
        node.shape, "f32", [node], lambda t: form.format(t, t), lambda e, v: through(compute, v, steps=12, slack=1e-6)
    )
    node.parents[0].uses += 1
    while node.rank:
        node = scope.add(node.shape[:-1], "f32", [node], lambda t: f"(sum {t})", lambda e, v: _sum(v))
    return node


def _sum(v: Approx) -> Approx:
    from fuzz.typed.approx import summed

    return summed(v)


def reached(loss: Node, weight: Declared, nodes: list[Node]) -> bool:
    """Whether a loss is made of a weight that the scope itself reads."""
    waiting, seen = [loss], set()
    while waiting:
        node = waiting.pop()
        if node in seen or node.name.startswith("stop"):
            continue
        seen.add(node)
        if node.leaf and not node.parents and node.write() in (weight.name, f"({weight.name} l)"):
            return True
        waiting += [*node.parents, *([node.inside] if node.inside else [])]
    return False


def derivative(run: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """The gradient by differences; Unfit where two widths of step differ."""
    found = np.zeros(at.size)
    flat = at.reshape(-1)
    for i in range(at.size):
        slopes = []
        for step in (STEP, STEP / 2):
            moved = []
            for sign in (1, -1):
                there = flat.copy()
                there[i] += sign * step
                moved.append(run(there.reshape(at.shape)))
            slopes.append((moved[0] - moved[1]) / (2 * step))
        found[i] = (4 * slopes[1] - slopes[0]) / 3
        if abs(slopes[1] - slopes[0]) > 1e-3 * (1 + abs(found[i])):
            raise Unfit("no smooth loss")
    return found.reshape(at.shape)


def gradient_values(nodes: list[Node], loss: Node, env: Env, weight: Declared) -> Approx:
    """The gradient of a loss by a weight; how far float32 may be off is from where all that is held moves a little."""

    def slope(held_now: dict[str, Approx]) -> tuple[np.ndarray, float]:
        def run(value: np.ndarray) -> float:
            moved = replace(env, held={**held_now, weight.name: exact(value)}, frozen=frozen)
            return float(replay(nodes, moved)[loss].value)

        return derivative(run, held_now[weight.name].value), run(held_now[weight.name].value)

    Bounds.on = False
    try:
        base = replay(nodes, replace(env, held=dict(env.held)))
        frozen = {n: v for n, v in base.items() if n.name.startswith("stop")}
        rng = np.random.default_rng(1)
        plain = {name: Approx(v.value) for name, v in env.held.items()}
        found, value = slope(plain)
        near = {
            n: v.value * (1 + 1e-6 * rng.normal(size=v.shape)) for n, v in plain.items() if v.value.dtype.kind == "f"
        }
        moved, _ = slope(plain | {n: Approx(v) for n, v in near.items()})
    finally:
        Bounds.on = True
    largest = np.abs(found).max(initial=0)
    error = 20 * np.abs(moved - found).max(initial=0) + 3e-5 * largest + 1e-5 * max(1, abs(value))
    short = sum(len(n.parents) > 1 and all(parent.dtype == "bf16" for parent in n.parents) for n in nodes)
    error += short * 2**-8 * largest  # what products of bf16 alone hand on to their operands is in bf16, too
    if largest > 1e4 or error > 0.05 * (largest + 1e-2):
        raise Unfit("a steep loss")
    return Approx(found, np.full(found.shape, error))


class Learning:
    """Ends an entry with gradients."""

    def __init__(self, maker: Maker) -> None:
        self.maker, self.scope, self.rng = maker, maker.scope, maker.rng

    def run(self) -> list[Node]:
        """The loss and, of each weight, its gradient; some weights are changed by it."""
        loss = loss_of(self.maker)
        weights = [
            w for w in self.maker.parts.weights.values() if w.value.size <= 64 and reached(loss, w, self.scope.nodes)
        ]
        if not weights:
            raise Unfit("a loss of nothing")
        weights = [weights[int(i)] for i in self.rng.permutation(len(weights))[: int(self.rng.integers(1, 4))]]
        nodes = list(self.scope.nodes)
        names = " ".join(w.name for w in weights)
        found = []
        loss.uses += 1
        self.scope.nodes[-1].pinned = True
        for number, weight in enumerate(weights):
            full = (weight.layers, *weight.shape) if weight.layers else weight.shape
            text = f"(nth (gradients {{}} [{names}]) {number})" if number else f"(first (gradients {{}} [{names}]))"
            found.append(self.gradient(nodes, loss, weight, full, text))
        self.updates(weights, found)
        return [loss, *found]

    def gradient(self, nodes: list[Node], loss: Node, weight: Declared, full: tuple[int, ...], text: str) -> Node:
        def compute(env: Env, *_: Approx) -> Approx:
            return gradient_values(nodes, loss, env, weight)

        return self.scope.add(full, "f32", [loss], lambda t: text.format(t), compute, pinned=True)

    def updates(self, weights: list[Declared], found: list[Node]) -> None:
        """Gradient descent, with momentum or without."""
        for weight, gradient in zip(weights, found, strict=True):
            choice = self.rng.random()
            if weight.layers or choice < 0.3:
                continue
            if choice < 0.6:
                change_weight(self.maker, weight, gradient, self.maker.pick(["0.25", "0.01"]))
                continue
            state = declare(self.maker, weight.shape, "f32", self.scope.env.sizes)

            def compute(env: Env, g: Approx, state: Declared = state) -> Approx:
                new = through(lambda m, x: 0.5 * m + x, held(env, state), g)
                keep(env, state, new)
                return new

            moved = self.scope.add(
                weight.shape, "f32", [gradient],
                lambda g, s=state: f"(update! {s.name} (+ (* 0.5 (read-state {s.name})) {g}))", compute, pinned=True,
            )  # fmt: skip
            change_weight(self.maker, weight, moved)


def stopped(maker: Maker) -> Node:
    """A value through which no gradient goes."""
    node = maker.pick([n for n in maker.floats() if not n.leaf])
    holder: list[Node] = []
    made = maker.scope.add(
        node.shape, node.dtype, [node], lambda t: f"(stop-gradient {t})",
        lambda env, v: env.frozen.get(holder[0], v) if holder else v,
        name=maker.parts.fresh("stop"),
    )  # fmt: skip
    holder.append(made)
    return made
