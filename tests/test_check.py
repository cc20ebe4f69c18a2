"""`lispgpt check`: a device that computes something else than the model says is found out, and the kernel named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from changed_pipelines import changed_pipeline
from checked_models import Subject, check_found, check_one_launch_found, counterparts_once
from compiled_models import random_weights
from gpu.chips import emulated_cuda_opener
from test_cli import Call, assert_one_error, call, made

from lispgpt.base.dtypes import BLOCK_DTYPES
from lispgpt.checking.check import Checked, Found, Part, compared
from lispgpt.checking.reference import Reference, why_not
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.request import Request
from lispgpt.runtime.devices import cuda
from lispgpt.runtime.plan.artifact import Artifact

__all__ = ["call", "made"]

SIZES = {"layers": 1, "heads": 2, "width": 64, "vocab": 211, "context": 16}
CHIPS = {"rocm:gfx1151": "emulated:gfx1151", "cuda:sm_90a": "cuda:sm_90a"}
OTHERS = {"rocm:gfx942": "emulated:gfx942", "rocm:gfx1201": "emulated:gfx1201", "cuda:sm_80": "cuda:sm_80"}
ROUNDED = 4e-3
"""How far off logits may be from those in float64 where keys and values are rounded to BF16."""
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


@pytest.fixture(scope="module", params=[*CHIPS, *(pytest.param(t, marks=pytest.mark.slow) for t in OTHERS)])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    device = (CHIPS | OTHERS)[request.param]
    return Subject(request.param, device, PROGRAM, tmp_path_factory.mktemp("checked"), overrides=SIZES)


def test_a_device_that_is_right_is_said_to_be(subject: Subject) -> None:
    found = subject.check(subject.artifact)
    assert found.right and found.logits == 4 and found.worst < 1e-4
    assert found.exact is not None and found.exact < ROUNDED and found.cpu is not None and found.cpu.worst < ROUNDED
    assert f"beside float64 {subject.target} is " in subject.told(found)
    assert "is right: a prompt of 2 tokens and 2 steps" in subject.told(found)


def test_the_cpu_is_said_to_be_wrong_where_it_is_the_one(subject: Subject) -> None:
    """Where its norms take shifts for gains, and gains for shifts."""
    found = subject.check(subject.artifact, on_cpu=with_norms_changed)
    assert found.device_right and not found.cpu_right and not found.right and not found.wrong
    assert found.exact is not None and found.exact < ROUNDED and found.cpu is not None and found.cpu.worst > 1e-2
    said = subject.told(found)
    assert f"{subject.target} is right: a prompt of 2 tokens" in said and "logits as in float64" in said, said
    assert "the CPU is wrong: logits: " in said, said


def with_norms_changed(artifact: Artifact) -> Artifact:
    """An artifact in which each launch that reads two weights of a size reads one in place of the other."""
    kinds = {buffer.name: buffer.kind for buffer in artifact.plan.buffers}

    def changed(step: Any) -> Any:
        given = [a for a in getattr(step, "arguments", ()) if kinds[a.buffer] == "weight"]
        for one, other in combinations(given, 2):
            if one.nbytes == other.nbytes:
                swapped = {one: other, other: one}
                return replace(step, arguments=tuple(swapped.get(a, a) for a in step.arguments))
        return step

    entries = [replace(each, steps=tuple(map(changed, each.steps))) for each in artifact.plan.entries]
    return replace(artifact, plan=replace(artifact.plan, entries=tuple(entries)))


def test_where_both_are_wrong_alike(subject: Subject) -> None:
    """As where the program's passes are, for all targets."""
    found, rows = Found([]), seeded.rng().normal(size=(1, 7))
    session: Any = SimpleNamespace(result=lambda *_: rows, artifact=SimpleNamespace(precision="exact"))
    entry: Any = SimpleNamespace(results=["logits"])
    right = Reference(rows, rows + 0.1)
    assert compared(session, Part(entry, {}, (0,)), right, found) is None
    found.cpu = right.of_cpu()
    assert found.device_right and not found.right
    said = subject.told(found)
    assert f"the CPU is wrong, and {subject.target} as it is: " in said and "is right" not in said, said


