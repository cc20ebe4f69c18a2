"""Calls into libraries that write to standard error what they then raise, as Rust's panics do.

They write to descriptor 2 itself.  Turned elsewhere for a while, it would take with it what other threads say, and what
processes that they start say later.  So the call is made in a thread with a table of descriptors of its own.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

CLONE_FILES = 0x400
"""For Linux's `unshare`: from now on, the calling thread's table of descriptors is a copy of the process's."""

Made = TypeVar("Made")


def with_own_stderr(work: Callable[[], Made]) -> Made:
    """What work makes, or raises; what is written to standard error meanwhile is shown once something is made, and
    dropped where it raises.

    Where the system has or allows no such tables, the work is done all the same, and nothing is dropped.
    """
    made: Future[Made] = Future()
    try:
        written = os.memfd_create("stderr")
    except (AttributeError, OSError):
        return work()
    try:
        thread = threading.Thread(target=_work, args=(work, made, written))
        try:
            thread.start()
        except RuntimeError:  # there may be no more threads
            return work()
        thread.join()
        if made.exception() is None:
            _copy(written)
        return made.result()
    finally:
        os.close(written)


def _work(work: Callable[[], Made], made: Future[Made], written: int) -> None:
    try:
        _take_own_table(written)
        made.set_result(work())
    except BaseException as error:
        made.set_exception(error)


def _take_own_table(stderr: int) -> None:
    """Close all that it holds beside the three streams: what others close should be closed."""
    if ctypes.CDLL(None).unshare(CLONE_FILES):
        return
    os.dup2(stderr, 2)
    try:
        held = [int(name) for name in os.listdir("/proc/thread-self/fd")]
    except OSError:
        return
    for number in held:
        if number > 2:
            os.closerange(number, number + 1)


def _copy(written: int) -> None:
    os.lseek(written, 0, os.SEEK_SET)
    while data := os.read(written, 1 << 16):
        while data:
            data = data[os.write(2, data) :]
