"""Which states an optimizer keeps for the elements of a weight, found from what is made element by element of sums over
the batch: the states that such a sum, or another of them, meets in one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from lispgpt.ir.collectives import operation_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    entry_arguments,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
    strings,
)

Node: TypeAlias = "ir.Value | str"
"""A value of an entry, or a state by its name, which is the same in all of them."""


class Updates:
    """shapes: of the states, by their names as in `arguments`."""

    def __init__(self, entries: Sequence[ir.Operation]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._above: dict[Node, Node] = {}
        self._sums: list[tuple[ir.Operation, ir.Value]] = []
        for entry in entries:
            self._read(entry)

    def sums(self, entry: ir.Operation, name: str) -> list[ir.Value]:
        """The sums over the batch that an entry makes a state of."""
        return [value for owner, value in self._sums if owner == entry and self._root(value) == self._root(name)]

    def axes(self) -> dict[str, int]:
        """For each state of this kind the dimension to divide: the second where sums are made row by row."""
        found = {}
        for name in self.shapes:
            sums = [value for _, value in self._sums if self._root(value) == self._root(name)]
            if sums:
                found[name] = int(any(parts_of(value) for value in sums))
        return found

    def _read(self, entry: ir.Operation) -> None:
        block = entry.regions[0].blocks[0]
        summed = strings(entry.attributes["summed"]) if "summed" in entry.attributes else []
        for name, argument in entry_arguments(entry).items():
            if name.startswith("state:") and name not in summed and shape_of(argument):
                self.shapes[name] = shape_of(argument)
                self._join(argument, name)
        for op in operations(block):
            if not _is_by_element(op):
                continue
            shape = shape_of(op.results[0])
            for value in op.operands:
                if shape_of(value) == shape:
                    self._join(value, op.results[0])
                    if _is_sum(value):
                        self._sums.append((entry, value))

    def _root(self, node: Node) -> Node:
        while node in self._above:
            node = self._above[node]
        return node

    def _join(self, one: Node, other: Node) -> None:
        if self._root(one) != self._root(other):
            self._above[self._root(one)] = self._root(other)


def _is_by_element(op: ir.Operation) -> bool:
    """Whether each element of an op's result is made of those at its place, and of numbers."""
    if not is_elementwise(op) or not shape_of(op.results[0]):
        return False
    shape = shape_of(op.results[0])
    places = [*range(len(shape))]
    return all(
        shape_of(v) == () or (shape_of(v) == shape and dim_positions(map_) == places)
        for map_, v in zip(indexing_maps(op), op.operands, strict=True)
    )


def _is_sum(value: ir.Value) -> bool:
    """Whether a value is a sum over the batch, or put together of such."""
    op = defining_op(value)
    while op is not None and op.name == "tensor.insert_slice":
        if not _is_sum(op.operands[0]):
            return False
        op = defining_op(op.operands[1])
        if op is not None and op.name in ("tensor.empty", "linalg.fill"):
            return True
    return _adds_up(op)


def _adds_up(op: ir.Operation | None) -> bool:
    """Whether an op is a sum over the devices."""
    return op is not None and op.name == "shard.all_reduce" and operation_of(op) == "all_reduce"


def parts_of(value: ir.Value) -> list[ir.Operation]:
    """The insertions that put a value together of its rows, one for each; none where it is not made so."""
    found, op = [], defining_op(value)
    while op is not None and op.name == "tensor.insert_slice":
        sizes = integers(op.attributes["static_sizes"])
        if sizes != [1, *shape_of(value)[1:]] or len(shape_of(op.operands[0])) != len(sizes) - 1:
            return []
        found.append(op)
        op = defining_op(op.operands[1])
    return found if len(found) == (shape_of(value) or (0,))[0] else []


def sums_of(value: ir.Value) -> list[ir.Operation]:
    """The ops that add up a value or its rows, where nothing else reads what they make; else none."""
    rows = parts_of(value)
    made = [defining_op(op.operands[0]) for op in rows] or [defining_op(value)]
    if not all(_adds_up(op) for op in made):
        return []
    alone = all(len(list(op.results[0].uses)) == 1 for op in made) if rows else True
    return made if alone else []
