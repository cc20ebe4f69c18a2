"""Smaller programs that fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz.program import Node, Program


def shrink(program: Program, still_fails: Callable[[Program], bool], most: int = 200) -> Program:
    """Drop subtrees as long as the failure stays: at most so many attempts."""
    attempts = 0
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(program):
            attempts += 1
            if attempts > most:
                return program
            if still_fails(smaller):
                program, progress = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
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
