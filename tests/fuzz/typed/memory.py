"""Random states of entries: recurrences, caches of rows, windows that move, and weights that entries change."""

from __future__ import annotations

import numpy as np
from fuzz.typed.approx import Approx, Unfit, exact, rounded_to_bf16, through
from fuzz.typed.graph import Dim, Env, Node, dim_text
from fuzz.typed.maker import Maker
from fuzz.typed.parts import Declared
from fuzz.typed.products import softmax


def declare(maker: Maker, shape: tuple[Dim, ...], dtype: str, sizes: dict[str, int]) -> Declared:
    """A state, which starts as zeros; with layers, where the maker makes a layer."""
    from fuzz.typed.graph import size_of

    if any(isinstance(d, tuple) for d in shape):
        raise Unfit("a size that no state has")
    parts = maker.parts
    layers = parts.layers if maker.in_layer else 0
    full = ([layers] if layers else []) + [size_of(d, sizes) for d in shape]
    made = Declared(parts.fresh("s"), shape, dtype, layers, np.zeros(full, np.int64 if dtype == "i32" else np.float64))
    parts.states[made.name] = made
    maker.scope.env.held[made.name] = exact(made.value)
    return made


def place_of(state: Declared) -> str:
    return f"({state.name} l)" if state.layers else state.name


def held(env: Env, state: Declared) -> Approx:
    whole = env.held[state.name]
    return whole.each(lambda a: a[env.layer]) if state.layers else whole


def keep(env: Env, state: Declared, new: Approx) -> None:
    """Give a state, or a layer's part of one, its value."""
    whole = env.held[state.name]
    if not state.layers:
        env.held[state.name] = new
        return
    value, error = np.array(whole.value), np.array(np.broadcast_to(whole.error, whole.shape))
    value[env.layer], error[env.layer] = new.value, new.error
    env.held[state.name] = Approx(value, error)


