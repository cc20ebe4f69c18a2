"""Decode steps as one launch of blocks that wait for each other, executed on emulated GPUs: the CPU's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import Weights, random_weights
from emulated_amd.running import CHIPS, Emulation
from emulated_cuda.device import EmulatedCuda
from one_launch import EXAMPLES, MODELS, compiled, pipeline

from lispgpt.base.access import ACCESSES, Region, dependencies
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.plan.rounds import by_round, stretches
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

COUNT = 3


def by_cpu(artifact: Artifact, weights: Weights) -> tuple[list[int], np.ndarray]:
    """The tokens that follow number 3 at position 0, and the last step's logits."""
    with Session(artifact, CpuDevice(), weights) as session:  # type: ignore[arg-type]
        tokens = [3]
        for position in range(COUNT):
            found = session.run("decode-greedy", [[tokens[-1]]], [[position]])
            tokens.append(int(found["next"].item()))
        return tokens[1:], found["logits"][0]


def by_cuda_emulator(artifact: Artifact, weights: Weights) -> tuple[list[int], np.ndarray]:
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        (entry,) = artifact.plan.entries
        session.put(entry, {"tokens": [[3]], "positions": [[0]]})
        tokens = [int(next_.item()) for next_ in session.repeat(entry, "next", COUNT)]
        assert not session.read("signals").any(), "signals are left behind"
        return tokens, session.read(entry.results["logits"])[0]


def by_amd_emulator(artifact: Artifact, weights: Weights) -> tuple[list[int], np.ndarray]:
    """The same, all in one launch."""
    states = {b.name: np.zeros(b.shape, np.float32) for b in artifact.plan.buffers if b.kind == "state"}
    given: dict[str, Any] = {name: weights.view(name) for name in weights.names()}
    given |= states | {"tokens": np.full((1, 1), 3, np.int32), "positions": np.zeros((1, 1), np.int32)}
    emulation, (entry,) = Emulation(artifact, given), artifact.plan.entries
    assert entry.repeats is not None and entry.repeats.most >= COUNT
    emulation.buffers[entry.repeats.more].view(np.int32)[:] = COUNT - 1
    emulation.run(entry)
    assert not emulation.buffers["signals"].any(), "signals are left behind"
    kept = emulation.buffers[entry.repeats.kept["next"]].view(np.int32)
    return kept[:COUNT].tolist(), emulation.buffers[entry.results["logits"]].view(np.float32)


