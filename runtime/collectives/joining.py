"""Processes that something else has started, such as mpirun or torchrun: how each finds the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives import mpi
from lispgpt.runtime.collectives.hub import Hub
from lispgpt.runtime.collectives.peers import Peers, Place

ANSWER = 60.0
"""Seconds in which the others have to be there."""

IDLE, BETWEEN, TRIES = 8, 4, 3
"""Seconds after which a silent machine is asked whether it is there, seconds between such questions, and how many are
left without an answer before it counts as lost."""


@dataclass(frozen=True)
class Launched:
    """A process that is one of several.  address: where rank 0 is to be met; None where MPI has to say it."""

    place: Place
    address: tuple[str, int] | None

    def join(self, patience: float, say: Callable[[str], None]) -> Peers:
        """Meet the others; rank 0 has the hub.  UserError where they are not there in a minute.

        say: is told why the run ends, where this process cannot end by itself and none other says it.
        """
        place, address = self.place, self.address
        listener = _listener(address) if place.rank == 0 else None
        if address is None:
            address = _told_by_mpi(listener)
        if listener is None:
            return Peers(place, _called(address), patience, say)
        ours, theirs = socket.socketpair()
        lines = [theirs]
        listener.settimeout(ANSWER)
        try:
            while len(lines) < place.size:
                lines.append(_watched(listener.accept()[0]))
        except TimeoutError:
            missing = place.size - len(lines)
            raise UserError(f"{missing} of {place.size} processes did not come within {ANSWER:.0f} s") from None
        listener.close()
        Hub(lines)
        return Peers(place, ours, patience, say)


def _watched(line: socket.socket) -> socket.socket:
    """A connection that ends where the other machine does."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, IDLE), (socket.TCP_KEEPINTVL, BETWEEN), (socket.TCP_KEEPCNT, TRIES)):
        line.setsockopt(socket.IPPROTO_TCP, option, value)
    return line


def _listener(address: tuple[str, int] | None) -> socket.socket:
    port = 0 if address is None else address[1]
    try:
        return socket.create_server(("", port))
    except OSError as error:
        raise UserError(f"rank 0 cannot wait for the others at port {port}: {error.strerror}") from error


def _told_by_mpi(listener: socket.socket | None) -> tuple[str, int]:
    """Where rank 0 waits, as it tells the others through MPI."""
    own = None
    if listener is not None:
        own = (_own_address(), listener.getsockname()[1])
    address: tuple[str, int] = mpi.load().COMM_WORLD.bcast(own, root=0)
    return address


def _own_address() -> str:
    """By which other machines reach this one, as far as it knows."""
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"


def _called(address: tuple[str, int], now: Callable[[], float] = time.monotonic) -> socket.socket:
    last = now() + ANSWER
    while True:
        try:
            line = socket.create_connection(address, timeout=ANSWER)
            line.settimeout(None)
            return _watched(line)
        except OSError as error:
            if now() > last:
                where = f"{address[0]}:{address[1]}"
                raise UserError(f"rank 0 does not answer at {where}: {error.strerror or error}") from None
            time.sleep(0.1)
