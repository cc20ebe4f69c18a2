"""Two GPUs of this machine: the losses of one, however their steps are begun, and an end where one of them ends.

On an emulated chip two processes of the CPU stand in for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from changed_pipelines import changed_pipeline
from gpu.chips import Chip
from gpu.decoding import EXAMPLES
from training.tiny import STEPS, losses, program_file, text_file

from lispgpt.base.errors import UserError
from lispgpt.pipelines.pipeline_file import PIPELINES
from lispgpt.runtime.devices import open_device

ROOT = Path(__file__).resolve().parents[2]
GPT2: dict[str, Any] = {"program": EXAMPLES / "gpt2_train.lisp", "lr": 3e-3, "length": 32}
SIZES = {"layers": 2, "heads": 2, "width": 64, "weight-type": "f32"}
BF16 = SIZES | {"weight-type": "bf16", "activation-type": "bf16"}


class Place:
    """target: of the devices.  folder: with the tiny program and a text."""

    def __init__(self, target: str, folder: Path) -> None:
        self.target, self.folder = target, folder
        program_file(folder)
        text_file(folder)

    def run(self, name: str, devices: int = 1, **given: Any) -> list[float]:
        """The losses of a run, which `begin` takes its words for."""
        done = self.begin(name, devices, **given)
        assert done.returncode == 0, done.stderr[-3000:]
        return losses(self.folder / name)

    def begin(
        self, name: str, devices: int = 1, late: bool = False, dies_at: int | None = None, pipelines: str = "",
        **given: Any,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        start: dict[str, Any] = {
            "program": self.folder / "tiny.lisp", "data": [str(self.folder / "text.txt")], "vocab_size": 300,
            "target": self.target, **STEPS, "steps": 20,
        }  # fmt: skip
        start = {} if given.get("resume") else start
        own = {"run": self.folder / name, "cache": self.folder / "cache", "devices": devices, "patience": 60}
        words = {"train": start | own | given, "late": late, "dies_at": dies_at, "pipelines": pipelines}
        command = [sys.executable, Path(__file__).with_name("several_devices.py"), json.dumps(words, default=str)]
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        known = os.environ | {"PYTHONPATH": paths}
        return subprocess.run(command, env=known, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def place(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> Place:
    if not chip.emulated:
        try:
            open_device(chip.target, index=1).close()
        except UserError as error:
            pytest.skip(f"two GPUs are needed: {error.message}")
    made = Place(chip.sized(chip.device, "cpu"), tmp_path_factory.mktemp("devices"))
    said = "" if chip.emulated else made.begin("first", 2, steps=1).stderr
    if "libnccl" in said or "librccl" in said:
        pytest.skip(said)
    return made


@pytest.mark.parametrize("shares", [False, True], ids=["", "shard-optimizer"])
@pytest.mark.parametrize("name", ["tiny", "gpt2"])
def test_two_devices_have_the_losses_of_one(name: str, shares: bool, place: Place) -> None:
    given = GPT2 | {"settings": SIZES} if name == "gpt2" else {}
    one = place.run(f"{name}-one-{shares}", **given)
    two = place.run(f"{name}-two-{shares}", 2, shard_optimizer=shares, **given)
    np.testing.assert_allclose(two, one, rtol=2e-3 if name == "gpt2" else 1e-4)
    assert len(one) == 20


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("shares", [False, True], ids=["", "shard-optimizer"])
def test_steps_that_begin_early_are_those_that_wait(accumulate: int, shares: bool, place: Place) -> None:
    """To the bit: with the numbers of the step ahead not read yet, of micro-batches too."""
    given = GPT2 | {"settings": BF16, "accumulate": accumulate, "shard_optimizer": shares}
    found = [place.run(f"early-{late}-{accumulate}-{shares}", 2, late=late, **given) for late in (False, True)]
    assert found[0] == found[1] and len(found[0]) == 20


def test_collectives_that_are_delayed_change_no_loss(place: Place, tmp_path: Path) -> None:
    for own in PIPELINES.iterdir():
        (tmp_path / own.name).write_text(own.read_text() if own.is_file() else "")
    changed_pipeline(tmp_path, {"delay-collectives": ':when "always"'})
    given = GPT2 | {"settings": BF16, "steps": 10}
    plain, delayed = (
        place.run(name, 2, pipelines=pipelines, cache=tmp_path / name, **given)
        for name, pipelines in (("plain", ""), ("delayed", str(tmp_path)))
    )
    assert plain == delayed


def test_a_device_that_is_killed_ends_all_and_the_run_goes_on(place: Place) -> None:
    whole = place.run("killed-not", 2, steps=20, checkpoint_every=5)
    done = place.begin("killed", 2, dies_at=13, steps=20, checkpoint_every=5)
    assert done.returncode == 1
    assert "the process of device 1 was ended by SIGKILL" in done.stderr and done.stderr.count("error:") == 1
    assert len(losses(place.folder / "killed")) in (11, 12)
    assert place.run("killed", 2, resume=True) == whole
