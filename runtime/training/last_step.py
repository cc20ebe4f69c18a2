"""Which step of a run is the last, where somebody may ask it to end: the same one in all of its processes."""

from __future__ import annotations

from collections.abc import Callable

from lispgpt.runtime.collectives.peers import Peers


class LastStep:
    """number: of the last step, as far as it is known.

    steps: of the whole run.  stop: whether this process was asked to end.  peers: the processes that take the steps
    with this one; the first says which is the last one, once any was asked.  ahead: how many steps each may have begun
    beside the one whose numbers it waits for.
    """

    def __init__(self, steps: int, stop: Callable[[], bool], peers: Peers | None, ahead: int) -> None:
        self.number = steps
        self._steps, self._stop, self._peers, self._ahead = steps, stop, peers, ahead

    def look(self, begun: int) -> int:
        """The last step, once it is asked again; begun: the last one that this process has begun, or is about to."""
        if self._peers is None:
            if self._stop():
                self.number = min(self.number, begun)
        else:
            self._agree(self._peers, begun)
        return self.number

    def _agree(self, peers: Peers, begun: int) -> None:
        """Where this is the first process, no other has finished the step behind `begun`: it has begun that one and
        `ahead` more at most."""
        if peers.stop_at is None:
            asked, last = self._stop(), begun + 1 + self._ahead
            if asked and peers.place.rank:
                peers.ask_to_stop()
            elif (asked or peers.asked_to_stop) and not peers.place.rank and last < self._steps:
                peers.stop_after(last)
        if peers.stop_at is not None:
            self.number = min(self._steps, peers.stop_at)