def check(model: str, chip: str, folder: Path) -> None:
    cpu = compiled(model, "cpu", folder)
    seed = seeded.fresh_seed()
    weights = random_weights(cpu, scale=0.2, seed=seed)
    tokens, logits = by_cpu(cpu, weights)
    artifact = compiled(model, f"{'cuda' if chip.startswith('sm') else 'rocm'}:{chip}", folder)
    assert [len(entry.launches) for entry in artifact.plan.entries] == [1]
    if chip.startswith("sm"):
        found, made = by_cuda_emulator(artifact, weights)
    else:
        found, made = by_amd_emulator(artifact, weights)
    np.testing.assert_allclose(made[: logits.size], logits[: made.size], rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")
    assert found == tokens, f"seed {seed}"


@pytest.mark.parametrize(
    ("model", "chip"), [("gpt2", "sm_90a"), ("gpt2", "gfx942"), ("llama", "gfx1151"), ("recurrence", "sm_80")]
)
def test_a_decode_step_of_one_launch_makes_the_cpus_tokens(model: str, chip: str, tmp_path: Path) -> None:
    check(model, chip, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_90a", *CHIPS])
@pytest.mark.parametrize("model", MODELS)
def test_on_every_chip(model: str, chip: str, tmp_path: Path) -> None:
    check(model, chip, tmp_path)


@pytest.mark.parametrize(("options", "launches"), [(':when "never"', 20), ("", 20)])
def test_the_pipeline_says_when(options: str, launches: int, tmp_path: Path) -> None:
    artifact = compiled("gpt2", "cuda:sm_90a", tmp_path, options)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == launches
    assert bool(entry.remarks) == ("never" not in options)
    assert all(remark.startswith(f"{launches} launches stay apart: modelled") for remark in entry.remarks)


def test_values_told_by_the_round() -> None:
    rng, seed = seeded.named_rng()
    for _ in range(300):
        steady = rng.integers(0, 3) * 256 * np.arange(rng.integers(1, 9)) + 1024
        turns = np.resize(rng.integers(0, 5, 2) * 64, rng.integers(1, 7))
        parts = [rng.integers(0, 9, rng.integers(0, 3)), steady, turns]
        values = np.concatenate([parts[i] for i in rng.permutation(3)]).tolist()
        assert [by_round(values, i) for i in range(len(values))] == values, seed


def test_stretches_cover_a_list_and_repeat() -> None:
    assert [(s.first, s.period, s.count) for s in stretches("ab" + "cdefg" * 3 + "cdef" + "hij")] == [
        (0, 2, 2), (2, 5, 19), (21, 3, 3),
    ]  # fmt: skip
    rng, seed = seeded.named_rng()
    for _ in range(200):
        items = "".join(rng.choice(list("ab"), rng.integers(0, 30)))
        found = stretches(items)
        assert [i for s in found for i in range(s.first, s.first + s.count)] == list(range(len(items))), seed
        for stretch in found:
            for i in range(stretch.first, stretch.first + stretch.count - stretch.period):
                assert items[i] == items[i + stretch.period], seed


def test_dependencies_are_those_of_common_bytes() -> None:
    rng, seed = seeded.named_rng()
    for _ in range(100):
        steps = [
            [Region(str(rng.integers(2)), int(at), int(rng.integers(1, 5)), str(rng.choice(ACCESSES)))]
            for at in rng.integers(0, 12, 12)
        ]
        waits = dependencies(steps)
        after = [set() for _ in steps]
        for number, earlier in enumerate(waits):
            after[number] = set(earlier).union(*(after[e] for e in earlier))
        for a in range(len(steps)):
            for b in range(a):
                assert not steps[a][0].conflicts(steps[b][0]) or b in after[a], seed


@pytest.mark.slow
def test_a_loop_over_many_rows_is_shared_by_the_workers(tmp_path: Path) -> None:
    """A vocabulary for which blocks go round, by fewer of them than a launch of its own has."""
    sizes = {"layers": 1, "heads": 2, "width": 32, "vocab": 10500}
    cpu = compiled("gpt2", "cpu", tmp_path, **sizes)
    weights = random_weights(cpu, scale=0.2, seed=seeded.fresh_seed())
    tokens, logits = by_cpu(cpu, weights)
    found, made = by_cuda_emulator(compiled("gpt2", "cuda:sm_80", tmp_path, **sizes), weights)
    np.testing.assert_allclose(made[: logits.size], logits[: made.size], rtol=1e-3, atol=1e-3)
    assert found == tokens


@pytest.mark.slow
def test_steps_that_others_follow_apart(tmp_path: Path) -> None:
    """Drawing a token takes more threads than steps of one launch have: what it reads is handed on as usual."""
    program = tmp_path / "drawn.lisp"
    program.write_text(f'(require "{EXAMPLES / "gpt2.lisp"}")\n(generate logits {{:temperature 0.8 :top-k 20}})\n')
    sizes = {"layers": 2, "heads": 4, "width": 64, "vocab": 4200, "context": 16}
    scale, all_of_them, none = np.array([1.25, 1.0, 0.0], np.float32).view(np.int32).tolist()
    settings, found = [[scale, 20, all_of_them, *np.random.default_rng(5).integers(1, 99, 4), none]], []
    for when, launches in (("never", 15), ("always", 3)):
        given = pipeline(tmp_path, f':when "{when}" :workers 6')
        request = Request(program, "cuda:sm_80", overrides=sizes, pipeline=given, entries=("decode-drawn",))
        artifact = compile_request(request, Observer())[0]
        (entry,) = artifact.plan.entries
        assert len(entry.launches) == launches
        with Session(artifact, EmulatedCuda(), random_weights(artifact, scale=0.2, seed=4)) as session:  # type: ignore[arg-type]
            session.put(entry, {"tokens": [[3]], "positions": [[0]], "sampling": settings})
            found.append([int(token.item()) for token in session.repeat(entry, "next", COUNT)])
    assert found[0] == found[1]