@pytest.mark.drawn
@pytest.mark.parametrize("weights", BLOCK_DTYPES)
def test_blocks_of_few_bits_are_compared_with_float64(weights: str, tmp_path: Path) -> None:
    """Whose scales are the bits of narrower floats."""
    program = tmp_path / "small.lisp"
    program.write_text(SMALL.replace("width 32", "width 256").replace("bf16", weights))
    made = Request(program, "rocm:gfx1151", unsized=True)
    given = random_weights(artifact_of(replace(made, target="cpu")), 0.5, seeded.fresh_seed())
    checked = Checked(made, given, "emulated:gfx1151", threads=1)  # type: ignore[arg-type]
    with checked.on_cpu() as cpu:
        found = checked.reference([3, 1, 4], cpu)
    off = found.of_cpu()
    assert found.exact is not None and off is not None, found.unknown
    assert 0 < off.worst < 1e-5 and not off.wrong


@pytest.mark.parametrize("program, sizes", [
    ("mamba.lisp", {"states": 5}), ("mamba2.lisp", {"heads": 3, "head-width": 5, "states": 4, "groups": 1}),
])  # fmt: skip
def test_kernels_of_vectors_are_compared_with_float64(program: str, sizes: dict[str, int]) -> None:
    """Which write their types as text, `vector<5xf32>`."""
    given = {"layers": 1, "width": 14, "vocab": 31, "context": 8, **sizes}
    made = Request(PROGRAM.parent / program, "rocm:gfx1151", given, unsized=True)
    weights = random_weights(artifact_of(replace(made, target="cpu")), 0.3, seeded.fresh_seed())
    checked = Checked(made, weights, "emulated:gfx1151", threads=1)  # type: ignore[arg-type]
    with checked.on_cpu() as cpu:
        found = checked.reference([3, 1, 4], cpu)
    off = found.of_cpu()
    assert found.exact is not None and off is not None, found.unknown
    assert 0 < off.worst < 1e-4 and not off.wrong


def test_what_is_too_large_for_float64() -> None:
    def of(kind: str, *shape: int) -> Any:
        return SimpleNamespace(kind=kind, shape=shape, dtype="f32")

    def artifact(*buffers: Any) -> Any:
        return SimpleNamespace(plan=SimpleNamespace(buffers=buffers))

    small = artifact(of("weight", 124, 1 << 20), of("state", 1 << 20), of("arena", 1 << 40))
    assert why_not(small, 25) == ""
    assert "1000 tokens would take minutes" in why_not(small, 1000)
    assert "would take 2.5 GiB" in why_not(artifact(of("weight", 300, 1 << 20), of("state", 20, 1 << 20)), 1)


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
    early = call("check", program, "--prompt-tokens", "3,1", "--target", chip)
    assert_one_error(early, 1, "this model needs weights: give --checkpoint")
    assert "on the CPU" not in early.err  # nothing was compiled first


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
    right = Reference(wanted)
    assert compared(session, part, right, found) is None and found.logits == 2
    results["next"] = np.array([tokens[0], (tokens[1] + 1) % 7])
    assert compared(session, part, right, found) is not None
    results |= {"next": tokens, "logits": wanted[[2, 1]]}
    parted = compared(session, part, right, found)
    assert parted is not None and parted.difference is not None and parted.difference.first >= 7


def test_a_choice_is_held_to_the_devices_own_logits() -> None:
    """Where keys and values are packed, those of float64 have another best one."""
    exact = np.array([[1.0, 0.99, -0.5], [0.2, 0.97, 1.0]])
    own = np.array([[0.99, 1.0, -0.5], [0.2, 0.98, 0.97]])
    results = {"logits": own, "next": own.argmax(1)}
    session: Any = SimpleNamespace(result=lambda _, name: results[name], artifact=SimpleNamespace(precision="exact"))
    entry: Any = SimpleNamespace(results=results)
    part, found = Part(entry, {}, (0, 1)), Found([])
    rounded = Reference(exact + 0.02, exact, allowed=0.4)
    assert compared(session, part, rounded, found) is None and not found.alike and not found.unsure
    results["next"] = exact.argmax(1)
    parted = compared(session, part, rounded, found)
    assert parted is not None and "their best token is 1, and it chooses 0" in parted.said


def test_logits_that_nothing_but_rounding_holds_to_the_cpus_have_kernels_compared() -> None:
    wanted = seeded.rng().normal(size=(1, 9))
    logits = wanted + 0.01 * np.abs(wanted).max()
    session: Any = SimpleNamespace(result=lambda *_: logits, artifact=SimpleNamespace(precision="exact"))
    part, found = Part(SimpleNamespace(results=["logits"]), {}, (0,)), Found([])  # type: ignore[arg-type]
    assert compared(session, part, Reference(wanted, allowed=0.4), found) is None and found.unsure
    assert compared(session, part, Reference(wanted), Found([])) is not None
