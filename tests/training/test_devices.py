"""Runs that several devices share: the losses of one, the same weights on each, and one message where one ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.tiny import begun, losses, train

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.training.run_folder import read_metrics
from lispgpt.runtime.training.trainer import Trainer
from lispgpt.training.evaluation import evaluate
from lispgpt.training.going_on import Run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent
NEAR = {"rtol": 1e-5, "atol": 1e-6}
SHARED: dict[str, Any] = {"steps": 30, "checkpoint_every": 10, "threads": 1, "patience": 60}
WORDS = ["tiny.lisp", "--data", "text.txt", "--vocab-size", "300", "--batch", "4", "--length", "8", "--lr", "0.3"]
WORDS += ["--eval-every", "0", "--threads", "1", "--steps", "30"]


@pytest.fixture(scope="module")
def alone(place: Path) -> list[float]:
    """The losses of one device."""
    begun(place, place / "alone", **SHARED)
    return losses(place / "alone")


def command(place: Path, *words: object, **environment: str) -> subprocess.Popen[str]:
    known = os.environ | {"LISPGPT_CACHE": str(place / "cache"), "PYTHONPATH": str(ROOT)} | environment
    pipe = subprocess.PIPE
    return subprocess.Popen(list(map(str, words)), cwd=place, env=known, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.drawn
@pytest.mark.parametrize("devices", [2, 4])
def test_devices_have_the_losses_of_one(place: Path, alone: list[float], devices: int) -> None:
    """At each checkpoint the run itself checks that the weights of all devices have the same bits."""
    run = place / f"shared-{devices}"
    begun(place, run, devices=devices, **SHARED)
    np.testing.assert_allclose(losses(run), alone, **NEAR)
    assert len(alone) == 30


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_of_mpi_have_the_losses_of_one(place: Path, alone: list[float], ranks: int) -> None:
    words = [sys.executable, "-m", "lispgpt", "train", *WORDS, "--run", f"mpi-{ranks}", "--patience", 300]
    process = command(place, BIN / "mpiexec", "-n", ranks, *words)
    out, err = process.communicate()
    assert process.returncode == 0 and out == "" and "together by MPICH" in err, err
    np.testing.assert_allclose(losses(place / f"mpi-{ranks}"), alone, **NEAR)
    assert len(alone) == 30


def test_a_run_goes_on_with_another_number_of_devices_and_of_states_on_each(place: Path, alone: list[float]) -> None:
    run = place / "changing"
    begun(place, run, devices=2, shard_optimizer=True, **(SHARED | {"steps": 12, "warmup": 3, "min_lr": 0.03}))
    train(run, place / "cache", resume=True, steps=21)
    train(run, place / "cache", resume=True, steps=30, devices=2, threads=1, shard_optimizer=True)
    np.testing.assert_allclose(losses(run), alone, **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [False, True])
def test_micro_batches_of_devices_are_those_of_one(place: Path, shares: bool) -> None:
    given = SHARED | {"accumulate": 2, "steps": 8}
    begun(place, place / f"micro-alone-{shares}", **given)
    begun(place, place / f"micro-{shares}", devices=2, shard_optimizer=shares, **given)
    np.testing.assert_allclose(losses(place / f"micro-{shares}"), losses(place / f"micro-alone-{shares}"), **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [False, True])
def test_gpt2_on_two_devices_learns_as_on_one(place: Path, shares: bool) -> None:
    sizes = {"layers": 2, "heads": 2, "width": 32, "weight-type": "f32"}
    given = SHARED | {"program": EXAMPLES / "gpt2_train.lisp", "settings": sizes, "length": 16, "lr": 3e-3}
    begun(place, place / f"gpt2-alone-{shares}", **given)
    begun(place, place / f"gpt2-{shares}", devices=2, shard_optimizer=shares, **given)
    np.testing.assert_allclose(losses(place / f"gpt2-{shares}"), losses(place / f"gpt2-alone-{shares}"), **NEAR)


@pytest.mark.parametrize(
    "does, said",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process of device 1 was ended by SIGKILL"),
        (lambda: time.sleep(1000), r"all_reduce of \d+ buffers, .* was not done within 2 s: rank 1 did not come"),
    ],
)
def test_a_device_that_ends_or_hangs_ends_all_and_the_run_goes_on(
    place: Path, alone: list[float], monkeypatch: pytest.MonkeyPatch, does: Any, said: str
) -> None:
    take = Trainer.step

    def step(self: Trainer, number: int, more: bool = False) -> dict[str, float]:
        if number == 17 and self.rank == 1:
            does()
        return take(self, number, more)

    run = place / f"ended-{len(said)}"
    with monkeypatch.context() as patched, pytest.raises(UserError, match=said):
        patched.setattr(Trainer, "step", step)
        begun(place, run, devices=2, **(SHARED | {"patience": 2}))
    assert [record["step"] for record in read_metrics(run)] == list(range(1, 17))
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000010"]
    train(run, place / "cache", resume=True, steps=20, threads=1)
    assert len(losses(run)) == 20


def test_devices_that_are_asked_to_end_do_so_after_the_same_step(place: Path, alone: list[float]) -> None:
    words = [sys.executable, "-m", "lispgpt", "train", *WORDS, "--steps", 100000, "--devices", 2, "--run", "asked"]
    process = command(place, *words)
    while len(read_metrics(place / "asked")) < 5 and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130 and "is kept; `lispgpt train --run asked --resume` goes on" in said
    last = read_metrics(place / "asked")[-1]["step"]
    assert (place / "asked" / "checkpoints" / f"step-{last:08}").is_dir()


@pytest.mark.slow
def test_evaluation_by_devices_is_that_of_one(place: Path, alone: list[float]) -> None:
    """Of so many tokens that the last batch has less than a sequence, and one device has none of it."""
    given = {"batch": 6, "length": 8, "cache": place / "cache", "threads": 1}
    one, three = (
        evaluate(place / "tiny.lisp", place / "alone", [place / "text.txt"], devices=devices, **given)
        for devices in (1, 3)
    )
    assert (one.correct, one.targets) == (three.correct, three.targets)
    assert abs(one.loss - three.loss) < 1e-5


def test_a_device_with_another_program_ends_all(
    place: Path, alone: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Run._facts

    def facts(self: Run, artifacts: Sequence[Artifact]) -> dict[str, Any]:
        return found(self, artifacts) | {"program": os.getpid()}

    monkeypatch.setattr(Run, "_facts", facts)
    with pytest.raises(UserError, match="differ before the first step: the program of rank 1 is not that of rank 0"):
        begun(place, place / "differing", devices=2, **SHARED)


def launched(place: Path, *of_each: Sequence[object]) -> list[subprocess.Popen[str]]:
    """Processes of a run that somebody else has started, with the words of each."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    given = {"WORLD_SIZE": str(len(of_each)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    given["XDG_CONFIG_HOME"] = str(place / "settings")
    start = [sys.executable, "-m", "lispgpt", "train"]
    return [command(place, *start, *words, RANK=str(n), LOCAL_RANK=str(n), **given) for n, words in enumerate(of_each)]


