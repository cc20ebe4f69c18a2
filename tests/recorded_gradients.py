"""The library's layers, and what PyTorch says that their gradients are (see tools/record_gradients.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np

RECORDED = Path(__file__).parent / "references" / "gradients.json"
Arrays = dict[str, np.ndarray]
HEADS = {"q": (2, 5, 4, 6), "k": (2, 5, 2, 6), "v": (2, 5, 2, 6)}
EXPERTS = {"x": (6, 5), "router": (4, 5), "gate": (4, 7, 5), "up": (4, 7, 5), "down": (4, 5, 7)}
LOSS = {"x": (7, 5), "w": (12, 5), "b": (12,), "ids": (9, (7,))}


@dataclass(frozen=True)
class Layer:
    """A layer as a program calls it, on arrays of these shapes; of whole numbers, (end, shape)."""

    name: str
    expression: str
    shapes: dict[str, tuple]
    definitions: str = ""

    def given(self) -> Arrays:
        """Its inputs, normal and a seed's own, or whole numbers from 0 to below the end."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        whole = {n: rng.integers(0, s[0], s[1]) for n, s in self.shapes.items() if n == "ids"}
        normal = {n: rng.standard_normal(s) for n, s in self.shapes.items() if n != "ids"}
        return {n: a.astype(np.int32) for n, a in whole.items()} | {n: a.astype(np.float32) for n, a in normal.items()}

    def weigh(self, shape: tuple[int, ...]) -> np.ndarray:
        """What each element of the result counts in the loss."""
        rng = np.random.default_rng(crc32(self.expression.encode()))
        return rng.standard_normal(shape).astype(np.float32)


LAYERS = [
    Layer("rows", "(rows table ids)", {"table": (9, 4), "ids": (9, (11,))}),
    Layer("linear", "(linear x w b)", {"x": (5, 7), "w": (6, 7), "b": (6,)}),
    Layer("layer-norm", "(layer-norm x w b 1e-3)", {"x": (4, 9), "w": (9,), "b": (9,)}),
    Layer("rms-norm", "(rms-norm x w 1e-3)", {"x": (4, 9), "w": (9,)}),
    Layer("head-norm", "(head-norm x w 1e-3)", {"x": (3, 4, 6), "w": (6,)}),
    Layer("relu", "(relu x)", {"x": (4, 9)}),
    Layer("sigmoid", "(sigmoid x)", {"x": (4, 9)}),
    Layer("silu", "(silu x)", {"x": (4, 9)}),
    Layer("gelu", "(gelu x)", {"x": (4, 9)}),
    Layer("gelu-exact", "(gelu-exact x)", {"x": (4, 9)}),
    Layer("swiglu", "(swiglu x gate up down)", {"x": (4, 5), "gate": (7, 5), "up": (7, 5), "down": (5, 7)}),
    Layer("geglu", "(geglu x gate up down)", {"x": (4, 5), "gate": (7, 5), "up": (7, 5), "down": (5, 7)}),
    Layer("softmax", "(softmax x)", {"x": (4, 9)}),
    Layer("log-sum-exp", "(log-sum-exp x)", {"x": (1, 2, 3, 4, 9)}),
    Layer("maximum", "(maximum x)", {"x": (4, 9)}),
    Layer("rotary", "(turned x ids)", {"x": (5, 2, 8), "ids": (40, (5,))}),
    Layer("rotary of a part", "(turned-less x ids)", {"x": (5, 2, 8), "ids": (40, (5,))}),
    Layer("attention", "(causal-attention q k v)", HEADS),
    Layer("attention within a window", "(causal-attention q k v (within 3))", HEADS),
    Layer("attention with slopes", "(causal-attention q k v lowered)", HEADS),
    Layer("self-attention", "(causal-self-attention qkv 2 3)", {"qkv": (10, 36)}),
    Layer("mixture", "(mixture x router gate up down 2 false)", EXPERTS),
    Layer("mixture, normed", "(mixture x router gate up down 2 true)", EXPERTS),
    Layer("cross-entropy", "(first (cross-entropy (linear x w b) (targets ids) 10))", LOSS),
    Layer("head-loss", "(first (head-loss x w (targets ids) 10 b))", LOSS),
]
DEFINITIONS = """
(require experts)
(require training)
(defn by [x ids pairs]
  (let [angles (rotary-angles ids pairs (rotary-frequency 10000.0 pairs))]
    (rotate x (cos angles) (sin angles))))
(defn turned [x ids] (by x ids (/ (dim x 2) 2)))
(defn turned-less [x ids] (by x ids (/ (dim x 2) 4)))
(defn lowered [score head t position]
  (- score (* (exp (- (cast (cast head i32) f32))) (cast (cast (- position t) i32) f32))))
(defn targets [ids] (tensor [n (dim ids 0)] (- (at ids n) 2)))
"""


@cache
def recorded() -> dict[str, Arrays]:
    """By the layers' names: the result, and the gradient of the weighed sum of its elements by each input."""
    return {
        name: {key: np.array(values).reshape(shape) for key, (shape, values) in arrays.items()}
        for name, arrays in json.loads(RECORDED.read_text()).items()
    }
