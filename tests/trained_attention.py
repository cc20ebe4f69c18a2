"""Attention without a cache and its gradients, as Lisp and in float64: masks, windows, slopes, groups, odd lengths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

WEIGH = {
    "none": "score",
    "window": "(select (< (- position t) 5) score -inf)",
    "slope": "(- score (* 0.1 (cast (cast (+ head 1) i32) f32) (cast (cast (- position t) i32) f32)))",
    "softcap": "(* 2.0 (tanh (* 0.5 score)))",
}


@dataclass(frozen=True)
class Case:
    """Of texts of `length`; groups heads of keys, each for heads / groups heads of queries; all: each sees all;
    rounded: gradients are rounded to bf16 and are read as that."""

    length: int = 12
    heads: int = 2
    groups: int = 2
    size: int = 8
    dtype: str = "f32"
    weigh: str = "none"
    texts: int = 2
    all: bool = False
    rounded: bool = False

    def shape(self, count: int) -> tuple[int, ...]:
        return self.texts, self.length, count, self.size

    def write(self, path: Path) -> Path:
        """A program whose entry gives y, and the gradients dq, dk and dv of Σ y · o."""

        def given(name: str, count: int) -> str:
            return f"({name} [{' '.join(map(str, self.shape(count)))}] f32)"

        weigh = f"(fn [score head t position] {WEIGH[self.weigh]})"
        call = "weighed-attention" if self.all else "causal-attention"
        inputs = given("q", self.heads) + given("k", self.groups) + given("v", self.groups) + given("o", self.heads)
        read = "(fn [x] (cast (cast x bf16) f32))" if self.rounded else "(fn [x] x)"
        path.write_text(f"""
(require attention)
(entry train [{inputs}]
  (let [stored (fn [x] (cast x {self.dtype}))
        y (cast ({call} (stored q) (stored k) (stored v) {weigh}) f32)
        [dq dk dv] (gradients (reduce + 0.0 (reshape (* y o) [{np.prod(self.shape(self.heads))}])) [q k v])
        read {read}]
    {{:y y :dq (read dq) :dk (read dk) :dv (read dv)}}))""")
        return path

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Numbers that bf16 has."""
        counts = {"q": self.heads, "k": self.groups, "v": self.groups, "o": self.heads}
        drawn = {name: rng.standard_normal(self.shape(count), np.float32) for name, count in counts.items()}
        return {name: (x.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, x in drawn.items()}

    def exact(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """y and the gradients, in float64."""
        q, k, v, o = (given[name].astype(np.float64) for name in "qkvo")
        sharing = self.heads // self.groups
        k, v = (np.repeat(x, sharing, 2) for x in (k, v))
        score = np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(self.size)
        at, slope = np.arange(self.length), np.ones_like(score)
        far = at[:, None] - at
        if self.weigh == "slope":
            score = score - 0.1 * (np.arange(self.heads) + 1)[:, None, None] * far
        if self.weigh == "softcap":
            slope = 1 - np.tanh(0.5 * score) ** 2
            score = 2 * np.tanh(0.5 * score)
        seen = np.ones_like(far, bool) if self.all else far >= 0
        score = np.where(seen & (far < 5) if self.weigh == "window" else seen, score, -np.inf)
        p = np.exp(score - score.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        y = np.einsum("bhst,bthd->bshd", p, v)
        through = np.einsum("bshd,bthd->bhst", o, v)
        inner = np.einsum("bshd,bshd->bhs", o, y)
        ds = p * (through - inner[..., None]) * slope / np.sqrt(self.size)
        dk, dv = np.einsum("bhst,bshd->bthd", ds, q), np.einsum("bhst,bshd->bthd", p, o)
        by_group = (self.texts, self.length, self.groups, sharing, self.size)
        return {
            "y": y,
            "dq": np.einsum("bhst,bthd->bshd", ds, k),
            "dk": dk.reshape(by_group).sum(3),
            "dv": dv.reshape(by_group).sum(3),
        }

    def check(self, found: dict[str, np.ndarray], given: dict[str, np.ndarray], tolerance: float | None = None) -> None:
        """Whether results are right: ‖found - exact‖ is small beside ‖exact‖."""
        if tolerance is None:
            tolerance = 1e-5 if self.dtype == "f32" else 6e-3
        for name, right in self.exact(given).items():
            error = np.linalg.norm(found[name].reshape(right.shape) - right) / max(np.linalg.norm(right), 0.1)
            assert error <= tolerance, (self, name, error)
