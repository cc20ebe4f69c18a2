"""Calls of functions in processes of their own: in a fork, or in a fresh interpreter where a fork would not do.

What a thread of this process has locked would stay locked in a fork, and GPUs' drivers refuse to work in one.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lispgpt.base import scratch
from lispgpt.base.asked import begun
from lispgpt.base.child import Child, Reporter, be_the_child, compiled, run_in_child
from lispgpt.base.errors import UserError

HOME = str(Path(__file__).resolve().parents[2])


def start_of_interpreter() -> str:
    """What an interpreter does first, to find what this one finds: the package where it is, though a folder on the path
    may have its name."""
    return f"import sys; sys.path.insert(0, {HOME!r}); import lispgpt; sys.path[:] = {sys.path!r}; "


class _Fresh(Child):
    """An interpreter that is told what to do through its standard input."""

    def __init__(self, *task: Any) -> None:
        self._read_end, write_end = os.pipe()
        self._scratch = scratch.chosen_for_child()
        call = f"from lispgpt.base.fresh import main; main({write_end})"
        command = [sys.executable, "-c", start_of_interpreter() + call]
        try:
            running = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[write_end])
        finally:
            os.close(write_end)
        assert running.stdin is not None
        with running.stdin:
            running.stdin.write(pickle.dumps((*task, self._scratch)))
        self._process, running.returncode = running.pid, 0  # `outcome` waits for it
        begun.append(self.end)


def call_fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, called in a fresh interpreter: it is found there by its module and name.

    Arguments and the result are pickled.  Errors are those of `compile_in_child`.
    """
    return compiled(_Fresh(function.__module__, function.__qualname__, arguments).outcome()).value


def ask_in_child(question: Callable[[], Any]) -> Any:
    """What a question answers in a process of its own, with a value that can be pickled.

    Asking a GPU's driver anything starts it, and no child of a process that has started one can use it any more.
    UserError where the driver ends the process.
    """

    def work(reporter: Reporter) -> int:
        reporter.give(question())
        return 0

    outcome = run_in_child(work)
    if outcome.signal_number:
        raise UserError(f"the GPU's driver ended the process that asked for the GPU ({outcome.reason})")
    return outcome.value


def main(pipe: int) -> None:
    """The interpreter's whole life."""
    module, name, arguments, place = pickle.load(sys.stdin.buffer)

    def work(reporter: Reporter) -> int:
        function = getattr(__import__(module, fromlist=[name]), name)
        reporter.give(function(*arguments))
        return 0

    be_the_child(work, pipe, signal.pthread_sigmask(signal.SIG_BLOCK, []), place)
