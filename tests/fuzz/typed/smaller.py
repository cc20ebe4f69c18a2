"""Smaller typed programs that fail in the same way: with fewer entries, runs, results and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from fuzz.typed.approx import Unfit
from fuzz.typed.graph import Node
from fuzz.typed.program import Entry, Program


def smaller(program: Program) -> Iterator[Program]:
    """What can be rendered of the programs with one part less."""
    return filter(_renders, _with_less(program))


def _renders(program: Program) -> bool:
    try:
        program.render(np.random.default_rng(program.seed))
        program.evaluate()
    except Unfit:
        return False
    return True


def _with_less(program: Program) -> Iterator[Program]:
    for entry in program.entries:
        if len(program.entries) > 1:
            runs = [run for run in program.runs if run.entry == entry.name]
            yield replace(program, entries=[entry], runs=runs)
    for run in program.runs:
        if len(program.runs) > 1:
            yield replace(program, runs=[other for other in program.runs if other is not run])
    for place, entry in enumerate(program.entries):
        for other in _smaller_entries(entry):
            entries = [*program.entries[:place], other, *program.entries[place + 1 :]]
            yield replace(program, entries=entries)


def _smaller_entries(entry: Entry) -> Iterator[Entry]:
    """The same with one result, or one that is earlier, and without what that does not need."""
    if len(entry.results) > 1:
        for name, node in entry.results.items():
            yield _with(entry, {name: node})
    for name, node in entry.results.items():
        nodes = entry.scope.nodes
        for other in nodes[: nodes.index(node)]:
            if not other.leaf and len(entry.results) == 1:
                yield _with(entry, {name: other})


def _with(entry: Entry, results: dict[str, Node]) -> Entry:
    """Values that are pinned stay where they stand before the last result: they may write what others read."""
    last = max(entry.scope.nodes.index(node) for node in results.values())
    before = entry.scope.nodes[: last + 1]
    needed: set[Node] = set()
    waiting = [*results.values(), *(n for n in before if n.writes)]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.parents
    nodes = [node for node in before if node in needed]
    for node in nodes:
        node.uses = 2
    return replace(entry, results=results, scope=replace(entry.scope, nodes=nodes))
