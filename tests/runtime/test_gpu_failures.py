"""Both vendors' devices where a driver's call fails: what is said, and what is given back all the same."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from gpu_drivers import FACTS, StandIn, entry, opened

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import READS_AHEAD

FAILURES = [
    ("MemAlloc", "5 bytes", "short of memory"),
    ("ModuleLoadData", "", "compiled for another"),
    ("ModuleGetFunction", "kernel first", "damaged"),
    ("LaunchKernel", "kernel first", "this many threads"),
    ("GraphInstantiate", "entry logits", ""),
    ("StreamSynchronize", "", "launched before it"),
]


@pytest.mark.parametrize(("name", "about", "hint"), FAILURES)
def test_a_failure_names_the_call_and_what_it_was_about(name: str, about: str, hint: str, driver: StandIn) -> None:
    device = opened(driver)
    extended = driver.by_cuda and name in ("ModuleLoadData", "LaunchKernel")
    driver.failing = f"{name}Ex" if extended else name
    with pytest.raises(UserError) as caught:
        buffer = device.adopt(np.zeros(5, np.uint8))
        device.load(b"code", FACTS)
        device.prepare(entry(), {"a": buffer, "b": buffer})
        device.sync()
    message = caught.value.message
    assert message.startswith(f"{driver.api.symbol(driver.failing)} failed")
    assert about in message and hint in message and "ERROR_OF_ITS_KIND" in message and "\n" not in message


def test_a_refused_launch_is_what_is_said_and_leaves_nothing(driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffer = device.alloc(32)
    driver.failing = driver.launching
    with (
        pytest.raises(
            UserError, match=f"{driver.api.symbol(driver.failing)} failed for kernel first .*this many threads"
        ),
        closing(device),
    ):
        device.prepare(entry(), {"a": buffer, "b": buffer})
    assert driver.memory == {} and not driver.capturing
    assert len(driver.made("GraphDestroy")) == driver.alive["StreamEndCapture"]


def test_a_device_goes_on_after_a_refused_launch(driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffers = {"a": device.alloc(32), "b": device.alloc(32)}
    driver.failing = driver.launching
    with pytest.raises(UserError, match="kernel first"):
        device.prepare(entry(), buffers)
    driver.failing = None
    device.launch(device.prepare(entry(), buffers))
    device.sync()
    device.close()
    assert driver.memory == {}


def test_where_every_call_fails_from_then_on_the_first_failure_is_what_is_said(driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffer = device.alloc(32)
    device.launch_reading(device.prepare(entry(), {"a": buffer, "b": buffer}), buffer, np.empty(1, np.int32))()
    with pytest.raises(UserError, match=r"launch failed") as caught, closing(device):
        driver.failing = "*"
        raise UserError("launch failed")
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", ["MemFree", "GraphDestroy", "StreamSynchronize"])
def test_a_failing_close_tries_every_call_once_then_says_the_first_failure(name: str, driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffers = {"a": device.alloc(32), "b": device.alloc(32)}
    device.launch_reading(device.prepare(entry(), buffers), buffers["a"], np.empty(1, np.int32))()
    driver.failing = name
    driver.calls.clear()
    with pytest.raises(UserError, match=f"{driver.api.symbol(name)} failed"):
        device.close()
    expected = {"GraphExecDestroy": 1, "GraphDestroy": 1, "EventDestroy": READS_AHEAD, "ModuleUnload": 1}
    frees = {"MemFree": 2, "MemFreeHost": 1, **({"DevicePrimaryCtxRelease": 1} if driver.by_cuda else {})}
    assert Counter(driver.order()) == {"StreamSynchronize": 1, "StreamDestroy": 1, **expected, **frees}
    driver.calls.clear()
    device.close()
    assert driver.calls == []
