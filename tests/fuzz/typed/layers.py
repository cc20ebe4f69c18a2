"""The library's layers on rows, and what they are in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.typed.approx import Approx, Unfit, checked, contraction, through
from fuzz.typed.graph import Env, Node, Scope, dim_text
from fuzz.typed.terms import FUNCTIONS


def normed(v: Approx, epsilon: float, centred: bool) -> Approx:
    """Rows to a mean square of 1: the error by trying the largest changes of a row as a whole, and of its elements."""
    size = v.shape[-1]
    error = np.broadcast_to(v.error, v.shape)
    x = v.value - v.value.mean(-1, keepdims=True) if centred else v.value
    dx = error + error.mean(-1, keepdims=True) + 2e-7 * np.abs(v.value).max(-1, keepdims=True)
    square = (x * x).mean(-1, keepdims=True) + epsilon
    scale = 1 / np.sqrt(square)
    moved = (np.abs(x) * dx).mean(-1, keepdims=True) / square + 1e-6 * size**0.5
    if np.any(moved > 0.1):
        raise Unfit("a row that is all error")
    return checked(Approx(x * scale, dx * scale + np.abs(x) * scale * 1.2 * moved))


def linear(v: Approx, w: Approx, *bias: Approx) -> Approx:
    found = contraction("nk,ok->no", v, w)
    for b in bias:
        found = through(np.add, found, b)
    return found


def act(name: str, v: Approx) -> Approx:
    compute, steps = FUNCTIONS[name]
    return through(compute, v, steps=steps, slack=1e-6)


class Layers:
    """Adds library layers to a scope; `weight` declares a weight of a shape and gives its node."""

    def __init__(self, rng: np.random.Generator, scope: Scope, weight: Callable[..., Node], sizes: list[int]) -> None:
        self.rng, self.scope, self.weight, self.sizes = rng, scope, weight, sizes

    def size(self) -> int:
        return int(self.rng.choice(self.sizes))

    def add(self, shape: Any, parents: list[Node], form: str, compute: Callable[..., Approx]) -> Node:
        return self.scope.add(shape, "f32", parents, lambda *t: form.format(*t), lambda env, *v: compute(*v))

    def any_of_rows(self, x: Node) -> Node:
        """A layer on [rows columns]."""
        made = [self.linear, self.linear, self.layer_norm, self.rms_norm, self.swiglu, self.unbiased, self.gathered]
        return made[int(self.rng.integers(len(made)))](x)

    def linear(self, x: Node) -> Node:
        out = self.size()
        bias = [self.weight((out,), dtype="f32") for _ in range(int(self.rng.integers(0, 3)))]
        form = "(linear {}" + " {}" * (1 + len(bias)) + ")"
        return self.add((x.shape[0], out), [x, self.weight((out, x.shape[1])), *bias], form, linear)

    def unbiased(self, x: Node) -> Node:
        out = self.size()
        parents = [x, self.weight((out, x.shape[1]))]
        return self.add((x.shape[0], out), parents, "(matmul-transposed {} {})", linear)

    def layer_norm(self, x: Node) -> Node:
        epsilon = float(self.rng.choice([1e-5, 1e-6, 0.1]))
        given = "" if epsilon == 1e-5 and self.rng.random() < 0.7 else f" {epsilon}"
        w, b = self.weight((x.shape[1],), dtype="f32"), self.weight((x.shape[1],), dtype="f32")
        return self.add(
            x.shape, [x, w, b], "(layer-norm {} {} {}" + given + ")",
            lambda v, w, b: through(lambda x, w, b: x * w + b, normed(v, epsilon, True), w, b),
        )  # fmt: skip

    def rms_norm(self, x: Node) -> Node:
        epsilon = float(self.rng.choice([1e-5, 1e-6, 0.1]))
        w = self.weight((x.shape[1],), dtype="f32")
        form = "(rms-norm {} {} " + f"{epsilon})"
        return self.add(x.shape, [x, w], form, lambda v, w: through(np.multiply, normed(v, epsilon, False), w))

    def swiglu(self, x: Node) -> Node:
        width, hidden = x.shape[1], self.size()
        weights = [self.weight(shape) for shape in ((hidden, width), (hidden, width), (width, hidden))]

        def compute(v: Approx, gate: Approx, up: Approx, down: Approx) -> Approx:
            return linear(through(np.multiply, act("silu", linear(v, gate)), linear(v, up)), down)

        return self.add(x.shape, [x, *weights], "(swiglu {} {} {} {})", compute)

    def gathered(self, x: Node) -> Node:
        """`by-expert`: each row through the matrix that an i32 of it names."""
        ids = [n for n in self.scope.pool if n.dtype == "i32" and n.shape == x.shape[:1] and isinstance(n.below, int)]
        if not ids:
            raise Unfit("nobody names experts")
        ids_node = ids[int(self.rng.integers(len(ids)))]
        out, width = self.size(), x.shape[1]
        w = self.weight((ids_node.below, out, width))
        rows = dim_text(x.shape[0])
        own = f"(tensor [r {rows} o {out} i {dim_text(width)}] (at {{1}} (at {{2}} r) o i))"

        def compute(v: Approx, w: Approx, ids: Approx) -> Approx:
            return contraction("ri,roi->ro", v, w.each(lambda a: a[ids.value]))

        return self.add((x.shape[0], out), [x, w, ids_node], f"(contract [r o] {{0}} [r i] {own} [r o i])", compute)

    def rows(self, ids: Node) -> Node:
        """A table's rows."""
        if ids.rank != 1 or not isinstance(ids.below, int):
            raise Unfit("no ids")
        width = self.size()
        return self.add(
            (ids.shape[0], width), [self.weight((ids.below, width)), ids], "(rows {} {})",
            lambda t, i: t.each(lambda a: a[i.value]),
        )  # fmt: skip

    def rotated(self, x: Node) -> Node:
        """Rotary positions of [rows heads size]."""
        n, heads, size = x.shape
        if not isinstance(size, int) or size % 2:
            raise Unfit("an odd size")
        theta = float(self.rng.choice([10.0, 100.0, 10000.0]))
        places = [p for p in self.scope.pool if p.dtype == "i32" and p.shape == (n,)]
        pairs = size // 2
        angles = f"(rotary-angles {{1}} {pairs} (rotary-frequency {theta} {pairs}))"
        parents = [x]
        if places and self.rng.random() < 0.7:
            parents.append(places[int(self.rng.integers(len(places)))])
        else:
            angles = angles.replace("{1}", f"(tensor [r {dim_text(n)}] (cast r i32))")

        def compute(v: Approx, *where: Approx) -> Approx:
            at = where[0].value if where else np.arange(v.shape[0])
            turn = at[:, None] * theta ** (-np.arange(pairs) / pairs)
            if np.abs(turn).max(initial=0) > 1000:
                raise Unfit("too many turns")
            c, s = np.cos(turn)[:, None], np.sin(turn)[:, None]
            a, b = v.value[..., :pairs], v.value[..., pairs:]
            error = np.broadcast_to(v.error, v.shape)
            error = error + np.roll(error, pairs, -1)
            wide = np.abs(v.value) + np.abs(np.roll(v.value, pairs, -1))
            noise = (1e-6 + np.abs(turn) * 2e-6)[:, None]
            error = error + wide * np.concatenate([noise, noise], -1)
            return checked(Approx(np.concatenate([a * c - b * s, b * c + a * s], -1), error))

        form = f"(let [turns {angles}] (rotate {{0}} (cos turns) (sin turns)))"
        return self.add((n, heads, size), parents, form, compute)


