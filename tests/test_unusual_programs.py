"""Programs of research that are unlike each other: values and gradients beside float64, on a CPU and on an AMD chip."""

from __future__ import annotations

from pathlib import Path

import pytest
import seeded
from looping_programs import PROGRAMS as LOOPING
from textbook_programs import PROGRAMS as TEXTBOOK
from unusual_programs import HEADER
from unusual_programs import PROGRAMS as UNUSUAL

import lispgpt

PROGRAMS = UNUSUAL | TEXTBOOK | LOOPING


def check(name: str, folder: Path, target: str, quick: bool) -> None:
    program, rng = PROGRAMS[name], seeded.rng()
    (folder / "p.lisp").write_text(HEADER + program.text)
    given = program.given(rng)
    with lispgpt.load(folder / "p.lisp", weights={}, cache=None, quick=quick, target=target) as model:
        assert not program.problem(model.run("e", **given), given, rng)


@pytest.mark.drawn
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_numpys(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, "cpu", quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "emulated:gfx1151"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_those_of_fast_code_are_numpys(name: str, target: str, tmp_path: Path) -> None:
    check(name, tmp_path, target, quick=False)
