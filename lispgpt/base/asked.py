"""Processes that are asked to end: what they have begun, such as children and temporary files, is undone first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

ASKED = (signal.SIGTERM, signal.SIGHUP)
"""By which a process is asked to end; an interrupt is Python's KeyboardInterrupt."""

begun: list[Callable[[], None]] = []
"""What undoes each thing that this process has begun and that would stay behind."""


class Ended(BaseException):
    """This process was asked to end by a signal (`number`)."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Have this process's first thread undo what it has begun before it ends, where it is asked to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number: int, _: Any) -> NoReturn:
        for each in numbers:  # once is enough
            signal.signal(each, signal.SIG_IGN)
        raise Ended(number)

    numbers = [number for number in ASKED if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, ended)
    try:
        yield
    except (KeyboardInterrupt, Ended) as error:
        for undo in reversed(list(begun)):
            undo()
        if isinstance(error, Ended):
            signal.signal(error.number, signal.SIG_DFL)
            os.kill(os.getpid(), error.number)
        raise
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
