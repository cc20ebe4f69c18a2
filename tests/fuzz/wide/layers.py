"""The library's larger layers: attention, rotary positions, experts, and blocks that every layer has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fuzz.wide.graph import Node, Unfit
from fuzz.wide.maker import Maker
from fuzz.wide.products import layer_norm, rms_norm, softmax_of, times
from fuzz.wide.scalars import gelu, sigmoid


def attend(noise: Any, q: Any, k: Any, v: Any, keep: Any, bias: Any = 0.0) -> Any:
    """[texts length heads size] by [texts positions groups size]."""
    sharing = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, sharing, 2), np.repeat(v, sharing, 2)
    scores = np.einsum("bshd,bthd->bhst", noise.factor(q), noise.factor(k)) / math.sqrt(q.shape[-1]) + bias
    weights = softmax_of(np.where(keep, noise.rounded(scores, "f32"), -np.inf))
    return np.einsum("bhst,bthd->bshd", noise.factor(weights), noise.factor(v))


def attention(m: Maker) -> Node:
    """Causal, in a window, with a bias for distance, or over all; heads may share keys and values."""
    texts, length, groups, sharing, size = m.whole(1, 3), m.size(24), m.whole(1, 3), m.whole(1, 2), 2 * m.whole(1, 8)
    heads = groups * sharing
    if m.chance(0.25):
        width = heads * size
        x = m.x(2, 3000)
        w = m.weight(3 * width, x.shape[1])
        qkv = m.add("(matmul-transposed {0} {1})", [x, w], times)
        rows = x.shape[0]
        texts = m.one_of([t for t in range(1, 5) if rows % t == 0])
        keep = np.tril(np.ones((rows // texts, rows // texts), bool))

        def whole(n: Any, a: Any) -> Any:
            q, k, v = (a[:, i * width : (i + 1) * width].reshape(texts, -1, heads, size) for i in range(3))
            return attend(n, q, k, v, keep).reshape(rows, width)

        return m.add(f"(causal-self-attention {{0}} {texts} {heads})", [qkv], whole)

    def part(count: int) -> Node:
        for node in m.some(most=4000):
            if node.size == texts * length * count * size:
                return m.reshape_to(node, (texts, length, count, size))
        return m.input((texts, length, count, size))

    q, k, v = part(heads), part(groups), part(groups)
    s, t = np.ogrid[:length, :length]
    near = m.whole(1, 9)
    bias = -0.1 * (s - t) * (1 + np.arange(heads))[:, None, None]
    text, keep, more = m.one_of(
        [
            ("(causal-attention {0} {1} {2})", t <= s, 0.0),
            (f"(causal-attention {{0}} {{1}} {{2}} (within {near}))", (t <= s) & (s - t < near), 0.0),
            (
                f"(weighed-attention {{0}} {{1}} {{2}} (fn [score head t position] "
                f"(select (< (abs (- (cast t i32) (cast position i32))) {near}) score -inf)))",
                abs(s - t) < near,
                0.0,
            ),
            (
                "(causal-attention {0} {1} {2} (fn [score head t position] "
                "(- score (* 0.1 (+ 1.0 (cast (cast head i32) f32)) (cast (cast (- position t) i32) f32)))))",
                t <= s,
                bias,
            ),
            ("(weighed-attention {0} {1} {2} plain-score)", t >= 0 * s, 0.0),
        ]
    )
    return m.add(text, [q, k, v], lambda n, q, k, v: attend(n, q, k, v, keep, more))


def rotated(m: Maker) -> Node:
    x = m.x(3, 3000)
    pairs = x.shape[2] // 2
    if not pairs:
        raise Unfit
    pairs = pairs if m.chance(0.6) and x.shape[2] % 2 == 0 else m.whole(1, pairs)
    ids = m.ids(x.shape[0], 40)
    theta = 100.0
    text = (
        f"(let [angles (rotary-angles {{1}} {pairs} (rotary-frequency {theta} {pairs}))] "
        "(rotate {0} (cos angles) (sin angles)))"
    )

    def run(n: Any, a: Any, i: Any) -> Any:
        angles = (i[:, None] * theta ** (-np.arange(pairs) / pairs))[:, None]
        p, q = a[..., :pairs], a[..., pairs : 2 * pairs]
        c, s = n.moved(np.cos(angles), 1e-5), n.moved(np.sin(angles), 1e-5)
        return np.concatenate([p * c - q * s, q * c + p * s, a[..., 2 * pairs :]], -1)

    return m.add(text, [x, ids], run)


def experts(m: Maker) -> Node:
    x = m.x(2, 600)
    n, width = x.shape
    count, hidden, top = m.whole(2, 5), m.size(16), m.whole(1, 2)
    if width < 2 or n * hidden * width > 40_000:
        raise Unfit
    normed = m.chance(0.5)
    w = [m.weight(count, width), m.weight(count, hidden, width), m.weight(count, hidden, width)]
    w.append(m.weight(count, width, hidden))

    def run(noise: Any, a: Any, r: Any, g: Any, u: Any, d: Any) -> Any:
        scores = times(noise, a, r)
        order = np.argsort(-scores, -1, kind="stable")[:, :top]
        shares = np.exp(np.take_along_axis(scores, order, 1) - scores.max(-1, keepdims=True))
        total = shares.sum(-1) if normed else np.exp(scores - scores.max(-1, keepdims=True)).sum(-1)
        made = np.zeros(a.shape)
        for i in range(top):
            e = order[:, i]
            gate = np.einsum("rk,rok->ro", noise.factor(a), noise.factor(g[e]))
            up = np.einsum("rk,rok->ro", noise.factor(a), noise.factor(u[e]))
            made += (shares[:, i] / total)[:, None] * np.einsum("rk,rok->ro", gate * sigmoid(gate) * up, d[e])
        return made

    text = f"(mixture {{0}} {{1}} {{2}} {{3}} {{4}} {top} {'true' if normed else 'false'})"
    return m.add(text, [x, *w], run)


def block(m: Maker) -> Node:
    """Every layer's share of a stream of rows: `(fold layer x (range layers))` of a function made here."""
    x = m.x(2, 2500)
    width, hidden = x.shape[1], m.size(40)
    ones = m.layer_weight(width, scale=1.0)
    up, down = m.layer_weight(hidden, width), m.layer_weight(width, hidden)
    bias = m.layer_weight(hidden, scale=0.3)
    act, function = m.one_of([("gelu", gelu), ("silu", lambda v: v * sigmoid(v)), ("tanh", np.tanh)])
    name, zeros = m.fresh("layer-"), m.layer_weight(width, scale=0.2)
    with_mean = m.chance(0.5)
    norm = f"(layer-norm x ({ones.name} l) ({zeros.name} l))" if with_mean else f"(rms-norm x ({ones.name} l) 1e-4)"
    m.functions.append(
        f"(defn {name} [x l]\n"
        f"  (+ (* 0.7 x) (linear ({act} (linear {norm} ({up.name} l) ({bias.name} l))) ({down.name} l))))"
    )

    def run(n: Any, a: Any, ones: Any, up: Any, down: Any, bias: Any, zeros: Any) -> Any:
        for l in range(m.layers):  # noqa: E741
            h = layer_norm(n, a, ones[l], zeros[l]) if with_mean else rms_norm(n, a, ones[l], 1e-4)
            h = n.rounded(function(times(n, h, up[l]) + bias[l]), "f32")
            a = n.rounded(0.7 * a + times(n, h, down[l]), "f32")
        return a

    parents = [x, ones, up, down, bias, zeros]
    return m.add(f"(fold {name} {{0}} (range layers))", parents, run)


def one_layer(m: Maker) -> Node:
    """One layer's weight by its number, or all of them by `whole`."""
    layer, (rows, columns) = m.whole(0, m.layers - 1), m.shape(2, 400)
    w = m.layer_weight(rows, columns)
    if m.chance(0.5):
        return m.add(f"(cast ({w.name} {layer}) f32)", [w], lambda n, a: a[layer])
    return m.add(f"(cast (whole {w.name}) f32)", [w], lambda n, a: a)


def called(m: Maker) -> Node:
    """A function of one's own, inlined."""
    x = m.x(2, 2000)
    w = m.weight(x.shape[1], scale=1.0)
    name = m.fresh("mine-")
    m.functions.append(
        f"(defn {name} [a w & more]\n  (let [[n c] (shape a)\n        peak (maximum (abs a))\n"
        "        y (tensor [i n j c] (/ (* (at a i j) (at w j)) (+ 1.0 (at peak i))))]\n    (fold * y more)))"
    )
    more = "" if m.chance(0.5) else " 0.5 1.5"
    return m.add(
        f"({name} {{0}} {{1}}{more})",
        [x, w],
        lambda n, a, w: a * w / (1 + np.abs(a).max(-1, keepdims=True)) * (0.75 if more else 1),
    )
