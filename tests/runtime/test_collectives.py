"""What processes do together, with threads in their place: arrays, what they tell each other, and entries of plans."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import KINDS, collective, together

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.beside import LAUNCH, START, WAIT, prepare, waits_of
from lispgpt.runtime.collectives.host import HostEngine, rounded, widened
from lispgpt.runtime.collectives.hub import Hub
from lispgpt.runtime.collectives.local import SLOT, LocalTransport
from lispgpt.runtime.collectives.peers import EndedByAnother, Peers, Place, send
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan
from lispgpt.runtime.plan.steps import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_MAX,
    ALL_REDUCE_MIN,
    ALL_SLICE,
    BROADCAST,
    OPERATIONS,
    REDUCE_SCATTER,
    Argument,
    Collective,
    Launch,
)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_shared_memory_exchanges_arrays(operation: str, dtype: str) -> None:
    rng, count = seeded.rng(), int(seeded.rng().integers(2, 5))
    item = np.dtype(KINDS[dtype]).itemsize
    sizes = [count * int(n) for n in (1, rng.integers(2, 50), SLOT // item + rng.integers(1, 99))]
    step = collective(operation, count, sizes, dtype)
    assert step.problem() is None
    floats = [[rng.normal(size=size).astype(np.float32) for size in sizes] for _ in range(count)]
    given = [[_stored(array, dtype) for array in arrays] for arrays in floats]

    def work(peers: Peers) -> list[np.ndarray]:
        rank = peers.place.rank
        buffers: dict[str, np.ndarray] = {}
        for number, size in enumerate(sizes):
            own = size // count
            whole, part = given[rank][number].copy(), np.zeros(own, KINDS[dtype])
            if operation == ALL_GATHER:
                part, whole = whole[rank * own : (rank + 1) * own].copy(), np.zeros(size, KINDS[dtype])
            buffers |= {f"{number}": whole.view(np.uint8), f"{number}p": part.view(np.uint8)}
        engine = HostEngine(NullDevice(), peers, LocalTransport(peers))
        engine.wait(engine.start(engine.prepare(step, buffers)))
        engine.close()
        name = "p" if operation in (REDUCE_SCATTER, ALL_SLICE) else ""
        return [buffers[f"{number}{name}"].view(KINDS[dtype]) for number in range(len(sizes))]

    found = together(count, work)
    for number, size in enumerate(sizes):
        own, every = size // count, [given[rank][number] for rank in range(count)]
        for rank in range(count):
            expected = _expected(operation, every, dtype)
            if operation == ALL_GATHER:
                expected = np.concatenate([every[r][r * own : (r + 1) * own] for r in range(count)])
            if operation == ALL_SLICE:
                expected = every[rank]
            if operation in (REDUCE_SCATTER, ALL_SLICE):
                expected = expected[rank * own : (rank + 1) * own]
            np.testing.assert_array_equal(found[rank][number], expected, err_msg=f"{rank} of {count}, {size}")


def _stored(array: np.ndarray, dtype: str) -> np.ndarray:
    return rounded(array) if dtype == "bf16" else (array * 100).astype(KINDS[dtype])


def _expected(operation: str, every: list[np.ndarray], dtype: str) -> np.ndarray:
    """The sum in the ranks' order, the largest, the least, or rank 0's."""
    if operation == BROADCAST:
        return every[0]
    combine = {ALL_REDUCE_MAX: np.maximum, ALL_REDUCE_MIN: np.minimum}.get(operation, np.add)
    total = widened(every[0]) if dtype == "bf16" else every[0].copy()
    for array in every[1:]:
        total = combine(total, widened(array) if dtype == "bf16" else array)
    return rounded(total) if dtype == "bf16" else total


def test_bf16_is_rounded_to_even_and_nan_stays() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -np.inf, np.nan, 3.4e38], np.float32)
    back = widened(rounded(values))
    np.testing.assert_array_equal(back[:4], np.array([1.0, 1.0, 1.015625, -np.inf], np.float32))
    assert np.isnan(back[4]) and np.isinf(back[5])


def test_what_processes_tell_each_other() -> None:
    def work(peers: Peers) -> tuple[list[Any], int | None]:
        rank = peers.place.rank
        found = peers.gather("names", f"rank {rank}")
        peers.agree("at step 3", {"program": "same", "data": [1, 2]})
        if rank == 2:
            peers.ask_to_stop()
        while rank == 0 and not peers.asked_to_stop:
            time.sleep(0.001)
        if rank == 0:
            peers.stop_after(7)
        peers.gather("after", None)
        return found, peers.stop_at

    assert together(3, work) == [(["rank 0", "rank 1", "rank 2"], 7)] * 3


def test_the_first_failure_is_everybodys_and_one_says_so() -> None:
    def work(peers: Peers) -> None:
        if peers.place.rank == 1:
            raise UserError("no more memory")
        peers.gather("never", None)

    found = together(3, work)
    assert [error.message for error in found] == ["no more memory"] * 3
    assert [isinstance(error, EndedByAnother) for error in found] == [True, False, True]


def test_who_comes_after_the_end_is_told_of_it() -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    hub = Hub(ours)
    try:
        first = Peers(Place(0, 2), theirs[0], patience=5)
        assert first.failed("no more memory")
        first.leave()
        second = Peers(Place(1, 2), theirs[1], patience=5)
        with pytest.raises(EndedByAnother, match="no more memory"):
            second.gather("never", None)
        second.leave()
    finally:
        hub.close()


LAST = [{"kind": "gather", "name": "the end", "value": None}, {"kind": "failed", "message": "no more memory"}]


class Recorded(Hub):
    """Keeps the ranks that it told, in order."""

    def __init__(self, lines: Sequence[socket.socket]) -> None:
        self.told: list[int] = []
        super().__init__(lines)

    def _tell(self, rank: int, message: dict[str, Any]) -> None:
        self.told.append(rank)
        super()._tell(rank, message)


@pytest.mark.parametrize("last", LAST, ids=[str(message["kind"]) for message in LAST])
def test_rank_0_is_told_when_all_others_have_been(last: dict[str, Any]) -> None:
    """The hub may be of its process, which ends then."""
    ours, theirs = zip(*(socket.socketpair() for _ in range(3)), strict=True)
    hub = Recorded(ours)
    try:
        for rank, line in enumerate(theirs):
            send(line, {"kind": "here", "rank": rank})
        while len(hub._ranks) < len(theirs):
            time.sleep(0.001)
        for line in theirs:
            send(line, last)
        assert all(line.recv(1 << 12) for line in theirs)
        assert hub.told[-1] == 0 and sorted(hub.told) == [0, 1, 2]
    finally:
        hub.close()
        for line in theirs:
            line.close()


def test_who_does_not_hear_of_the_end_is_named() -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    hub = Hub(ours)
    try:
        send(theirs[1], {"kind": "here", "rank": 1})
        first = Peers(Place(0, 2), theirs[0], patience=1)
        with pytest.raises(UserError, match="to end after step 7, and rank 1 did not hear of it within 1 s"):
            first.stop_after(7)
        first.leave()
    finally:
        hub.close()
        theirs[1].close()


def test_facts_that_differ_and_ranks_that_do_not_come_are_named() -> None:
    def differ(peers: Peers) -> None:
        peers.agree("at step 0", {"data": 1, "program": min(peers.place.rank, 1)})

    assert {error.message for error in together(3, differ)} == {
        "the processes of this run differ at step 0: the program of ranks 1, 2 is not that of rank 0"
    }
    step = collective(ALL_REDUCE, 3, [6], "f32")

    def hang(peers: Peers) -> None:
        transport = LocalTransport(peers)
        engine = HostEngine(NullDevice(), peers, transport)
        try:
            if peers.place.rank != 1:
                engine.wait(engine.start(engine.prepare(step, {"0": np.zeros(24, np.uint8)})))
            else:
                peers.gather("something else", None)
        finally:
            engine.close()

    said = {error.message for error in together(3, hang, patience=1.0)}
    assert len(said) == 1 and "did not come" in said.pop()


def entry_of(*steps: Launch | Collective) -> Entry:
    return Entry("e", {}, {}, {}, steps)


def test_launches_go_on_until_one_needs_what_devices_do_together() -> None:
    def launch(name: str, *arguments: Argument) -> Launch:
        return Launch(name, (1, 1, 1), (1, 1, 1), 0, arguments)

    first, second = (Argument("a", start, 16, "write") for start in (0, 16))
    summed = Collective(ALL_REDUCE, 2, ("f32",), (replace(first, access="read_write"),))
    steps = (
        launch("makes", first),
        summed,
        launch("other", second),
        launch("more", replace(second, access="read")),
        launch("reads", replace(first, access="read"), replace(second, access="read_write")),
        summed,
    )
    assert waits_of(steps) == {1: 4, 5: 6}
    made = prepare(entry_of(*steps), lambda entry: [x.kernel for x in entry.launches], lambda step: step)
    assert [(kind, content) for kind, content, _ in made.parts] == [
        (LAUNCH, ["makes"]),
        (START, summed),
        (LAUNCH, ["other", "more"]),
        (WAIT, None),
        (LAUNCH, ["reads"]),
        (START, summed),
        (WAIT, None),
    ]


@pytest.mark.parametrize(
    "change, said",
    [
        ({"operation": "all_to_all"}, "no devices do 'all_to_all'"),
        ({"devices": 1}, "no devices do"),
        ({"dtypes": ("f32", "f8")}, "not what its operation takes"),
        ({"dtypes": ("f32",)}, "not what its operation takes"),
        ({"devices": 3}, "not parts of each other for 3 devices"),
        ({"operation": ALL_REDUCE}, "its access is not"),
    ],
)
def test_collectives_of_damaged_plans_are_refused(change: dict[str, Any], said: str) -> None:
    step = collective(REDUCE_SCATTER, 2, [8], "f32")
    buffers = (Buffer("0", "state", (8,), "f32"), Buffer("0p", "state", (4,), "f32"))
    plan = Plan(buffers, (entry_of(step),))
    plan.validate({})
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(UserError, match=f"reduce_scatter|all.*: .*{said}|{said}"):
        replace(plan, entries=(entry_of(replace(step, **change)),)).validate({})
