"""What a launch may do to which bytes of global memory, and which of them it has stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Span:
    """Bytes from start to end, of global memory from its start on; writable: whether the launch says it writes them."""

    start: int
    end: int
    writable: bool


class Spans:
    """The arguments of a launch, apart from each other."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)
        self.starts = np.array([span.start for span in self.spans], np.int64)
        self.ends = np.array([span.end for span in self.spans], np.int64)
        self.writable = np.array([span.writable for span in self.spans], bool)
        self._stores: list[tuple[np.ndarray, int]] = []

    def admit(self, places: np.ndarray, nbytes: int, writes: bool) -> bool:
        """Whether all that is accessed is only read in this launch; AssertionError where it may not be accessed.

        places: where so many bytes each are.
        """
        numbers = self.starts.searchsorted(places, "right") - 1
        outside = (numbers < 0) | (places + nbytes > self.ends[numbers])
        assert not outside.any(), f"an access outside the launch's arguments, at {int(places[outside.argmax()])}"
        writable = self.writable[numbers]
        if writes:
            assert writable.all(), "a store to an argument that the launch says it only reads"
            self._stores.append((np.array(places, np.int64), nbytes))
        return not writable.any()

    def stored(self, start: int, nbytes: int) -> np.ndarray:
        """Which of some bytes were stored to [nbytes]."""
        marks = np.zeros(nbytes, bool)
        for places, size in self._stores:
            mine = places[(places >= start) & (places < start + nbytes)] - start
            marks[(mine[:, None] + np.arange(size)).reshape(-1)] = True
        return marks
