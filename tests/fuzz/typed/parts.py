"""What a program is made of beside its entries: weights, states and functions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from fuzz.typed.approx import to_bf16
from fuzz.typed.graph import Dim


@dataclass
class Declared:
    """A weight or a state.  layers: of how many layers it has a slice each; 0 of none.  shape: one of them."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    layers: int
    value: np.ndarray


@dataclass
class Parts:
    """What a program is made of so far.  layers: how many its stacked weights have."""

    rng: np.random.Generator
    layers: int
    scale: float
    weights: dict[str, Declared] = field(default_factory=dict)
    states: dict[str, Declared] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def weight(self, shape: tuple[int, ...], dtype: str | None, stacked: bool, scale: float) -> Declared:
        rng = self.rng
        dtype = dtype or ("bf16" if rng.random() < 0.4 else "f32")
        full = (self.layers, *shape) if stacked else shape
        value = rng.normal(0, scale, full).astype(np.float32).astype(np.float64)
        value = to_bf16(value) if dtype == "bf16" else value
        made = Declared(self.fresh("w"), shape, dtype, self.layers if stacked else 0, value)
        self.weights[made.name] = made
        return made
