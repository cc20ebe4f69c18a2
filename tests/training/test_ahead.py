"""Steps that start before the numbers of those ahead are read, on several devices and of several micro-batches."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import together
from safetensors.numpy import load_file
from training.test_devices import BIN, WORDS, command
from training.tiny import begun, losses, train

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.training.last_step import LastStep
from lispgpt.runtime.training.run_folder import read_metrics
from lispgpt.runtime.training.trainer import Trainer

AHEAD = (
    "from lispgpt.cli.main import main\n"
    "from lispgpt.runtime.training.trainer import Trainer\n"
    "Trainer.runs_ahead = True\n"
    "raise SystemExit(main())\n"
)
"""A process whose steps start ahead, as those of GPUs do."""


def starts(monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    monkeypatch.setattr(Trainer, "runs_ahead", ahead)


def kept(run: Path) -> dict[str, dict[str, np.ndarray]]:
    """What the checkpoints of a run hold, by file."""
    return {
        str(file.relative_to(run)): load_file(file) for file in sorted((run / "checkpoints").rglob("*.safetensors"))
    }


def assert_same(ours: Path, theirs: Path) -> None:
    """Two runs have the same records, but for their speed, and the same bits in their checkpoints."""
    records = [
        [{k: v for k, v in r.items() if k != "tokens_per_s"} for r in read_metrics(run)] for run in (ours, theirs)
    ]
    assert records[0] == records[1]
    files, others = kept(ours), kept(theirs)
    assert files.keys() == others.keys() and files
    for file, arrays in files.items():
        assert arrays.keys() == others[file].keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, others[file][name], err_msg=f"{file}: {name}")


@pytest.mark.drawn
@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"devices": 2}, marks=pytest.mark.slow),
        pytest.param({"accumulate": 3}, marks=pytest.mark.slow),
        {"devices": 2, "accumulate": 2, "shard_optimizer": True},
        pytest.param({"devices": 4, "accumulate": 2}, marks=pytest.mark.slow),
        pytest.param({"devices": 2, "target": "emulated:gfx1151", "batch": 2, "length": 4}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_starting_ahead_changes_no_bit(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """Evaluations, samples and checkpoints fall on different steps, and a resume on another."""
    words = {"steps": 9, "checkpoint_every": 4, "eval_every": 3, "eval_batches": 2, "sample_every": 5, "keep": 9}
    words |= {"sample_tokens": 4, "threads": 1, "patience": 60, "seed": seeded.fresh_seed(), **given}
    for name, ahead in (("ahead", True), ("alone", False)):
        starts(monkeypatch, ahead)
        begun(place, tmp_path / name, **words)
        more = {name: value for name, value in words.items() if name in ("devices", "shard_optimizer", "threads")}
        train(tmp_path / name, place / "cache", resume=True, steps=11, **more)
    assert len(losses(tmp_path / "ahead")) == 11
    assert_same(tmp_path / "ahead", tmp_path / "alone")


def test_micro_batches_start_before_the_losses_of_those_ahead_are_read(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Any] = []
    begin = Trainer._begin

    def traced(self: Trainer, number: int, run: int) -> None:
        begin(self, number, run)
        order.append((number, run))
        (_, waits) = self._begun or (None, {})
        for name, wait in list(waits.items()):
            waits[name] = lambda wait=wait, name=name: (order.append(name), wait())[1]

    monkeypatch.setattr(Trainer, "_begin", traced)
    starts(monkeypatch, True)
    begun(place, tmp_path / "run", accumulate=2, steps=2)
    end = ["grad-norm", "lr"]
    assert [what for what in order if what in ("loss", *end) or isinstance(what, tuple)] == [
        *[(1, 0), (1, 1), "loss", (1, 2), "loss", (2, 0), *end],
        *[(2, 1), "loss", (2, 2), "loss", *end],
    ]


class Steps:
    """Steps of processes that are threads: each ends once all have begun it, and they begin as late as they like.

    asks: the rank that is asked to end, and behind which step.
    """

    def __init__(self, size: int, steps: int, ahead: bool, asks: tuple[int, int], rng: random.Random) -> None:
        self._steps, self._ahead, self._asks, self._rng = steps, ahead, asks, rng
        self._begun, self._news = [0] * size, threading.Condition()

    def take(self, peers: Peers | None) -> tuple[int, int]:
        """The last step, and the last that was begun."""
        rank, number = 0 if peers is None else peers.place.rank, 0
        if peers is not None:
            peers.gather("before the first step", None)  # as runs do, so that all are known to the hub
        ends = LastStep(self._steps, lambda: rank == self._asks[0] and number >= self._asks[1], peers, int(self._ahead))
        while number < ends.number:
            number += 1
            more = self._ahead and number < ends.look(number) and number % 5 != 0
            for step in (number, number + 1)[: 1 + more]:
                self._begin(rank, step)
            with self._news:
                assert self._news.wait_for(lambda step=number: min(self._begun) >= step, 20), (
                    "others begin no such step"
                )
            ends.look(number + more)
        return number, self._begun[rank]

    def _begin(self, rank: int, step: int) -> None:
        time.sleep(self._rng.choice([0, 0, 0.003, 0.01]))
        with self._news:
            self._begun[rank] = max(self._begun[rank], step)
            self._news.notify_all()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("ahead", [False, True])
def test_all_processes_end_with_the_same_step(size: int, ahead: bool) -> None:
    rng = random.Random(seeded.fresh_seed())
    for _ in range(3):
        asks, most = (rng.randrange(size), rng.randint(0, 6)), rng.choice([12, 10**6])
        steps = Steps(size, most, ahead, asks, rng)
        found = together(size, steps.take) if size > 1 else [steps.take(None)]
        assert len(set(found)) == 1 and found[0][0] == found[0][1] <= most, found
        assert found[0][0] >= asks[1] and (asks[0] or found[0][0] <= max(asks[1], 1) + 4), (asks, found)


@pytest.mark.drawn
@pytest.mark.parametrize(
    "does, said",
    [
        (lambda: signal.raise_signal(signal.SIGKILL), "the process of device 1 was ended by SIGKILL"),
        (lambda: time.sleep(1000), r"all_reduce of \d+ buffers, .* was not done within 5 s: rank 1 did not come"),
    ],
)
def test_a_device_that_ends_or_hangs_is_named_where_others_are_ahead(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Callable[[], None], said: str
) -> None:
    begin = Trainer._begin

    def stops(self: Trainer, number: int, run: int) -> None:
        if number == 8 and self.rank == 1:
            does()
        begin(self, number, run)

    starts(monkeypatch, True)
    words = {"devices": 2, "steps": 30, "checkpoint_every": 5, "threads": 1, "patience": 5}
    with monkeypatch.context() as patched, pytest.raises(UserError, match=said):
        patched.setattr(Trainer, "_begin", stops)
        begun(place, tmp_path / "run", **words)
    assert [record["step"] for record in read_metrics(tmp_path / "run")] in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7])
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000005"]
    train(tmp_path / "run", place / "cache", resume=True, steps=12, threads=1)
    assert len(losses(tmp_path / "run")) == 12


def interrupted(place: Path, run: str, *start: object) -> str:
    """What a run says that is asked to end after its first steps."""
    process: subprocess.Popen[str] = command(place, *start, "train", *WORDS, "--steps", 100000, "--run", run)
    while len(read_metrics(place / run)) < 5 and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate()
    assert f"`lispgpt train --run {run} --resume` goes on" in said, out + said
    return said


def test_devices_that_are_ahead_end_after_the_same_step_and_go_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the checkpoint that the interrupt leaves, the run checks that all weights have the same bits."""
    script = place / "ahead.py"
    script.write_text(AHEAD)
    words = [sys.executable, script]
    assert "is kept" in interrupted(place, "cut", *words)
    process = command(place, *words, "train", *WORDS, "--steps", 100000, "--devices", 2, "--run", "cut2")
    while len(read_metrics(place / "cut2")) < 5 and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    last = read_metrics(place / "cut2")[-1]["step"]
    assert (place / "cut2" / "checkpoints" / f"step-{last:08}").is_dir()
    starts(monkeypatch, False)
    begun(place, place / "whole", devices=2, steps=last + 3, threads=1)
    train(place / "cut2", place / "cache", resume=True, devices=2, steps=last + 3, threads=1)
    assert losses(place / "cut2") == losses(place / "whole")


@pytest.mark.slow
def test_processes_of_mpi_start_ahead(place: Path) -> None:
    script = place / "ahead.py"
    script.write_text(AHEAD)
    start = [BIN / "mpiexec", "-n", 2, sys.executable]
    for run, program in (("mpi-ahead", [script]), ("mpi-alone", ["-m", "lispgpt"])):
        process = command(place, *start, *program, "train", *WORDS, "--checkpoint-every", 10, "--run", run)
        out, err = process.communicate()
        assert process.returncode == 0, out + err
    assert_same(place / "mpi-ahead", place / "mpi-alone")
