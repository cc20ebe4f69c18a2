"""Both vendors' devices on drivers made here: what is copied to them and back, and by which calls."""

from __future__ import annotations

import ctypes

import numpy as np
import seeded
from gpu_drivers import FACTS, StandIn, entry, opened

from lispgpt.runtime.devices.base import Pieces


def test_memory_is_zeroed_copied_both_ways_and_adopted(driver: StandIn) -> None:
    device, rng = opened(driver), seeded.rng()
    data = rng.integers(0, 256, (6, 8), np.uint8)
    buffer, other = device.alloc(100), device.alloc(100)
    device.copy_in(buffer, data.T, 10)  # not contiguous
    found = np.empty(100, np.uint8)
    device.copy_out(buffer, found)
    np.testing.assert_array_equal(found, [0] * 10 + list(data.T.ravel()) + [0] * 42)
    device.copy(buffer, other, 30)
    device.copy_out(other, found)
    np.testing.assert_array_equal(found, [0] * 10 + list(data.T.ravel()[:20]) + [0] * 70)
    device.copy_pieces(buffer, other, Pieces(4, 10, 50, 3, 8, 16))  # every second half of a row
    device.copy_out(other, found)
    wanted = np.zeros((3, 16), np.uint8)
    wanted[:, :4] = data.T.reshape(-1)[:24].reshape(3, 8)[:, :4]
    np.testing.assert_array_equal(found[50:98], wanted.ravel())
    assert len(driver.made("Memcpy2DAsync")) == 1
    part = np.empty((2, 4), np.uint8)
    device.copy_out(device.adopt(data), part, 8)
    np.testing.assert_array_equal(part.ravel(), data.ravel()[8:16])
    for name, given in driver.calls:
        assert not name.startswith(("Memcpy", "Memset")) or given.stream == device._stream


def test_steps_read_inputs_copied_before_them_and_none_copied_later(driver: StandIn) -> None:
    driver.slow = True
    device, rng = opened(driver), seeded.rng()
    device.load(b"code", FACTS)
    given, result = device.alloc(8), device.alloc(8)
    executable = device.prepare(entry(), {"a": given, "b": result})
    driver.when_launched = lambda: ctypes.memmove(result, given, 8)
    old, new, found = rng.integers(0, 256, (3, 8), np.uint8)
    device.copy_in(given, old)
    device.launch(executable)
    kept = new.copy()
    device.copy_in(given, new)
    new[:] = 0
    device.copy_out(result, found)
    np.testing.assert_array_equal(found, old)
    device.launch(executable)
    device.copy_out(result, found)
    np.testing.assert_array_equal(found, kept)


def test_many_small_inputs_come_without_waiting_for_each(driver: StandIn) -> None:
    driver.slow = True
    device, rng = opened(driver), seeded.rng()
    buffer, array, found = device.alloc(1 << 20), np.empty(1000, np.uint8), np.empty(1 << 20, np.uint8)
    expected = np.zeros(1 << 20, np.uint8)
    for number in range(300):
        array[:] = rng.integers(0, 256, 1000)
        expected[number * 1000 : number * 1000 + 1000] = array
        device.copy_in(buffer, array, number * 1000)
    waits = driver.order().count("StreamSynchronize")
    device.copy_out(buffer, found)
    np.testing.assert_array_equal(found, expected)
    assert 0 < waits < 10


def test_neighbouring_inputs_are_one_copy_and_others_their_own(driver: StandIn) -> None:
    driver.slow = True
    device, rng = opened(driver), seeded.rng()
    sizes = [int(size) for size in rng.integers(1, 700, 4)]
    buffers, apart = device.alloc_together(sizes), device.alloc(100)
    assert all(buffer % 256 == buffers[0] % 256 for buffer in buffers)
    assert all(a + size <= b for a, size, b in zip(buffers, sizes, buffers[1:], strict=False))
    values = [rng.integers(0, 256, size, np.uint8) for size in sizes]
    more = rng.integers(0, 256, (10, 10), np.uint8)
    found = [np.empty(size, np.uint8) for size in sizes]

    def copies(*which: int) -> int:
        driver.calls.clear()
        filled = [(buffers[i], values[i]) for i in which]
        device.copy_in_together(filled)
        for i in which:
            values[i] = values[i].copy()  # what was given may be changed at once
            filled[which.index(i)][1][:] = 0xEE
        return len(driver.made("MemcpyHtoDAsync"))

    assert copies(2, 0, 1, 3) == 1
    assert copies(1, 2) == 1
    assert copies(0, 2) == 2
    assert copies(3) == 1
    device.copy_in_together([(buffers[0], values[0]), (apart, more.T)])
    for i, buffer in enumerate(buffers):
        device.copy_out(buffer, found[i])
        np.testing.assert_array_equal(found[i], values[i])
    last = np.empty((10, 10), np.uint8)
    device.copy_out(apart, last)
    np.testing.assert_array_equal(last, more.T)
    assert device.alloc_together([]) == []
    device.close()
    assert driver.memory == {}


def test_a_shared_result_is_read_without_a_copy_once_the_step_is_done(driver: StandIn) -> None:
    driver.slow = True
    device = opened(driver)
    device.load(b"code", FACTS)
    shared, values = device.alloc_shared(12), iter(range(1, 99))
    executable = device.prepare(entry(), {"a": shared, "b": shared})
    driver.when_launched = lambda: ctypes.memmove(shared, np.full(3, next(values), np.int32).tobytes(), 12)
    found = np.full(3, -1, np.int32)
    device.copy_out(shared, found)
    assert found.tolist() == [0, 0, 0]
    device.launch(executable)
    device.copy_out(shared, found)
    assert found.tolist() == [1, 1, 1]
    later = device.launch_reading(executable, shared, np.empty(1, np.int32))
    device.launch(executable)
    device.sync()
    assert later().tolist() == [2], "what a later step wrote is not what was asked for"
    assert not driver.made("MemcpyDtoHAsync")
    device.close()
    assert driver.memory == {}
