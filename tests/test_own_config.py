"""A number that a user changes in a program, and a checkpoint overrules, is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import lispgpt
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.own_config import replaced
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.seeded import PRESETS

ROOT = Path(__file__).resolve().parent.parent


def test_numbers_that_give_way_are_named(tmp_path: Path) -> None:
    (tmp_path / "model.lisp").write_text('(config heads 3  width (* heads 16)  rate 0.5  name "a"  vocab 8)')
    (tmp_path / "train.lisp").write_text('(require "model.lisp") (require training)\n(config vocab 9)')
    header = {"heads": 4, "width": 64, "rate": 0.5, "vocab": 9, "name": "b", "layers": 2}
    said = replaced(tmp_path / "model.lisp", header)
    assert said == (
        "heads is 4, by the checkpoint, and not the program's 3; vocab is 9, by the checkpoint, and not the program's 8"
        " "
        "(--set heads=… is over both)"
    )
    assert replaced(tmp_path / "train.lisp", header).startswith(
        "heads is 4, by the checkpoint, and not the program's 3 ("
    )
    assert replaced(tmp_path / "model.lisp", header, {"heads": 3, "vocab": 8}) == ""
    (tmp_path / "broken.lisp").write_text("(config heads 3")
    assert replaced(tmp_path / "broken.lisp", header) == ""


def test_it_is_told_of_the_users_own_programs_alone(tmp_path: Path) -> None:
    checkpoint = tmp_path / "tiny.bin"
    make(checkpoint, PRESETS["tiny"], "llmc", "f32", 0)
    program = ROOT / "examples" / "gpt2.lisp"
    assert find_given(program, checkpoint).notices() == []
    own = tmp_path / "own.lisp"
    own.write_text(program.read_text())
    (said,) = find_given(own, checkpoint).notices()
    assert "heads is " in said and "and not the program's 12" in said
    with pytest.warns(UserWarning, match="heads is .*, by the checkpoint"), lispgpt.load(own, checkpoint):
        pass
