"""What keys and values are kept in where nobody says it: BF16 on GPUs, where weights are of 16 bits or fewer."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked_models import Subject
from gpu.chips import emulated_cuda_opener
from test_check import CHIPS, PROGRAM, SIZES

from lispgpt.compiler.compiled import declared
from lispgpt.compiler.request import Request
from lispgpt.passes.targets import Gpu
from lispgpt.runtime.devices import cuda


@pytest.mark.parametrize(
    ("target", "settings", "kept"),
    [
        ("cpu", {}, "f32"),
        ("cuda:sm_90a", {}, "bf16"),
        ("rocm:gfx1151", {"weight-type": "int8"}, "bf16"),
        ("rocm:gfx942", {"weight-type": "f32"}, "f32"),
        ("cuda:sm_80", {"cache-type": "f16"}, "f16"),
        ("rocm:gfx1201", {"cache-type": "f32"}, "f32"),
        ("cpu", {"cache-type": "fp8"}, "fp8"),
        ("cuda:sm_90a", {"cache-type": "q8_0"}, "q8_0"),
    ],
)
def test_the_type_of_keys_and_values(
    target: str, settings: dict[str, str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpu, "narrow_caches", True)  # as users have it
    sizes = SIZES | {"width": 128, "heads": 2}
    assert declared(Request(PROGRAM, target, sizes | settings)).config["cache-type"] == kept


@pytest.mark.parametrize(
    ("target", "kept", "most"),
    [
        pytest.param("rocm:gfx1151", "bf16", 3e-2, marks=pytest.mark.slow),
        pytest.param("rocm:gfx942", "fp8", 0.3, marks=pytest.mark.slow),
        ("cuda:sm_90a", "bf16", 3e-2),
        ("cuda:sm_90a", "fp8", 0.3),
        pytest.param("cuda:sm_90a", "q8_0", 0.1, marks=pytest.mark.slow),
    ],
)
def test_a_check_compares_like_with_like(
    target: str, kept: str, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU rounds keys and values as the device does, and float64 rounds none."""
    monkeypatch.setattr(cuda, "open_device", emulated_cuda_opener)
    found = Subject(target, CHIPS[target], PROGRAM, tmp_path, overrides=SIZES | {"cache-type": kept})
    assert {state["dtype"] for state in found.artifact.states.values()} == {kept}
    right = found.check(found.artifact)
    assert right.right and right.logits == 4 and right.worst < 3e-4
    assert right.exact is not None and 3e-4 < right.exact < most
