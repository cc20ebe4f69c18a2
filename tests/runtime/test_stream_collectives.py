"""NCCL and RCCL on libraries made here: what is called with what, in which order, and what comes of failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import KINDS, collective, together
from gpu_drivers import FACTS, StandIn, entry, opened
from nccl_library import Nccl

from lispgpt.runtime.collectives import nccl, open_engine, streams
from lispgpt.runtime.collectives.beside import prepare
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.plan.steps import ALL_GATHER, ALL_REDUCE, ALL_SLICE, OPERATIONS, REDUCE_SCATTER

FUNCTION = {
    "all_reduce": "ncclAllReduce",
    "all_reduce_max": "ncclAllReduce",
    "all_reduce_min": "ncclAllReduce",
    "broadcast": "ncclBroadcast",
    "all_gather": "ncclAllGather",
    "reduce_scatter": "ncclReduceScatter",
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Nccl:
    made = Nccl(2)

    def load(file: str) -> Nccl:
        if not file.endswith(made.file):
            raise OSError(file)
        return made

    monkeypatch.setattr(streams, "load_library", load)
    return made


def target(driver: StandIn) -> str:
    return "cuda:sm_90a" if driver.by_cuda else "rocm:gfx1151"


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_ranks_exchange_arrays(driver: StandIn, library: Nccl, operation: str, dtype: str) -> None:
    rng = seeded.rng()
    sizes = [2 * int(n) for n in rng.integers(1, 40, 3)]
    given = [[(rng.normal(size=n) * 100).astype(KINDS[dtype]) for n in sizes] for _ in range(2)]
    step = collective(operation, 2, sizes, dtype)
    places = [[device_memory(driver, n) for n in sizes] for _ in range(2)]
    driver.calls.clear()

    def work(peers: Peers) -> tuple[str, list[np.ndarray]]:
        rank = peers.place.rank
        device = opened(driver, rank)
        engine = open_engine(target(driver), device, peers)
        buffers = {f"{n}{p}": places[rank][n][p == "p"] for n in range(len(sizes)) for p in ("", "p")}
        for number, array in enumerate(given[rank]):
            own = array.size // 2
            part = operation == ALL_GATHER
            source = array[rank * own : (rank + 1) * own] if part else array
            device.copy_in(buffers[f"{number}{'p' * part}"], source)
        engine.wait(engine.start(engine.prepare(step, buffers)))
        engine.settle()
        found = []
        for number, size in enumerate(sizes):
            part = operation in (REDUCE_SCATTER, ALL_SLICE)
            array = np.empty(size // 2 if part else size, KINDS[dtype])
            device.copy_out(buffers[f"{number}{'p' * part}"], array)
            found.append(array)
        engine.close()
        return engine.name, found

    names, found = zip(*together(2, work), strict=True)
    assert names == (("NCCL" if driver.by_cuda else "RCCL") + " 2.27.5",) * 2
    for number, size in enumerate(sizes):
        first, second = (given[rank][number] for rank in range(2))
        half = size // 2
        expected = {
            "all_reduce": [first + second] * 2,
            "all_reduce_max": [np.maximum(first, second)] * 2,
            "all_reduce_min": [np.minimum(first, second)] * 2,
            "broadcast": [first] * 2,
            "all_gather": [np.concatenate([first[:half], second[half:]])] * 2,
            "reduce_scatter": [(first + second)[:half], (first + second)[half:]],
            "all_slice": [first[:half], second[half:]],
        }[operation]
        for rank in range(2):
            np.testing.assert_array_equal(found[rank][number], expected[rank])
    for rank in range(2):
        order = [name for name in library.order(rank) if name != "ncclCommGetAsyncError"]
        made = ["ncclGroupStart", *[FUNCTION[operation]] * 3, "ncclGroupEnd"] if operation in FUNCTION else []
        assert order == [*made, "ncclCommDestroy"]
    if operation == ALL_SLICE:  # which no other rank is asked for
        side = [given for given in driver.made("MemcpyDtoDAsync") if given.size in (2 * size for size in sizes)]
        assert len(side) == 6
        return
    kinds = {known["kind"] for _, name, known in library.calls if name == FUNCTION[operation]}
    assert kinds == {{"f32": 7, "i32": 2}[dtype]}


def device_memory(driver: StandIn, size: int) -> tuple[int, int]:
    """Of a whole array, and of a part of it."""
    device: Any = opened(driver)
    return device.alloc(4 * size), device.alloc(2 * size)


def test_collectives_run_on_a_stream_beside_the_kernels(driver: StandIn, library: Nccl) -> None:
    first, second, third = entry().launches
    step = collective(ALL_REDUCE, 2, [8], "f32")

    def work(peers: Peers) -> list[tuple[str, str]]:
        device = opened(driver, 0)
        engine: Any = open_engine(target(driver), device, peers)
        buffers = {name: device.alloc(64) for name in ("a", "b", "0")}
        if peers.place.rank:
            engine.wait(engine.start(engine.prepare(step, buffers)))
            return []
        device.load(b"code", FACTS)
        made = prepare(
            replace(entry(), steps=(first, step, second, third)),
            lambda launches: device.prepare(launches, buffers),
            lambda step: engine.prepare(step, buffers),
        )
        began = len(driver.calls)
        made.run(device, engine)
        streams = {id(device._stream): "own", id(engine._side._stream): "beside"}
        known = ("GraphLaunch", "EventRecord", "StreamWaitEvent")
        calls = [(name, id(given.stream)) for name, given in driver.calls[began:] if name in known]
        return [(name, streams[stream]) for name, stream in calls if stream in streams]

    order, _ = together(2, work)
    assert order == [
        ("GraphLaunch", "own"),
        ("EventRecord", "own"),
        ("StreamWaitEvent", "beside"),
        ("EventRecord", "beside"),
        ("GraphLaunch", "own"),
        ("StreamWaitEvent", "own"),
    ]


def test_a_step_is_waited_for_while_the_next_one_runs(driver: StandIn, library: Nccl) -> None:
    """Each run of a step has an event that runs behind it leave alone until somebody has waited for it."""
    step = collective(ALL_REDUCE, 2, [8], "f32")

    def work(peers: Peers) -> tuple[list[int], list[list[int]]]:
        device = opened(driver, peers.place.rank)
        engine: Any = open_engine(target(driver), device, peers)
        prepared = engine.prepare(step, {"0": device.alloc(32)})
        marks, events, queried = [], [], []
        for _ in range(4):
            begun = engine.start(prepared)
            events.append(begun.done)
            marks.append(engine.mark())
        for mark in marks:
            engine.settle(mark)
            queried.append([other.number for other in engine._under_way])
        assert len(set(events)) == 4
        again = [engine.start(prepared).done for _ in range(5)]
        assert set(events) < set(again) and len(set(again)) == 5
        engine.settle()
        return marks, queried

    assert together(2, work) == [([1, 2, 3, 4], [[2, 3, 4], [3, 4], [4], []])] * 2


def test_failures_name_the_call_and_end_the_communicator(driver: StandIn, library: Nccl) -> None:
    library.failing = "ncclCommInitRank"

    def work(peers: Peers) -> None:
        open_engine(target(driver), opened(driver), peers)

    assert "ncclCommInitRank failed with made to fail (3)" in {error.message for error in together(2, work)}.pop()
    library.failing, library.asynchronous = "", 6

    def fail_later(peers: Peers) -> None:
        device = opened(driver)
        engine = open_engine(target(driver), device, peers)
        engine.start(engine.prepare(collective(ALL_REDUCE, 2, [8], "f32"), {"0": device.alloc(32)}))
        engine.settle()

    said = {error.message for error in together(2, fail_later)}
    assert len(said) == 1 and "by 2 devices failed with made to fail (6)" in said.pop()
    assert "ncclCommAbort" in library.order(0) and "ncclCommAbort" in library.order(1)


def test_a_library_or_a_device_that_is_not_there_is_named(driver: StandIn, library: Nccl, tmp_path: Path) -> None:
    def refuse(file: str) -> Any:
        raise OSError(file)

    def work(peers: Peers) -> None:
        open_engine(target(driver), opened(driver), peers)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams, "load_library", refuse)
        said = {error.message for error in together(2, work)}
    name, advice = ("libnccl.so.2", "pip install") if driver.by_cuda else ("librccl.so", "install ROCm's rccl")
    assert len(said) == 1 and name in (message := said.pop()) and advice in message

    def other(peers: Peers) -> None:
        open_engine("cpu", opened(driver), peers, "rccl" if driver.by_cuda else "nccl")

    assert "GPUs, and not for" in {error.message for error in together(2, other)}.pop()

    def unknown(peers: Peers) -> None:
        open_engine("cpu", opened(driver), peers, "none")

    said = {error.message for error in together(2, unknown)}
    assert said == {"there is no engine 'none' for collectives; there are local, mpi, nccl, rccl"}


def test_the_packages_library_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia" / "nccl" / "lib").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert nccl._of_packages() == [str(tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2")]
