"""Random products, sums and gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.typed.approx import Approx, Unfit, certain, checked, contraction, exact, extreme, summed, through
from fuzz.typed.graph import Dim, Env, Node, Scope

LETTERS = "abcdefghkmnost"


class Products:
    """Adds contractions and reductions to a scope.  weight: gives a tensor to multiply with, of a shape."""

    def __init__(
        self, rng: np.random.Generator, scope: Scope, other: Callable[[tuple[Dim, ...]], Node], sizes: list[int]
    ) -> None:
        self.rng, self.scope, self.other, self.sizes = rng, scope, other, sizes

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def contract(self, x: Node) -> Node:
        """`x` by another tensor: batch, row, column and sum indices, in any order."""
        rng = self.rng
        letters = [str(c) for c in rng.permutation(list(LETTERS))]
        ours = letters[: x.rank]
        roles = [self.pick(["batch", "row", "sum", "sum", "row", "alone"]) for _ in ours]
        if "sum" not in roles and x.rank and rng.random() < 0.9:
            roles[int(rng.integers(x.rank))] = "sum"
        shared = [i for i, role in enumerate(roles) if role in ("batch", "sum")]
        columns = letters[x.rank : x.rank + int(rng.integers(0, 3 if len(shared) < 3 else 2))]
        theirs = [(ours[i], x.shape[i]) for i in shared] + [(c, self.pick(self.sizes)) for c in columns]
        theirs = [theirs[int(i)] for i in rng.permutation(len(theirs))]
        kept = [ours[i] for i, role in enumerate(roles) if role in ("batch", "row")] + columns
        kept = [kept[int(i)] for i in rng.permutation(len(kept))]
        w = self.other(tuple(d for _, d in theirs))
        names = [n for n, _ in theirs]
        known = dict(zip(ours, x.shape, strict=True)) | dict(theirs)
        if rng.random() < 0.5:
            return self.product(x, ours, w, names, kept, known)
        return self.product(w, names, x, ours, kept, known)

    def product(self, x: Node, xi: list[str], w: Node, wi: list[str], kept: list[str], known: dict[str, Dim]) -> Node:
        spec = f"{''.join(xi)},{''.join(wi)}->{''.join(kept)}"
        k, a, b = (" ".join(names) for names in (kept, xi, wi))
        parents = [x] if w is x else [x, w]
        two = len(parents) == 2
        return self.scope.add(
            [known[c] for c in kept],
            "f32",
            parents,
            lambda *t: f"(contract [{k}] {t[0]} [{a}] {t[-1]} [{b}])",
            lambda env, *v: contraction(spec, v[0], v[1] if two else v[0]),
        )

    def reduce(self, x: Node) -> Node:
        """Over the last dimension, by any function."""
        shape = x.shape[:-1]
        if x.dtype == "i32":
            form, run = self.pick([
                ("reduce + 0", lambda v: v.sum(-1)), ("reduce max -2147483648", lambda v: v.max(-1)),
                ("reduce min 2147483647", lambda v: v.min(-1)),
                ("reduce (fn [a b] (max a (* 2 b))) 0", lambda v: np.maximum(0, 2 * v.max(-1))),
            ])  # fmt: skip
            return self.scope.add(shape, "i32", [x], lambda t: f"({form} {t})", lambda e, v: Approx(run(v.value)))
        forms: list[tuple[str, Callable[[Env, Approx], Approx]]] = [
            ("sum", lambda e, v: summed(v)),
            ("reduce + 0.0", lambda e, v: summed(v)),
            ("reduce + 1.5", lambda e, v: summed(v, 1.5)),
            ("maximum", lambda e, v: _extreme(e, v, True)),
            ("reduce max -inf", lambda e, v: _extreme(e, v, True)),
            ("reduce min inf", lambda e, v: _extreme(e, v, False)),
            ("reduce * 1.0", lambda e, v: through(lambda z: z.prod(-1), v, steps=v.shape[-1])),
            ("reduce (fn [a b] (+ a (* b b))) 0.0", lambda e, v: summed(through(np.square, v))),
            ("reduce (fn [a b] (+ a (abs b))) 0.5", lambda e, v: summed(through(np.abs, _kinked(e, v)), 0.5)),
            ("reduce (fn [a b] (max a (abs b))) 0.0", lambda e, v: _extreme(e, through(np.abs, _kinked(e, v)), True)),
            ("reduce (fn [total v] (+ (exp (min v 3.0)) total)) 0.0",
             lambda e, v: summed(through(lambda z: np.exp(np.minimum(z, 3)), v, steps=12, slack=1e-6))),
        ]  # fmt: skip
        form, compute = self.pick(forms)
        return self.scope.add(shape, "f32", [x], lambda t: f"({form} {t})", compute)

    def argmax(self, x: Node) -> Node:
        """The column of each row's largest element; Unfit where two are close."""

        def compute(env: Env, v: Approx) -> Approx:
            ranked = np.sort(v.value, -1)
            if v.shape[-1] > 1 and np.any(ranked[:, -1] - ranked[:, -2] <= 4 * np.max(v.error)):
                raise Unfit("close numbers")
            return exact(v.value.argmax(-1))

        name = self.pick(["argmax {}", "best-token {} (dim {} 1)"])
        node = self.scope.add(x.shape[:1], "i32", [x], lambda t: f"({name.format(t, t)})", compute, below=x.shape[1])
        if "dim" in name:
            x.uses += 1
        return node

    def softmax(self, x: Node) -> Node:
        return self.scope.add(x.shape, "f32", [x], lambda t: f"(softmax {t})", lambda e, v: softmax(v))


def softmax(v: Approx) -> Approx:
    peak = v.value.max(-1, keepdims=True)
    powers = np.exp(np.where(np.isneginf(v.value), -np.inf, v.value - peak))
    shares = powers / powers.sum(-1, keepdims=True)
    error = np.where(np.isfinite(v.value), np.broadcast_to(v.error, v.shape), 0.0)
    wide = np.expm1(2 * error.max(-1, keepdims=True)) + 1e-5
    return checked(Approx(shares, shares * wide + 1e-7))


def _extreme(env: Env, v: Approx, largest: bool) -> Approx:
    if env.smooth and v.shape[-1] > 1:
        ranked = np.sort(v.value, -1)
        gap = ranked[..., -1] - ranked[..., -2] if largest else ranked[..., 1] - ranked[..., 0]
        if np.any(gap <= 1e-3):
            raise Unfit("close numbers")
    return extreme(v, largest)


def _kinked(env: Env, v: Approx) -> Approx:
    if env.smooth:
        certain(np.less, v, exact(0.0))
    return v
