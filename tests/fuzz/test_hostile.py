"""Hostile files of every format: one error each, whatever they hold.  `hostile/campaign.py` tries thousands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import seeded
from fuzz.hostile.kinds import EVERY

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("count", [len(EVERY), pytest.param(20 * len(EVERY), marks=pytest.mark.slow)])
def test_some_hostile_files_are_one_error_each(count: int, tmp_path: Path) -> None:
    """In a process of its own, which forks for each: none of its threads may be gone in those."""
    words = ["--first", str(seeded.fresh_seed() % 10**9), "--count", str(count), "--good", str(tmp_path / "good")]
    command = [sys.executable, "-m", "fuzz.hostile.campaign", *words, "--keep", str(tmp_path / "kept")]
    path = f"{TESTS}:{TESTS.parent}"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": path, "PATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
