"""Attention without a cache, of random layouts, masks and biases, compiled for the CPU and run, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attention_variants import Variant, exact, random_inputs, random_variant, write_variants

from lispgpt.driver import Observer, Request, compile_request
from lispgpt.runtime.artifact import Artifact
from lispgpt.runtime.checkpoints.base import TensorInfo
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

DTYPES = {"float32": "f32", "uint16": "bf16", "int32": "i32"}


class Stored:
    """What a session asks of a checkpoint, from arrays."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.values = values

    def names(self) -> list[str]:
        return list(self.values)

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(self.values[name].shape, DTYPES[self.values[name].dtype.name], False)

    def view(self, name: str) -> np.ndarray:
        return np.ascontiguousarray(self.values[name])

    def check_finite(self, names: object = None) -> None:
        """They are."""


def kinds(artifact: Artifact) -> list[str]:
    return [name.split("_")[0] for name in artifact.kernels]


def check(variants: list[Variant], path: Path) -> Artifact:
    artifact, _ = compile_request(Request(write_variants(path, variants)), Observer())
    values: dict[str, np.ndarray] = {}
    for v in variants:
        values |= random_inputs(v)
    with Session(artifact, CpuDevice(2), Stored(values)) as session:  # type: ignore[arg-type]
        for buffer in artifact.plan.buffers:
            if buffer.kind in ("arena", "result"):
                session._buffers[buffer.name][:] = 0xFF
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
