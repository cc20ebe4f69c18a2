"""The processes of a run: who they are, what they tell each other, and how all learn that one has ended.

Each has a line (a socket) to a hub, which is in the process that started them, or in that of rank 0.  Lines carry JSON,
one message a line.  Beside what processes gather, they tell how many collectives each has come to, so that where some
wait it can be said for whom.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import UserError

PATIENCE = 300.0
"""Seconds that a process waits for others, who may write a checkpoint meanwhile."""

BEAT, GRACE = 0.5, 5.0
"""Seconds between two reports of a process; that it has to end by itself once another has."""


LONGEST = 1 << 26
"""Bytes of a message."""


class EndedByAnother(UserError):
    """Another process has ended, which says itself why: this one has nothing to add."""


@dataclass(frozen=True)
class Place:
    """rank: which of `size` processes.  local: which of those on this machine, and so of its devices; neighbours: how
    many those are.  by_mpi: whether MPI has started them."""

    rank: int
    size: int
    local: int = 0
    neighbours: int = 1
    by_mpi: bool = False


class Peers:
    """One process's line to the others.

    line: a connected socket.  patience: seconds to wait for others before it is said who is missing.  say: is told
    why the run ends where this process is to say so, and does not come to it: it is ended then.
    """

    def __init__(
        self,
        place: Place,
        line: socket.socket,
        patience: float = PATIENCE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.place, self.patience = place, patience
        self._line, self._say = line, say
        self._sending, self._news = threading.Lock(), threading.Condition()
        self._gathered: dict[str, list[Any]] = {}
        self._failure: tuple[str, bool] | None = None
        self._arrived, self._left = 0, False
        self.stop_at: int | None = None
        self._acknowledged: set[int] = set()
        self.asked_to_stop = False
        self._send("here", rank=place.rank)
        for work in (self._listen, self._report):
            threading.Thread(target=work, daemon=True).start()

    # ---- what the run calls

    def gather(self, name: str, value: Any, patience: float | None = None) -> list[Any]:
        """What each process gives under a name, by their ranks; every name is for one use.

        patience: seconds to wait for the others, where it is not as long as usual.
        """
        most = self.patience if patience is None else patience
        self._send("gather", name=name, value=value)
        since = time.monotonic()
        with self._news:
            while name not in self._gathered:
                self._news.wait(BEAT)
                self.check()
                if time.monotonic() - since > most:
                    self.waiting(name, name)
            return self._gathered.pop(name)

    def agree(self, when: str, facts: dict[str, Any]) -> None:
        """UserError where a fact of this run is another in some process.  when: in words that all of them use."""
        every = self.gather(f"what is known {when}", facts)
        for what, value in every[0].items():
            others = [rank for rank, theirs in enumerate(every) if theirs.get(what) != value]
            if others:
                raise UserError(
                    f"the processes of this run differ {when}: the {what} of {ranks_said(others)} is not that of rank 0"
                )

    def arrived(self) -> int:
        """Note that this process has come to one more collective; its number."""
        self._arrived += 1
        return self._arrived

    def check(self) -> None:
        """UserError where another process has ended."""
        if self._failure is not None:
            message, speaks = self._failure
            raise UserError(message) if speaks else EndedByAnother(message)

    def waiting(self, what: str, name: str = "", number: int = 0) -> None:
        """Say that this process waits for others longer than it should; UserError with their ranks.

        number: of the collective that it waits for; by default the last one that it has come to.
        """
        facts = {"number": number or self._arrived, "name": name, "what": what, "seconds": round(self.patience)}
        self._send("waiting", **facts)
        last = time.monotonic() + 4 * BEAT
        with self._news:
            while time.monotonic() < last:
                self._news.wait(BEAT)
                self.check()
        raise UserError(f"{what} took longer than {self.patience:.0f} s, and the other processes say nothing")

    def failed(self, message: str) -> bool:
        """Tell the others that this process ends with an error; whether it is the one to say so to the user."""
        if self._failure is not None:
            return self._failure[1]
        self._send("failed", message=message)
        last = time.monotonic() + GRACE
        with self._news:
            while self._failure is None and time.monotonic() < last:
                self._news.wait(BEAT)
        return self._failure is None or self._failure[1]

    def stop_after(self, step: int) -> None:
        """Have every process end after a step that none of them has finished; returns when all know it.

        UserError with the ranks of those that do not hear of it.
        """
        self._send("stop", step=step)
        last = time.monotonic() + self.patience
        with self._news:
            while len(self._acknowledged) < self.place.size:
                self._news.wait(BEAT)
                self.check()
                if time.monotonic() > last:
                    deaf = [rank for rank in range(self.place.size) if rank not in self._acknowledged]
                    raise UserError(
                        f"the run was to end after step {step}, and {ranks_said(deaf)} did not hear of it within "
                        f"{self.patience:.0f} s"
                    )

    def ask_to_stop(self) -> None:
        """Have rank 0 end the run after one of its next steps."""
        self._send("please stop")

    def finish(self) -> None:
        """End well, when all have come to their end."""
        self.gather("the end", None)
        self.leave()

    def leave(self) -> None:
        """End, whatever the others do; a second call does nothing."""
        if not self._left:
            self._left = True
            self._send("done")
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
            self._line.close()

    # ---- the line

    def _send(self, kind: str, **content: Any) -> None:
        with self._sending, suppress(OSError):  # that the hub is gone is told by the thread that listens
            send(self._line, {"kind": kind, **content})

    def _listen(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError), self._line.makefile("rb") as stream:
            while text := stream.readline(LONGEST):
                self._hear(json.loads(text))
        if not self._left and self._failure is None:
            self._end("the process that started this run has ended", True)

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        with self._news:
            if kind == "gathered":
                self._gathered[message["name"]] = message["values"]
            elif kind == "stop":
                self.stop_at = message["step"]
                self._send("stopping")
            elif kind == "stopping":
                self._acknowledged.add(message["rank"])
            elif kind == "please stop":
                self.asked_to_stop = True
            self._news.notify_all()
        if kind == "ended":
            self._end(message["message"], message["speaker"] == self.place.rank)

    def _end(self, message: str, speaks: bool) -> None:
        with self._news:
            self._failure = message, speaks
            self._news.notify_all()

        def abandon() -> None:
            time.sleep(GRACE)
            if not self._left:
                if speaks:
                    self._say(message)
                os._exit(1)

        threading.Thread(target=abandon, daemon=True).start()

    def _report(self) -> None:
        told = 0
        while not self._left and self._failure is None:
            if told != self._arrived:
                told = self._arrived
                self._send("arrived", number=told)
            time.sleep(BEAT)


def ranks_said(ranks: Sequence[int]) -> str:
    """Such as "rank 3" or "ranks 0, 1"; ranks: at least one."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def send(line: socket.socket, message: dict[str, Any]) -> None:
    """Send a message as one line."""
    line.sendall(json.dumps(message).encode() + b"\n")
