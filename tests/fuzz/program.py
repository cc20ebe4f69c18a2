"""A random model as a graph: nodes with their kinds, printed as Lisp and computed on numpy from one description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fuzz.exact import Exact


@dataclass(frozen=True)
class Kind:
    """What a node gives: a tensor of a dtype, "f32", "bf16", "i32" or "i1"."""

    shape: tuple[int, ...]
    dtype: str = "f32"

    def __str__(self) -> str:
        return f"[{' '.join(map(str, self.shape))}] {self.dtype}"


@dataclass(eq=False)
class Node:
    """One op of a program: facts are what its writer and its evaluator need beside the operands."""

    op: str
    kind: Kind
    operands: tuple[Node, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Op:
    """write: (node, names of the operands) to Lisp.  compute: (node, their values, Run) to the value."""

    write: Callable[[Node, list[str]], str]
    compute: Callable[[Node, list[Exact], Run], Exact]


OPS: dict[str, Op] = {}
"""All ops by name; the modules that define some add them here."""


@dataclass
class Run:
    """One evaluation: the arrays that weights hold, what states hold by now, and the precision of products."""

    weights: dict[str, Exact]
    states: dict[str, Exact]
    precision: float


@dataclass(frozen=True)
class Program:
    """nodes: in the order in which they are emitted, operands first; result: what the entry gives.

    weights and states: their kinds by name.  A state's kind is without the batch.
    """

    nodes: tuple[Node, ...]
    result: Node
    weights: dict[str, Kind]
    states: dict[str, Kind]

    def without_unused(self) -> Program:
        """Only what the result and the writes of states need."""
        used: set[Node] = set()
        waiting = [self.result, *(n for n in self.nodes if n.op == "write-state")]
        while waiting:
            node = waiting.pop()
            if node not in used:
                used.add(node)
                waiting += node.operands
        nodes = tuple(n for n in self.nodes if n in used)
        names = {n.facts["name"] for n in nodes if "name" in n.facts}
        weights = {name: kind for name, kind in self.weights.items() if name in names}
        states = {name: kind for name, kind in self.states.items() if name in names}
        return replace(self, nodes=nodes, weights=weights, states=states)

    def evaluate(self, weights: dict[str, np.ndarray], states: dict[str, np.ndarray], precision: float) -> Results:
        """The result, and the states as they are afterwards, [… batch …] as the program declares them."""
        run = Run(
            {name: Exact.of(w) for name, w in weights.items()},
            {name: Exact.of(s) for name, s in states.items()},
            precision,
        )
        values: dict[Node, Exact] = {}
        for node in self.nodes:
            found = OPS[node.op].compute(node, [values[o] for o in node.operands], run)
            assert found.value.shape == found.error.shape == node.kind.shape, (node.op, found.value.shape, node.kind)
            values[node] = found
        return Results(values[self.result], run.states)

    def entry(self, name: str) -> str:
        """The entry's form: one binding a node, in order."""
        names = {node: f"v{i}" for i, node in enumerate(self.nodes)}
        bindings = []
        for node in self.nodes:
            text = OPS[node.op].write(node, [names[o] for o in node.operands])
            bindings.append(f"{names[node]} {text}")
        lines = "\n        ".join(bindings)
        return f"(entry {name} [tokens positions]\n  (let [{lines}]\n    {names[self.result]}))"

    def prefixed(self, prefix: str) -> Program:
        """The same with a prefix to the names of weights and states, so that programs share a file."""
        renamed = {
            n: Node(n.op, n.kind, (), {**n.facts, **({"name": prefix + n.facts["name"]} if "name" in n.facts else {})})
            for n in self.nodes
        }
        for old, new in renamed.items():
            new.operands = tuple(renamed[o] for o in old.operands)
        weights = {prefix + name: kind for name, kind in self.weights.items()}
        states = {prefix + name: kind for name, kind in self.states.items()}
        return Program(tuple(renamed.values()), renamed[self.result], weights, states)


@dataclass(frozen=True)
class Results:
    result: Exact
    states: dict[str, Exact]


HEADER = """(require nn)
(require-dialect arith linalg math scf tensor)
(config context 1)
"""


def source(programs: dict[str, Program]) -> str:
    """A file of entries by name; the programs' weights have names of their own."""
    lines = [HEADER]
    declared: list[tuple[str, str]] = [("weights", "weights"), ("states", "state")]
    for attribute, form in declared:
        kinds = {n: k for p in programs.values() for n, k in getattr(p, attribute).items()}
        if kinds:
            lines.append(f"({form}" + "".join(f"\n  ({name} {kind})" for name, kind in kinds.items()) + ")\n")
    return "".join(lines) + "\n".join(p.entry(name) for name, p in programs.items()) + "\n"


def with_batch(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A state's shape for one sequence."""
    return (shape[0], 1, *shape[1:]) if len(shape) > 1 else (1, *shape)


def arrays(program: Program, random: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Weights and states for a program, as float64 or int64 holding what their dtypes hold."""
    weights = {name: _array(kind.shape, kind.dtype, random) for name, kind in program.weights.items()}
    states = {name: _array(with_batch(kind.shape), kind.dtype, random) for name, kind in program.states.items()}
    return weights, states


def _array(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> np.ndarray:
    if dtype == "i32":
        return random.integers(0, 10, shape)
    values = random.normal(0, 0.7, shape).astype(np.float32)
    if dtype == "bf16":
        values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(np.float64)
