"""Random attention without a cache, as Lisp and in float64: layouts, grouped heads, lengths, masks, biases, types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lispgpt.runtime.checkpoints.base import TensorInfo

MASKS = ("none", "causal", "causal, hidden", "shifted", "windowed", "ahead", "positions", "hidden rows")
BIASES = ("none", "tensor", "slope", "softcap")


@dataclass(frozen=True)
class Variant:
    """groups heads of keys, each for `sharing` heads of queries.  axes: the order in which each tensor has its
    dimensions, of b (batch), g (group), h (head of a group), s (query), t (position), e (depth) and d (width)."""

    seed: int
    extents: dict[str, int]
    axes: dict[str, str]
    mask: str
    bias: str
    stored: str
    keys_first: bool

    def shape(self, name: str) -> list[int]:
        return [self.extents[axis] for axis in self.axes[name]]


def random_variant(seed: int, most_rows: int = 40, depths: tuple[int, ...] = (4, 5, 8, 16, 20, 64, 80)) -> Variant:
    rng = np.random.default_rng(seed)

    def one(*choices: int) -> int:
        return int(rng.choice(choices))

    extents = {"b": one(1, 1, 2), "g": one(1, 2), "h": one(1, 1, 2, 3), "s": int(rng.integers(1, most_rows))}
    extents["t"] = extents["s"] if rng.random() < 0.5 else int(rng.integers(1, most_rows + 10))
    extents["e"] = one(*depths)
    extents["d"] = extents["e"] if rng.random() < 0.7 else one(*depths)
    usual = {"q": "bsghe", "k": "bgte", "v": "bgtd", "o": "bsghd", "w": "bsght"}
    if rng.random() < 0.5:
        usual |= {name: "".join(rng.permutation(list(usual[name]))) for name in "qkvo"}
        usual["w"] = "".join(rng.permutation(list("bsgh"))) + "t"
    mask, bias = str(rng.choice(MASKS)), str(rng.choice(BIASES))
    return Variant(seed, extents, usual, mask, bias, str(rng.choice(["f32", "bf16"])), bool(rng.random() < 0.3))


def tiled_variant(seed: int) -> Variant:
    """One with so many rows, in such layouts, that matrix instructions take it."""
    rng, v = np.random.default_rng(seed), random_variant(seed)
    extents = v.extents | {"b": 1, "g": 1, "h": int(rng.integers(1, 3)), "s": int(rng.integers(64, 100))}
    extents["t"] = extents["s"] if v.extents["s"] == v.extents["t"] else int(rng.integers(20, 150))
    extents["e"] = extents["d"] = int(rng.choice([32, 64, 80]))
    layouts = (
        {"q": "bsghe", "k": "bgte", "v": "bgtd", "o": "bsghd", "w": "bsght"},
        {"q": "sbghe", "k": "tbge", "v": "bgtd", "o": "bghsd", "w": "bghst"},
    )
    return replace(v, extents=extents, axes=layouts[seed % 2])


def write_variants(path: Path, variants: list[Variant]) -> Path:
    """A program with an entry `out<seed>` for each."""
    path.write_text("(require nn)(config context 1)" + "".join(map(_entry, variants)))
    return path


def _entry(v: Variant) -> str:
    n = v.seed

    def declared(name: str, axes: str, dtype: str = "f32") -> str:
        return f"({name}{n} [{' '.join(str(v.extents[a]) for a in axes)}] {dtype})"

    def product(left: str, right: str) -> str:
        return f"{right} {left}" if v.keys_first else f"{left} {right}"

    weights = declared("q", v.axes["q"]) + declared("k", v.axes["k"], v.stored) + declared("v", v.axes["v"], v.stored)
    weights += declared("bias", "ghst") + declared("at", "s", "i32")
    score = "(* 0.3 (at scores " + " ".join(v.axes["w"]) + "))"
    score = {
        "none": score,
        "tensor": f"(+ {score} (at bias{n} g h s t))",
        "slope": f"(- {score} (* (cast (cast (+ (* g {v.extents['h']}) h 1) i32) f32) 0.1"
        " (cast (cast (- s t) i32) f32)))",
        "softcap": f"(* 2.0 (tanh (* 0.5 {score})))",
    }[v.bias]
    shift = v.extents["t"] - v.extents["s"]
    seen = {
        "none": score,
        "causal": f"(select (<= t s) {score} -inf)",
        "causal, hidden": f"(select (> t s) -inf {score})",
        "shifted": f"(select (<= t (+ s {shift})) {score} -inf)",
        "windowed": f"(select (<= t s) (select (< (- s t) 5) {score} -inf) -inf)",
        "ahead": f"(select (>= t s) {score} -inf)",
        "positions": f"(select (<= (cast t i32) (at at{n} s)) {score} -inf)",
        "hidden rows": f"(select (= (/ (cast (cast s i32) f32) 2.0) (cast (cast t i32) f32)) -inf {score})",
    }[v.mask]
    axes = {name: f"[{' '.join(order)}]" for name, order in v.axes.items()}
    loops = " ".join(f"{axis} {v.extents[axis]}" for axis in v.axes["w"])
    return f"""
