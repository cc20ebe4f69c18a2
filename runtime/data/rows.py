"""Batches of arrays: rows of the same number in each array belong together, and a step takes some of them.

Which rows a step sees depends on the seed and the step's number alone: an epoch takes each row once, in an order of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from lispgpt.base.errors import UserError

Arrays = dict[str, np.ndarray]


class Rows:
    """Arrays by the names of the inputs that they are for, [rows …] each."""

    def __init__(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        self._arrays, self.name = dict(arrays), name
        counts = {key: len(array) if array.ndim else -1 for key, array in self._arrays.items()}
        self.count = min(counts.values(), default=0)
        odd = next((key for key, count in counts.items() if count != self.count or count < 1), None)
        if odd is not None or not counts:
            said = ", ".join(f"{key} {list(array.shape)}" for key, array in self._arrays.items()) or "no array"
            raise UserError(f"{name} wants arrays of as many rows each, from 1 on, and has {said}")

    def part(self, begin: int, end: int) -> Rows:
        """The rows from one up to another."""
        return Rows({key: array[begin:end] for key, array in self._arrays.items()}, self.name)

    def shapes(self, batch: int) -> dict[str, tuple[int, ...]]:
        """Of what a step of so many rows is given."""
        return {key: (batch, *array.shape[1:]) for key, array in self._arrays.items()}

    def taken(self, rows: np.ndarray) -> Arrays:
        return {key: np.ascontiguousarray(array[rows]) for key, array in self._arrays.items()}

    def batches(self, batch: int, seed: int, rank: int = 0, world: int = 1) -> RowBatches:
        """What each step takes; rank, world: which of so many processes this is, each of which takes `batch` rows."""
        return RowBatches(self, batch, seed, rank, world)

    def sweep(self, batch: int, most: int | None = None) -> Iterator[Arrays]:
        """All rows once, in whole batches; most: of these at most, spread over the rows."""
        starts = np.arange(self.count // batch) * batch
        if most is not None and len(starts) > most:
            starts = starts[np.linspace(0, len(starts) - 1, most).astype(int)]
        for start in starts:
            yield self.taken(np.arange(start, start + batch))


class RowBatches:
    """Shuffled batches without an end; see `Rows.batches`."""

    def __init__(self, rows: Rows, batch: int, seed: int, rank: int, world: int) -> None:
        self._rows, self._batch, self._seed, self._rank, self._world = rows, batch, seed, rank, world
        self.windows = rows.count
        self._orders: dict[int, np.ndarray] = {}

    def inputs(self, number: int) -> Arrays:
        """This process's rows of the batch of that number, from 0."""
        first = (number * self._world + self._rank) * self._batch
        places = range(first, first + self._batch)
        found = [self._order(place // self.windows)[place % self.windows] for place in places]
        return self._rows.taken(np.array(found))

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            few = 2 + self._batch * self._world // self.windows
            self._orders = {known: order for known, order in self._orders.items() if epoch - known < few}
            drawn = np.random.Generator(np.random.Philox(key=np.array([self._seed, epoch], np.uint64)))
            self._orders[epoch] = drawn.permutation(self.windows)
        return self._orders[epoch]


def read_rows(path: Path) -> Rows:
    """The arrays of an .npz file; UserError says what is wrong with it."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Rows({key: file[key] for key in file.files}, str(path))
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise UserError(f"{path} cannot be read as arrays (numpy's .npz): {error}") from error