def plain_attention(
    rng: np.random.Generator, scope: Scope, q: Node, k: Node, v: Node, window: int | None, slope: float
) -> Node:
    """Attention without a cache: q [batch length heads size], k and v with fewer heads; masked by places."""
    b, s, heads, size = q.shape
    t, groups = k.shape[1], k.shape[2]
    sharing = heads // groups
    scale = float(np.float32(1 / np.sqrt(size)))
    score = f"(* {scale!r} (at scores b h s t))" if groups == heads else f"(* {scale!r} (at scores b g h s t))"
    if slope:
        score = f"(- {score} (* {slope} (cast (cast (max (- t s) (- s t)) i32) f32)))"
    if window is not None:
        score = f"(select (<= t s) (select (< (- s t) {window}) {score} -inf) -inf)"
    n = [dim_text(d) for d in (b, s, t)]
    many = sharing > 1
    if many:
        form = (
            f"(let [parted (reshape {{0}} [{n[0]} {n[1]} {groups} {sharing} {size}]) "
            f"scores (contract [b g h s t] parted [b s g h d] {{1}} [b t g d]) "
            f"seen (tensor [b {n[0]} g {groups} h {sharing} s {n[1]} t {n[2]}] {score}) "
            f"mixed (contract [b s g h d] (softmax seen) [b g h s t] {{2}} [b t g d])] "
            f"(reshape mixed [{n[0]} {n[1]} {heads} {size}]))"
        )
    else:
        form = (
            f"(let [scores (contract [b h s t] {{0}} [b s h d] {{1}} [b t h d]) "
            f"seen (tensor [b {n[0]} h {heads} s {n[1]} t {n[2]}] {score})] "
            f"(contract [b s h d] (softmax seen) [b h s t] {{2}} [b t h d]))"
        )

    def compute(env: Env, q: Approx, k: Approx, v: Approx) -> Approx:
        at = np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])[None]
        masked = None if window is None else (at >= 0) & (at < window)
        if masked is not None and not masked.any(1).all():
            raise Unfit("a row that sees nothing")
        return attention(q, k, v, scale, slope * np.abs(at), masked)

    return scope.add(q.shape, "f32", [q, k, v], lambda *x: form.format(*x), compute)


def attention(q: Approx, k: Approx, v: Approx, scale: float, bias: Any, masked: Any, weigh: Any = None) -> Approx:
    """[b s h d], [b t g d] twice -> [b s h d]; bias is subtracted from the scores [… s t], masked says what is seen."""
    from fuzz.typed.products import softmax

    share = q.shape[2] // k.shape[2]
    k, v = (x.each(lambda a: np.repeat(a, share, 2)) for x in (k, v))
    scores = contraction("bshd,bthd->bhst", q, k)
    scores = through(lambda x: x * scale - bias, scores, steps=4)
    if weigh is not None:
        scores = weighted(weigh, scores)
    if masked is not None:
        scores = Approx(np.where(masked, scores.value, -np.inf), scores.error)
    return contraction("bhst,bthd->bshd", softmax(scores), v)


def weighted(weigh: Callable[[Any], Any], scores: Approx) -> Approx:
    """Scores made into others, of which some may be -inf."""
    value = weigh(scores.value)
    with np.errstate(invalid="ignore"):
        moved = [np.abs(weigh(scores.value + sign * scores.error) - value) for sign in (1, -1)]
    error = np.where(np.isfinite(value), np.maximum(*moved) + 1e-6 * np.abs(value) + 1e-6, 0.0)
    return Approx(value, error)
