"""What other threads have a loop do, for which it wakes up once however much it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """Calls for one loop, in their order.  Waking a loop costs more than most calls: it is woken where it knows of none
    yet."""

    def __init__(self) -> None:
        self._calls, self._rung = deque[Callable[[], None]](), False

    def ring(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """Have the loop call this soon; nothing, where the loop has ended."""
        self._calls.append(call)
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._rung = False  # first: what comes from here on rings again
        while self._calls:
            self._calls.popleft()()
