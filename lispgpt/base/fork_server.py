"""A process that has imported what its work takes, and forks for each piece of it.

A call in a fresh interpreter spends most of its time on imports.  A server is such an interpreter, which stays: it
knows nothing of this process's threads, drivers, files and memory, and its forks are ready at once.  It ends when this
process does, when it has had nothing to do for a while, and when a piece of work is interrupted.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

from lispgpt.base import scratch
from lispgpt.base.asked import begun
from lispgpt.base.child import PATIENCE, Child, Reporter, be_the_child, compiled
from lispgpt.base.descendants import ORPHANED, die_with
from lispgpt.base.fresh import start_of_interpreter

IDLE = 300.0
"""Seconds without work after which a server ends."""

_LENGTH, _NUMBER = struct.Struct("<q"), struct.Struct("<i")
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_STACK)


class ForkServer:
    """A server, which is started by the first call.

    prepare: a function that a module has, which imports what the work takes in steps: a generator, of which the server
    does the first step at once, and the others while there is nothing to do.
    """

    def __init__(self, prepare: Callable[[], Iterator[None]]) -> None:
        self._prepare = prepare
        self._lock = threading.Lock()
        self._owner, self._process = 0, 0
        self._socket: socket.socket | None = None

    @property
    def process(self) -> int:
        """The server's number, where one was started; it may have ended since."""
        return self._process

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What `call_fresh` gives, in a fork of the server; ServerBusy where another thread has it at work, and where
        there can be none."""
        if not self._lock.acquire(blocking=False):
            raise ServerBusy
        try:
            return compiled(self._begin((function.__module__, function.__qualname__, arguments)).outcome()).value
        finally:
            self._lock.release()

    def _begin(self, task: tuple[str, str, tuple[Any, ...]]) -> ServedChild:
        for _ in range(2):  # one that was idle may be about to end
            if self._socket is None or self._owner != os.getpid():
                self._start()
            with suppress(OSError, EOFError):
                return ServedChild(self, task)
            self.close()
        raise ServerBusy

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        prepare = f"{self._prepare.__module__}:{self._prepare.__qualname__}"
        call = f"from lispgpt.base.fork_server import serve; serve({theirs.fileno()}, {prepare!r})"
        command = [sys.executable, "-c", start_of_interpreter() + call]
        with theirs:
            try:
                running = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
                )
            except OSError as error:
                ours.close()
                raise ServerBusy from error
        self._process, running.returncode = running.pid, 0  # `close` waits for it
        self._socket, self._owner = ours, os.getpid()
        atexit.unregister(self.close)
        atexit.register(self.close)

    def close(self) -> None:
        """End the server and what it is at; the next call starts another."""
        if self._socket is None or self._owner != os.getpid():
            return
        self._socket.close()
        self._socket = None
        _wait_or_kill(self._process)

    def send(self, task: Any, pipe: int) -> int:
        """Have the server fork for a task; the fork's number.  OSError or EOFError where the server has ended."""
        assert self._socket is not None
        sys.stdout.flush()
        sys.stderr.flush()
        given = pickle.dumps((*task, dict(os.environ), _folder(), list(map(resource.getrlimit, _LIMITS))))
        out, err = (_own(descriptor) for descriptor in (1, 2))
        try:
            socket.send_fds(self._socket, [_LENGTH.pack(len(given))], [pipe, out, err])
        finally:
            os.close(out)
            os.close(err)
        self._socket.sendall(given)
        return self.number()

    def number(self) -> int:
        """The next number that the server says; EOFError where it has ended."""
        assert self._socket is not None
        found: int = _NUMBER.unpack(_received(self._socket, _NUMBER.size))[0]
        return found


class ServerBusy(Exception):
    """There is no server for a call now."""


class ServedChild(Child):
    """A fork of a server, at work."""

    def __init__(self, server: ForkServer, task: tuple[str, str, tuple[Any, ...]]) -> None:
        self._server, self._scratch = server, scratch.chosen_for_child()
        self._read_end, write_end = os.pipe()
        try:
            self._process = server.send((*task, self._scratch), write_end)
        except BaseException:
            os.close(self._read_end)
            raise
        finally:
            os.close(write_end)
        begun.append(self.end)

    def end(self) -> None:
        self._server.close()
        self._forget()

    def _wait(self) -> int:
        try:
            return self._server.number()
        except (OSError, EOFError):
            self._server.close()
            return int(signal.SIGKILL)


def serve(descriptor: int, prepare: str) -> NoReturn:
    """The server's whole life.  descriptor: of its end of the socket.  prepare: "module:function"."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # what is imported stays
    module, _, name = prepare.partition(":")
    steps = getattr(importlib.import_module(module), name)()
    next(steps, None)
    with socket.socket(fileno=descriptor) as asked:
        while True:
            gc.freeze()
            if not select.select([asked], [], [], 0)[0]:
                next(steps, None)
                gc.freeze()
            if not select.select([asked], [], [], IDLE)[0]:
                os._exit(0)
            try:
                _serve_one(asked)
            except (OSError, EOFError):
                os._exit(0)


def _serve_one(asked: socket.socket) -> None:
    """Fork for one task, and say how the fork has ended."""
    length, descriptors, *_ = socket.recv_fds(asked, _LENGTH.size, 3)
    if len(length) != _LENGTH.size or len(descriptors) != 3:
        raise EOFError
    given = pickle.loads(_received(asked, _LENGTH.unpack(length)[0]))
    ended, alive = os.pipe()
    server = os.getpid()
    process = os.fork()
    if process == 0:
        die_with(server)
        asked.close()
        os.close(ended)
        _be_the_fork(given, *descriptors)
    for each in (*descriptors, alive):
        os.close(each)
    try:
        asked.sendall(_NUMBER.pack(process))
        if asked.fileno() in select.select([asked.fileno(), ended], [], [])[0]:  # nobody waits for it any more
            with suppress(ProcessLookupError):
                os.kill(process, ORPHANED)
            _wait_or_kill(process)
            raise EOFError
        asked.sendall(_NUMBER.pack(os.waitpid(process, 0)[1]))
    finally:
        os.close(ended)


def _be_the_fork(given: Any, pipe: int, out: int, err: int) -> None:
    """Never returns: call a function where, and with what, its caller is."""
    module, name, arguments, place, environment, folder, limits = given
    for standard, descriptor in ((1, out), (2, err)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if folder is not None:
        with suppress(OSError):
            os.chdir(folder)
    for number, limit in zip(_LIMITS, limits, strict=True):
        with suppress(ValueError, OSError):
            resource.setrlimit(number, limit)
    gc.enable()

    def work(reporter: Reporter) -> int:
        function = getattr(importlib.import_module(module), name)
        reporter.give(function(*arguments))
        return 0

    be_the_child(work, pipe, signal.pthread_sigmask(signal.SIG_BLOCK, []), place)


def _own(descriptor: int) -> int:
    """A copy of one of this process's descriptors; of nothing, where it was closed."""
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _folder() -> str | None:
    """Where this process is; None where that folder is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _received(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def _wait_or_kill(process: int) -> None:
    """Wait for a child that is about to end, and kill it where it does not."""
    deadline = time.monotonic() + PATIENCE
    with suppress(ChildProcessError):
        while os.waitpid(process, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.005)
