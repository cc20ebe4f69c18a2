"""Drawing expressions over what a loop carries: each as its Lisp, and as what numpy makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Compute = Callable[[dict[str, Any]], Any]
"""From the values of names to an array; "i" is the round, the dtype of the weights that of all."""


class Unfit(Exception):
    """What was drawn is decided by its last places, or too large."""


@dataclass(frozen=True)
class Term:
    text: str
    shape: tuple[int, ...]
    value: Compute


@dataclass
class Draw:
    """Draws expressions.  rounds: of the loop around them; None outside of one.  scope: the tensors in reach, by name;
    scalars: numbers in reach.  weights: those that were asked for so far."""

    rng: np.random.Generator
    scope: dict[str, tuple[int, ...]]
    prefix: str
    scalars: list[str] = field(default_factory=list)
    rounds: int | None = None
    counter: str = "i"
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    names: list[int] = field(default_factory=lambda: [0])

    # ---- drawing

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one_of(self, items: list[Any]) -> Any:
        return items[self.whole(0, len(items) - 1)]

    def fresh(self, stem: str) -> str:
        self.names[0] += 1
        return f"{stem}{self.names[0]}"

    def weight(self, shape: tuple[int, ...]) -> Term:
        known = [name for name, array in self.weights.items() if array.shape == shape]
        name = self.one_of(known) if known and self.chance(0.5) else f"{self.prefix}w{len(self.weights)}"
        if name not in self.weights:
            self.weights[name] = self.rng.normal(0, 0.7, shape).astype(np.float32)
        return Term(name, shape, lambda values: values[name])

    def leaf(self, shape: tuple[int, ...]) -> Term:
        known = [name for name, own in self.scope.items() if own == shape]
        if known and self.chance(0.8):
            name = self.one_of(known)
            return Term(name, shape, lambda values: values[name])
        others = [name for name, own in self.scope.items() if math.prod(own) == math.prod(shape)]
        if others and shape and self.chance(0.6):
            name = self.one_of(others)
            text = f"(reshape {name} [{spelled(shape)}])"
            return Term(text, shape, lambda values: values[name].reshape(shape))
        return self.weight(shape)

    def scalar(self) -> tuple[str, Compute]:
        """A number: one in reach, an element, the round, a constant."""
        kinds = ["constant", "constant"] + ["known"] * 2 * bool(self.scalars) + ["round"] * (self.rounds is not None)
        tensors = [(name, shape) for name, shape in self.scope.items() if shape]
        kinds += ["element"] * bool(tensors)
        kind = self.one_of(kinds)
        if kind == "known":
            name = self.one_of(self.scalars)
            return name, lambda values: values[name]
        if kind == "round":
            counter = self.counter
            return f"(* 0.25 (cast {counter} f32))", lambda values: 0.25 * values[counter]
        if kind == "element":
            name, shape = self.one_of(tensors)
            place = tuple(self.whole(0, size - 1) for size in shape)
            return f"(at {name} {spelled(place)})", lambda values: values[name][place]
        number = round(float(self.rng.uniform(-1.2, 1.2)), 3)
        return f"{number}", lambda values: number

    def draw(self, shape: tuple[int, ...], depth: int) -> Term:
        """An expression of a shape."""
        if depth <= 0:
            return self.leaf(shape)
        fitting = [kind for kind in KINDS if kind.fits(self, shape)]
        total = sum(kind.weight for kind in fitting)
        chosen = self.rng.choice(len(fitting), p=[kind.weight / total for kind in fitting])
        return fitting[int(chosen)].draw(self, shape, depth - 1)


def spelled(numbers: Any) -> str:
    return " ".join(map(str, numbers))


def dims(names: list[str], shape: tuple[int, ...]) -> str:
    return " ".join(f"{n} {size}" for n, size in zip(names, shape, strict=True))


@dataclass(frozen=True)
class Kind:
    """weight: how often it is drawn.  fits: of which shapes it is.  draw: makes one of a shape and a depth."""

    weight: float
    fits: Callable[[Draw, tuple[int, ...]], bool]
    draw: Callable[[Draw, tuple[int, ...], int], Term]


KINDS: list[Kind] = []


def offers(weight: float, fits: Callable[[Draw, tuple[int, ...]], bool]) -> Callable[[Any], Any]:
    """Have a function be drawn."""

    def keep(draw: Any) -> Any:
        KINDS.append(Kind(weight, fits, draw))
        return draw

    return keep