@pytest.mark.parametrize(
    "others,what",
    [
        (["tiny2.lisp", *WORDS[1:]], "program"),
        ([*WORDS, "--lr", "0.2"], "options"),
        ([*WORDS, "--set", "width=8"], "settings"),
    ],
)
def test_processes_that_were_given_different_words_end(place: Path, others: list[str], what: str) -> None:
    ranks = launched(place, [*WORDS, "--run", f"apart-{what}"], [*others, "--run", f"apart-{what}"])
    said = "".join(rank.communicate(timeout=300)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [1, 1]
    message = f"differ in what they were given: the {what} of rank 1 is not that of rank 0"
    assert said.count("error: ") == 1 and message in said, said


def test_processes_that_go_on_with_different_runs_end(place: Path, alone: list[float]) -> None:
    begun(place, place / "short", **(SHARED | {"steps": 12}))
    runs = [["--run", name, "--resume", "--steps", "40", "--threads", "1"] for name in ("alone", "short")]
    before = losses(place / "alone")
    ranks = launched(place, *runs)
    said = "".join(rank.communicate(timeout=300)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [1, 1]
    assert said.count("error: ") == 1 and "the step of rank 1 is not that of rank 0" in said, said
    assert losses(place / "alone") == before


def test_a_process_that_somebody_else_has_started_and_killed_ends_all(place: Path, alone: list[float]) -> None:
    words = [*WORDS, "--steps", "100000", "--run", "launched"]
    ranks = launched(place, words, words)
    while len(read_metrics(place / "launched")) < 5 and ranks[0].poll() is None:
        time.sleep(0.1)
    ranks[1].kill()
    said = ranks[0].communicate()[1]
    ranks[1].communicate()
    assert ranks[0].returncode == 1 and said.count("error: ") == 1, said
    assert "error: rank 1 has ended without a word" in said
