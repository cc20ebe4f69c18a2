"""A second stream of a GPU, for work that goes on beside what the device's own stream has to do."""

from __future__ import annotations

from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.driver import FAILED_BEFORE, Driver

NOT_READY = 600
"""What both vendors' drivers answer who asks for an event that has not come."""


class SideStream:
    """A stream beside a device's own.  owned: takes what the device is to give back when it is closed."""

    def __init__(self, driver: Driver, main: Any, stream: Any, owned: list[tuple[str, Any]]) -> None:
        self._driver, self._main, self._stream, self._owned = driver, main, stream, owned
        self._fork = self.event()

    @property
    def handle(self) -> int:
        """What libraries in C call it."""
        return int(self._stream)

    def event(self) -> Any:
        (event,) = self._driver("EventCreate")
        self._owned.append(("EventDestroy", event))
        return event

    def follow(self) -> None:
        """Have what this stream is given from here on come behind all that the device's own has."""
        self._driver("EventRecord", self._fork, self._main)
        self._driver("StreamWaitEvent", self._stream, self._fork)

    def launch(self, executable: Any) -> None:
        """Run an executable."""
        self._driver("GraphLaunch", executable, self._stream)

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copy within the device's memory."""
        self._driver("MemcpyDtoDAsync", target, source, nbytes, self._stream)

    def record(self, event: Any) -> None:
        """Have an event come when this stream has done what it has by now."""
        self._driver("EventRecord", event, self._stream)

    def lead(self, event: Any) -> None:
        """Have what the device's own stream is given from here on come behind an event."""
        self._driver("StreamWaitEvent", self._main, event)

    def is_done(self, event: Any) -> bool:
        """Whether an event has come; UserError where the device has failed."""
        status, _ = self._driver.status("EventQuery", event)
        if status and int(status) != NOT_READY:
            raise UserError(f"the GPU failed with {self._driver.error(status)}: {FAILED_BEFORE}")
        return not status
