"""Processes that something else has started, such as mpirun or torchrun: how each finds the others.

Rank 0 waits at the address that all are told, and nowhere else; who comes proves that it has the secret of the run, and
so does rank 0, before anything else is said (`authentication`).
"""

from __future__ import annotations

import ipaddress
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives import mpi
from lispgpt.runtime.collectives.authentication import Refused, admit, introduce
from lispgpt.runtime.collectives.hub import Hub
from lispgpt.runtime.collectives.peers import Peers, Place

ANSWER = 60.0
"""Seconds in which the others have to be there."""

IDLE, BETWEEN, TRIES = 8, 4, 3
"""Seconds after which a silent machine is asked whether it is there, seconds between such questions, and how many are
left without an answer before it counts as lost."""


@dataclass(frozen=True)
class Launched:
    """A process that is one of several.  address: where rank 0 is to be met; None where MPI has to say it.  secret:
    what all of them know, and nobody else; where MPI says the address, it says a secret, too."""

    place: Place
    address: tuple[str, int] | None
    secret: bytes = field(default=b"", repr=False)

    def join(self, patience: float, say: Callable[[str], None]) -> Peers:
        """Meet the others; rank 0 has the hub.  UserError where they are not there in a minute.

        say: is told why the run ends, where this process cannot end by itself and none other says it.
        """
        place, address, secret = self.place, self.address, self.secret
        listener = _listener(address or (_own_address(), 0), place) if place.rank == 0 else None
        if address is None:
            address, secret = _told_by_mpi(listener)
        if listener is None:
            return Peers(place, _called(address, place.rank, secret), patience, say)
        ours, theirs = socket.socketpair()
        with listener:
            lines = _awaited(listener, place.size, secret)
        Hub([theirs, *lines])
        return Peers(place, ours, patience, say)


def _awaited(listener: socket.socket, size: int, secret: bytes) -> list[socket.socket]:
    """The lines of ranks 1 and up; who does not know the secret, or comes as a rank that is there, is sent away."""
    come: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()

    def hear(line: socket.socket) -> None:
        try:
            come.put((admit(line, secret), line))
        except (OSError, Refused):
            line.close()

    def listen() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=hear, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    lines: dict[int, socket.socket] = {}
    last = time.monotonic() + ANSWER
    while len(lines) < size - 1:
        try:
            rank, line = come.get(timeout=max(0.0, last - time.monotonic()))
        except queue.Empty:
            missing = size - 1 - len(lines)
            raise UserError(f"{missing} of {size} processes did not come within {ANSWER:.0f} s") from None
        if rank in lines or not 0 < rank < size:
            line.close()
        else:
            lines[rank] = _watched(line)
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # which ends the thread that accepts
    return [lines[rank] for rank in sorted(lines)]


def _watched(line: socket.socket) -> socket.socket:
    """A connection that ends where the other machine does."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, IDLE), (socket.TCP_KEEPINTVL, BETWEEN), (socket.TCP_KEEPCNT, TRIES)):
        line.setsockopt(socket.IPPROTO_TCP, option, value)
    return line


def _listener(address: tuple[str, int], place: Place) -> socket.socket:
    """Where rank 0 waits: at the address, whose machine it has to be on."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, where = found[0]
        if place.neighbours < place.size and ipaddress.ip_address(where[0]).is_loopback:
            raise UserError(
                f"{host} is {where[0]} on rank 0's machine, where other machines do not reach it: give MASTER_ADDR as "
                "its address in their network"
            )
        return socket.create_server(where[:2], family=family)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(
            f"rank 0 cannot wait for the others at {host}:{port}: {error.strerror} (MASTER_ADDR is an address of rank "
            "0's machine)"
        ) from error


def _told_by_mpi(listener: socket.socket | None) -> tuple[tuple[str, int], bytes]:
    """Where rank 0 waits and the secret of the run, as it tells the others through MPI."""
    own = None
    if listener is not None:
        own = listener.getsockname()[:2], secrets.token_bytes(32)
    told: tuple[tuple[str, int], bytes] = mpi.load().COMM_WORLD.bcast(own, root=0)
    return told


def _own_address() -> str:
    """By which other machines reach this one, as far as it knows."""
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"


def _called(
    address: tuple[str, int], rank: int, secret: bytes, now: Callable[[], float] = time.monotonic
) -> socket.socket:
    where, last = f"{address[0]}:{address[1]}", now() + ANSWER
    while True:
        try:
            line = socket.create_connection(address, timeout=ANSWER)
            introduce(line, rank, secret)
            return _watched(line)
        except Refused as error:
            raise UserError(
                f"{where} is not rank 0 of this run, or has another secret ({error}): set LISPGPT_SECRET to the same "
                "for all processes"
            ) from None
        except OSError as error:
            if now() > last:
                raise UserError(f"rank 0 does not answer at {where}: {error.strerror or error}") from None
            time.sleep(0.1)
