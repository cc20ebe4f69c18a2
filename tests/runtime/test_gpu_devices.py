"""Both vendors' devices on drivers made here: what is called with what, in which order, and what comes of failures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from gpu_drivers import FACTS, StandIn, entry, opened, together

from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.fresh import ask_in_child
from lispgpt.passes.targets import GPU_CHIPS
from lispgpt.runtime.devices import cuda, rocm, wake_driver
from lispgpt.runtime.devices.base import READS_AHEAD


def test_names_and_targets(driver: StandIn) -> None:
    module = cuda if driver.by_cuda else rocm
    assert module.missing() is None
    assert module.installed_target() == ("cuda:sm_90a" if module is cuda else "rocm:gfx1151")
    assert opened(driver, 1).name == ("NVIDIA Made (sm_90)" if module is cuda else "AMD Made (gfx1151)")
    assert driver.made("DeviceGet", "DeviceSet")[-1].ordinal == 1
    with pytest.raises(UserError, match="GPU number 2: the driver finds 2"):
        opened(driver, 2)


def test_ptx_for_an_older_gpu_serves_newer_ones() -> None:
    found = {capability: cuda.target_for(*capability) for capability in [(8, 0), (8, 9), (9, 0), (10, 0), (12, 1)]}
    assert list(found.values()) == ["cuda:sm_80", "cuda:sm_80", "cuda:sm_90a", "cuda:sm_90", "cuda:sm_90"]
    assert set(found.values()) == {f"cuda:{chip}" for chip in GPU_CHIPS["cuda"]}


def test_runs_by_one_launch_each_begin_when_the_one_before_has_ended(driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffers = {"a": device.alloc(32), "b": device.alloc(32), "c": device.alloc(64)}
    moved = tuple(replace(a, buffer="c", offset=a.offset + 32) for a in entry().launches[1].arguments)
    second = replace(entry(), steps=(entry().launches[0], replace(entry().launches[1], arguments=moved)))
    driver.calls.clear()
    device.prepare_runs([entry(), second], buffers)
    launches = driver.made(driver.launching)
    assert driver.order().count("GraphInstantiate") == 1 and len(launches) == 5
    assert [given.addresses[-1] for given in launches[3:]] == [buffers["b"], buffers["c"] + 48]
    if driver.by_cuda:
        assert [bool(given.attributes) for given in launches] == [False, True, True, False, True]


def test_a_copy_that_fails_says_that_a_kernel_may_have(driver: StandIn) -> None:
    device, array = opened(driver), np.zeros(2, np.int32)
    buffer = device.alloc(8)
    device.copy_in(buffer, array)
    driver.failing = "*"
    for copy in (device.copy_in, device.copy_out):
        with pytest.raises(
            UserError, match=r"Memcpy\w*Async\w* failed .*: a kernel launched before it may have failed"
        ):
            copy(buffer, array)


def test_an_entry_is_captured_in_order_with_its_addresses(driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffers = {"a": device.alloc(32), "b": device.alloc(32)}
    driver.calls.clear()
    executable = device.prepare(entry(), buffers)
    launch = driver.launching
    instantiate = ["GraphInstantiate", *(["GraphUpload"] if driver.by_cuda else [])]
    assert driver.order() == ["StreamBeginCapture", launch, launch, launch, "StreamEndCapture", *instantiate]
    assert driver.api.words("StreamBeginCapture")[1].replace("_", "").lower().endswith("threadlocal"), (
        "what other threads do meanwhile is not captured"
    )
    for given, made in zip(driver.made(launch), entry().launches, strict=True):
        addresses = [buffers[a.buffer] + a.offset for a in made.arguments]
        assert given.addresses == addresses
        assert (given.grid, given.block, given.shared) == (made.grid, made.block, made.shared_bytes)
        assert given.stream == device._stream
    functions = [given.function for given in driver.made(launch)]
    assert functions[0] == functions[2] != functions[1]
    device.launch(executable)
    assert driver.calls[-1][0] == "GraphLaunch"


def test_cuda_starts_kernels_early_behind_the_first_and_asks_for_much_shared_memory(driver: StandIn) -> None:
    if not driver.by_cuda:
        pytest.skip("AMD GPUs have neither")
    device = opened(driver)
    device.load(b"code", {**FACTS, "second": {"early_launch": False, "shared_bytes": 60000}})
    (asked,) = driver.made("SetDynamicSharedBytes")
    assert asked.value == 60000
    device.prepare(entry(), {"a": 0, "b": 0})
    attributes = [given.attributes for given in driver.made("LaunchKernelEx")]
    assert attributes == [[], [], [("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", 1)]]


@pytest.mark.parametrize("slow", [False, True])
def test_reads_are_those_of_their_own_launch_however_many_are_ahead(slow: bool, driver: StandIn) -> None:
    driver.slow = slow
    device = opened(driver)
    device.load(b"code", FACTS)
    buffer = device.alloc(4)
    executable = device.prepare(entry(), {"a": buffer, "b": buffer})
    driver.when_launched = lambda: ctypes.cast(buffer, ctypes.POINTER(ctypes.c_int32)).__setitem__(0, next(values))
    values = iter(range(1000))
    waiting: list[Callable[[], np.ndarray]] = []
    found = []
    for _ in range(3 * READS_AHEAD):
        while len(waiting) < READS_AHEAD:
            waiting.append(device.launch_reading(executable, buffer, np.empty(1, np.int32)))
        found.append(int(waiting.pop(0)()[0]))
    assert found == list(range(3 * READS_AHEAD))
    assert len(driver.made("MemAllocHost")) == 1 and len(driver.made("EventCreate")) == READS_AHEAD
    start = driver.order().index("GraphLaunch")
    assert driver.order()[start : start + 3] == ["GraphLaunch", "MemcpyDtoHAsync", "EventRecord"]
    with pytest.raises(UserError, match="24,000 bytes is too large"):
        device.launch_reading(executable, buffer, np.empty(3000, np.float64))


def test_closing_gives_everything_back_once(driver: StandIn) -> None:
    device = opened(driver)
    device.load(b"code", FACTS)
    buffer = device.adopt(np.zeros(4, np.int32))
    executables = [device.prepare(entry(), {"a": buffer, "b": buffer}) for _ in range(2)]
    device.launch_reading(executables[0], buffer, np.empty(1, np.int32))()
    device.alloc(10)
    driver.calls.clear()
    device.close()
    assert driver.memory == {}
    assert [given.executable for given in driver.made("GraphExecDestroy")] == executables[::-1]
    assert len({given.graph for given in driver.made("GraphDestroy")}) == 2
    assert len({given.event for given in driver.made("EventDestroy")}) == READS_AHEAD
    assert driver.order()[-2 - driver.by_cuda :][:2] == ["ModuleUnload", "StreamDestroy"]
    assert len(driver.made("ModuleUnload")) == len(driver.made("StreamDestroy")) == 1
    assert len(driver.made("DevicePrimaryCtxRelease")) == driver.by_cuda
    driver.calls.clear()
    device.close()
    assert driver.calls == []


def test_closing_waits_for_steps_under_way(driver: StandIn) -> None:
    driver.slow = True
    device = opened(driver)
    device.load(b"code", FACTS)
    buffer = device.alloc(4)
    device.launch_reading(device.prepare(entry(), {"a": buffer, "b": buffer}), buffer, np.empty(1, np.int32))
    device.close()
    assert driver.memory == {} and driver.under_way == []


def test_a_fork_of_a_process_that_has_used_a_driver_does_not_use_it(driver: StandIn) -> None:
    opened(driver)

    def again() -> str:
        with pytest.raises(InternalError, match="was used before this process was forked"):
            opened(driver)
        return "refused"

    assert ask_in_child(again) == "refused"


def test_code_in_pieces_is_compiled_piece_by_piece_and_searched(driver: StandIn) -> None:
    if not driver.by_cuda:
        pytest.skip("AMD's code is one piece")
    device = opened(driver)
    pieces = [b".version 8.0\n.entry first\n", b".version 8.0\n.entry second\n", b".version 8.0\n.entry no\n"]
    device.load(b"// from LLVM\n" + b"".join(pieces), FACTS)
    assert sorted(driver.texts.values()) == sorted(pieces)
    device.prepare(entry(), {"a": 0, "b": 0})
    made = {driver.functions[given.function]: given.function for given in driver.made(driver.launching)}
    by_name = {given.name: driver.texts[given.module] for given in driver.made("ModuleGetFunction")}
    assert set(made) == {"first", "second"} and b"second" in by_name[b"second"]
    with pytest.raises(UserError, match=r"kernel third.*damaged"):
        device.load(b"".join(pieces), {"third": {}})
    device.close()
    assert driver.alive["ModuleLoadDataEx"] == len(driver.made("ModuleUnload")) == 6


def test_the_chips_own_code_is_taken_where_the_driver_takes_it(driver: StandIn) -> None:
    if not driver.by_cuda:
        pytest.skip("AMD's code is the chip's own")
    device = opened(driver)
    ptx = b".version 8.0\n.entry first\n.entry second\n"
    device.load(ptx, FACTS, objects=[b"cubin of first", b"cubin of second"])
    assert sorted(driver.texts.values()) == [b"cubin of first", b"cubin of second"]
    driver.texts.clear()
    driver.failing = "ModuleLoadData"
    device.load(ptx, FACTS, objects=[b"cubin of first", b"cubin of second"])
    assert list(driver.texts.values()) == [ptx.rstrip(b"\0")]
    driver.failing = None
    device.close()
    assert driver.alive["ModuleLoadDataEx"] + driver.alive["ModuleLoadData"] == len(driver.made("ModuleUnload")) == 3


def test_a_driver_is_woken_while_the_compiler_works(driver: StandIn) -> None:
    wake_driver("cuda:sm_90" if driver.by_cuda else "rocm:gfx1151")
    assert driver.order() == ["Init"]
    driver.failing = "Init"
    wake_driver("cuda:sm_90" if driver.by_cuda else "rocm:gfx1151")
    wake_driver("cpu")
    wake_driver("emulated:gfx1151")
    assert driver.order() == ["Init", "Init"]


@pytest.mark.parametrize(("cluster", "blocks"), [(1, 5), (1, 640), (8, 120)])
def test_blocks_that_wait_for_each_other_are_as_many_as_fit(driver: StandIn, cluster: int, blocks: int) -> None:
    if cluster > 1 and not driver.by_cuda:
        pytest.skip("AMD's blocks run in no clusters")
    driver.kernels = {"first": 2, "walk": 1}
    device, (facts, wanted) = opened(driver), together(cluster, blocks)
    device.load(b"code", facts)
    device.prepare(wanted, {"a": 0, "b": 64})
    launch = driver.made(driver.launching)[-1]
    assert launch.grid == (min(blocks, 6 if cluster == 1 else 8), 1, 1)
    assert not driver.by_cuda or not launch.attributes, "it must not start before what is ahead of it has ended"


def test_a_gpu_that_holds_none_of_them_is_named(driver: StandIn) -> None:
    driver.counts["OccupancyBlocks"] = 0
    driver.kernels = {"first": 2, "walk": 1}
    device, (facts, wanted) = opened(driver), together(1, 5)
    device.load(b"code", facts)
    with pytest.raises(UserError, match=r"Made \(.*\) holds no block of kernel walk"):
        device.prepare(wanted, {"a": 0, "b": 64})
