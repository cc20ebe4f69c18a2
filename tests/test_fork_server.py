"""Calls in forks of a process that stays: who they are, where they are, and how they end."""

from __future__ import annotations

import builtins
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ready_at_once

import lispgpt
from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.fork_server import ForkServer, ServerBusy
from lispgpt.base.reading import read_text
from lispgpt.compiler import readiness

MOST_SECONDS = 30


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer(ready_at_once.prepare)
    yield made
    made.close()


def ends(process: int) -> bool:
    """Whether a process is gone before long; a child of this one is waited for."""
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        try:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_each_call_is_a_fork_of_one_server(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    forks = [server.call(os.getpid) for _ in range(3)]
    assert len({*forks, server.process, os.getpid()}) == 5
    assert server.call(os.getppid) == server.process
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAID_HERE", "later")
    assert server.call(os.getcwd) == str(tmp_path)
    assert server.call(os.getenv, "SAID_HERE") == "later"
    server.call(builtins.print, "printed by a fork")
    assert capfd.readouterr().out == "printed by a fork\n"
    given = "x" * 1_000_000
    assert server.call(operator.concat, given, "y") == given + "y"


def test_what_goes_wrong_in_a_call_is_its_own(server: ForkServer, tmp_path: Path) -> None:
    first = server.call(os.getppid)
    with pytest.raises(UserError, match="No such file"):
        server.call(read_text, tmp_path / "missing")
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        server.call(divmod, 1, 0)
    with pytest.raises(InternalError, match="SIGABRT"):
        server.call(os.abort)
    with pytest.raises(InternalError, match="exit code 3"):
        server.call(os._exit, 3)
    assert server.call(os.getppid) == first


def test_an_interrupted_call_ends_at_once_and_the_next_one_is_done(server: ForkServer) -> None:
    first = server.call(os.getppid)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            server.call(time.sleep, 1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ends(first)
    assert server.call(os.getppid) == server.process != first


def test_a_server_that_is_killed_is_replaced(server: ForkServer) -> None:
    first = server.call(os.getppid)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    second = server.call(os.getppid)
    assert second != first
    threading.Timer(0.2, os.kill, (second, signal.SIGKILL)).start()
    with pytest.raises(UserError, match="SIGKILL"):
        server.call(time.sleep, 1000)
    assert server.call(os.getppid) != second


def test_a_server_with_nothing_to_do_ends() -> None:
    impatient = ForkServer(ready_at_once.impatient)
    first = impatient.call(os.getppid)
    assert ends(first)
    assert impatient.call(os.getppid) != first
    impatient.close()


def test_one_call_at_a_time(server: ForkServer) -> None:
    server.call(os.getpid)
    running = threading.Thread(target=server.call, args=(time.sleep, 1))
    running.start()
    while not server._lock.locked():
        time.sleep(0.001)
    with pytest.raises(ServerBusy):
        server.call(os.getpid)
    running.join()
    assert server.call(os.getppid) == server.process


def test_a_server_ends_with_who_started_it() -> None:
    program = (
        "import os, signal, ready_at_once\n"
        "from lispgpt.base.fork_server import ForkServer\n"
        "server = ForkServer(ready_at_once.prepare)\n"
        "print(server.call(os.getppid), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert ends(int(done.stdout))


def test_programs_of_a_process_with_threads_are_compiled_by_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ForkServer(readiness.prepare)
    monkeypatch.setattr(readiness, "SERVER", made)
    calls, call = [], made.call
    monkeypatch.setattr(made, "call", lambda f, *given: (calls.append(f.__name__), call(f, *given))[1])
    (program := tmp_path / "e.lisp").write_text("(require nn)\n(entry e [(x [n 3] f32)] (relu x))\n")
    (tmp_path / "wrong.lisp").write_text("(entry e [(x [2] f32)] (reulu x))\n")
    end = threading.Event()
    (thread := threading.Thread(target=end.wait)).start()
    try:
        with lispgpt.load(program, weights={}, cache=None, quick=True) as model:
            first = made.process
            for rows in (1, 2):
                x = np.arange(-1, 3 * rows - 1, dtype=np.float32).reshape(rows, 3)
                np.testing.assert_array_equal(model.run("e", x=x)["e"], np.maximum(x, 0))
        with pytest.raises(UserError, match="`reulu`") as raised:
            lispgpt.load(tmp_path / "wrong.lisp", weights={}, cache=None)
        assert "wrong.lisp:1" in str(raised.value.span)
    finally:
        end.set()
        thread.join()
        made.close()
    assert calls == ["_declared", "_compile", "_compile", "_declared"] and made.process == first
