"""What Python users may get wrong in a call is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lispgpt
from lispgpt.base.errors import UserError

PROGRAM = "(require nn)(entry twice [(x [n])] (* x 2.0))"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "twice.lisp"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: lispgpt.compile(p, shapes=5), "shapes are sizes from 1 on by their names"),
        (lambda p: lispgpt.compile(p, shapes=[{"n": -1}]), r"shapes are sizes .*, not \[\{'n': -1\}\]"),
        (lambda p: lispgpt.load(p, shapes=[{"n": "x"}]), "shapes are sizes from 1 on by their names"),
        (lambda p: lispgpt.load(p, settings=["a"]), r"settings are values of the program's config .*, not \['a'\]"),
        (lambda p: lispgpt.load(p, target="cpu", threads="2").run("twice", x=[1.0]), "at least one thread, not '?2"),
        (lambda p: lispgpt.load(p, target=5), "a target is a name such as cpu, not 5"),
        (lambda p: lispgpt.load(p, target="cpu").run(5), "an entry is called by its name, not 5"),
        (lambda p: lispgpt.load(p, target="cpu").run("twice", x=[[1], [1, 2]]), "x has not as many numbers in each"),
        (lambda p: lispgpt.train(p, data=5, run=p.parent / "run"), "data is a path or a list of paths, not 5"),
        (lambda p: lispgpt.compile(p, shapes=[{"n": 2}]).save("a\0b"), "no path has a zero in it"),
    ],
)
def test_a_wrong_argument_is_one_error(call: Callable[[Path], Any], said: str, program: Path) -> None:
    with pytest.raises(UserError, match=said):
        call(program)
