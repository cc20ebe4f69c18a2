"""Processes of one machine: shared memory, in which every rank combines its share of what all have put there.

A round: each puts a piece of its array into its slot; when all have, each adds up (or finds the extremes of) its share
of the slots, in the order of the ranks; when all have, each takes what was made.  Two sets of slots take turns, so that
nobody waits to be read.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import stat
import tempfile
import time
from pathlib import Path

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.files import NEW
from lispgpt.runtime.collectives.host import HostEngine, Part, combined, waiting_loop
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.steps import ALL_GATHER, ALL_SLICE, BROADCAST, REDUCING, Collective

SHARED = Path("/dev/shm")
SLOT, COUNTER = 1 << 20, 64
"""Bytes of a slot; of a rank's counter, so that none shares a line of a cache with another."""


def open_engine(device: Device, peers: Peers) -> HostEngine:
    return HostEngine(device, peers, LocalTransport(peers))


class LocalTransport:
    """memory: of all ranks: a counter each, then two sets of a slot for each and one for what is made of them."""

    def __init__(self, peers: Peers) -> None:
        place = peers.place
        if place.neighbours != place.size:
            raise UserError(
                f"{place.size} processes of which {place.neighbours} are on one machine share no memory: start them "
                "by MPI, with mpi4py installed (pip install 'lispgpt[mpi]')"
            )
        self.name = "shared memory"
        self._peers, self._rank, self._size = peers, place.rank, place.size
        self._memory = _shared(peers, COUNTER * place.size + 2 * (place.size + 1) * SLOT)
        whole = np.frombuffer(self._memory, np.uint8)
        self._counters = whole[: COUNTER * place.size].view(np.int64)[:: COUNTER // 8]
        slots = whole[COUNTER * place.size :].reshape(2, place.size + 1, SLOT)
        self._sets = [slots[0], slots[1]]
        self._turn = 0

    def run(self, step: Collective, part: Part) -> None:
        source, target, dtype = part
        if step.operation in (*REDUCING, BROADCAST):
            for start in range(0, target.size, SLOT // target.itemsize):
                piece = slice(start, start + SLOT // target.itemsize)
                self._exchange(step, source[piece])
                slots = self._slots(source[piece])
                target[piece] = slots[0] if step.operation == BROADCAST else self._reduced(step, slots, dtype)
            return
        share = min(source.size, target.size)
        if step.operation == ALL_SLICE:
            target[:] = source.reshape(self._size, share)[self._rank]
            return
        for start in range(0, share, SLOT // target.itemsize):
            piece = slice(start, min(start + SLOT // target.itemsize, share))
            if step.operation == ALL_GATHER:
                self._exchange(step, source[piece])
                target.reshape(self._size, share)[:, piece] = self._slots(source[piece])
                continue
            for owner in range(self._size):
                own = source.reshape(self._size, share)[owner, piece]
                self._exchange(step, own)
                if owner == self._rank:
                    target[piece] = combined(step.operation, list(self._slots(own)), dtype)

    def _exchange(self, step: Collective, piece: np.ndarray) -> None:
        """Put a piece into this rank's slot, and wait until every rank has."""
        self._turn = 1 - self._turn
        self._slots(piece)[self._rank] = piece
        self._wait_at_barrier(step)

    def _slots(self, piece: np.ndarray) -> np.ndarray:
        """What each rank has put there [ranks, elements]."""
        return self._sets[self._turn][: self._size, : piece.nbytes].view(piece.dtype)

    def _reduced(self, step: Collective, slots: np.ndarray, dtype: str) -> np.ndarray:
        """The sum, or the extreme, over the ranks, of which each makes its share."""
        made = self._sets[self._turn][self._size, : slots[0].nbytes].view(slots.dtype)
        first, last = (slots.shape[1] * rank // self._size for rank in (self._rank, self._rank + 1))
        made[first:last] = combined(step.operation, [slot[first:last] for slot in slots], dtype)
        self._wait_at_barrier(step)
        return made

    def _wait_at_barrier(self, step: Collective) -> None:
        """Wait until every rank has come here as often as this one."""
        self._counters[self._rank] += 1
        count, counters = int(self._counters[self._rank]), self._counters
        waiting_loop(self._peers, lambda: bool((counters >= count).all()), step.label, time.sleep, time.monotonic)

    def close(self) -> None:
        """The memory goes with the last process that has it."""


def _shared(peers: Peers, nbytes: int) -> mmap.mmap:
    """Memory that all processes of the run have: a file of this user's, whose name rank 0 draws."""
    folder = SHARED if SHARED.is_dir() else Path(tempfile.gettempdir())
    if peers.place.rank:
        (drawn, *_) = peers.gather("shared memory", None)
        memory = _opened(folder, drawn, nbytes)
        peers.gather("shared memory is open", None)
        return memory
    drawn = secrets.token_hex(16)
    path = _path(folder, drawn)
    file = os.open(path, NEW, 0o600)
    try:
        os.posix_fallocate(file, 0, nbytes)
        memory = mmap.mmap(file, nbytes)
        peers.gather("shared memory", drawn)
        peers.gather("shared memory is open", None)
    except OSError as error:
        raise UserError(f"there is no room for {nbytes:,} bytes of shared memory: {error.strerror}") from error
    finally:
        os.close(file)
        path.unlink()
    return memory


def _opened(folder: Path, drawn: object, nbytes: int) -> mmap.mmap:
    """The memory that rank 0 has made; UserError where its file is none of this user's."""
    if not isinstance(drawn, str) or not re.fullmatch("[0-9a-f]{32}", drawn):
        raise UserError("rank 0 names no shared memory of this run's")
    try:
        file = os.open(_path(folder, drawn), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"cannot open the shared memory of rank 0: {error.strerror}") from error
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_size != nbytes:
            raise UserError("the shared memory of rank 0 is not this user's")
        return mmap.mmap(file, nbytes)
    finally:
        os.close(file)


def _path(folder: Path, drawn: str) -> Path:
    return folder / f"lispgpt-{drawn}"
