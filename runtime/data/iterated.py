"""Batches that a function of the user's makes: `script.py:batches`, which yields arrays by the names of inputs."""

from __future__ import annotations

import inspect
import runpy
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.data.rows import Arrays

MARK = ".py:"


def is_script(path: str | Path) -> bool:
    """Whether a path names a function of a script."""
    return MARK in str(path)


class Iterated:
    """What a function yields: dicts of arrays, each a whole batch.

    The function takes those that it names of `batch` (rows wanted), `seed`, and `start` (batches that were taken
    before: where it does not name that, so many are passed over).  Where it ends, it is called again: an epoch.
    """

    def __init__(self, named: str | Path, batch: int, seed: int) -> None:
        self.name = str(named)
        file, _, function = self.name.rpartition(":")
        if not Path(file).is_file():
            raise UserError(f"there is no file {file}")
        made = self._of_user(lambda: runpy.run_path(file)).get(function)
        if not callable(made):
            raise UserError(f"{file} has no function {function!r}, which would yield batches")
        self._function, self._given = made, {"batch": batch, "seed": seed}
        self._made: Iterator[Any] = iter(())
        self._batch, self._next = batch, -1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a batch's arrays."""
        return {key: array.shape for key, array in self.inputs(0).items()}

    def batches(self, rank: int, world: int) -> IteratedPart:
        """This process's part of each batch; see `Rows.batches`."""
        return IteratedPart(self, rank, world)

    def inputs(self, number: int) -> Arrays:
        """The batch of that number, from 0."""
        if number != self._next:
            self._begin(number)
        found = self._drawn()
        if found is None:
            self._begin(0)
            found = self._drawn()
        self._next = number + 1
        return self._checked(found)

    def sweep(self, most: int | None = None) -> Iterator[Arrays]:
        """What it yields once, up to so many batches."""
        self._begin(0)
        self._next = -1
        number = 0
        while (most is None or number < most) and (found := self._drawn()) is not None:
            yield self._checked(found)
            number += 1

    def _begin(self, number: int) -> None:
        """Have the batch of a number come next."""
        takes = inspect.signature(self._function).parameters
        known = {**self._given, "start": number}
        given = {name: known[name] for name in takes if name in known}
        self._made = self._of_user(lambda: iter(self._function(**given)))
        for _ in range(0 if "start" in takes else number):
            if self._drawn() is None:
                self._made = self._of_user(lambda: iter(self._function(**given)))
                self._drawn()

    def _drawn(self) -> Any:
        return self._of_user(lambda: next(self._made, None))

    def _of_user(self, work: Callable[[], Any]) -> Any:
        """What the user's code does; UserError says where it fails."""
        try:
            return work()
        except Exception as error:
            file = self.name.rpartition(":")[0]
            own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            line = f" at line {own[-1]}" if own else ""
            raise UserError(f"{self.name} fails{line}: {type(error).__name__}: {error}") from error

    def _checked(self, found: Any) -> Arrays:
        if not isinstance(found, Mapping) or not found:
            kind = "nothing" if found is None else type(found).__name__
            raise UserError(f"{self.name} yields {kind}, and a batch is a dict of arrays by their names")
        arrays = {str(key): np.ascontiguousarray(value) for key, value in found.items()}
        odd = next((key for key, array in arrays.items() if array.shape[:1] != (self._batch,)), None)
        if odd is not None:
            raise UserError(f"{self.name} yields {odd} {list(arrays[odd].shape)}, and a batch has {self._batch} rows")
        return arrays


class IteratedPart:
    """One process's rows of what all share."""

    windows = 0

    def __init__(self, whole: Iterated, rank: int, world: int) -> None:
        self._whole, self._rank, self._world = whole, rank, world

    def inputs(self, number: int) -> Arrays:
        """This process's rows of the batch of that number, from 0."""
        found = self._whole.inputs(number)
        each = {key: len(array) // self._world for key, array in found.items()}
        return {key: array[self._rank * each[key] : (self._rank + 1) * each[key]] for key, array in found.items()}
