"""The notebook that makes a diffusion model from nothing: run as it is written with --slow, whose digits are looked at,
and for a twentieth of its steps without."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from test_notebook import shell  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent


def code_of(path: Path) -> list[str]:
    """The cells of code of a notebook."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("steps", [60, pytest.param(1200, marks=pytest.mark.slow)])
def test_a_diffusion_model_draws_digits(
    steps: int,
    shell: InteractiveShell,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = code_of(ROOT / "examples" / "digits.ipynb")
    assert sum(bool(line.strip()) for cell in cells for line in cell.splitlines()) <= 80
    assert any("steps=1200" in cell for cell in cells)
    for cell in cells:
        with capture_output():
            result = shell.run_cell(cell.replace("steps=1200", f"steps={steps}"))
        assert result.success, (cell, result.error_in_exec)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "digits" / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == steps and np.mean(losses[-10:]) < (0.25 if steps == 1200 else 0.8) * np.mean(losses[:10])
    found, label, drawn = shell.user_ns["x"], shell.user_ns["label"], runpy.run_path("digits_data.py")["drawn"]
    places = [(n, down, right) for n in range(10) for down in range(2) for right in range(4)]
    known = np.stack([drawn(*place) for place in places])
    nearest = np.array(places)[((found[:, None] - known) ** 2).sum(-1).argmin(1), 0]
    assert steps < 1200 or (nearest == label).mean() > 0.7, "what is drawn is not what was asked for"
    assert shell.user_ns["figure"].axes[1].images[0].get_array().shape == (80, 64)
