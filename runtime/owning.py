"""Locks that say no where a session cannot work: in a process that was forked from its own, or once it was closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lispgpt.base.errors import UserError


class OwnLock:
    """A reentrant lock for the process that made it: the threads that do the work are in no other."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process was forked from the lock's own."""
        return os.getpid() != self._process

    def __enter__(self) -> None:
        if self.is_elsewhere:
            raise UserError(
                "this model was loaded before this process was forked, and works in the process that loaded it alone: "
                'load it in each process, or start them anew (multiprocessing.set_start_method("spawn"))'
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Opening:
    """Held while a model's session is opened or closed; closed: whether it may not be opened any more."""

    def __init__(self) -> None:
        self._lock, self.closed = threading.RLock(), False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self.closed:
            self._lock.release()
            raise UserError("the model was closed: load it again, or use it within `with model:`")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def closing(self, own: OwnLock | None) -> Iterator[bool]:
        """Within it, the session is to be closed, unless it gives False: own, its lock, is another process's, or it has
        none."""
        if own is not None and own.is_elsewhere:
            self.closed = True
            yield False
            return
        with self._lock:
            self.closed = True
            yield own is not None
