"""`lispgpt check` on a GPU: faults planted in the code of one kernel are found by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changed_pipelines import changed_pipeline
from checked_models import Subject, check_found, check_one_launch_found, counterparts_once
from gpu.chips import Chip
from gpu.decoding import APART, EXAMPLES, FEW_BLOCKS
from planted import kernels_of

PROGRAM = EXAMPLES / "gpt2_generate.lisp"
REAL = {"layers": 2, "heads": 4, "width": 256, "vocab": 1000, "context": 64}
EMULATED = {"layers": 1, "heads": 2, "width": 64, "vocab": 211, "context": 16}


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    with counterparts_once():
        yield


@pytest.fixture(scope="module")
def subject(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("checked")
    given = {"overrides": chip.sized(REAL, EMULATED), "pipeline": changed_pipeline(folder, APART)}
    found = Subject(chip.target, chip.device, PROGRAM, folder, **given)
    if not kernels_of(found.artifact):
        pytest.skip(f"no fault can be planted in code for {chip.target}")
    return found


def test_a_gpu_that_is_right_is_said_to_be(subject: Subject) -> None:
    found = subject.check(subject.artifact)
    assert found.right and "is right: a prompt of 2 tokens and 2 steps" in subject.told(found), subject.told(found)


@pytest.mark.parametrize("number", range(20))
def test_a_planted_fault_is_found_by_the_kernels_name(number: int, subject: Subject) -> None:
    check_found(subject)


def test_of_a_step_that_is_one_launch_the_launch_is_named(chip: Chip, tmp_path: Path) -> None:
    few = chip.sized("", FEW_BLOCKS["split-decode"])
    pipeline = changed_pipeline(tmp_path, {"split-decode": ':when "always"' + few})
    sizes = chip.sized(REAL, EMULATED | {"width": 128})
    subject = Subject(chip.target, chip.device, PROGRAM, tmp_path, overrides=sizes, pipeline=pipeline)
    if not any(facts.get("persistent") for facts in subject.artifact.kernels.values()):
        pytest.skip("; ".join(subject.artifact.plan.entries[0].remarks) or f"{chip.target} has no such launch")
    check_one_launch_found(subject)