(weights {weights})
(entry out{n} [tokens positions]
  (let [scores (contract {axes["w"]} {product(f"q{n} {axes['q']}", f"k{n} {axes['k']}")})
        seen (tensor [{loops}] {seen})]
    (contract {axes["o"]} {product(f"(softmax seen) {axes['w']}", f"v{n} {axes['v']}")})))"""


def random_inputs(v: Variant) -> dict[str, np.ndarray]:
    """Arrays by the names of the entry's weights: f32, i32, or the bits of bf16 as u16."""
    rng = np.random.default_rng(v.seed)
    values: dict[str, np.ndarray] = {
        name: rng.standard_normal(v.shape(name), dtype=np.float32) for name in ("q", "k", "v")
    }
    if v.stored == "bf16":
        values |= {name: (values[name].view(np.uint32) >> 16).astype(np.uint16) for name in "kv"}
    values["bias"] = rng.standard_normal([v.extents[a] for a in "ghst"], dtype=np.float32)
    values["at"] = rng.integers(0, v.extents["t"], v.extents["s"]).astype(np.int32)
    return {f"{name}{v.seed}": value for name, value in values.items()}


def exact(v: Variant, values: dict[str, np.ndarray]) -> np.ndarray:
    """The result in float64; NaN in rows that see nothing."""
    given = {name.removesuffix(str(v.seed)): _float(array) for name, array in values.items()}
    score = 0.3 * np.einsum(f"{v.axes['q']},{v.axes['k']}->bghst", given["q"], given["k"])
    g, h, s, t = (np.arange(v.extents[axis]) for axis in "ghst")
    head = g[:, None, None, None] * v.extents["h"] + h[:, None, None] + 1
    if v.bias == "tensor":
        score = score + given["bias"]
    elif v.bias == "slope":
        score = score - head * 0.1 * (s[:, None] - t)
    elif v.bias == "softcap":
        score = 2 * np.tanh(0.5 * score)
    score = np.where(_seen(v, s[:, None], t, given["at"][:, None]), score, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(score - score.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    return np.einsum(f"bghst,{v.axes['v']}->{v.axes['o']}", weights, given["v"])


def _seen(v: Variant, s: np.ndarray, t: np.ndarray, at: np.ndarray) -> np.ndarray:
    seen = {
        "none": t >= 0,
        "shifted": t <= s + v.extents["t"] - v.extents["s"],
        "windowed": (t <= s) & (s - t < 5),
        "ahead": t >= s,
        "positions": t <= at,
        "hidden rows": 2 * t != s,
    }.get(v.mask, t <= s)
    return np.asarray(seen)


def _float(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


DTYPES = {"float32": "f32", "uint16": "bf16", "int32": "i32"}


class Stored:
    """What a session asks of a checkpoint, from arrays."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.values = values

    def names(self) -> list[str]:
        return list(self.values)

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(self.values[name].shape, DTYPES[self.values[name].dtype.name], False)

    def view(self, name: str) -> np.ndarray:
        return np.ascontiguousarray(self.values[name])

    def check_finite(self, names: object = None) -> None:
        """They are."""
