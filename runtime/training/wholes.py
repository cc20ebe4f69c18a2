"""States of which each device has a part: all of one on the host, and one device's part of all."""

from __future__ import annotations

from math import prod

import numpy as np

from lispgpt.base.access import READ, READ_WRITE, WRITE
from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.plan.plan import Buffer
from lispgpt.runtime.plan.steps import ALL_GATHER, ALL_REDUCE, Argument, Collective
from lispgpt.runtime.session import Session


class Wholes:
    """Reads and writes a session's states as if it had all of each; every process has to read the same ones in turn.

    rank, size: which of how many processes this is.
    """

    def __init__(self, session: Session, rank: int = 0, size: int = 1) -> None:
        self._session, self._rank, self._size = session, rank, size
        self._room: tuple[int, object] = (0, None)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of all of a state."""
        declared = self._session.declared(name)
        return declared.shape if declared.whole is None else declared.whole

    def is_sharded(self, name: str) -> bool:
        declared = self._session.declared(name)
        return declared.whole is not None or declared.summed

    def read(self, name: str) -> np.ndarray:
        """All of a state, with the other processes where each has a part."""
        declared = self._session.declared(name)
        if not self.is_sharded(name):
            return self._session.read(name)
        array = np.empty(self.shape(name), find_dtype(declared.dtype).numpy)
        whole = self._space(array.nbytes)
        if declared.summed:
            self._session.device.copy_in(whole, self._session.read(name))
        self._session.run_collective(_joining(declared, self._size), {"whole": whole}, array)
        return array

    def write(self, name: str, array: np.ndarray) -> None:
        """Give a state what it has of all."""
        declared = self._session.declared(name)
        if declared.whole is not None:
            count = declared.shape[declared.divided]
            own = range(self._rank * count, (self._rank + 1) * count)
            array = np.ascontiguousarray(array.take(own, declared.divided))
        if declared.summed and self._rank > 0:
            array = np.zeros_like(array)
        self._session.write(name, array)

    def _space(self, nbytes: int) -> object:
        """Memory of the device for the largest so far: it gives none back before it is closed."""
        if self._room[0] < nbytes:
            self._room = nbytes, self._session.device.alloc(nbytes)
        return self._room[1]


def _joining(state: Buffer, size: int) -> Collective:
    """What all devices do to have all of a state in a buffer `whole`: add up what each has put there, or gather row by
    row before the divided dimension."""
    if state.summed:
        return Collective(ALL_REDUCE, size, (state.dtype,), (Argument("whole", 0, state.nbytes, READ_WRITE),))
    rows = prod(state.shape[: state.divided])
    own = state.nbytes // rows
    arguments = []
    for row in range(rows):
        arguments.append(Argument(state.name, row * own, own, READ))
        arguments.append(Argument("whole", row * own * size, own * size, WRITE))
    return Collective(ALL_GATHER, size, (state.dtype,) * len(arguments), tuple(arguments))
