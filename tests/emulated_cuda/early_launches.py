"""Launches that start before those ahead of them are done (9.7.13.13, griddepcontrol): a part of the PTX interpreter.

Until a block waits, it may find what global memory held before any of them, and may overwrite what they still read.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class EarlyLaunches:
    """Instructions of Threads.  before: the bytes that global memory held ahead of the launches that it does not wait
    for at its start, or None where it does.  waited: which blocks have waited."""

    memory: np.ndarray
    block: np.ndarray
    before: np.ndarray | None
    waited: np.ndarray

    def begin_early(self, before: np.ndarray | None, blocks: int) -> None:
        self.before, self.waited = before, np.full(blocks, before is None)

    def op_griddepcontrol(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        if "wait" in suffixes:
            self.waited[self.block[lanes]] = True

    def loaded(self, memory: np.ndarray, kind: Any, index: np.ndarray, blocks: np.ndarray | int) -> np.ndarray:
        """What threads of these blocks find at memory.view(kind)[index]; a block for each row of the index."""
        found: np.ndarray = memory.view(kind)[index]
        if memory is self.memory and self.before is not None:
            late = np.broadcast_to(~self.waited[blocks], len(found))
            if late.any():
                found[late] = self.before.view(kind)[index[late]]
        return found

    def check_stores(self, memory: np.ndarray, lanes: np.ndarray) -> None:
        waits = memory is not self.memory or self.waited[self.block[lanes]].all()
        assert waits, "a store to global memory before the launches ahead are waited for"
