"""Products of one row whose blocks go through many rows of weights, each row split among subgroups, against float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import seeded
from emulated_amd.running import Emulation
from emulated_cuda.entries import run

from lispgpt.compiler.driver import Observer, compile_request
from lispgpt.passes.targets import GPU_CHIPS

from .test_skinny_tiles import CHOICE, agrees, made

pytestmark = pytest.mark.drawn


@pytest.mark.parametrize("inner", [1280, 2304, 5120])
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201"])
def test_blocks_loop_over_split_rows(target: str, inner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have rounds of different numbers, and the last one is ragged."""
    kind, _, chip = target.partition(":")
    monkeypatch.setitem(GPU_CHIPS[kind], chip, replace(GPU_CHIPS[kind][chip], cores=1))
    outputs = int(seeded.rng().integers(100, 140))
    request, values, expected = made(
        tmp_path, "of an rms norm", (1, outputs, inner), ("f32", "bf16"), target, CHOICE.format("skinny")
    )
    artifact, _ = compile_request(request, Observer())
    entry = artifact.plan.entries[0]
    launch = next(step for step in entry.launches if step.kernel.startswith("contraction"))
    assert launch.grid[0] == 3, "blocks loop"
    found = run(artifact, entry, values) if kind == "cuda" else Emulation(artifact, values).run(entry)
    agrees(found, expected, (target, inner, outputs))
