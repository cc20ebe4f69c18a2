"""A random program: its text, its weights, the runs to make, and what is right after each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from fuzz.typed.approx import GPU_PRODUCTS, Approx, Bounds, exact
from fuzz.typed.graph import Dim, Env, Node, Scope, dim_text, replay, written
from fuzz.typed.parts import Parts

ROWS = "row-count"
"""The dimension of an entry of tokens and positions that is all of its rows, which its text binds."""


@dataclass
class Input:
    """below: what an i32's elements are less than.  scale: the standard deviation of a float's."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    below: Dim
    scale: float

    @property
    def text(self) -> str:
        return f"({self.name} [{' '.join(map(dim_text, self.shape))}] {self.dtype})"


@dataclass
class Run:
    """entry: by name.  right: its results."""

    entry: str
    sizes: dict[str, int]
    inputs: dict[str, np.ndarray]
    right: dict[str, Approx] = field(default_factory=dict)


@dataclass
class Entry:
    """choices: of its free dimensions, in the order in which it is run."""

    name: str
    inputs: list[Input]
    scope: Scope
    results: dict[str, Node]
    choices: list[dict[str, int]]

    def text(self, rng: np.random.Generator) -> str:
        for node in self.results.values():
            node.uses += 1
            node.pinned = node.pinned or len(self.results) > 1
        pairs = self.results.items()
        single = list(self.results) == [self.name]
        body = written(
            self.scope.nodes,
            lambda text: text(self.results[self.name]) if single else _record({k: text(n) for k, n in pairs}),
            rng,
        )
        given = "\n   ".join(i.text for i in self.inputs)
        if ROWS in self.choices[0]:
            given, body = "tokens positions", f"(let [{ROWS} (dim tokens 0)]\n  {body})"
        shapes = [" ".join(f"{k} {v}" for k, v in choice.items() if k != ROWS) for choice in self.choices]
        option = f" {{:shapes [{' '.join(f'{{{s}}}' for s in shapes)}]}}" if shapes[0] else ""
        return f"(entry {self.name} [{given}]{option}\n  {body})"


def _record(values: dict[str, str]) -> str:
    return "{" + " ".join(f":{name} {text}" for name, text in values.items()) + "}"


@dataclass
class Program:
    """after: weights and states behind all runs."""

    seed: int
    kind: str
    parts: Parts
    entries: list[Entry]
    runs: list[Run]
    text: str = ""
    after: dict[str, Approx] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """As float64."""
        return {w.name: w.value for w in self.parts.weights.values()}

    @property
    def bf16(self) -> frozenset[str]:
        return frozenset(w.name for w in self.parts.weights.values() if w.dtype == "bf16")

    def render(self, rng: np.random.Generator) -> None:
        """Write the text: of weights, states and functions, what the entries name."""
        entries = [entry.text(rng) for entry in self.entries]
        functions: list[str] = []
        for function in reversed(self.parts.functions):
            if _names(function.split()[1], [*functions, *entries]):
                functions.insert(0, function)
        body = [*functions, *entries]
        lines = ["(require nn)", *(["(require gradients)"] if self.kind == "learning" else [])]
        lines += ["(require-dialect arith math tensor linalg scf)", f"(config layers {self.parts.layers})"]
        for weight in self.parts.weights.values():
            inner = f"({weight.name} [{' '.join(map(str, weight.shape))}] {weight.dtype})"
            lines.append(f"(weights (per layers {inner}))" if weight.layers else f"(weights {inner})")
        for state in self.parts.states.values():
            sizes = [*(["layers"] if state.layers else []), *map(dim_text, state.shape)]
            lines.append(f"(state ({state.name} [{' '.join(sizes)}] {state.dtype}))")
        used = [line for line in lines if not line.startswith(("(weights", "(state")) or _names(_declared(line), body)]
        self.text = "\n".join([*used, *body]) + "\n"

    def evaluate(self, product: float = GPU_PRODUCTS) -> None:
        """Fill in what is right after each run, for products whose terms may be off by this share of themselves."""
        held = {d.name: exact(d.value) for d in [*self.parts.weights.values(), *self.parts.states.values()]}
        entries = {entry.name: entry for entry in self.entries}
        Bounds.product = product
        try:
            for run in self.runs:
                entry = entries[run.entry]
                env = Env(run.sizes, held | {k: exact(v) for k, v in run.inputs.items()}, smooth=entry.scope.env.smooth)
                values = replay(entry.scope.nodes, env)
                run.right = {name: values[node] for name, node in entry.results.items()}
                held = env.held
        finally:
            Bounds.product = GPU_PRODUCTS
        names = {*self.parts.weights, *self.parts.states}
        self.after = {n: v for n, v in held.items() if n in names}


def _declared(line: str) -> str:
    match = re.search(r"\((\w+) \[", line)
    assert match
    return match[1]


def _names(name: str, texts: list[str]) -> bool:
    return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for text in texts)
