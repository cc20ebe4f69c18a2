"""What grows a program's graph: picks of what is there, new leaves, and values that are computed as they are added."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.real import real_or
from fuzz.wide.graph import SAMPLES, Node, Noise, Unfit, bf16, fit, one

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96]
WEIGHED = np.array([1.0 / (1 + size / 12) for size in SIZES])
LEAST_REAL = 500
"""Elements of shapes that may have a dimension of a known model."""
MOST = 12000
"""Elements of a value."""


class Maker:
    """smooth: values that can be differentiated, in f32, whose kinks are rare.  product: see Noise."""

    def __init__(self, seed: list[int], smooth: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.smooth, self.layers = smooth, int(self.rng.integers(1, 4))
        self.nodes: list[Node] = []
        self.functions: list[str] = []
        self.noises = [Noise(smooth=smooth), *(Noise(np.random.default_rng([*seed, i])) for i in range(1, SAMPLES + 1))]
        for noise in self.noises[1:]:
            noise.product, noise.smooth = 2.0**-15, smooth
        self.count = 0

    # ---- chance

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def whole(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def one_of(self, things: Any) -> Any:
        return things[int(self.rng.integers(len(things)))]

    def size(self, most: int = 96) -> int:
        share = WEIGHED * (np.array(SIZES) <= most)
        return int(self.rng.choice(SIZES, p=share / share.sum()))

    def shape(self, rank: int, most: int = 3000) -> tuple[int, ...]:
        real = real_or(0, most, [*self.seed, self.count]) if rank and most > LEAST_REAL else 0
        sizes = [real] if real else []
        for _ in range(rank - len(sizes)):
            sizes.append(self.size(max(1, min(96, most // math.prod(sizes)))))
        self.rng.shuffle(sizes)
        return tuple(sizes)

    def permutation(self, count: int) -> list[int]:
        return [int(i) for i in self.rng.permutation(count)]

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # ---- leaves

    def leaf(self, kind: str, shape: tuple[int, ...], dtype: str, values: np.ndarray, name: str = "") -> Node:
        node = Node(
            name or self.fresh({"input": "given"}.get(kind, kind[0])), "", (), None, shape, dtype, kind, leaf=values
        )
        node.samples = [noise.moved(values, 2.0**-23) for noise in self.noises]
        self.nodes.append(node)
        return node

    def numbers(self, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> np.ndarray:
        values = self.rng.normal(0, scale, shape).astype(np.float32).astype(np.float64)
        return bf16(values) if dtype == "bf16" else values

    def weight(self, *shape: int, scale: float | None = None, dtype: str = "") -> Node:
        """A new weight, or now and then one that is there."""
        known = [n for n in self.nodes if n.kind == "weight" and n.shape == shape and n.dtype != "i32" and not dtype]
        if known and self.chance(0.3):
            return self.one_of(known)
        dtype = dtype or ("f32" if self.smooth else self.one_of(["f32", "bf16"]))
        scale = scale or 1.0 / math.sqrt(shape[-1] if len(shape) > 1 else 1)
        return self.leaf("weight", shape, dtype, self.numbers(shape, dtype, scale))

    def layer_weight(self, *shape: int, scale: float | None = None) -> Node:
        dtype = "f32" if self.smooth else self.one_of(["f32", "bf16"])
        scale = scale or 1.0 / math.sqrt(shape[-1] if len(shape) > 1 else 1)
        values = self.numbers((self.layers, *shape), dtype, scale)
        return self.leaf("layers", (self.layers, *shape), dtype, values)

    def input(self, shape: tuple[int, ...], dtype: str = "f32", below: int = 0) -> Node:
        values = self.rng.integers(0, below, shape) if below else self.numbers(shape, dtype)
        return self.leaf("input", shape, dtype, np.asarray(values))

    def ids(self, count: int, below: int) -> Node:
        """i32 [count], each less than `below`: an input, or what is computed from one that is there."""
        for node in self.some(rank=1, dtype="i32"):
            if node.shape == (count,) and self.chance(0.3):
                return self.add(f"(mod {{0}} {below})", [node], lambda n, x: x % below, "i32")
        if self.chance(0.15):
            return self.leaf("weight", (count,), "i32", self.rng.integers(0, below, count))
        return self.input((count,), "i32", below)

    # ---- what is there

    def some(self, rank: int | None = None, dtype: str = "f32", most: int = MOST) -> list[Node]:
        """Values that fit, in a random order, late ones first."""
        fitting = [
            n
            for n in self.nodes
            if n.dtype == dtype and (rank is None or n.rank == rank) and n.size <= most and n.kind != "layers"
        ]
        keys = [self.rng.random() * (1.5 if n.kind == "let" and not n.uses else 1) for n in fitting]
        return [n for _, n in sorted(zip(keys, fitting, strict=True), key=lambda pair: -pair[0])]

    def x(self, rank: int | None = None, most: int = 3000, least_rank: int = 0) -> Node:
        """A value of f32, which is made where there is none of the rank."""
        for node in self.some(rank, most=most):
            if node.rank >= least_rank:
                return node
        rank = rank if rank is not None else self.whole(max(1, least_rank), 4)
        bases = [n for n in self.some(most=most) if n.size > 1]
        if bases and self.chance(0.7):
            base = bases[0]
            return self.reshaped(base, rank)
        shape = self.shape(rank, min(most, 1500))
        if not self.smooth and self.chance(0.2):
            return self.add("(cast {0} f32)", [self.input(shape, "bf16")], lambda n, a: a)
        return self.input(shape)

    def reshaped(self, x: Node, rank: int) -> Node:
        """The same elements in as many dimensions."""
        factors = [f for size in x.shape for f in _factors(size)]
        sizes = [1] * rank
        for factor in factors:
            sizes[self.whole(0, rank - 1) if rank else 0] *= factor
        return self.reshape_to(x, tuple(sizes))

    def reshape_to(self, x: Node, shape: tuple[int, ...]) -> Node:
        if shape == x.shape:
            return x
        text = f"(reshape {{0}} [{' '.join(map(str, shape))}])"
        return self.add(text, [x], lambda n, a: a.reshape(shape), x.dtype)

    # ---- values

    def add(self, text: str, parents: list[Node], compute: Callable[..., Any], dtype: str = "f32") -> Node:
        """A value of its Lisp and its numpy; Unfit where it is not to be had."""
        node = Node(self.fresh("v"), text, tuple(parents), compute, (), dtype)
        for i, noise in enumerate(self.noises):
            made = one(node, {p: p.samples[i] for p in parents}, {}, noise)
            node.samples.append(made)
            node.shape = made.shape
            if node.size > MOST:
                raise Unfit
        fit(node.samples)
        for parent in parents:
            parent.uses += 1
        self.nodes.append(node)
        return node


def _factors(size: int) -> list[int]:
    found, at = [], 2
    while size > 1:
        while size % at == 0:
            found.append(at)
            size //= at
        at += 1
    return found
