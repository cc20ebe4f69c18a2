"""Threads that share a program's parallel loops: the runtime's `share_work`."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

PART = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

PIECES_EACH = 4
"""Pieces of a range for each thread, so that one that is held up does not hold up the others."""


class Sharing:
    """Splits ranges of independent items among the CPU's cores; one range at a time, others run where they are."""

    def __init__(self) -> None:
        self._helpers = len(os.sched_getaffinity(0)) - 1
        self._work: SimpleQueue[tuple[Callable[[], None], threading.Semaphore]] = SimpleQueue()
        self._busy = threading.Lock()
        self._started = False

    def function(self) -> Any:
        """share_work(part, context, from, to), as compiled code calls it."""
        types = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        return ctypes.CFUNCTYPE(None, *types)(self._share)

    def _share(self, address: int, context: int, start: int, stop: int) -> None:
        part = PART(address)
        helpers = min(self._helpers, stop - start - 1)
        if helpers < 1 or not self._busy.acquire(blocking=False):
            part(start, stop, context)
            return
        try:
            pieces = min((helpers + 1) * PIECES_EACH, stop - start)
            edges = [start + (stop - start) * i // pieces for i in range(pieces + 1)]
            taken = itertools.count()  # next() on it is atomic

            def take() -> None:
                while (piece := next(taken)) < pieces:
                    part(edges[piece], edges[piece + 1], context)

            self._run(take, helpers)
        finally:
            self._busy.release()

    def _run(self, take: Callable[[], None], helpers: int) -> None:
        """Run take here and on some helpers at once; back when all are through."""
        if not self._started:
            self._started = True
            for _ in range(self._helpers):
                threading.Thread(target=self._help, daemon=True).start()
        done = threading.Semaphore(0)
        for _ in range(helpers):
            self._work.put((take, done))
        take()
        for _ in range(helpers):
            done.acquire()

    def _help(self) -> None:
        while True:
            take, done = self._work.get()
            take()
            done.release()
