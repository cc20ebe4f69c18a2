"""Random reshapes, slices, insertions, casts and concatenations."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.typed.approx import Approx, Unfit, rounded_to_bf16
from fuzz.typed.graph import Dim, Env, Node, Scope, dim_text, size_of, times


class Views:
    """Adds rearranged tensors to a scope."""

    def __init__(self, rng: np.random.Generator, scope: Scope) -> None:
        self.rng, self.scope = rng, scope

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def reshape(self, x: Node) -> Node:
        """Dimensions merged, split, or ones put in and left out."""
        shape = list(x.shape)
        for _ in range(int(self.rng.integers(1, 4))):
            shape = self.reshaped(shape)
        if len(shape) > 5:
            raise Unfit("too many dimensions")
        text = " ".join(map(dim_text, shape))
        return self.scope.add(
            shape,
            x.dtype,
            [x],
            lambda t: f"(reshape {t} [{text}])",
            lambda env, v: v.each(lambda a: np.reshape(a, [size_of(d, env.sizes) for d in shape])),
            below=x.below,
        )

    def reshaped(self, shape: list[Dim]) -> list[Dim]:
        choice, rank = self.rng.random(), len(shape)
        if choice < 0.45 and rank >= 2:
            at = int(self.rng.integers(rank - 1))
            return [*shape[:at], times(shape[at], shape[at + 1]), *shape[at + 2 :]]
        if choice < 0.8 and rank:
            at = int(self.rng.integers(rank))
            size = shape[at]
            if isinstance(size, tuple):
                return [*shape[:at], size[1], size[2], *shape[at + 1 :]]
            parts = [p for p in range(2, size) if size % p == 0] if isinstance(size, int) else []
            if parts:
                part = self.pick(parts)
                return [*shape[:at], part, size // part, *shape[at + 1 :]]
        if 1 in shape and choice < 0.95:
            at = shape.index(1)
            return [*shape[:at], *shape[at + 1 :]]
        at = int(self.rng.integers(rank + 1))
        return [*shape[:at], 1, *shape[at:]]

    def slice(self, x: Node) -> Node:
        """Some rows, some columns, or one of a dimension, which drops it."""
        starts, ends, sizes, shape = [], [], [], []
        drop = self.rng.random() < 0.5
        for dim in x.shape:
            chance = self.rng.random()
            if isinstance(dim, int) and chance < 0.4:
                length = int(self.rng.integers(1, dim + 1))
                start = int(self.rng.integers(dim - length + 1))
                starts.append(str(start)), ends.append((start, length)), sizes.append(str(length)), shape.append(length)
            elif chance < 0.6 and drop:
                start = int(self.rng.integers(dim)) if isinstance(dim, int) else 0
                last = not isinstance(dim, int) and self.rng.random() < 0.5
                starts.append(f"(- {dim_text(dim)} 1)" if last else str(start))
                ends.append((-1 if last else start, None)), sizes.append("nil")
            else:
                starts.append("0"), ends.append((0, dim)), sizes.append(dim_text(dim)), shape.append(dim)

        def cut(env: Env, a: np.ndarray) -> np.ndarray:
            places = [s if n is None else slice(s, s + size_of(n, env.sizes)) for s, n in ends]
            return np.asarray(a[tuple(places)])

        where, length = " ".join(starts), " ".join(sizes)
        return self.scope.add(
            shape, x.dtype, [x], lambda t: f"(slice {t} [{where}] [{length}])",
            lambda env, v: v.each(lambda a: cut(env, a)), below=x.below,
        )  # fmt: skip

    def insert(self, whole: Node, part: Node) -> Node:
        """A tensor with a part replaced, at a fixed place."""
        if part.dtype != whole.dtype or part.rank > whole.rank:
            raise Unfit("no part of it")
        dropped = sorted(int(i) for i in self.rng.permutation(whole.rank)[: whole.rank - part.rank])
        sizes = list(part.shape)
        starts: list[int] = []
        places: list[Any] = []
        spelled = []
        for at, dim in enumerate(whole.shape):
            if at in dropped:
                start = int(self.rng.integers(dim)) if isinstance(dim, int) else 0
                starts.append(start), places.append(None), spelled.append("nil")
                continue
            size = sizes.pop(0)
            if size != dim and not (isinstance(size, int) and isinstance(dim, int) and size < dim):
                raise Unfit("no part of it")
            starts.append(0 if size == dim else int(self.rng.integers(dim - size + 1)))
            places.append(size), spelled.append(dim_text(size))

        def put(env: Env, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
            made = np.array(outer)
            made[
                tuple(
                    s if n is None else slice(s, s + size_of(n, env.sizes)) for s, n in zip(starts, places, strict=True)
                )
            ] = inner
            return made

        def compute(env: Env, a: Approx, b: Approx) -> Approx:
            value = put(env, a.value, b.value)
            return Approx(value, put(env, np.broadcast_to(a.error, a.shape), np.broadcast_to(b.error, b.shape)))

        where, length = " ".join(map(str, starts)), " ".join(spelled)
        below = whole.below if whole.below == part.below else None
        return self.scope.add(
            whole.shape, whole.dtype, [part, whole], lambda p, w: f"(insert {p} {w} [{where}] [{length}])", compute,
            below=below,
        )  # fmt: skip

    def to_bf16(self, x: Node) -> Node:
        def compute(env: Env, v: Approx) -> Approx:
            if env.smooth:
                raise Unfit("a step")
            return rounded_to_bf16(v)

        return self.scope.add(x.shape, "bf16", [x], lambda t: f"(cast {t} bf16)", compute)

    def to_f32(self, x: Node) -> Node:
        return self.scope.add(
            x.shape,
            "f32",
            [x],
            lambda t: f"(cast {t} f32)",
            lambda env, v: Approx(np.asarray(v.value, np.float64), v.error),
        )

    def concatenated(self, x: Node, y: Node) -> Node:
        """Two tensors one behind the other along their last dimension."""
        if x.rank == 0 or x.shape[:-1] != y.shape[:-1] or x is y:
            raise Unfit("they do not go together")
        if "i32" in (x.dtype, y.dtype) or not all(isinstance(n.shape[-1], int) for n in (x, y)):
            raise Unfit("they do not go together")
        a, b = x.shape[-1], y.shape[-1]
        names = [str(c) for c in self.rng.permutation(list("ijkmn"))[: x.rank]]
        dims = " ".join(f"{n} {dim_text(d)}" for n, d in zip(names, (*x.shape[:-1], a + b), strict=True))
        outer, inner = " ".join(names[:-1]), names[-1]

        def write(p: str, q: str) -> str:
            one, two = f"(at {p} {outer} (min {inner} {a - 1}))", f"(at {q} {outer} (max (- {inner} {a}) 0))"
            return f"(tensor [{dims}] (select (< {inner} {a}) {one} {two}))"

        def compute(env: Env, p: Approx, q: Approx) -> Approx:
            errors = [np.broadcast_to(v.error, v.shape) for v in (p, q)]
            return Approx(np.concatenate([p.value, q.value], -1), np.concatenate(errors, -1))

        return self.scope.add((*x.shape[:-1], a + b), "f32", [x, y], write, compute)
