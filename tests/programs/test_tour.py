"""The tour's programs print what their comments say, and the GPU ones compile for a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.drawn

TOUR = sorted((Path(__file__).resolve().parents[2] / "examples" / "tour").glob("*.lisp"))


def lispgpt(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lispgpt", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)


def first_command(text: str, path: Path) -> list[str]:
    """The words after the program's name in the first command of its comment."""
    found = re.search(rf"^;   lispgpt run examples/tour/{path.name}(.*)$", text, re.MULTILINE)
    assert found, "the comment gives the command that runs the program"
    return re.split(r" {3,}", found[1].strip())[0].split()


@pytest.mark.parametrize("path", TOUR, ids=lambda path: path.stem)
def test_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = re.findall(r"^; prints: (.*)$", text, re.MULTILINE)
    done = lispgpt("run", str(path), "--target", "cpu", *first_command(text, path), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == expected
    assert expected, "every program prints something"


@pytest.mark.parametrize("path", [p for p in TOUR if "-gpu-" in p.stem], ids=lambda path: path.stem)
def test_compiles_for_a_gpu(path: Path, tmp_path: Path) -> None:
    done = lispgpt("compile", str(path), "--target", "rocm:gfx1151", "-o", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    made = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert any(p.read_bytes().startswith(b"\x7fELF") for p in made), [p.name for p in made]


def test_tour_is_a_tour() -> None:
    assert [p.stem[:2] for p in TOUR] == [f"{n:02}" for n in range(1, len(TOUR) + 1)]
    assert len(TOUR) >= 12
