"""Checks in a process beside the server's: the newest text of each file, once nobody has typed for a moment."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

PAUSE = 0.2
"""Seconds without a change of a file after which it is checked."""

LONGEST = 60.0
"""Seconds of a check after which it is given up."""

OVERTAKEN = 3.0
"""Seconds of a check of a text that has been changed since after which it is given up."""


@dataclass(frozen=True)
class Checked:
    """What a check of a text has found, as `checking.check` gives it."""

    text: str
    errors: list[dict[str, Any]] = field(default_factory=list)
    seen: dict[tuple[int, int], tuple[list[str], int, int, int]] = field(default_factory=dict)
    expansions: dict[str, list[str]] = field(default_factory=dict)

    def as_in(self, text: str) -> Callable[[int], int | None]:
        """Where a place of a newer text was in the checked one; None for what was typed since."""
        limit = min(len(text), len(self.text))
        before = next((n for n in range(limit) if text[n] != self.text[n]), limit)
        behind = next((n for n in range(limit - before) if text[-1 - n] != self.text[-1 - n]), limit - before)
        longer = len(text) - len(self.text)

        def place(offset: int) -> int | None:
            if offset <= before:
                return offset
            return offset - longer if offset >= len(text) - behind else None

        return place


def checked(text: str, answer: dict[str, Any]) -> Checked:
    """An answer of the other process."""
    seen = {(start, end): (kinds, times, ops, moved) for start, end, kinds, times, ops, moved in answer["seen"]}
    return Checked(text, answer["errors"], seen, answer["expansions"])


class Checker:
    """found: is called with a file's name and the result, from a thread of the checker's own; a result is None where
    the check did not come to an end."""

    def __init__(self, found: Callable[[str, str, Checked | None], None]) -> None:
        self.found = found
        self._waiting: dict[str, tuple[str, float]] = {}
        self._changed = threading.Condition()
        self._ends = False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, name: str, text: str) -> None:
        """Have a text checked, in place of an older one of the same file."""
        with self._changed:
            self._waiting[name] = text, time.monotonic()
            self._changed.notify()

    def close(self) -> None:
        """End the other process."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._stop()

    def _next(self) -> tuple[str, str] | None:
        """The file that has waited longest, when nobody has typed in it for a moment; None at the end."""
        with self._changed:
            while not self._ends:
                now = time.monotonic()
                ready = [(since, name) for name, (_, since) in self._waiting.items() if now - since >= PAUSE]
                if ready:
                    name = min(ready)[1]
                    return name, self._waiting.pop(name)[0]
                self._changed.wait(PAUSE / 2 if self._waiting else None)
        return None

    def _work(self) -> None:
        with suppress(OSError, subprocess.SubprocessError):
            self._process = self._start()  # while the first file is being read
        while (asked := self._next()) is not None:
            name, text = asked
            answer = None
            with suppress(OSError, ValueError):
                answer = self._ask(name, text)
            if answer is None:
                self._stop()
            if not self._ends:
                self.found(name, text, None if answer is None else checked(text, answer))

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "lispgpt.editor.checking"]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, encoding="utf-8")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, name: str, text: str) -> dict[str, Any] | None:
        """The other process's answer; None where it died, or was overtaken by a newer text, or takes too long."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"name": name, "text": text}) + "\n")
        process.stdin.flush()
        started = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(0.1):
                took = time.monotonic() - started
                if self._ends or took > LONGEST or (took > OVERTAKEN and name in self._waiting):
                    return None
        line = process.stdout.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer
