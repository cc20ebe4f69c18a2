"""Training on the GPU: the CPU's losses, the same ones each time, and runs that go on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.chips import Chip
from gpu.decoding import EXAMPLES
from training.tiny import STEPS, StopsAt, begun, begun_folder, losses, train

from lispgpt.training.runs import train as train_program

SIZES = {"layers": 2, "heads": 2, "width": 64}
BF16 = {"weight-type": "bf16", "activation-type": "bf16", "dropout-rate": 0.1}
GPT2: dict[str, Any] = {"program": EXAMPLES / "gpt2_train.lisp", "lr": 3e-3, "length": 32}
RUNS: dict[str, tuple[dict[str, Any], float]] = {
    "tiny": ({}, 1e-4),
    "tiny, micro-batches": ({"accumulate": 3}, 1e-4),
    "gpt2 f32": (GPT2 | {"settings": SIZES | {"weight-type": "f32"}}, 2e-3),
    "gpt2 bf16": (GPT2 | {"settings": SIZES | BF16}, 2e-2),
    "gpt2 bf16, micro-batches": (GPT2 | {"settings": SIZES | BF16, "accumulate": 2}, 2e-2),
}
"""What a run is told, and how far its losses may be from the CPU's, beside their size."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny program, a text, and what was compiled."""
    return begun_folder(tmp_path_factory.mktemp("tiny"))


def told(name: str, chip: Chip) -> dict[str, Any]:
    given = {"steps": chip.sized(20, 2), **RUNS[name][0]}
    return given if not chip.emulated else given | {"batch": 2, "length": min(given.get("length", 8), 8)}


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_the_cpus_and_the_same_each_time(name: str, chip: Chip, place: Path, tmp_path: Path) -> None:
    given, near = told(name, chip), RUNS[name][1]
    for number in range(2):
        begun(place, tmp_path / f"gpu{number}", target=chip.device, **given)
    begun(place, tmp_path / "cpu", **given)
    ours, again, right = (losses(tmp_path / run) for run in ("gpu0", "gpu1", "cpu"))
    assert ours == again
    np.testing.assert_allclose(ours, right, rtol=near)
    assert chip.emulated or np.mean(right[-3:]) < 0.9 * right[0], "it learns nothing, so that there is nothing to see"


@pytest.mark.parametrize("name", ["tiny, micro-batches", "gpt2 bf16"])
def test_a_run_that_is_interrupted_goes_on_bit_for_bit(name: str, chip: Chip, place: Path, tmp_path: Path) -> None:
    given = STEPS | told(name, chip) | {"steps": chip.sized(30, 3)}
    begun(place, tmp_path / "whole", target=chip.device, **given)
    start = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300, "target": chip.device}
    run, cache = tmp_path / "run", place / "cache"
    outcome = train_program(run=run, cache=cache, watcher=StopsAt(chip.sized(13, 1)), **(start | given))
    assert outcome.interrupted
    train(run, cache, resume=True)
    assert losses(run) == losses(tmp_path / "whole")
