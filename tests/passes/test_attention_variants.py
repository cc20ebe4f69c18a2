"""Attention without a cache, of random layouts, masks and biases, against float64: on the CPU, and as PTX on numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attention_variants import Stored, Variant, exact, random_inputs, random_variant, tiled_variant, write_variants
from compiled_models import poison
from emulated_cuda.entries import run

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn


def kinds(artifact: Artifact) -> list[str]:
    return [name.split("_")[0] for name in artifact.kernels]


def check(variants: list[Variant], path: Path) -> Artifact:
    artifact, _ = compile_request(Request(write_variants(path, variants)), Observer())
    values: dict[str, np.ndarray] = {}
    for v in variants:
        values |= random_inputs(v)
    with Session(artifact, CpuDevice(2), Stored(values)) as session:  # type: ignore[arg-type]
        poison(session)
        for v in variants:
            found = session.run(f"out{v.seed}", np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))
            (result,) = found.values()
            assert_close(result, v, values)
    return artifact


def assert_close(found: np.ndarray, v: Variant, values: dict[str, np.ndarray], tolerance: float = 1e-4) -> None:
    wanted = exact(v, {name: values[name] for name in random_inputs(v)})
    assert found.shape == wanted.shape, v
    np.testing.assert_allclose(found, wanted, atol=tolerance, rtol=tolerance, equal_nan=True, err_msg=str(v))


@pytest.mark.parametrize(
    "first", [0, pytest.param(8, marks=pytest.mark.slow), pytest.param(16, marks=pytest.mark.slow)]
)
def test_values(first: int, tmp_path: Path) -> None:
    artifact = check([random_variant(seed) for seed in range(first, first + 8)], tmp_path / "variants.lisp")
    assert set(kinds(artifact)) == {"attention"}


def seeds(quick: list[int], rest: range) -> list[object]:
    return [*quick, *(pytest.param(seed, marks=pytest.mark.slow) for seed in rest if seed not in quick)]


@pytest.mark.parametrize("seed", seeds([3, 12], range(24)))
def test_values_on_nvidia_row_by_row(seed: int, tmp_path: Path) -> None:
    variant = random_variant(seed, 12)
    program, values = write_variants(tmp_path / "variant.lisp", [variant]), random_inputs(variant)
    artifact, _ = compile_request(Request(program, "cuda:sm_90"), Observer())
    assert_close(run(artifact, artifact.plan.entries[0], values), variant, values)


@pytest.mark.parametrize("seed", seeds([3], range(8)))
def test_values_on_nvidia_in_tiles(seed: int, tmp_path: Path) -> None:
    """Queries and weights are split into two parts of bf16."""
    variant = tiled_variant(seed)
    program, values = write_variants(tmp_path / "variant.lisp", [variant]), random_inputs(variant)
    artifact, _ = compile_request(Request(program, "cuda:sm_90"), Observer())
    assert "mma.sync" in artifact.code.decode()
    assert_close(run(artifact, artifact.plan.entries[0], values), variant, values, 3e-4)


@pytest.mark.parametrize("target", ["rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201", "cuda:sm_90a"])
def test_it_compiles(target: str, tmp_path: Path) -> None:
    variants = [*map(random_variant, range(100, 103)), *map(tiled_variant, range(103, 105))]
    artifact, _ = compile_request(Request(write_variants(tmp_path / "variants.lisp", variants), target), Observer())
    assert set(kinds(artifact)) == {"attention"}
