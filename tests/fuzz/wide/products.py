"""Products: `contract` of any indices in any order, and the library's layers on rows."""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np
from fuzz.wide.graph import Node, Unfit
from fuzz.wide.maker import Maker
from fuzz.wide.scalars import gelu, sigmoid

MOST_WORK = 400_000


def contracted(m: Maker) -> Node:
    """Indices of batches, rows, columns and sums, as many as come, each operand's in an order of its own."""
    counts = {kind: m.whole(least, most) for kind, least, most in [("b", 0, 2), ("r", 0, 2), ("c", 0, 2), ("s", 1, 2)]}
    x = m.x(m.whole(1, 4), 2000)
    names = list(string.ascii_lowercase[8:])
    m.rng.shuffle(names)
    own = names[: x.rank]
    sizes = dict(zip(own, x.shape, strict=True))
    roles = {}
    for name in own:
        roles[name] = m.one_of("brs")
    if "s" not in roles.values():
        roles[own[-1]] = "s"
    columns = names[x.rank : x.rank + counts["c"]]
    for name in columns:
        sizes[name] = m.size(48)
    left = own
    right = [n for n in own if roles[n] in "bs"] + columns
    out = [n for n in own if roles[n] in "br"] + columns
    m.rng.shuffle(right)
    m.rng.shuffle(out)
    if math.prod(sizes.values()) > MOST_WORK or len(right) > 4:
        raise Unfit
    scale = 1 / math.sqrt(math.prod([sizes[n] for n in own if roles[n] == "s"]))
    shape = tuple(sizes[n] for n in right)
    known = [y for y in m.some(len(right)) if y.shape == shape]
    y = known[0] if known and m.chance(0.5) else m.weight(*shape, scale=scale)
    pair = [(x, left), (y, right)]
    if m.chance(0.5):
        pair.reverse()
    spec = f"{''.join(pair[0][1])},{''.join(pair[1][1])}->{''.join(out)}"
    text = f"(contract [{' '.join(out)}] {{0}} [{' '.join(pair[0][1])}] {{1}} [{' '.join(pair[1][1])}])"
    return m.add(
        text, [pair[0][0], pair[1][0]], lambda n, a, b: np.einsum(spec, n.factor(a), n.factor(b), optimize=True)
    )


def both_narrow(m: Maker) -> Node:
    """A product of BF16 by BF16, summed in F32."""
    x = m.x(2, 2000)
    w = m.weight(m.size(64), x.shape[1], dtype="bf16")
    narrow = m.add("(cast {0} bf16)", [x], lambda n, a: a, "bf16")
    return m.add("(matmul-transposed {0} {1})", [narrow, w], lambda n, a, b: a @ b.T)


def times(noise: Any, x: Any, w: Any) -> Any:
    return noise.factor(x) @ noise.factor(w).T


def linear(m: Maker) -> Node:
    x = m.x(2, 4000)
    w = m.weight(m.size(), x.shape[1])
    if m.chance(0.3):
        return m.add("(matmul-transposed {0} {1})", [x, w], times)
    b = m.weight(w.shape[0], scale=0.5)
    return m.add("(linear {0} {1} {2})", [x, w, b], lambda n, x, w, b: times(n, x, w) + b)


def gated(m: Maker) -> Node:
    x = m.x(2, 3000)
    hidden, out = m.size(64), m.size(64)
    gate, up, down = m.weight(hidden, x.shape[1]), m.weight(hidden, x.shape[1]), m.weight(out, hidden)
    name, act = m.one_of([("swiglu", lambda v: v * sigmoid(v)), ("geglu", gelu)])

    def run(n: Any, x: Any, g: Any, u: Any, d: Any) -> Any:
        return times(n, n.rounded(act(times(n, x, g)) * times(n, x, u), "f32"), d)

    return m.add(f"({name} {{0}} {{1}} {{2}} {{3}})", [x, gate, up, down], run)


def layer_norm(n: Any, x: Any, w: Any, b: Any, epsilon: float = 1e-5) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * w + b


def rms_norm(n: Any, x: Any, w: Any, epsilon: float = 1e-5) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w


def normed(m: Maker) -> Node:
    kind = m.whole(0, 3)
    if kind == 3:
        x = m.x(3, 3000)
        w = m.weight(x.shape[2], scale=1.0)
        return m.add("(head-norm {0} {1} 1e-3)", [x, w], lambda n, a, w: rms_norm(n, a, w, 1e-3))
    x = m.x(2, 3000)
    w = m.weight(x.shape[1], scale=1.0)
    if kind == 0:
        return m.add("(rms-norm {0} {1} 1e-2)", [x, w], lambda n, a, w: rms_norm(n, a, w, 1e-2))
    b = m.weight(x.shape[1], scale=0.5)
    text, epsilon = ("(layer-norm {0} {1} {2})", 1e-5) if kind == 1 else ("(layer-norm {0} {1} {2} 0.05)", 0.05)
    return m.add(text, [x, w, b], lambda n, a, w, b: layer_norm(n, a, w, b, epsilon))


def softmax_of(a: Any) -> Any:
    powers = np.exp(a - a.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def softmax(m: Maker) -> Node:
    x = m.x(m.whole(1, 4))
    return m.add("(softmax {0})", [x], lambda n, a: softmax_of(a))


def cross_entropy(m: Maker) -> Node:
    """The mean of -log softmax at what should have been."""
    x = m.x(2, 2000)
    n, c = x.shape
    ids = m.ids(n, c)
    text = (
        f"(let [s {{0}} top (maximum s) all (sum (tensor [r {n} c {c}] (exp (- (at s r c) (at top r))))) i {{1}}] "
        f"(/ (sum (tensor [r {n}] (- (+ (log (at all r)) (at top r)) (at s r (at i r))))) {n}))"
    )

    def run(noise: Any, a: Any, i: Any) -> Any:
        top = a.max(-1)
        return (np.log(np.exp(a - top[:, None]).sum(-1)) + top - a[np.arange(n), i]).mean()

    return m.add(text, [x, ids], run)
