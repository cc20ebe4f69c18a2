"""Small arrays on their way to a GPU, in pinned memory that is given again once it is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest
import seeded
from gpu_drivers import FACTS, StandIn, entry, opened

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.pinned import OF_A_KIND


@pytest.mark.parametrize("slow", [False, True])
def test_inputs_wait_for_no_stream_where_results_have_been_read(slow: bool, driver: StandIn) -> None:
    """What a read comes behind is done: its room in pinned memory is given again; without reads, the stream is waited
    for where there is none."""
    driver.slow = slow
    device = opened(driver)
    device.load(b"code", FACTS)
    rng, inputs = seeded.rng(), device.alloc(16384)
    executable = device.prepare(entry(), {"a": inputs, "b": inputs})
    waiting: deque[tuple[np.ndarray, Callable[[], np.ndarray]]] = deque()
    for reads in (True, False):
        driver.calls.clear()
        for _ in range(200):
            given = rng.integers(0, 1 << 30, int(rng.integers(1, 4096))).astype(np.int32)
            device.copy_in(inputs, given)
            if not reads:
                continue
            waiting.append((given, device.launch_reading(executable, inputs, np.empty(1, np.int32))))
            if len(waiting) > 2:
                wanted, wait = waiting.popleft()
                assert wait()[0] == wanted[0]
        assert bool(driver.made("StreamSynchronize")) != reads
        found = np.empty_like(given)
        device.copy_out(inputs, found)
        np.testing.assert_array_equal(found, given)


def test_inputs_that_grow_take_little_more_pinned_memory_than_the_largest(driver: StandIn) -> None:
    device = opened(driver)
    inputs, largest = device.alloc(1 << 16), 1 << 15
    for nbytes in range(4096, largest + 1, 64):
        given = np.full(nbytes, nbytes % 251, np.uint8)
        device.copy_in(inputs, given)
        found = np.empty_like(given)
        device.copy_out(inputs, found)
        np.testing.assert_array_equal(found, given)
    assert sum(made.size for made in driver.made("MemAllocHost")) <= 3 * OF_A_KIND * largest


@pytest.mark.parametrize("use", ["input", "result", "shared"])
def test_a_machine_that_is_short_of_pinned_memory_is_told(use: str, driver: StandIn) -> None:
    device, array = opened(driver), np.zeros(8, np.int32)
    buffer = device.alloc(32)
    uses = {
        "input": lambda: device.copy_in(buffer, array),
        "result": lambda: device.read_later(buffer, array),
        "shared": lambda: device.alloc_shared(32),
    }
    driver.failing = "MemAllocHost"
    with pytest.raises(UserError, match=r"(HostMalloc|MemAllocHost) failed for .* bytes of pinned memory .* short of"):
        uses[use]()
    driver.failing = None
    uses[use]()
    device.close()
    assert not driver.memory
