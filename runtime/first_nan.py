"""Running an entry launch by launch, up to the first that makes a NaN of numbers that are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.access import SCRATCH
from lispgpt.base.dtypes import DTYPES
from lispgpt.base.errors import UserError
from lispgpt.runtime.arrays import readable
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.plan.reports import span_of
from lispgpt.runtime.plan.steps import Argument, Launch

GIVEN = {"weight": "the weight", "state": "the state", "input": "the input"}
"""Kinds of buffers whose numbers the program did not compute in this run, and what messages call them."""


@dataclass(frozen=True)
class FirstNaN:
    """Of a session's launches.

    launch: runs one alone.  buffers, declared, kernels: the session's, by name.  sources: the program's texts.
    """

    device: Device
    launch: Callable[[Entry, Launch], None]
    buffers: Mapping[str, Any]
    declared: Mapping[str, Buffer]
    kernels: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, str]

    def run(self, entry: Entry) -> None:
        """Run an entry; UserError at the form that makes the first NaN, or that reads one from what it was given."""
        for launch in entry.launches:
            elements = self.kernels[launch.kernel].get("elements", ())
            if len(elements) != len(launch.arguments):
                raise UserError("the artifact does not say what its kernels' memory holds: compile it again")
            pairs = list(zip(launch.arguments, elements, strict=True))
            self._check_given(launch, pairs)
            largest = max((_largest(array) for _, array in self._floats(pairs, before=False)), default=0.0)
            self.launch(entry, launch)
            self.device.sync()
            for _, array in self._written(pairs):
                if (place := _nan(array)) is not None:
                    said = f"the first NaN comes from this form: number {place:,} of {array.size:,} of what it makes"
                    read = f"the largest number that it reads is {largest:.3g}" if largest else "it reads zeros alone"
                    raise self._error(launch, f"{said}; {read}")

    def _check_given(self, launch: Launch, pairs: list[tuple[Argument, str]]) -> None:
        """UserError where a launch is about to read a NaN that was there before the run."""
        for argument, array in self._floats(pairs, before=True):
            if (place := _nan(array)) is not None:
                buffer = self.declared[argument.buffer]
                what = f"{GIVEN[buffer.kind]} {buffer.name.rpartition('/')[2].partition('@')[0]}"
                raise self._error(launch, f"{what} has a NaN where this reads it (number {place:,} of {array.size:,})")

    def _error(self, launch: Launch, said: str) -> UserError:
        spans = [span for form in launch.forms if (span := span_of(form, self.sources)) is not None]
        if len(launch.forms) > 1:
            said += f" (it is one kernel of {', '.join(launch.forms)})"
        if not spans:
            return UserError(f"{launch.forms[0] if launch.forms else launch.kernel}: {said}")
        return UserError(said, spans[0])

    def _floats(self, pairs: list[tuple[Argument, str]], before: bool) -> Iterator[tuple[Argument, np.ndarray]]:
        """What a launch reads; before: only what was there before the run."""
        for argument, element in pairs:
            given = self.declared[argument.buffer].kind in GIVEN
            if argument.reads and argument.access != SCRATCH and (given or not before) and _is_float(element):
                yield argument, self._read(argument, element)

    def _written(self, pairs: list[tuple[Argument, str]]) -> Iterator[tuple[Argument, np.ndarray]]:
        for argument, element in pairs:
            if argument.writes and argument.access != SCRATCH and _is_float(element):
                yield argument, self._read(argument, element)

    def _read(self, argument: Argument, element: str) -> np.ndarray:
        array = np.empty(argument.nbytes // DTYPES[element].item_bytes, DTYPES[element].numpy)
        self.device.copy_out(self.buffers[argument.buffer], array, argument.offset)
        return readable(array, element)


def _is_float(element: str) -> bool:
    return element in ("f64", "f32", "f16", "bf16")


def _nan(array: np.ndarray) -> int | None:
    """The place of the first NaN."""
    found = np.isnan(array)
    return int(np.argmax(found)) if found.any() else None


def _largest(array: np.ndarray) -> float:
    numbers = np.abs(array[~np.isnan(array)])
    return float(numbers.max()) if numbers.size else 0.0
