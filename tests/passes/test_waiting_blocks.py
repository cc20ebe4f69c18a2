"""Blocks that wait for each other, in random turns: right whatever the turns are, and wrong once a wait is left out."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import seeded
from compiled_models import Weights, random_weights
from emulated_cuda.device import EmulatedCuda
from one_launch import compiled

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

LABEL, WAY = re.compile(r"^(\$L__BB\w+):"), re.compile(r"^\s*@!?%p\d+ bra(?:\.uni)?\s+(\$L__BB\w+);")


def ways_back(lines: list[str]) -> list[int]:
    """The lines by which a thread goes back to look again at a signal that is not as far as it has to be."""
    found, label, looks = [], "", 0
    for number, line in enumerate(lines):
        if match := LABEL.match(line):
            label, looks = match[1], 0
        looks += "ld.relaxed.gpu.global" in line
        way = WAY.match(line)
        if way and way[1] == label and looks:
            found.append(number)
    return found


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Weights, np.ndarray]:
    """Decode steps of five blocks, weights, and what they make when all blocks go in step."""
    folder = tmp_path_factory.mktemp("walked")
    artifact = compiled("gpt2", "cuda:sm_80", folder, ':when "always" :workers 5', layers=2, vocab=97)
    weights = random_weights(artifact, scale=0.2)
    return artifact, weights, run(artifact, weights, 0)


def run(artifact: Artifact, weights: Weights, seed: int) -> np.ndarray:
    """What two steps leave: logits, tokens, the inputs of the next step.  seed: of the blocks' turns."""
    with Session(artifact, EmulatedCuda(seed), weights) as session:  # type: ignore[arg-type]
        (entry,) = artifact.plan.entries
        session.put(entry, {"tokens": [[3]], "positions": [[0]]})
        tokens = list(session.repeat(entry, "next", 2))  # in one launch
        assert not session.read("signals").any()
        left = [session.read(place).reshape(-1) for place in (*entry.results.values(), *entry.inputs.values())]
        return np.concatenate([*tokens, *left]).astype(np.float64)


def test_turns_change_nothing(walked: tuple[Artifact, Weights, np.ndarray]) -> None:
    artifact, weights, right = walked
    for seed in [seeded.fresh_seed() for _ in range(3)]:
        np.testing.assert_array_equal(run(artifact, weights, seed), right, err_msg=f"turns of seed {seed}")


def test_a_wait_that_is_left_out_shows(walked: tuple[Artifact, Weights, np.ndarray]) -> None:
    artifact, weights, right = walked
    lines, (rng, seed) = artifact.code.decode().split("\n"), seeded.named_rng()
    _, *ways, _ = ways_back(lines)  # of steps: what starts and ends a run is one worker's
    assert len(ways) > 5
    way = ways[rng.integers(len(ways))]
    broken = replace(artifact, code="\n".join([*lines[:way], *lines[way + 1 :]]).encode())
    turns = map(int, rng.integers(1, 1 << 30, 6))
    assert any(not np.array_equal(run(broken, weights, each), right) for each in turns), f"{seed}: line {way}"
