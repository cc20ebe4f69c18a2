"""How two processes prove to each other that they know a secret, without saying it.

Each draws a number that nobody has used before, and answers the other's with an HMAC-SHA-256 under the secret of both
numbers and of who it is.  What is said afterwards is neither hidden nor signed: whoever can change what passes between
two machines is not kept out.
"""

from __future__ import annotations

import hmac
import secrets
import socket

GREETING = b"lispgpt1"
DRAWN, PROOF, RANK = 32, 32, 4
"""Bytes of a number, of a proof and of a rank."""

SECONDS = 10.0
"""In which the other has to answer."""


class Refused(Exception):
    """The other does not know the secret, or says that this process does not."""


def admit(line: socket.socket, secret: bytes) -> int:
    """The rank that a process that has connected says it is; Refused where it does not know the secret, OSError where
    it says nothing."""
    line.settimeout(SECONDS)
    drawn = secrets.token_bytes(DRAWN)
    line.sendall(GREETING + drawn)
    said = _received(line, RANK + DRAWN + PROOF)
    rank, theirs, proof = said[:RANK], said[RANK : RANK + DRAWN], said[RANK + DRAWN :]
    if not hmac.compare_digest(proof, _proof(secret, b"comes as " + rank, drawn, theirs)):
        raise Refused("it does not know the secret")
    line.sendall(_proof(secret, b"is rank 0", drawn, theirs))
    line.settimeout(None)
    return int.from_bytes(rank, "little")


def introduce(line: socket.socket, rank: int, secret: bytes) -> None:
    """Prove to rank 0 that this process knows the secret, and see that it does; Refused where one of them does not."""
    line.settimeout(SECONDS)
    said = _received(line, len(GREETING) + DRAWN)
    if said[: len(GREETING)] != GREETING:
        raise Refused("it greets otherwise")
    drawn, own, number = said[len(GREETING) :], secrets.token_bytes(DRAWN), rank.to_bytes(RANK, "little")
    line.sendall(number + own + _proof(secret, b"comes as " + number, drawn, own))
    try:
        proof = _received(line, PROOF)
    except OSError:
        raise Refused("it does not take this process's proof") from None
    if not hmac.compare_digest(proof, _proof(secret, b"is rank 0", drawn, own)):
        raise Refused("its proof is wrong")
    line.settimeout(None)


def _proof(secret: bytes, who: bytes, drawn: bytes, theirs: bytes) -> bytes:
    return hmac.digest(secret, who + drawn + theirs, "sha256")


def _received(line: socket.socket, count: int) -> bytes:
    """So many bytes; OSError where they do not come."""
    data = b""
    while len(data) < count:
        more = line.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the other has hung up")
        data += more
    return data
