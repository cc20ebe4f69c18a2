"""A program as a graph of values, each with its Lisp and with what numpy makes of it in float64.

How far off a right implementation may be is not derived but tried: the graph is computed several more times, with every
value moved at random by some of its last places, and what that changes in a result is what rounding may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

LAST_PLACES = {"f32": 2.0**-22, "bf16": 2.0**-7, "f16": 2.0**-10}
"""By how much of itself a value is moved, by the type in which it is stored."""
SAMPLES = 4
"""How many moved computations there are."""
LARGEST = 300.0
"""Of values: a program that goes beyond measures overflow, not arithmetic."""


class Unfit(Exception):
    """What was drawn is not to be part of a program: infinite, huge, or decided by its last places."""


class Noise:
    """Moves values at random, or, without a generator, leaves them.  product: how much of itself a factor of a sum of
    products is moved, since matrix instructions take F32 in pieces.  smooth: whether roundings are left out."""

    def __init__(self, rng: np.random.Generator | None = None, product: float = 0.0, smooth: bool = False) -> None:
        self.rng, self.product, self.smooth = rng, product, smooth

    def moved(self, values: np.ndarray, share: float) -> np.ndarray:
        if self.rng is None or values.dtype.kind != "f":
            return values
        return values * (1 + share * self.rng.uniform(-1, 1, values.shape))

    def factor(self, values: np.ndarray) -> np.ndarray:
        return self.moved(values, self.product) if self.product else values

    def rounded(self, values: np.ndarray, dtype: str) -> np.ndarray:
        """Values as their type holds them."""
        if values.dtype.kind != "f" or (self.smooth and dtype != "f32"):
            return values
        if dtype == "bf16" and self.rng is None:
            return bf16(values)
        if dtype == "f16" and self.rng is None:
            return values.astype(np.float16).astype(np.float64)
        return self.moved(values, LAST_PLACES[dtype])


def bf16(values: np.ndarray) -> np.ndarray:
    """float64 values rounded to the nearest BF16, of equally near ones to the even one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64).reshape(values.shape)


Compute = Callable[..., np.ndarray]
"""(noise, the parents' arrays) -> the array."""


@dataclass(eq=False)
class Node:
    """text: with {0}, {1} … for its parents.  kind: let, weight, layers (a weight for each layer), input or state."""

    name: str
    text: str
    parents: tuple[Node, ...]
    compute: Compute | None
    shape: tuple[int, ...]
    dtype: str
    kind: str = "let"
    dims: tuple[str, ...] = ()
    uses: int = 0
    leaf: np.ndarray | None = None
    samples: list[np.ndarray] = field(default_factory=list)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def computed(nodes: Sequence[Node], leaves: dict[Node, np.ndarray], noise: Noise) -> dict[Node, np.ndarray]:
    """Every node's array; leaves replace what nodes begin with."""
    found: dict[Node, np.ndarray] = {}
    for node in nodes:
        found[node] = one(node, found, leaves, noise)
    return found


def one(node: Node, found: dict[Node, np.ndarray], leaves: dict[Node, np.ndarray], noise: Noise) -> np.ndarray:
    if node.compute is None:
        return leaves.get(node, node.leaf)  # type: ignore[return-value, arg-type]
    with np.errstate(all="ignore"):
        made = np.asarray(node.compute(noise, *[found[parent] for parent in node.parents]))
    if made.dtype.kind == "b" or made.dtype.kind == "i":
        return made.astype(np.int64)
    return noise.rounded(made.astype(np.float64), node.dtype)


def off(samples: Sequence[np.ndarray]) -> np.ndarray:
    """How far an implementation may be from the first sample, by element."""
    first = samples[0]
    if first.dtype.kind != "f":
        return np.zeros(first.shape)
    apart = np.abs(np.stack([sample - first for sample in samples[1:]])).max(axis=0)
    everywhere = float(np.sqrt((apart**2).mean())) if apart.size else 0.0
    return 8.0 * np.maximum(apart, everywhere) + 2e-6 * float(np.abs(first).max(initial=0.0))


def fit(samples: Sequence[np.ndarray]) -> None:
    """Unfit, where values are too large, no numbers, or mostly rounding."""
    first = samples[0]
    if first.dtype.kind != "f":
        if np.abs(first).max(initial=0) > 1 << 30 or any((s != first).any() for s in samples[1:]):
            raise Unfit
        return
    largest = float(np.abs(first).max(initial=0.0))
    if not np.isfinite(first).all() or largest > LARGEST:
        raise Unfit
    if not all(np.isfinite(s).all() for s in samples) or float(off(samples).max(initial=0.0)) > 0.1 * largest + 1e-4:
        raise Unfit
