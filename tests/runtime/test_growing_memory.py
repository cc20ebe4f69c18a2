"""Both vendors' devices where memory is taken as it is reached: what drivers are asked for, and what kernels see."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from gpu_drivers import StandIn, opened
from mapped_memory import Mapped

from lispgpt.base.errors import UserError
from lispgpt.runtime.committed_memory import CommittedMemory
from lispgpt.runtime.devices.base import Pieces
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.plan.steps import Argument, Launch

PAGE = Mapped.granularity


def bytes_at(address: int, count: int) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(address, count), np.uint8)


def test_a_range_reads_as_zeros_and_gets_memory_where_it_is_backed(driver: StandIn) -> None:
    device, rng = opened(driver), seeded.rng()
    address = device.reserve(10 * PAGE - 100)
    assert address % PAGE == 0 and device.taken(address, 0) == 0
    assert sum(driver.mapped.sizes.values()) == PAGE, "one page of zeros stands for all"
    assert not bytes_at(address, 10 * PAGE - 100).any()
    assert {place.access for place in driver.mapped.places.values()} == {"read", "readwrite"}
    with pytest.raises(AssertionError, match="no memory of its own"):
        device.copy_in(address, np.zeros(4, np.uint8), PAGE)
    device.back(address, 3 * PAGE - 1, 5 * PAGE + 1)
    data = rng.integers(0, 256, 2 * PAGE + 2, np.uint8)
    device.copy_in(address, data, 3 * PAGE - 1)
    device.back(address, 0, 7 * PAGE)
    found = bytes_at(address, 10 * PAGE - 100)
    np.testing.assert_array_equal(found[3 * PAGE - 1 : 5 * PAGE + 1], data)
    assert not found[: 3 * PAGE - 1].any() and not found[5 * PAGE + 1 :].any()
    assert device.taken(address, 0) == 7 * PAGE == sum(driver.mapped.sizes.values()) - PAGE
    device.back(address, 9 * PAGE, 10 * PAGE - 100)
    device.close()
    assert (driver.mapped.places, driver.mapped.sizes, driver.mapped.reserved) == ({}, {}, {})


def test_pieces_of_what_grows_are_copied_one_by_one(driver: StandIn) -> None:
    """A driver's call for pieces of memory that is one allocation refuses memory that was mapped."""
    device, rng = opened(driver), seeded.rng()
    plain, grown = device.alloc(4 * PAGE), device.reserve(4 * PAGE)
    device.back(grown, 0, 4 * PAGE)
    data = rng.integers(0, 256, 4 * PAGE, np.uint8)
    device.copy_in(plain, data)
    pieces = Pieces(5, 1, 3, 3, PAGE, PAGE + 1)
    for source, target in ((plain, grown), (grown, plain)):
        device.copy_pieces(source, target, pieces)
        for start, end in pieces.each():
            np.testing.assert_array_equal(bytes_at(target + end, 5), bytes_at(source + start, 5))
    assert not driver.made("Memcpy2DAsync")


def test_growing_waits_for_what_runs_and_asks_in_this_order(driver: StandIn) -> None:
    device = opened(driver)
    address = device.reserve(4 * PAGE)
    driver.calls.clear()
    device.back(address, PAGE, 3 * PAGE)
    unmapped = ["MemUnmap", "MemUnmap"]
    asked = ["StreamSynchronize", "MemCreate", *unmapped, "MemMap", "MemSetAccess", "MemsetD8Async"]
    assert driver.order() == asked
    assert driver.made("MemCreate")[0].size == 2 * PAGE
    assert driver.made("MemMap")[0].to == address + PAGE
    driver.calls.clear()
    device.back(address, PAGE, 3 * PAGE)
    assert not driver.calls


@pytest.mark.parametrize("failing", ["MemGranularity", "MemAddressReserve", "MemCreate", "MemMap", "MemSetAccess"])
def test_a_driver_that_maps_nothing_gives_all_memory_at_once_which_is_said(failing: str, driver: StandIn) -> None:
    device = opened(driver)
    driver.failing = failing
    buffer = device.reserve(4 * PAGE)
    assert [given.size for given in driver.made("MemAlloc")] == [4 * PAGE]
    assert device.granularity == 0 and driver.api.symbol(failing) in device.whole
    device.back(buffer, 0, 4 * PAGE)
    assert device.taken(buffer, 4 * PAGE) == 4 * PAGE
    driver.failing = "MemAlloc"
    with pytest.raises(UserError, match=r"short of memory, and takes all of it at once, as .*--context N"):
        device.alloc(5)
    driver.failing = None
    device.close()
    assert (driver.mapped.places, driver.mapped.sizes, driver.memory) == ({}, {}, {})


