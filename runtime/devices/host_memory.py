"""Buffers that are arrays of bytes in this process's own memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lispgpt.runtime.devices.base import Pieces
from lispgpt.runtime.plan.plan import Entry


class HostMemory:
    """Copies between such buffers and arrays; the part of a device's contract that has nothing of a chip."""

    asynchronous = False
    copy_cost = 16 << 10
    weight_rows = 16
    most_runs = 1
    granularity = 0
    room: int | None = None
    whole = ""

    def enter(self) -> None:
        """Every thread may."""

    def alloc(self, nbytes: int) -> np.ndarray:
        """Such a buffer."""
        raise NotImplementedError

    def alloc_together(self, sizes: Sequence[int]) -> list[np.ndarray]:
        return [self.alloc(nbytes) for nbytes in sizes]

    def alloc_shared(self, nbytes: int) -> np.ndarray:
        return self.alloc(nbytes)

    def prepare(self, entry: Entry, buffers: Mapping[str, np.ndarray]) -> Any:
        """What runs an entry's launches."""
        raise NotImplementedError

    def prepare_runs(self, entries: Sequence[Entry], buffers: Mapping[str, np.ndarray]) -> Any:
        return self.prepare(
            replace(entries[0], steps=tuple(step for entry in entries for step in entry.steps)), buffers
        )

    def launch(self, executable: Any) -> None:
        """Run it."""
        raise NotImplementedError

    def launch_beside(self, executable: Any) -> None:
        self.launch(executable)

    def join(self) -> None:
        """Nothing goes on beside."""

    def reserve(self, nbytes: int) -> np.ndarray:
        return self.alloc(nbytes)

    def back(self, buffer: np.ndarray, start: int, end: int) -> None:
        """The system gives memory where it is written."""

    def taken(self, buffer: np.ndarray, nbytes: int) -> int:
        return nbytes

    def copy_in(self, buffer: np.ndarray, array: np.ndarray, offset: int = 0) -> None:
        data = array.reshape(-1).view(np.uint8)
        buffer[offset : offset + data.size] = data

    def copy_in_together(self, filled: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        for buffer, array in filled:
            self.copy_in(buffer, array)

    def copy_out(self, buffer: np.ndarray, array: np.ndarray, offset: int = 0) -> None:
        data = array.reshape(-1).view(np.uint8)
        data[:] = buffer[offset : offset + data.size]

    def copy(
        self, source: np.ndarray, target: np.ndarray, nbytes: int, source_offset: int = 0, target_offset: int = 0
    ) -> None:
        target[target_offset : target_offset + nbytes] = source[source_offset : source_offset + nbytes]

    def copy_pieces(self, source: np.ndarray, target: np.ndarray, pieces: Pieces) -> None:
        for start, end in pieces.each():
            self.copy(source, target, pieces.nbytes, start, end)
