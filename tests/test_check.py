"""`lispgpt check`: a device that computes something else than the model says is found out, and the kernel named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from changed_pipelines import changed_pipeline
from checked_models import Subject, check_found, check_one_launch_found, counterparts_once
from gpu.chips import emulated_cuda_opener
from test_cli import Call, assert_one_error, call, made

from lispgpt.checking.check import Found, Part, compared
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.request import Request
from lispgpt.runtime.devices import cuda

__all__ = ["call", "made"]

SIZES = {"layers": 1, "heads": 2, "width": 64, "vocab": 211, "context": 16}
CHIPS = {"rocm:gfx1151": "emulated:gfx1151", "cuda:sm_90a": "cuda:sm_90a"}
TIMES = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
SMALL = """
(require nn)
(config vocab 40 context 8 width 32)
(weights (table [vocab width] bf16) (g [width]))
(entry logits [tokens positions] (matmul-transposed (rms-norm (last (rows table tokens)) g 1e-6) table))
(generate logits {:max-new-tokens 2 :greedy true})
"""
SHARED = {"split-decode": ':when "always" :clusters 1'}


@pytest.fixture(scope="module", autouse=True)
def emulated() -> Iterator[None]:
    with counterparts_once(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "open_device", emulated_cuda_opener)
        yield


@pytest.fixture(scope="module", params=CHIPS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(request.param, CHIPS[request.param], PROGRAM, tmp_path_factory.mktemp("checked"), overrides=SIZES)


def test_a_device_that_is_right_is_said_to_be(subject: Subject) -> None:
    found = subject.check(subject.artifact)
    assert found.right and found.logits == 4 and found.worst < 1e-4
    assert "is right: a prompt of 2 tokens and 2 steps" in subject.told(found)


@pytest.mark.parametrize("number", TIMES)
def test_a_planted_fault_is_found_by_the_kernels_name(number: int, subject: Subject) -> None:
    check_found(subject)


@pytest.mark.slow
def test_of_a_step_that_is_one_launch_the_launch_is_named(tmp_path: Path) -> None:
    pipeline, sizes = changed_pipeline(tmp_path, SHARED), SIZES | {"width": 128}
    check_one_launch_found(Subject("cuda:sm_90a", "cuda:sm_90a", PROGRAM, tmp_path, overrides=sizes, pipeline=pipeline))


def test_the_command_line(tmp_path: Path, call: Call) -> None:
    program, weights, artifact = (tmp_path / name for name in ("small.lisp", "w.safetensors", "small.lgpt"))
    program.write_text(SMALL)
    assert call("checkpoint", "make", weights, "--for", program, "--seed", 1).code == 0
    said = ["--checkpoint", weights, "--steps", 1, "--prompt-tokens", "3,1", "--target"]
    chip = "emulated:gfx1151"
    several = call("check", program, "--batch", 2, *said, chip)
    assert several.code == 0 and f"{chip} is right: a prompt of 2 tokens and 1 steps" in several.out, several
    artifact_of(Request(program, chip.replace("emulated", "rocm"), batch=2)).save(artifact)
    done = call("check", artifact, *said, chip, "--kernels")
    assert done.code == 0 and f"{chip} is right: a prompt of 2 tokens and 1 steps" in done.out, done
    assert "kernel by kernel" in done.err and "so is each of" in done.out
    assert_one_error(call("check", artifact, "--set", "width=8", *said, chip), 2, "--set is for programs")
    assert_one_error(call("check", program, "--source", program, *said, chip), 2, "--source is for artifacts")
    assert_one_error(call("check", artifact, *said, "emulated:gfx942"), 2, "was compiled for rocm:gfx1151")
    assert_one_error(call("check", program, *said, "cpu"), 1, "devices are compared with")


def test_choices_of_subgroups_of_64_lanes_are_compared_with_the_same(tmp_path: Path, call: Call) -> None:
    program, weights = tmp_path / "small.lisp", tmp_path / "w.safetensors"
    program.write_text(SMALL)
    assert call("checkpoint", "make", weights, "--for", program, "--seed", 1).code == 0
    said = ["--checkpoint", weights, "--steps", 1, "--prompt-tokens", "3", "--kernels"]
    done = call("check", program, *said, "--target", "emulated:gfx942")
    assert done.code == 0 and "so is each of" in done.out, done


def test_each_sequence_of_a_batch_is_compared() -> None:
    """By logits and by token, with those at its own place."""
    wanted = seeded.rng().normal(size=(3, 7))
    logits, tokens = wanted[[2, 0]], wanted[[2, 0]].argmax(1)
    results = {"logits": logits, "next": tokens}
    session: Any = SimpleNamespace(result=lambda _, name: results[name], artifact=SimpleNamespace(precision="exact"))
    entry: Any = SimpleNamespace(results=results)
    part, found = Part(entry, {}, (2, 0)), Found([])
    assert compared(session, part, wanted, found) is None and found.logits == 2
    results["next"] = np.array([tokens[0], (tokens[1] + 1) % 7])
    assert compared(session, part, wanted, found) is not None
    results |= {"next": tokens, "logits": wanted[[2, 1]]}
    parted = compared(session, part, wanted, found)
    assert parted is not None and parted.difference is not None and parted.difference.first >= 7
