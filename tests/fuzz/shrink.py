"""Smaller programs that fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from fuzz.program import Node, Program

Made = TypeVar("Made")


def shrink(
    program: Made, smaller: Callable[[Made], Iterable[Made]], still_fails: Callable[[Made], bool], most: int
) -> Made:
    """Go on to a smaller program as long as one fails too: at most so many attempts."""
    candidates = iter(smaller(program))
    for _ in range(most):
        candidate = next(candidates, None)
        if candidate is None:
            break
        if still_fails(candidate):
            program, candidates = candidate, iter(smaller(candidate))
    return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one subtree less, those that lose most first."""
    for node in program.nodes:
        if node is not program.result and node.kind.dtype != "i1" and len(node.operands):
            yield replace(program, result=node, nodes=_kept(program, node)).without_unused()
    for node in program.nodes:
        if node.op == "write-state":
            yield _replaced(program, node, node.operands[0])
    for node in reversed(program.nodes):
        for other in node.operands:
            if other.kind == node.kind:
                yield _replaced(program, node, other)
        if node.kind.shape and node.kind.dtype != "i1" and node.op != "weight" and node is not program.result:
            name = f"w{len(program.weights)}x{program.nodes.index(node)}"
            weight = Node("weight", node.kind, (), {"name": name})
            with_weight = replace(program, weights={**program.weights, name: node.kind})
            yield _replaced(with_weight, node, weight)


def _kept(program: Program, result: Node) -> tuple[Node, ...]:
    """Nodes up to a result: what follows it, writes of states too, goes."""
    return program.nodes[: program.nodes.index(result) + 1]


def _replaced(program: Program, old: Node, new: Node) -> Program:
    """A copy in which a node's users take another."""
    copies: dict[Node, Node] = {}
    nodes = []
    for node in program.nodes:
        if node is old:
            if new not in copies:
                copies[new] = Node(new.op, new.kind, (), new.facts)
                nodes.append(copies[new])
            copies[old] = copies[new]
            continue
        copies[node] = Node(node.op, node.kind, tuple(copies[o] for o in node.operands), node.facts)
        nodes.append(copies[node])
    return replace(program, nodes=tuple(nodes), result=copies[program.result]).without_unused()
