"""Runs of an entry that are launched one by one or several at once, on a device that counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded

from lispgpt.runtime.executables import Several
from lispgpt.runtime.plan.plan import Buffer, Entry, Repeats
from lispgpt.runtime.repeating import Repeated, tell

MOST = 4
DECLARED = {
    "next": Buffer("next", "result", (1,), "i32"),
    "kept": Buffer("kept", "kept", (MOST, 1), "i32"),
    "more": Buffer("more", "control", (1,), "i32"),
}
ENTRY = Entry("step", {}, {}, {"next": "next"}, (), repeats=Repeats(MOST, "more", {"next": "kept"}))


class Counter:
    """Each run of an entry makes the next whole number.  launches: how many runs each launch was; announced: was said
    to be, ahead of it."""

    def __init__(self) -> None:
        self.runs, self.unread, self.most_unread, self.read, self.most_launched = 0, 0, 0, 0, 0
        self.launches: list[int] = []
        self.announced: list[int] = []
        self.more = np.zeros(1, np.int32)

    def copy_in(self, buffer: np.ndarray, array: np.ndarray) -> None:
        buffer[:] = array

    def launch_reading(self, executable: Any, buffer: str, array: np.ndarray) -> Callable[[], np.ndarray]:
        runs = int(self.more[0]) + 1
        made = np.arange(self.runs, self.runs + runs)
        self.runs, self.unread = self.runs + runs, self.unread + runs
        self.launches.append(runs)
        assert self.announced == self.launches
        self.most_unread = max(self.most_unread, self.unread)
        self.most_launched = max(self.most_launched, len(self.launches) - self.read)
        array.reshape(-1)[:] = -1
        array.reshape(-1)[: runs if buffer == "kept" else 1] = made if buffer == "kept" else made[-1:]

        def read() -> np.ndarray:
            self.unread, self.read = self.unread - runs, self.read + 1
            return array

        return read


class Launched:
    """What a session launches.  several: gives runs by one launch, where a device gains by it."""

    def __init__(self, several: Callable[[int], Several | None] = lambda most: None) -> None:
        self._several = several

    def of(self, entry: Entry) -> None:
        """The counter counts whatever it launches."""

    def several(self, entry: Entry, result: str, most: int) -> Several | None:
        assert (entry.name, result) == ("step", "next")
        return self._several(most)


def repeated(device: Counter, told: dict[str, int], more: Callable[[], bool] = lambda: True) -> Repeated:
    buffers = {"next": "next", "kept": "kept", "more": device.more}
    return Repeated(device, Launched(), buffers, DECLARED, told, deque(), more, device.announced.append)  # type: ignore[arg-type]


def test_every_run_gives_its_result_in_order() -> None:
    rng, seed = seeded.named_rng()
    for _ in range(50):
        count, ahead = int(rng.integers(1, 40)), int(rng.integers(1, 20))
        device, told = Counter(), {}
        found = [int(value.item()) for value in repeated(device, told).results(ENTRY, "next", count, ahead)]
        assert found == list(range(count)) and device.runs == count, seed
        assert device.most_unread <= ahead and device.more[0] == 0, seed
        each = max(1, min(MOST, ahead // 2))
        assert device.launches == [min(each, count - first) for first in range(0, count, each)], seed
        assert device.most_launched >= min(2, ahead, len(device.launches)), "the next launch is there when one ends"


@pytest.mark.parametrize("read", [1, 5])
def test_a_caller_who_stops_early_leaves_launches_of_one_run(read: int) -> None:
    device, told = Counter(), {}
    values = repeated(device, told).results(ENTRY, "next", 30, 8)
    assert [int(next(values).item()) for _ in range(read)] == list(range(read))
    assert device.more[0] == MOST - 1
    values.close()
    assert device.more[0] == 0 and told == {"more": 1}


def test_nothing_is_launched_once_there_is_no_more() -> None:
    device, asked = Counter(), iter([True, True, False])
    values = repeated(device, {}, lambda: next(asked, False)).results(ENTRY, "next", 30, 8)
    assert [int(value.item()) for value in values] == list(range(2 * MOST))


def test_the_number_of_runs_is_told_when_it_changes() -> None:
    device, told = Counter(), {}
    buffers = {"more": device.more}
    for runs in (1, 3, 3, 1):
        device.more[:] = 99
        changes = told.get("more", 1) != runs
        tell(device, buffers, told, ENTRY.repeats, runs)  # type: ignore[arg-type]
        assert device.more[0] == (runs - 1 if changes else 99)
