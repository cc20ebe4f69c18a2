"""Makes a random program from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.real import real_or
from fuzz.typed.approx import GPU_PRODUCTS, Unfit, exact, to_bf16
from fuzz.typed.functions import fold
from fuzz.typed.graph import Dim, Env, Node, Scope, size_of
from fuzz.typed.language import Language, last
from fuzz.typed.layers import linear
from fuzz.typed.learning import Learning, stopped
from fuzz.typed.maker import Maker
from fuzz.typed.memory import Memory, change_weight
from fuzz.typed.parts import Parts
from fuzz.typed.program import Entry, Input, Program, Run

MOST_REAL = 4096
"""The largest dimension of a known model that programs have: two of it make more than a value may have."""

KINDS = ("plain", "plain", "plain", "layers", "layers", "states", "language", "learning", "updates")


class Builder:
    """Makes one program from a seed; Unfit where it came to nothing."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.kind = KINDS[int(rng.integers(len(KINDS)))]
        self.seed = seed
        self.runs: list[Run] = []
        small = self.kind == "learning"
        self.dims = [
            int(d)
            for d in rng.choice([1, 2, 3, 4, 5] if small else [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 24, 32], 4)
        ]
        if not small and (real := real_or(0, MOST_REAL, [seed])):
            self.dims = [real, *(min(d, 4) for d in self.dims[1:])]
        self.parts = Parts(rng, int(rng.integers(1, 4)), float(rng.choice([0.3, 1.0, 1.0, 2.0])))
        self.entries: list[Entry] = []
        self.known: dict[str, int] = {}

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    # ---- inputs

    def inputs(self, free: list[str]) -> list[Input]:
        rng = self.rng
        found = []
        for number in range(int(rng.integers(1, 4))):
            rank = int(rng.choice([0, 1, 2, 3, 4], p=[0.06, 0.2, 0.44, 0.18, 0.12]))
            if number == 0:
                rank = max(rank, 1)
            shape = tuple(self.pick(free) if free and rng.random() < 0.4 else self.pick(self.dims) for _ in range(rank))
            dtype = str(rng.choice(["f32", "f32", "f32", "bf16", "i32"])) if number else "f32"
            below: Dim = self.pick([3, 5, 16, *self.dims]) if dtype == "i32" else None
            scale = 1.0 if self.kind == "learning" else float(rng.choice([1.0, 1.0, 1.0, 0.1, 10.0, 1e-3, 100.0]))
            found.append(Input(f"x{number}", shape, dtype, below, scale))
        if self.kind == "states" and rng.random() < 0.6:
            found.append(Input("place", (), "i32", int(rng.choice([3, 5, 7, 8])), 1.0))
        used = {d for i in found for d in i.shape}
        for name in free:
            if name not in used:
                found.append(Input(f"x{len(found)}", (name, self.pick(self.dims)), "f32", None, 1.0))
        return found

    def draw(self, given: Input, sizes: dict[str, int]) -> np.ndarray:
        shape = tuple(size_of(d, sizes) for d in given.shape)
        if given.dtype == "i32":
            return self.rng.integers(0, size_of(given.below, sizes), shape)
        value = np.asarray(self.rng.normal(0, given.scale, shape), np.float32).astype(np.float64)
        return to_bf16(value) if given.dtype == "bf16" else value

    # ---- entries

    def entry(self, name: str) -> Entry:
        rng = self.rng
        if self.kind == "language":
            return self.language(name)
        free = [["size-a"], ["size-a", "size-b"], []][int(rng.choice(3, p=[0.5, 0.15, 0.35]))]
        choices = [{f: int(rng.choice([1, 2, 3, 5, 7, 9, 16])) for f in free} for _ in range(2 if free else 1)]
        if self.kind == "states":
            self.known |= {f: size for f, size in choices[0].items() if f not in self.known}
            choices = [{f: self.known[f] for f in free}]
        given = self.inputs(free)
        scope = Scope(Env(choices[0], {}, smooth=self.kind == "learning"))
        self.hold(scope, {i.name: self.draw(i, choices[0]) for i in given})
        for declared in given:
            self.leaf(scope, declared)
        maker = Maker(self.parts, scope, self.dims)
        results = self.body(maker, scope)
        return Entry(name, given, scope, results, choices)

    def hold(self, scope: Scope, inputs: dict[str, np.ndarray]) -> None:
        for declared in [*self.parts.weights.values(), *self.parts.states.values()]:
            scope.env.held[declared.name] = exact(declared.value)
        scope.env.held |= {name: exact(value) for name, value in inputs.items()}

    def leaf(self, scope: Scope, declared: Input) -> Node:
        return scope.add(
            declared.shape, declared.dtype, [], lambda: declared.name, lambda env: env.held[declared.name], leaf=True,
            below=declared.below,
        )  # fmt: skip

    def body(self, maker: Maker, scope: Scope) -> dict[str, Node]:
        """Random values, and those of them that are results."""
        rng = self.rng
        maker.grow(int(rng.integers(1, 7)))
        if self.kind in ("layers", "states", "learning") and rng.random() < (0.3 if self.kind == "learning" else 0.8):
            rows = [n for n in maker.floats(2, 3) if n.dtype == "f32"]
            if rows:
                self.attempt(maker, lambda: fold(maker, self.pick(rows)))
        if self.kind == "states":
            for _ in range(int(rng.integers(1, 3))):
                self.attempt(maker, lambda: Memory(maker).some())
        if self.kind == "learning":
            if rng.random() < 0.2:
                self.attempt(maker, lambda: stopped(maker))
            maker.grow(int(rng.integers(0, 3)))
            loss, *slopes = Learning(maker).run()
            return {"loss": loss} | {f"d{n}": node for n, node in enumerate(slopes)}
        maker.grow(int(rng.integers(0, 4)))
        if self.kind == "updates":
            whole = [w for w in self.parts.weights.values() if not w.layers]
            for weight in whole[: int(rng.integers(1, 3))]:
                self.attempt(maker, lambda w=weight: change_weight(maker, w))
            maker.grow(int(rng.integers(0, 2)))
        made = [n for n in scope.nodes if not n.leaf] or scope.nodes
        count = int(rng.integers(1, 4))
        chosen = [made[-1], *(self.pick(made) for _ in range(count - 1))]
        return {f"y{k}": node for k, node in enumerate(dict.fromkeys(chosen))}

    def attempt(self, maker: Maker, step: Any) -> None:
        before = len(maker.scope.nodes)
        try:
            step()
        except Unfit:
            maker.undo(before)

    def language(self, name: str) -> Entry:
        rng = self.rng
        batch = int(rng.choice([1, 1, 2, 3]))
        length = int(rng.integers(2, 5))
        choices = [{"batch": batch, "positions": n, "row-count": batch * n} for n in (length, 1)]
        model = Language(self.parts, choices[0])
        given = [
            Input("tokens", ("batch", "positions"), "i32", model.vocab, 1.0),
            Input("positions", ("batch", "positions"), "i32", model.context, 1.0),
        ]
        scope = Scope(Env(choices[0], {}))
        places = np.broadcast_to(np.arange(length), (batch, length))
        self.hold(scope, {"tokens": self.draw(given[0], choices[0]), "positions": places})
        rows = "row-count"
        flat = lambda which: lambda env: env.held[which].each(lambda a: a.reshape(-1))  # noqa: E731
        tokens = scope.add((rows,), "i32", [], lambda: "tokens", flat("tokens"), leaf=True, below=model.vocab)
        positions = scope.add(
            (rows,), "i32", [], lambda: "positions", flat("positions"), leaf=True, below=model.context
        )
        maker = Maker(self.parts, scope, self.dims)
        wte = maker.weight((model.vocab, model.width))
        x = self.looked_up(scope, wte, tokens)
        if rng.random() < 0.5:
            wpe = maker.weight((model.context, model.width))
            other = self.looked_up(scope, wpe, positions)
            x = maker.scope.add(
                x.shape, "f32", [x, other], lambda a, b: f"(+ {a} {b})", lambda e, a, b: exact(a.value + b.value)
            )
        x = model.layer(maker, x, positions)
        row = last(scope, x)
        logits = scope.add(
            ("batch", model.vocab),
            "f32",
            [row, wte],
            lambda *t: f"(matmul-transposed {' '.join(t)})",
            lambda e, *v: linear(*v),
        )
        scope.pool[:] = [row, logits]
        maker.grow(int(rng.integers(0, 3)))
        return Entry(name, given, scope, {name: logits}, choices)

    def looked_up(self, scope: Scope, table: Node, ids: Node) -> Node:
        return scope.add(
            (ids.shape[0], table.shape[1]), "f32", [table, ids], lambda *t: f"(rows {' '.join(t)})",
            lambda e, t, i: t.each(lambda a: a[i.value]),
        )  # fmt: skip

    # ---- the whole

    def build(self) -> Program:
        """The program, with what is right on GPUs too."""
        names = ["logits"] if self.kind == "language" else ["main-entry", "second"][: 1 + int(self.rng.random() < 0.25)]
        for name in names:
            entry = self.entry(name)
            if len(entry.results) == 1 and (self.kind == "language" or self.rng.random() < 0.5):
                (node,) = entry.results.values()
                entry.results = {name: node}
            self.entries.append(entry)
        self.draw_all()
        made = Program(self.seed, self.kind, self.parts, self.entries, self.runs)
        made.render(self.rng)
        made.evaluate(GPU_PRODUCTS)
        return made

    def draw_all(self) -> None:
        """The runs: every entry for each of its choices of sizes; those with states several times."""
        position = 0
        again = 2 if self.kind in ("states", "updates", "learning") else 1
        for entry in self.entries:
            for choice in [c for c in entry.choices for _ in range(again)]:
                position = self.draw_run(entry, choice, position)
        if self.kind == "language" and position < self.entries[0].inputs[1].below:
            self.draw_run(self.entries[0], self.entries[0].choices[1], position)

    def draw_run(self, entry: Entry, choice: dict[str, int], position: int) -> int:
        inputs = {i.name: self.draw(i, choice) for i in entry.inputs}
        if self.kind == "language":
            count = choice["positions"]
            inputs["positions"] = np.broadcast_to(np.arange(position, position + count), (choice["batch"], count))
            position += count
        self.runs.append(Run(entry.name, choice, inputs))
        return position


def generate(seed: int) -> Program:
    """The program of a seed: of the first of its attempts that has certain values."""
    for attempt in range(50):
        try:
            return Builder(seed * 64 + attempt).build()
        except Unfit:
            continue
    raise Unfit("no program")
