"""One process for each of several devices of this machine, started here and watched until all have ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from lispgpt.base.child import Outcome, Reporter
from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.together import together
from lispgpt.runtime.collectives.hub import Hub
from lispgpt.runtime.collectives.peers import GRACE, Peers, Place

Work = Callable[[Peers, Callable[[Any], None]], Any]
"""What a process does, with the others and with what hands the starting process a value at once."""


def on_devices(count: int, work: Work, hear: Callable[[Any], None], patience: float) -> Any:
    """What the work of rank 0 gives; UserError, once all processes have ended, with what went wrong in the first.

    hear: is given what processes hand on.  patience: seconds that a process waits for others.
    """
    lines = [socket.socketpair() for _ in range(count)]
    hubs: list[Hub] = []

    def process(rank: int) -> Callable[[Reporter], int]:
        def run(reporter: Reporter) -> int:
            own = lines[rank][1]
            for ours, theirs in lines:
                ours.close()
                if theirs is not own:
                    theirs.close()
            peers = Peers(Place(rank, count, rank, count), own, patience)
            try:
                value = work(peers, reporter.tell)
                peers.finish()
            except UserError as error:
                peers.failed(error.message)
                raise
            if rank == 0:
                reporter.give(value)
            return 0

        return run

    def begun() -> Callable[[int, str], None]:
        for _, theirs in lines:
            theirs.close()
        hubs.append(Hub([ours for ours, _ in lines]))
        return hubs[0].ended

    ends = together([process(rank) for rank in range(count)], begun, hear, GRACE)
    failure = hubs[0].failure
    hubs[0].close()
    wrong = [rank for rank, end in enumerate(ends) if not isinstance(end, Outcome) or not end.finished]
    if not wrong:
        return ends[0].value  # type: ignore[union-attr]
    rank, message = failure or (wrong[0], "")
    end = ends[rank]
    if isinstance(end, InternalError) or (isinstance(end, UserError) and end.message == message):
        raise end
    if isinstance(end, Outcome) and end.signal_number:
        raise UserError(
            f"the process of device {rank} was ended by {end.reason}; --resume goes on from the last checkpoint"
        )
    raise UserError(message or f"the process of device {rank} ended with exit code {getattr(end, 'code', 1)}")
