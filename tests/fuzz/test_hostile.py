"""Hostile files of every format: one error each, whatever they hold.  `hostile/campaign.py` tries thousands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import seeded
from fuzz.hostile import campaign, execute
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


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("while True: pass", "of processors"),
        ("import time; time.sleep(60)", "stood still"),
        ("import os, time; os.fork() or [None for _ in iter(int, 1)]; time.sleep(60)", "of processors"),
    ],
)
def test_what_works_or_stands_still_for_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, code: str, why: str) -> None:
    """By what it uses itself, a child of it included, not by the clock of a busy machine."""
    monkeypatch.setattr(execute, "SECONDS", 1.5)
    monkeypatch.setattr(execute, "BUSY", "it took more than 1.5 s of processors")
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True)
    _, _, ended = execute._watched(child.pid)
    child.returncode = 0
    assert why in ended


def test_a_campaign_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    line = '{"kind": "gguf", "seed": 3, "code": 1, "seconds": 0.1, "mib": 5, "wrong": []}\n'
    record.write_text(line + line.replace("3", "4", 1) + line[:20])
    assert set(campaign.recorded(record)) == {"gguf 3", "gguf 4"}
