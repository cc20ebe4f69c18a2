"""Child processes that need each other: where one ends early, none is left waiting for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from lispgpt.base.child import Child, Outcome, Reporter, passed_on


def together(
    works: Sequence[Callable[[Reporter], int]],
    begun: Callable[[], Callable[[int, str], None]],
    hear: Callable[[Any], None],
    patience: float,
) -> list[Outcome | Exception]:
    """Call works that need each other, each in a child of its own, all at once; how each ended.

    begun: is called when all have been forked, and gives what is told the number of each child that ends before its
    work is done, and how.  hear: is given what children tell.  patience: seconds that the others have after one has
    ended so; then they are killed.  That this process is asked to end (SIGINT, SIGTERM) is passed on.
    """
    children = [Child(work) for work in works]
    ends: list[Outcome | Exception | None] = [None] * len(works)
    news: queue.SimpleQueue[int] = queue.SimpleQueue()
    tell = begun()

    def follow(number: int) -> None:
        try:
            ends[number] = children[number].outcome(hear)
        except Exception as error:
            ends[number] = error
        news.put(number)

    threads = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(len(works))]
    with _all_asked(children):
        for thread in threads:
            thread.start()
        last = None
        while any(end is None for end in ends):
            try:
                number = news.get(timeout=None if last is None else max(0.0, last - time.monotonic()))
            except queue.Empty:
                for child, end in zip(children, ends, strict=True):
                    if end is None:
                        child.kill()
                last = None
                continue
            end = ends[number]
            if not isinstance(end, Outcome) or not end.finished:
                tell(
                    number, f"was ended by {end.reason}" if isinstance(end, Outcome) and end.signal_number else "failed"
                )
                last = last or time.monotonic() + patience
    return [end for end in ends if end is not None]


@contextmanager
def _all_asked(children: Sequence[Child]) -> Iterator[None]:
    """Pass on to all that this process is asked to end, where its first thread is waiting for them."""
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.enter_context(passed_on([child.ask for child in children]))
        yield