def test_a_granule_that_does_not_fit_says_what_to_do(driver: StandIn) -> None:
    device = opened(driver)
    address = device.reserve(4 * PAGE)
    driver.failing = "MemCreate"
    with pytest.raises(UserError, match=r"4,096 bytes .*short of memory: --context N"):
        device.back(address, 0, 1)
    driver.failing = None
    device.back(address, 0, 1)
    device.close()
    assert (driver.mapped.places, driver.mapped.sizes) == ({}, {})


ROW, POSITIONS = 64, 256
STATE = Buffer("kv", "state", (2, 3, POSITIONS, ROW // 4), "f32")


def entry_that_writes(**fields: Any) -> Entry:
    launch = Launch("k", (1, 1, 1), (1, 1, 1), 0, (Argument("kv", 0, STATE.nbytes, "readwrite"),))
    return Entry("decode", {}, {"tokens": "t", "positions": "p"}, {}, (launch,), **fields)


def reached(driver: StandIn, state: Buffer = STATE, axis: int | None = 2) -> SimpleNamespace:
    device = opened(driver)
    states = CommittedMemory(device)
    return SimpleNamespace(device=device, states=states, buffer=states.made(state, axis))


def test_states_have_memory_for_the_positions_that_were_reached(driver: StandIn) -> None:
    made, entry = reached(driver), entry_that_writes(grows={"kv": 2})
    each, parts = PAGE // ROW, 6
    for positions, pages in (([[0]], 1), ([[each - 1]], 1), ([[5], [each]], 2), ([[3]], 2), ([[POSITIONS - 1]], 4)):
        made.states.note_inputs(entry, {"positions": np.array(positions, np.int32)})
        made.states.before(entry)
        assert made.device.taken(made.buffer, 0) == parts * pages * PAGE
    made.device.close()


def test_runs_that_leave_the_next_position_reach_further_one_by_one(driver: StandIn) -> None:
    made = reached(driver)
    entry = entry_that_writes(grows={"kv": 2})
    step = Launch("advance", (1, 1, 1), (1, 1, 1), 0, (Argument("p", 0, 4, "readwrite"),))
    entry = Entry(entry.name, {}, entry.inputs, {}, (*entry.steps, step), grows=entry.grows)
    each = PAGE // ROW
    made.states.note_inputs(entry, {"positions": np.array([[each - 3]], np.int32)})
    for runs, pages in ((1, 1), (2, 1), (1, 2), (each - 1, 2), (1, 3)):
        made.states.before(entry, runs)
        assert made.device.taken(made.buffer, 0) == 6 * pages * PAGE
    made.device.close()


@pytest.mark.parametrize("said", ["nothing of it", "no position"])
def test_what_writes_anywhere_has_all_of_a_state(said: str, driver: StandIn) -> None:
    made, entry = reached(driver), entry_that_writes(grows={"kv": 2} if said == "no position" else {})
    if said != "no position":
        made.states.note_inputs(entry, {"positions": np.zeros((1, 1), np.int32)})
    made.states.before(entry)
    assert made.device.taken(made.buffer, 0) == STATE.nbytes
    made.device.close()


def test_small_states_and_those_without_positions_are_taken_whole(driver: StandIn) -> None:
    small = Buffer("kv", "state", (2, 3, 2 * PAGE // ROW - 1, ROW // 4), "f32")
    for state, axis in ((small, 2), (STATE, None)):
        made = reached(driver, state, axis)
        assert driver.made("MemAlloc")[-1].size == state.nbytes
        made.device.close()


def test_what_is_forgotten_is_zero_where_there_is_memory(driver: StandIn) -> None:
    made, entry = reached(driver), entry_that_writes(grows={"kv": 2})
    made.states.note_inputs(entry, {"positions": np.array([[9]], np.int32)})
    made.states.before(entry)
    part = POSITIONS * ROW
    for place in range(0, STATE.nbytes, part):
        made.device.copy_in(made.buffer, np.ones(10 * ROW, np.uint8), place)
    assert bytes_at(made.buffer, STATE.nbytes).sum() == 6 * 10 * ROW
    assert made.states.forget("kv") and not made.states.forget("other")
    assert not bytes_at(made.buffer, STATE.nbytes).any()
    made.states.part("kv", part + 70 * ROW, part + 71 * ROW)
    assert made.device.taken(made.buffer, 0) == 6 * 2 * PAGE
    made.states.whole("kv")
    assert made.device.taken(made.buffer, 0) == STATE.nbytes
    made.device.close()