class Memory:
    """Adds states to a maker's entry or layer."""

    def __init__(self, maker: Maker) -> None:
        self.maker, self.scope, self.rng = maker, maker.scope, maker.rng

    def read(self, state: Declared) -> Node:
        return self.scope.add(
            state.shape,
            state.dtype,
            [],
            lambda: f"(read-state {place_of(state)})",
            lambda env: held(env, state),
            pinned=True,
        )

    def write(self, state: Declared, node: Node) -> Node:
        """The state's value from here on; the value that it is given."""
        form = self.maker.pick(["write-state", "update!"])

        def compute(env: Env, v: Approx) -> Approx:
            keep(env, state, v)
            return v

        return self.scope.add(
            node.shape,
            node.dtype,
            [node],
            lambda t: f"({form} {place_of(state)} {t})",
            compute,
            pinned=True,
            writes=True,
        )

    def some(self) -> None:
        """One state of a random kind."""
        self.maker.pick([self.recurrence, self.cache, self.window, self.counter, self.recurrence])()

    def recurrence(self) -> None:
        """What was there before, mixed with a value of this run."""
        x = self.maker.pick([n for n in self.maker.floats() if n.rank])
        dtype = "bf16" if self.rng.random() < 0.25 else "f32"
        state = declare(self.maker, x.shape, dtype, self.scope.env.sizes)
        old = self.read(state)
        mixed = self.scope.add(
            x.shape, "f32", [old, x], lambda a, b: f"(+ (* 0.5 {a}) (tanh {b}))",
            lambda env, a, b: through(lambda p, q: 0.5 * p + np.tanh(q), a, b, steps=12, slack=1e-6),
        )  # fmt: skip
        if dtype == "bf16":
            mixed = self.maker.views.to_bf16(mixed)
        self.write(state, mixed)

    def counter(self) -> None:
        """How many runs there were, in whole numbers."""
        size = self.maker.pick(self.maker.dims)
        state = declare(self.maker, (size,), "i32", self.scope.env.sizes)
        old = self.read(state)
        more = self.scope.add(
            (size,), "i32", [old], lambda a: f"(tensor [i {size}] (+ (at {a} i) (cast i i32)))",
            lambda env, a: exact(a.value + np.arange(size)),
        )  # fmt: skip
        self.write(state, more)

    def window(self) -> None:
        """The last few of what came, the newest at the end."""
        x = self.maker.pick([n for n in self.maker.floats(1, 2) if n.dtype == "f32"])
        length = int(self.rng.integers(2, 6))
        state = declare(self.maker, (length, *x.shape), "f32", self.scope.env.sizes)
        old = self.read(state)
        dims = " ".join(map(dim_text, x.shape))
        zeros = " ".join("0" for _ in x.shape)
        moved = self.scope.add(
            (length - 1, *x.shape), "f32", [old], lambda t: f"(slice {t} [1 {zeros}] [{length - 1} {dims}])",
            lambda env, v: v.each(lambda a: a[1:]),
        )  # fmt: skip

        def join(env: Env, rest: Approx, new: Approx, old: Approx) -> Approx:
            error = np.concatenate(
                [np.broadcast_to(rest.error, rest.shape), np.broadcast_to(new.error, new.shape)[None]]
            )
            return Approx(np.concatenate([rest.value, new.value[None]]), error)

        form = (
            f"(insert {{1}} (insert {{0}} {{2}} [0 {zeros}] [{length - 1} {dims}]) [{length - 1} {zeros}] [nil {dims}])"
        )
        joined = self.scope.add(state.shape, "f32", [moved, x, old], lambda *t: form.format(*t), join)
        self.write(state, joined)

    def cache(self) -> None:
        """Rows by their places; a place is a rank-0 input of whole numbers."""
        places = [n for n in self.scope.pool if n.dtype == "i32" and n.rank == 0 and isinstance(n.below, int)]
        if not places:
            raise Unfit("no place")
        where, x = self.maker.pick(places), self.maker.pick([n for n in self.maker.floats(1) if n.dtype == "f32"])
        length, width = where.below, x.shape[0]
        state = declare(self.maker, (length, width), "f32", self.scope.env.sizes)
        old = self.read(state)
        if self.rng.random() < 0.5:
            form = f"(insert {{1}} {{0}} [(at {{2}}) 0] [nil {dim_text(width)}])"
        else:
            dims = f"t {length} c {dim_text(width)}"
            form = f"(tensor [{dims}] (select (= (cast t i32) (at {{2}})) (at {{1}} c) (at {{0}} t c)))"

        def put(env: Env, old: Approx, new: Approx, at: Approx) -> Approx:
            value, error = np.array(old.value), np.array(np.broadcast_to(old.error, old.shape))
            value[int(at.value)], error[int(at.value)] = new.value, new.error
            return Approx(value, error)

        kept = self.write(state, self.scope.add(state.shape, "f32", [old, x, where], lambda *t: form.format(*t), put))
        self.look_back(kept, x, where)

    def look_back(self, kept: Node, query: Node, where: Node) -> Node:
        """Attention of one query over the rows up to its place."""
        length, width = kept.shape
        form = (
            f"(let [scores (contract [t] {{1}} [c] {{0}} [t c]) "
            f"seen (tensor [t {length}] (select (<= (cast t i32) (at {{2}})) (at scores t) -inf))] "
            f"(contract [c] (softmax seen) [t] {{0}} [t c]))"
        )

        def compute(env: Env, rows: Approx, q: Approx, at: Approx) -> Approx:
            from fuzz.typed.approx import contraction

            scores = contraction("c,tc->t", q, rows)
            seen = np.arange(length) <= int(at.value)
            return contraction("t,tc->c", softmax(Approx(np.where(seen, scores.value, -np.inf), scores.error)), rows)

        return self.scope.add((width,), "f32", [kept, query, where], lambda *t: form.format(*t), compute)


def change_weight(maker: Maker, weight: Declared, gradient: Node | None = None, rate: str = "0.25") -> Node:
    """`(update! w …)`: a step along something of its shape."""
    scope = maker.scope
    before = maker.weight_node(weight)
    along = gradient or maker.other(weight.shape)

    def compute(env: Env, w: Approx, g: Approx) -> Approx:
        new = through(lambda a, b: a - float(np.float32(rate)) * b, w, g, steps=2)
        new = rounded_to_bf16(new) if weight.dtype == "bf16" else new
        keep(env, weight, new)
        return new

    def write(w: str, g: str) -> str:
        value = f"(- {w} (* {rate} {g}))"
        return f"(update! {w} {f'(cast {value} bf16)' if weight.dtype == 'bf16' else value})"

    node = scope.add(weight.shape, weight.dtype, [before, along], write, compute, pinned=True, writes=True)
    for other in [n for n in scope.pool if n.leaf and n.write() in (weight.name, f"({weight.name} l)")]:
        scope.pool.remove(other)
    for node_before in scope.nodes[:-1]:
        node_before.pinned = True
    return node
