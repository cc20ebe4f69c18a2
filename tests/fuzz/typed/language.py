"""Random language models: layers of attention over a cache, in the ways that the library's `attend` can be called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from fuzz.typed.approx import Approx, rounded_to_bf16, through
from fuzz.typed.functions import Function, residual
from fuzz.typed.graph import Env, Node, Scope
from fuzz.typed.layers import attention, linear
from fuzz.typed.maker import Maker
from fuzz.typed.parts import Declared, Parts


class Language:
    """One model's sizes and cache.  weigh: (text, numpy) of what is made of a score, for its head, t and position."""

    def __init__(self, parts: Parts, sizes: dict[str, int]) -> None:
        rng = self.rng = parts.rng
        self.parts, self.sizes = parts, sizes
        self.size = int(rng.choice([2, 3, 4, 5, 8, 16]))
        self.groups = int(rng.choice([1, 1, 2, 3]))
        self.heads = self.groups * int(rng.choice([1, 1, 2, 4]))
        self.width = self.heads * self.size if rng.random() < 0.5 else int(rng.choice([4, 6, 7, 8, 12, 16]))
        self.context = int(rng.choice([5, 7, 8, 12, 17, 32]))
        self.vocab = int(rng.choice([5, 8, 13, 32]))
        self.dtype = "bf16" if rng.random() < 0.4 else "f32"
        self.order = [["batch", 2], [2, "batch"]][int(rng.random() < 0.5)]
        self.cache = self._cache()
        self.weigh = self._weigh()

    def _cache(self) -> Declared:
        batch = self.sizes["batch"]
        shape = [*self.order, self.groups, self.context, self.size]
        full = [self.parts.layers, *(batch if d == "batch" else d for d in shape)]
        made = Declared(self.parts.fresh("kv"), tuple(shape), self.dtype, self.parts.layers, np.zeros(full))
        self.parts.states[made.name] = made
        return made

    def _weigh(self):  # type: ignore[no-untyped-def]
        choice = self.rng.random()
        if choice < 0.5:
            return "", None
        if choice < 0.65:
            window = int(self.rng.integers(1, 6))
            return (
                f"(fn [score head t position] (select (< (- position t) {window}) score -inf))",
                lambda s, h, t, p: np.where(p - t < window, s, -np.inf),
            )
        if choice < 0.8:
            return (
                "(fn [score head t position] (- score (* 0.125 (cast (- position t) f32))))",
                lambda s, h, t, p: s - 0.125 * (p - t),
            )
        if choice < 0.9:
            return (
                "(fn [score head t position] (* 5.0 (tanh (/ score 5.0))))",
                lambda s, h, t, p: 5 * np.tanh(s / 5),
            )
        return (
            "(fn [score head t position] (- score (* (cast (cast head i32) f32) (* 0.25 (cast (- position t) f32)))))",
            lambda s, h, t, p: s - h * 0.25 * (p - t),
        )

    def attend(self, scope: Scope, q: Node, k: Node, v: Node, positions: Node) -> Node:
        weigh = f" {self.weigh[0]}" if self.weigh[0] else ""
        n = q.shape[0]
        return scope.add(
            (n, self.heads * self.size), "f32", [q, k, v],
            lambda *t: f"(attend {' '.join(t)} ({self.cache.name} l){weigh})",
            lambda env, *values: self.compute(env, *values, env.held["positions"]), pinned=True,
        )  # fmt: skip

    def compute(self, env: Env, q: Approx, k: Approx, v: Approx, positions: Approx) -> Approx:
        batch = env.sizes["batch"]
        each = q.shape[0] // batch
        whole = env.held[self.cache.name]
        value, error = np.array(whole.value), np.array(np.broadcast_to(whole.error, whole.shape))
        place = positions.value.reshape(batch, each)
        for which, new in enumerate((k, v)):
            new = rounded_to_bf16(new) if self.dtype == "bf16" else new
            for part, source in ((value, new.value), (error, np.broadcast_to(new.error, new.shape))):
                for row, x in enumerate(source):
                    b, t = row // each, place[row // each, row % each]
                    at = (env.layer, b, which) if self.order[0] == "batch" else (env.layer, which, b)
                    part[(*at, slice(None), t)] = x
        env.held[self.cache.name] = Approx(value, error)
        sides = []
        for which in range(2):
            at = (env.layer, slice(None), which) if self.order[0] == "batch" else (env.layer, which)
            sides.append(Approx(np.swapaxes(value[at], 1, 2), np.swapaxes(error[at], 1, 2)))
        parted = q.each(lambda a: a.reshape(batch, each, self.heads, self.size))
        found = self.looked_up(parted, sides[0], sides[1], place)
        return found.each(lambda a: a.reshape(batch * each, self.heads * self.size))

    def looked_up(self, q: Approx, k: Approx, v: Approx, place: np.ndarray) -> Approx:
        scale = 1 / np.sqrt(self.size)
        t = np.arange(self.context)
        seen = (t <= place[..., None])[:, None]
        weigh = self.weigh[1]
        if weigh is None:
            return attention(q, k, v, scale, 0.0, seen)
        head = np.arange(self.heads)[:, None, None]
        return attention(q, k, v, scale, 0.0, seen, lambda s: weigh(s, head, t, place[:, None, :, None]))

    def layer(self, maker: Maker, x: Node, positions: Node) -> Node:
        """A layer of the model, as a function of rows and a layer's number, folded over all layers."""
        inner = Scope(replace(maker.scope.env), prefix=self.parts.fresh("u") + "v")
        value = maker.scope.values[x]
        p = inner.add(x.shape, x.dtype, [], lambda: "p0", lambda e: value, leaf=True)
        made = Maker(self.parts, inner, maker.dims, in_layer=True)
        h = p
        if self.rng.random() < 0.7:
            h = made.layers.rms_norm(p)
        parts = self.projected(made, inner, h)
        if self.rng.random() < 0.4 and self.size % 2 == 0:
            parts = [self.turned(inner, parts[0]), self.turned(inner, parts[1]), parts[2]]
        a = self.attend(inner, *parts, positions)
        w = made.weight((self.width, self.heads * self.size))
        y = inner.add(
            (x.shape[0], self.width), "f32", [a, w], lambda *t: f"(linear {' '.join(t)})", lambda e, *v: linear(*v)
        )
        total = inner.add(
            x.shape, "f32", [p, y], lambda *t: f"(+ {' '.join(t)})", lambda e, a, b: through(np.add, a, b)
        )
        inner.pool[:] = [total]
        made.grow(int(self.rng.integers(0, 3)))
        result = residual(made, total) if len(inner.pool) > 1 else total
        result.uses += 1
        function = Function(self.parts.fresh("f"), [p], inner.nodes, result, True, self.rng)

        def compute(env: Env, v: Approx) -> Approx:
            for layer in range(self.parts.layers):
                v = function.run(replace(env, layer=layer), v)
            return v

        names = "".join(f" {n}" for n in function.names)
        form = f"(fold (fn [x l] ({function.name} x{names} l)) {{}} (range layers))"
        node = maker.scope.add(x.shape, "f32", [x], lambda t: form.format(t), compute, pinned=True)
        self.parts.functions.append(function.text)
        return node

    def projected(self, made: Maker, inner: Scope, h: Node) -> list[Node]:
        """Queries, keys and values: of one matrix, or of three."""
        n, size = h.shape[0], self.size
        counts = [self.heads, self.groups, self.groups]
        if self.rng.random() < 0.5:
            w = made.weight((sum(counts) * size, self.width))
            all_of = inner.add(
                (n, sum(counts) * size), "f32", [h, w], lambda *t: f"(linear {' '.join(t)})", lambda e, *v: linear(*v)
            )
            starts = [0, counts[0], counts[0] + counts[1]]
            found = []
            for start, count in zip(starts, counts, strict=True):
                found.append(
                    inner.add(
                        (n, count, size),
                        "f32",
                        [all_of],
                        lambda t, s=start, c=count: f"(heads-of {t} {size} {s} {c})",
                        lambda e, v, s=start, c=count: v.each(
                            lambda a: a[:, s * size : (s + c) * size].reshape(-1, c, size)
                        ),
                    )
                )
            return found
        found = []
        for count in counts:
            w = made.weight((count * size, self.width))
            y = inner.add(
                (n, count * size), "f32", [h, w], lambda *t: f"(linear {' '.join(t)})", lambda e, *v: linear(*v)
            )
            found.append(
                inner.add(
                    (n, count, size),
                    "f32",
                    [y],
                    lambda t, c=count: f"(reshape {t} [(dim {t} 0) {c} {size}])",
                    lambda e, v, c=count: v.each(lambda a: a.reshape(-1, c, size)),
                )
            )
            y.uses += 1
        return found

    def turned(self, inner: Scope, x: Node) -> Node:
        """Rotary positions."""
        pairs, theta = self.size // 2, 100.0

        def compute(env: Env, v: Approx) -> Approx:
            turn = env.held["positions"].value.reshape(-1)[:, None] * theta ** (-np.arange(pairs) / pairs)
            c, s = np.cos(turn)[:, None], np.sin(turn)[:, None]
            a, b = v.value[..., :pairs], v.value[..., pairs:]
            error = np.broadcast_to(v.error, v.shape)
            wide = np.abs(v.value) + np.abs(np.roll(v.value, pairs, -1))
            return Approx(
                np.concatenate([a * c - b * s, b * c + a * s], -1), error + np.roll(error, pairs, -1) + 3e-5 * wide
            )

        form = (
            f"(let [turns (rotary-angles (row-positions) {pairs} (rotary-frequency {theta} {pairs}))] "
            "(rotate {} (cos turns) (sin turns)))"
        )
        return inner.add(x.shape, "f32", [x], lambda t: form.format(t), compute)


def last(scope: Scope, x: Node) -> Node:
    """The last row of each sequence."""

    def compute(env: Env, v: Approx) -> Approx:
        batch = env.sizes["batch"]
        return v.each(lambda a: a.reshape(batch, -1, a.shape[1])[:, -1])

    return scope.add(("batch", x.shape[1]), "f32", [x], lambda t: f"(last {t})", compute)
