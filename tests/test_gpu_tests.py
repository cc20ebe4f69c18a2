"""The tests of a GPU are right themselves: on an emulated one, and where there is none they say so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gpu.chips import find_chip

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices import driver

ROOT = Path(__file__).resolve().parent.parent


def test_they_run_on_an_emulated_gpu_and_end_with_a_table(tmp_path: Path) -> None:
    table, few = (
        tmp_path / "times.json",
        "(read_at_once and False) or (decode_steps and several) or (widths and 576 and bf16 and not fast)",
    )
    words = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu", "-k", few]
    command = [sys.executable, "-m", "pytest", *words, "--gpu", "emulated:sm_90a", "--gpu-json", str(table)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
    assert "emulated CUDA, cuda:sm_90a" in done.stdout and "decode at 64, several in a graph" in done.stdout
    found = json.loads(table.read_text())
    assert found["chip"] == "emulated CUDA, cuda:sm_90a" and len(found["times"]) == 2


@pytest.mark.parametrize("processes", [["-p", "no:xdist"], pytest.param(["-n", "2"], marks=pytest.mark.slow)])
def test_a_run_for_a_gpu_that_runs_nothing_fails(processes: list[str]) -> None:
    words = ["-q", "-p", "no:cacheprovider", *processes, "-m", "gpu", "tests/gpu/test_kinds.py"]
    command = [sys.executable, "-m", "pytest", *words, "--gpu", "rocm:gfx1151"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and " skipped" in done.stdout, done.stdout[-3000:]
    assert "failed: -m gpu ran no test at all, every one was skipped: " in done.stdout, done.stdout[-3000:]


def test_without_a_gpu_they_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(driver, "load_module", missing)
    with pytest.raises(UserError) as caught:
        find_chip("auto")
    for vendor in ("AMD", "NVIDIA"):
        assert f"no {vendor} GPU can be used here: the Python package" in caught.value.message
