"""Attention that is differentiated, against float64: on the CPU, and as PTX on numpy; memory that grows with length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, poison
from emulated_amd.running import Emulation
from emulated_cuda.entries import run_all
from trained_attention import Case

from lispgpt.base.host import cpu_features, may_use_tiles
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

SMALL = [
    Case(),
    Case(dtype="bf16", length=13, size=20),
    Case(length=37, heads=4, dtype="f16"),
    Case(weigh="window", length=41),
    Case(weigh="slope", heads=4, groups=1),
    Case(weigh="softcap", length=9, heads=3, groups=3, size=5),
    Case(all=True, length=11),
    Case(length=1),
]
PAIRED = [
    Case(length=77, size=20, heads=2, groups=1, dtype="bf16", texts=1),
    Case(length=150, size=33, weigh="window", dtype="bf16", texts=1),
    Case(all=True, length=70, size=64, dtype="bf16"),
]
LONG = [
    Case(length=200, size=64, heads=4, dtype="bf16"),
    Case(length=150, size=80, weigh="window", texts=1),
    Case(length=97, size=128, heads=2, groups=1, texts=1),
]


def compiled(case: Case, target: str, folder: Path) -> Artifact:
    artifact, _ = compile_request(Request(case.write(folder / "train.lisp"), target), Observer())
    assert not any("part" in name for name in artifact.kernels), "some kernel was divided, with scores in memory"
    return artifact


def run_on_cpu(artifact: Artifact, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An entry's results; all that it should write holds NaN before."""
    with Session(artifact, CpuDevice(2), Weights({})) as session:  # type: ignore[arg-type]
        poison(session)
        return {name: value.copy() for name, value in session.run("train", **given).items()}


@pytest.mark.parametrize("case", [*SMALL, *PAIRED, *LONG], ids=str)
def test_values_on_the_cpu(case: Case, tmp_path: Path) -> None:
    given, artifact = case.inputs(seeded.rng()), compiled(case, "cpu", tmp_path)
    if case in PAIRED and "amx_bf16" in cpu_features() and may_use_tiles(ask=True):
        attention = [facts for name, facts in artifact.kernels.items() if name.startswith("attention_gradient")]
        assert attention and all(facts["permission"] == "amx" for facts in attention)
    found = run_on_cpu(artifact, given)
    case.check(found, given)
    again = run_on_cpu(artifact, given)
    assert all(found[name].tobytes() == again[name].tobytes() for name in found)


@pytest.mark.parametrize("case", [case for case in SMALL[:5] if case.dtype != "f16"], ids=str)
def test_values_on_nvidia_row_by_row(case: Case, tmp_path: Path) -> None:
    given, artifact = case.inputs(seeded.rng()), compiled(case, "cuda:sm_80", tmp_path)
    case.check(run_all(artifact, artifact.plan.entries[0], given), given)


TILED = [
    Case(length=70, size=64, heads=1, groups=1, texts=1, dtype="bf16"),
    Case(length=96, size=80, groups=1, texts=1, weigh="window"),
    Case(length=65, size=32, heads=1, groups=1, texts=1, weigh="softcap", all=True),
]


@pytest.mark.parametrize("case", TILED, ids=str)
def test_values_on_nvidia_in_tiles(case: Case, tmp_path: Path) -> None:
    given, artifact = case.inputs(seeded.rng()), compiled(case, "cuda:sm_80", tmp_path)
    assert_on_matrix_units(artifact)
    case.check(run_all(artifact, artifact.plan.entries[0], given), given)


def assert_on_matrix_units(artifact: Artifact) -> None:
    modules = [text for text in artifact.code.decode().split(".version") if "attention" in text]
    assert all("mma" in text for text in modules)


FLASH = [
    Case(length=70, size=64, heads=1, groups=1, texts=1, dtype="bf16"),
    Case(length=200, size=64, heads=4, groups=2, texts=1, dtype="bf16", weigh="window"),
    Case(length=96, size=128, heads=1, groups=1, dtype="bf16"),
    Case(length=101, size=64, heads=1, groups=1, dtype="bf16", all=True),
]


@pytest.mark.parametrize("case", FLASH, ids=str)
def test_values_on_warpgroups(case: Case, tmp_path: Path) -> None:
    given, artifact = case.inputs(seeded.rng()), compiled(case, "cuda:sm_90a", tmp_path)
    modules = [text for text in artifact.code.decode(errors="replace").split(".version") if "attention" in text]
    assert all("wgmma" in text for text in modules)
    case.check(run_all(artifact, artifact.plan.entries[0], given), given)


ROUNDED = [
    ("cpu", Case(length=77, size=20, dtype="bf16", texts=1, rounded=True)),
    ("cuda:sm_90a", Case(length=96, size=64, heads=1, groups=1, texts=1, dtype="bf16", rounded=True)),
    ("rocm:gfx1151", Case(length=70, size=64, heads=1, groups=1, texts=1, dtype="bf16", rounded=True)),
]


@pytest.mark.parametrize(("target", "case"), ROUNDED, ids=str)
def test_what_rounds_gradients_runs_in_their_kernels(target: str, case: Case, tmp_path: Path) -> None:
    given, artifact = case.inputs(seeded.rng()), compiled(case, target, tmp_path)
    for name, facts in artifact.kernels.items():
        if name.startswith("attention_gradient"):
            made = [n for n, access in zip(facts["arguments"], facts["access"], strict=True) if access == "write"]
            assert made and set(made) == {2 * case.length * case.size * case.heads}
    if target == "cpu":
        found = run_on_cpu(artifact, given)
    elif target.startswith("cuda"):
        found = run_all(artifact, artifact.plan.entries[0], given)
    else:
        emulation, entry = Emulation(artifact, given), artifact.plan.entries[0]
        emulation.run(entry)
        found = {name: emulation.buffers[buffer].view(np.float32) for name, buffer in entry.results.items()}
    case.check(found, given)


AMD = [("gfx942", TILED[0]), ("gfx1151", TILED[1]), ("gfx1201", TILED[2]), ("gfx1151", Case(length=12))]


@pytest.mark.parametrize(("chip", "case"), AMD, ids=str)
def test_values_on_amd(chip: str, case: Case, tmp_path: Path) -> None:
    given, artifact = case.inputs(seeded.rng()), compiled(case, f"rocm:{chip}", tmp_path)
    emulation, entry = Emulation(artifact, given), artifact.plan.entries[0]
    emulation.run(entry)
    case.check({name: emulation.buffers[buffer].view(np.float32) for name, buffer in entry.results.items()}, given)


def arena(case: Case, target: str, folder: Path) -> int:
    (buffer,) = [buffer for buffer in compiled(case, target, folder).plan.buffers if buffer.kind == "arena"]
    return int(buffer.nbytes)


@pytest.mark.parametrize(
    "target",
    ["cpu", *(pytest.param(target, marks=pytest.mark.slow) for target in ("cuda:sm_90a", "rocm:gfx1151"))],
)
def test_memory_grows_with_the_length_alone(target: str, tmp_path: Path) -> None:
    sizes = [
        arena(Case(length=n, size=64, heads=4, texts=1, dtype="bf16"), target, tmp_path) for n in (512, 1024, 2048)
    ]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])
    assert sizes[2] <= 1.01 * 2 * sizes[1]
