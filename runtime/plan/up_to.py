"""Entries that are compiled for any size of a dimension up to one: which of their rows a run has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.runtime.plan.steps import text, whole

Rows = tuple[tuple[int, int], ...]
"""Dimensions that count rows, each with how many of its elements follow each other in one row."""


@dataclass(frozen=True)
class UpTo:
    """That a dimension of an entry may be smaller in a run than what the entry is compiled for.

    dimension: its name among the entry's sizes.  size: the buffer, of one i32, that says a run's.  inputs, results: of
    those that have rows, where: element i of such a dimension is of row i // inner, modulo the entry's size.
    """

    dimension: str
    size: str
    inputs: Mapping[str, Rows]
    results: Mapping[str, Rows]

    def size_of(self, shapes: Mapping[str, Sequence[int]], whole_shapes: Mapping[str, Sequence[int]]) -> int | None:
        """The size that inputs of these shapes say; None where they are not of one.  whole_shapes: the entry's own."""
        found = {shapes[name][d] for name, rows in self.inputs.items() for d, _ in rows if len(shapes[name]) > d}
        size = found.pop() if len(found) == 1 else None
        if size is None or any(len(shapes[name]) != len(own) for name, own in whole_shapes.items()):
            return None
        for name, own in whole_shapes.items():
            counted = [d for d, _ in self.inputs.get(name, ())]
            for d, (given, extent) in enumerate(zip(shapes[name], own, strict=True)):
                if given > extent if d in counted else given != extent:
                    return None
        return size

    def filled(self, name: str, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """An input in the entry's own shape: rows that are not there are as the first one, or zeros."""
        for d, _ in self.inputs.get(name, ()):
            missing = shape[d] - array.shape[d]
            if missing:
                first = array.take([0], d) if array.shape[d] else np.zeros_like(array, shape=_one(array.shape, d))
                array = np.concatenate([array, np.repeat(first, missing, d)], d)
        return array

    def cut(self, name: str, array: np.ndarray, size: int, most: int) -> np.ndarray:
        """The rows of a result that are there in a run of this size."""
        for d, inner in self.results.get(name, ()):
            there = np.arange(array.shape[d]) // inner % most < size
            array = np.ascontiguousarray(np.compress(there, array, d))
        return array

    def problem(self, inputs: Mapping[str, Sequence[int]], results: Mapping[str, Sequence[int]]) -> str | None:
        """What is wrong with it, if anything is; inputs, results: the shapes of the entry's."""
        for own, shapes in ((self.inputs, inputs), (self.results, results)):
            for name, rows in own.items():
                if name not in shapes or any(not 0 <= d < len(shapes[name]) or inner < 1 for d, inner in rows):
                    return f"rows of {name!r}"
        return None


def up_to_from_json(data: Mapping[str, Any]) -> UpTo:
    """AttributeError, KeyError, TypeError or ValueError where it is misshapen."""
    inputs, results = ({text(name): _rows(each) for name, each in data[key].items()} for key in ("inputs", "results"))
    return UpTo(text(data["dimension"]), text(data["size"]), inputs, results)


def _one(shape: Sequence[int], d: int) -> tuple[int, ...]:
    return (*shape[:d], 1, *shape[d + 1 :])


def _rows(data: Any) -> Rows:
    return tuple((whole(d), whole(inner)) for d, inner in data)
