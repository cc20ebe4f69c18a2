"""Training on GPUs that come as late as they may, alone and together: the bits of a CPU's runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import seeded
from collective_steps import together
from late_gpu import LateNccl, late_gpu
from training.test_ahead import assert_same
from training.tiny import STEPS, begun, train

from lispgpt.execution import opening
from lispgpt.runtime.collectives import streams
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.training.trainer import Trainer

WORDS = {"steps": 9, "checkpoint_every": 4, "eval_every": 3, "eval_batches": 3, "sample_every": 5, "sample_tokens": 4}
WORDS |= {"keep": 9, "threads": 1}


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step could start ahead."""
    said: list[bool] = []
    begin = Trainer._begin

    def noted(self: Trainer, number: int, run: int) -> None:
        said.append(self.runs_ahead)
        begin(self, number, run)

    monkeypatch.setattr(Trainer, "_begin", noted)
    return said


def on_late_gpus(patch: pytest.MonkeyPatch, hurry: float) -> None:
    """Have two threads train on devices of their own, by a library of collectives that comes as late."""
    library, one = LateNccl(2), threading.Lock()
    patch.setattr(streams, "load_library", lambda _: library)

    def open_shared(*given: Any) -> tuple[Device, streams.StreamEngine]:
        peers: Peers = given[4]
        with one:
            device = late_gpu(patch, hurry, peers.place.rank)
        library.is_of(device)
        return device, streams.StreamEngine(device, peers, streams.Library("NCCL", ["libnccl.so.2"], ""))

    patch.setattr(opening, "open_shared", open_shared)


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_late_gpu_trains_as_a_cpu_does(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: list[bool], accumulate: int
) -> None:
    words: dict[str, Any] = {**WORDS, "accumulate": accumulate, "seed": seeded.fresh_seed()}
    begun(place, tmp_path / "cpu", **words)
    assert not any(ahead)
    for hurry in (0.0, 0.5):
        with monkeypatch.context() as patch:
            patch.setattr(opening, "open_device", lambda *_, p=patch, hurry=hurry: late_gpu(p, hurry, 1))
            begun(place, tmp_path / f"late-{hurry}", **words)
        assert_same(tmp_path / f"late-{hurry}", tmp_path / "cpu")
    assert any(ahead)


@pytest.mark.parametrize(
    "given", [pytest.param({}, marks=pytest.mark.slow), {"accumulate": 2, "shard_optimizer": True}], ids=str
)
def test_late_gpus_train_together_as_cpus_do(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: list[bool], given: dict[str, Any]
) -> None:
    words: dict[str, Any] = {**WORDS, "seed": seeded.fresh_seed(), **given}
    begun(place, tmp_path / "cpus", devices=2, **words)
    start = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300, **STEPS, **words}
    for hurry in (0.0, 0.5):
        run = tmp_path / f"late-{hurry}"

        def work(peers: Peers, run: Path = run) -> int:
            outcome, _ = train(run, place / "cache", peers=peers, **start)
            peers.finish()
            return outcome.step

        with monkeypatch.context() as patch:
            on_late_gpus(patch, hurry)
            assert together(2, work) == [9, 9]
        assert_same(run, tmp_path / "cpus")
    assert all(ahead)
