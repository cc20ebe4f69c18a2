"""Fresh processes for `call_fresh` from a server of forks that is ready to compile, and as free of threads and drivers
as an interpreter that has just started and takes a second to get there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from lispgpt.base import child, fresh, scratch
from lispgpt.base.asked import begun
from lispgpt.base.child import Child, Reporter, be_the_child

TESTS = Path(__file__).resolve().parent
INTERPRETER = fresh._Fresh
_CONTEXT = multiprocessing.get_context("forkserver")
_own, _started, _wait = os.getpid(), dict[int, Any](), child._wait


def begin(*task: Any) -> Child:
    """Stands in for `_Fresh`; a fork of this process cannot ask its server."""
    return ForkedFresh(*task) if os.getpid() == _own else INTERPRETER(*task)


@cache
def _serve() -> None:
    _CONTEXT.set_forkserver_preload(["ready_server"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{TESTS.parent}:{TESTS}")
        forkserver.ensure_running()


class ForkedFresh(Child):
    """What `lispgpt.base.fresh` starts an interpreter for."""

    def __init__(self, *task: Any) -> None:
        self._read_end, write_end = os.pipe()
        self._scratch = scratch.chosen_for_child()
        _serve()
        with Connection(write_end, readable=False) as pipe:
            given = pipe, task, self._scratch, dict(os.environ), os.getcwd()
            process = _CONTEXT.Process(target=_be_fresh, args=given)
            process.start()
        assert process.pid is not None
        self._process = process.pid
        _started[process.pid] = process
        begun.append(self.end)


def wait(process: int) -> int:
    """The status with which a child of this process, or the server's, has ended."""
    if process not in _started:
        return _wait(process)
    ended = _started.pop(process)
    ended.join()
    assert ended.exitcode is not None
    return -ended.exitcode if ended.exitcode < 0 else ended.exitcode << 8


def _be_fresh(pipe: Connection, task: Any, place: Path | None, environment: Mapping[str, str], folder: str) -> None:
    module, name, arguments = task
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None

    def work(reporter: Reporter) -> int:
        function = getattr(__import__(module, fromlist=[name]), name)
        reporter.give(function(*arguments))
        return 0

    be_the_child(work, os.dup(pipe.fileno()), signal.pthread_sigmask(signal.SIG_BLOCK, []), place)
