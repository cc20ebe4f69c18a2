"""A session of Lisp for a notebook, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from lispgpt.base.errors import InternalError, UserError

PATIENCE = 3.0
"""Seconds that the process has to heed an interrupt."""
HOME = str(Path(__file__).resolve().parents[2])
START = "import sys; sys.path.insert(0, {home!r}); from lispgpt.notebook.worker import main; main({number})"


class Cells:
    """Evaluates cells one after another; what one defines, the next ones have.

    write: is told what programs print.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def evaluate(self, name: str, text: str) -> list[str]:
        """What is to be shown for a text's forms; UserError where one is wrong, and for what ends the session.

        name: what messages call the text.
        """
        process, connection = self._running()
        try:
            connection.send((name, text))
            answer = self._answer(process, connection)
        except (EOFError, OSError):
            raise self._ended(process) from None
        lines, error = answer
        for line in lines if error is not None else ():
            self._write(f"{line}\n")
        if error is not None:
            raise error
        return lines

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection]:
        if self._process is not None and self._process.poll() is not None:
            raise self._ended(self._process)
        if self._process is None or self._connection is None:
            self.close()
            self._connection, there = Pipe()
            start = START.format(home=HOME, number=there.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", start],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[there.fileno()],
                process_group=0,  # an interrupt is for the notebook, which hands it on
            )
            there.close()
        return self._process, self._connection

    def _ended(self, process: subprocess.Popen[bytes]) -> UserError:
        """What to tell of a process that has ended between cells or in one; the next cell begins another."""
        code = process.wait()
        self.close()
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return UserError(f"the process of the Lisp cells ended {how}; what cells had defined is gone")

    def _answer(
        self, process: subprocess.Popen[bytes], connection: Connection
    ) -> tuple[list[str], UserError | InternalError | None]:
        """What it answers; what it prints meanwhile is written as it comes."""
        assert process.stdout is not None
        output = process.stdout.fileno()
        until: float | None = None
        while True:
            try:
                ready = wait([output, connection], until)
                if until is not None and not ready:
                    process.kill()
                if output in ready and (said := os.read(output, 1 << 16)):
                    self._write(said.decode(errors="backslashreplace"))
                elif connection in ready:
                    found: tuple[list[str], UserError | InternalError | None] = connection.recv()
                    return found
                elif ready:  # it has closed its output, and has ended
                    raise EOFError
            except KeyboardInterrupt:
                os.kill(process.pid, signal.SIGINT)
                until = PATIENCE

    def close(self) -> None:
        """End the process; the next cell begins another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None
