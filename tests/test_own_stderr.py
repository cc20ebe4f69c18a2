"""Calls with a standard error of their own: what fails says nothing there, and nobody else loses a word."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest
from own_tables import need_own_tables

from lispgpt.base.own_stderr import with_own_stderr


@pytest.fixture(scope="module", autouse=True)
def _tables() -> None:
    need_own_tables()


def failing(meanwhile: Callable[[], object]) -> Callable[[], NoReturn]:
    """A call that writes to standard error, waits for what another thread does, writes again, and fails."""

    def work() -> NoReturn:
        os.write(2, b"panicked ")
        other = threading.Event()
        started.append(other)
        begun.set()
        assert other.wait(30)
        os.write(2, b"at lib.rs")
        raise ValueError("no")

    started: list[threading.Event] = []
    begun = threading.Event()

    def beside() -> None:
        assert begun.wait(30)
        meanwhile()
        started[0].set()

    threading.Thread(target=beside).start()
    return work


def test_what_a_call_writes_that_fails_is_dropped_and_what_others_write_is_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def others() -> None:
        os.write(2, b"another thread\n")
        children.append(subprocess.Popen(["sh", "-c", "read line; echo $line >&2"], stdin=subprocess.PIPE))

    with pytest.raises(ValueError, match="no"):
        with_own_stderr(failing(others))
    children[0].communicate(b"a process that lives on\n", timeout=30)
    os.write(2, b"after it\n")
    assert capfd.readouterr().err == "another thread\na process that lives on\nafter it\n"


def test_what_a_call_writes_that_succeeds_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    text = "a warning\n" * 20_000
    assert with_own_stderr(lambda: os.write(2, text.encode())) == len(text)
    assert capfd.readouterr().err == text


def test_what_others_close_is_closed_meanwhile() -> None:
    read, write = os.pipe()

    def end() -> None:
        os.close(write)
        assert os.read(read, 1) == b""

    with pytest.raises(ValueError, match="no"):
        with_own_stderr(failing(end))
    os.close(read)


def test_where_there_are_none_the_call_is_made_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Refusing:
        def unshare(self, _: int) -> int:
            return -1

    def work() -> int:
        os.write(2, b"said\n")
        return 7

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Refusing())
    assert with_own_stderr(work) == 7 and capfd.readouterr().err == "said\n"
    with monkeypatch.context() as patch:
        patch.delattr(os, "memfd_create")
        assert with_own_stderr(work) == 7 and capfd.readouterr().err == "said\n"

    def refused(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert with_own_stderr(work) == 7 and capfd.readouterr().err == "said\n"
