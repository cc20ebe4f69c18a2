"""What an engine of collectives is.  A new one is one file in this folder; copy `local.py` for one that works in the
host's memory, `nccl.py` for one that works on streams of GPUs.

Beside the class the file has `open_engine(device, peers)`, called once in each process, which raises UserError with
what to install where the engine is not there.

You get steps of a plan that has been validated, and a session's buffers.  You may assume that every process starts the
same steps in the same order, and that one thread of each calls you.  You may not assume that the others come: whoever
waits asks `peers.check` now and then, which raises once another has ended, and `peers.waiting` where it takes long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lispgpt.runtime.plan.steps import Collective


class Engine(Protocol):
    """The contract between a session and the devices beside its own."""

    name: str
    """What the user is told, such as "NCCL 2.27.5"."""

    rank: int
    """Which of the devices this process has."""

    asynchronous: bool
    """Whether steps go on while the host does, until `settle`."""

    def prepare(self, step: Collective, buffers: Mapping[str, Any]) -> Any:
        """What `start` takes: a step with the memory that it is about."""

    def start(self, prepared: Any) -> Any:
        """Begin a step behind everything that the device was given before; may return before it is done.

        What it returns is for `wait`.
        """

    def wait(self, begun: Any) -> None:
        """Have everything that the device is given from here on come behind a step; may return before it is done."""

    def mark(self) -> int:
        """How many steps have begun so far."""

    def settle(self, count: int | None = None) -> None:
        """Wait until the first `count` steps of all are done, or every one that has begun; UserError where another
        process has ended or does not come."""

    def close(self) -> None:
        """Give back what is held; a second call does nothing."""
