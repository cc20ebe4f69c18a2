"""The hub of a run's processes: hears what each says, and tells all what concerns all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lispgpt.runtime.collectives.peers import LONGEST, ranks_said, send


class Hub:
    """lines: a connected socket of each process, by their ranks; a thread listens to each until it is closed.

    Of those that end, the first alone counts: `failure` is (its rank, why).  Rank 0 is told last: the hub may be of its
    process, which ends once it knows.
    """

    def __init__(self, lines: Sequence[socket.socket]) -> None:
        self._lines = list(lines)
        self._lock = threading.Lock()
        self._ranks: dict[int, socket.socket] = {}
        self._given: dict[str, dict[int, Any]] = {}
        self._arrived: dict[int, int] = {}
        self._done: set[int] = set()
        self.failure: tuple[int, str] | None = None
        self._end: dict[str, Any] = {}
        for rank, line in enumerate(self._lines):
            threading.Thread(target=self._listen, args=(rank, line), daemon=True).start()

    def close(self) -> None:
        """Hang up; processes that still listen take it for the end of the run."""
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def ended(self, rank: int, why: str) -> None:
        """Tell all that a process has ended before the run has, unless another has before it."""
        with self._lock:
            self._tell_end(rank, f"rank {rank} {why}", None)

    def _listen(self, rank: int, line: socket.socket) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError), line.makefile("rb") as stream:
            while text := stream.readline(LONGEST):
                message = json.loads(text)
                with self._lock:
                    if message["kind"] == "here":
                        self._ranks[rank] = line
                        if self.failure is not None:  # it came after the run's end
                            self._tell(rank, self._end)
                    else:
                        self._hear(rank, message)
        with self._lock:
            if self._ranks.pop(rank, None) is not None and rank not in self._done:
                self._tell_end(rank, f"rank {rank} has ended without a word: it was killed, or lost its machine", None)

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "gather":
            self._gather(rank, message["name"], message["value"])
        elif kind == "arrived":
            self._arrived[rank] = message["number"]
        elif kind == "waiting":
            self._arrived[rank] = max(message["number"], self._arrived.get(rank, 0))
            self._tell_end(rank, self._missing(message), None)
        elif kind == "failed":
            self._tell_end(rank, message["message"], rank)
        elif kind == "done":
            self._done.add(rank)
        elif kind == "please stop":
            self._tell(0, message)
        elif kind == "stop":
            for other in self._ranks:
                self._tell(other, message)
        elif kind == "stopping":
            self._tell(0, {"kind": "stopping", "rank": rank})

    def _gather(self, rank: int, name: str, value: Any) -> None:
        given = self._given.setdefault(name, {})
        given[rank] = value
        if len(given) == len(self._lines):
            del self._given[name]
            values = [given[number] for number in range(len(given))]
            for other in reversed(range(len(values))):
                self._tell(other, {"kind": "gathered", "name": name, "values": values})

    def _missing(self, message: dict[str, Any]) -> str:
        """Who has not come to what a process waits for."""
        given = self._given.get(message["name"])
        ranks = range(len(self._lines))
        if given is not None:
            late = [rank for rank in ranks if rank not in given]
        else:
            late = [rank for rank in ranks if self._arrived.get(rank, 0) < message["number"]]
        who = f"{ranks_said(late)} did not come" if late else "all have come to it"
        return f"{message['what']} was not done within {message['seconds']} s: {who}"

    def _tell_end(self, rank: int, message: str, speaker: int | None) -> None:
        """speaker: who is to tell the user; None for the first process that is there."""
        if self.failure is not None:
            return
        self.failure = rank, message
        left = sorted(other for other in self._ranks if other not in self._done)
        speaker = (left[0] if left else rank) if speaker is None else speaker
        self._end = {"kind": "ended", "message": message, "speaker": speaker}
        for other in reversed(left):
            self._tell(other, self._end)

    def _tell(self, rank: int, message: dict[str, Any]) -> None:
        if rank in self._ranks:
            with suppress(OSError):
                send(self._ranks[rank], message)
