"""What descends from a process, and how it ends when nobody waits for it any more."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lispgpt.base import scratch

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Linux's numbers, in prctl.h."""

ORPHANED = signal.SIGUSR1
"""What a keeper gets when its parent has ended."""

TURNS = 100
"""How often to look again for descendants that others have forked in the meantime."""


_dies: list[int] = []
"""The parent that this process dies with, if there is one."""


def die_with(parent: int) -> None:
    """Have the system end this process when its parent is ended, in whichever way."""
    _dies[:] = [parent]
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was ended before it could be asked for
        os._exit(1)


@contextmanager
def keeping(child: int) -> Iterator[None]:
    """Within it, all that descends from this process ends when its parent does, and when a signal ends its child: a
    program may have forked processes, which know of neither, and hold what the child would have closed.
    For processes that die with their parent, and wait; in others, and in threads, nothing is changed.
    """
    if not _dies or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        end_descendants()
        scratch.leave()
        os._exit(1)

    def look(*_: Any) -> None:
        with suppress(ChildProcessError):  # it has been waited for, and this is about another
            how = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if how is not None and how.si_code != os.CLD_EXITED:
                end_descendants()

    handlers = {ORPHANED: end, signal.SIGCHLD: look}
    before, (parent,) = {number: signal.signal(number, handler) for number, handler in handlers.items()}, _dies
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, ORPHANED)
    if os.getppid() != parent:
        end()
    try:
        look()
        yield
    finally:
        die_with(parent)
        _prctl(PR_SET_CHILD_SUBREAPER, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def end_descendants() -> None:
    """Kill all processes that descend from this one, those that they fork meanwhile too."""
    for _ in range(TURNS):
        found = _below(os.getpid())
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return


def _below(process: int) -> list[int]:
    """The processes that descend from one and have not ended, its children first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)
