"""The library's layers, and a softmax over any dimension."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from fuzz import exact
from fuzz.exact import Exact, monotone
from fuzz.generate import Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run
from fuzz.scalars import sigmoid


def _softmax_text(node: Node, names: list[str]) -> str:
    axis = node.facts["axis"]
    if axis == len(node.kind.shape) - 1:
        return f"(softmax {names[0]})"
    kind = f"tensor<{'x'.join(map(str, node.kind.shape))}xf32>"
    return f"(linalg.softmax {{:dimension {axis} :result {kind}}} {names[0]} (tensor.empty {{:result {kind}}}))"


OPS["softmax"] = Op(_softmax_text, lambda node, values, _: exact.softmax(values[0], node.facts["axis"]))


@offers("f32", weight=1.5)
def make_softmax(builder: Builder, kind: Kind) -> Node | None:
    if not kind.shape:
        return None
    axis = len(kind.shape) - 1 if builder.chance(0.75) else builder.random.randrange(len(kind.shape))
    return builder.add("softmax", kind, builder.need(kind.shape), axis=axis)


Compute = Callable[..., Exact]


def _scaled(x: Exact, width: int, epsilon: float) -> Exact:
    squares = exact.total(x * x, keepdims=True) * (1.0 / width)
    return x * monotone(lambda v: 1 / np.sqrt(np.maximum(v, 0.0)), _above(squares + epsilon, epsilon))


def _above(x: Exact, least: float) -> Exact:
    """A number that is known to be no less than something, so that its bound is not below that."""
    return Exact(x.value, np.minimum(x.error, np.maximum(x.value - least / 2, x.error * 0)))


def layer_norm(x: Exact, weight: Exact, bias: Exact) -> Exact:
    width = x.shape[-1]
    centred = x - exact.total(x, keepdims=True) / float(width)
    return _scaled(centred, width, 1e-2) * weight + bias


def _linear(run: Run, x: Exact, w: Exact, *bias: Exact) -> Exact:
    found = exact.product("nk,ok->no", x, w, run.precision)
    return found + bias[0] if bias else found


def _swiglu(run: Run, x: Exact, gate: Exact, up: Exact, down: Exact) -> Exact:
    gates = _linear(run, x, gate)
    return _linear(run, gates * sigmoid(gates) * _linear(run, x, up), down)


def _rotate(run: Run, x: Exact, cosine: Exact, sine: Exact) -> Exact:
    half = x.shape[2] // 2
    a, b = x[:, :, :half], x[:, :, half:]
    c, s = cosine[:, None, :], sine[:, None, :]
    one, two = a * c - b * s, b * c + a * s
    return Exact(np.concatenate([one.value, two.value], 2), np.concatenate([one.error, two.error], 2))


def _attend(run: Run, q: Exact, k: Exact, v: Exact) -> Exact:
    """Without a cache: softmax(q kT / sqrt(size)) v over [rows heads size], each row seeing those up to its own."""
    rows, size = q.shape[0], q.shape[2]
    scores = exact.product("shd,thd->hst", q, k, run.precision) * (1.0 / np.sqrt(size))
    seen = np.arange(k.shape[0])[None, :] <= np.arange(rows)[:, None] + max(k.shape[0] - rows, 0)
    hidden = np.where(seen, scores.value, -1e9)
    weights = exact.softmax(Exact(hidden, np.where(seen, scores.error, 0.0)), 2)
    weights = Exact(np.where(seen, weights.value, 0.0), np.where(seen, weights.error, 0.0))
    return exact.product("hst,thd->shd", weights, v, run.precision)


def _attend_text(node: Node, names: list[str]) -> str:
    (rows, heads, size), past = node.kind.shape, node.operands[1].kind.shape[0]
    shift = max(past - rows, 0)
    return f"""(let [scores (contract [h s t] {names[0]} [s h d] {names[1]} [t h d])
          seen (tensor [h {heads} s {rows} t {past}]
                 (select (<= t (+ s {shift})) (* (at scores h s t) {float(size) ** -0.5}) -inf))]
      (contract [s h d] (softmax seen) [h s t] {names[2]} [t h d]))"""


def _of(compute: Compute) -> Any:
    return lambda node, values, run: compute(run, *values)


OPS["layer-norm"] = Op(
    lambda node, names: f"(layer-norm {' '.join(names)} 1e-2)", lambda node, values, _: layer_norm(*values)
)
OPS["rms-norm"] = Op(
    lambda node, names: f"(rms-norm {' '.join(names)} 1e-2)",
    lambda node, values, _: _scaled(values[0], values[0].shape[-1], 1e-2) * values[1],
)
OPS["linear"] = Op(lambda node, names: f"(linear {' '.join(names)})", _of(_linear))
OPS["swiglu"] = Op(lambda node, names: f"(swiglu {' '.join(names)})", _of(_swiglu))
OPS["rotate"] = Op(lambda node, names: f"(rotate {' '.join(names)})", _of(_rotate))
OPS["attend"] = Op(_attend_text, _of(_attend))


@offers("f32", weight=3.0)
def make_layer(builder: Builder, kind: Kind) -> Node | None:
    """One of those that give [rows columns]."""
    if len(kind.shape) != 2:
        return None
    (rows, width), need = kind.shape, builder.need
    op = builder.random.choice(["layer-norm", "rms-norm", "linear", "linear", "swiglu"])
    if op in ("layer-norm", "rms-norm"):
        vectors = [need((width,)) for _ in range(2 if op == "layer-norm" else 1)]
        return builder.add(op, kind, need(kind.shape), *vectors)
    dtype, inner = builder.random.choice(["f32", "bf16"]), builder.size(96)
    x = need((rows, inner))
    if op == "linear":
        bias = [need((width,))] if builder.chance(0.5) else []
        return builder.add(op, kind, x, need((width, inner), dtype), *bias)
    hidden = builder.size(64)
    return builder.add(op, kind, x, *(need((hidden, inner), dtype) for _ in "gu"), need((width, hidden), dtype))


@offers("f32", weight=2.0)
def make_attention(builder: Builder, kind: Kind) -> Node | None:
    if len(kind.shape) != 3 or prod(kind.shape) > 4000:
        return None
    rows, heads, size = kind.shape
    if size % 2 == 0 and builder.chance(0.4):
        angles = [builder.need((rows, size // 2)) for _ in "cs"]
        return builder.add("rotate", kind, builder.need(kind.shape), *angles)
    past = builder.random.choice([rows, rows + builder.size(32)])
    dtype = builder.random.choice(["f32", "f32", "bf16"])
    keys, values = (builder.need((past, heads, size), dtype) for _ in "kv")
    return builder.add("attend", kind, builder.need(kind.shape), keys, values)
