"""What Python users may get wrong in a call is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing

PROGRAM = "(require nn)(entry twice [(x [n])] (* x 2.0))"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "twice.lisp"
    path.write_text(PROGRAM)
    return path


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: lispgpt.compile(p, shapes=5), "shapes are sizes from 0 on by their names"),
        (lambda p: lispgpt.compile(p, shapes=[{"n": -1}]), r"shapes are sizes .*, not \[\{'n': -1\}\]"),
        (lambda p: lispgpt.load(p, shapes=[{"n": "x"}]), "shapes are sizes from 0 on by their names"),
        (lambda p: lispgpt.load(p, settings=["a"]), r"settings are values of the program's config .*, not \['a'\]"),
        (lambda p: lispgpt.load(p, target="cpu", threads="2").run("twice", x=[1.0]), "at least one thread, not '?2"),
        (lambda p: lispgpt.load(p, target=5), "a target is a name such as cpu, not 5"),
        (lambda p: lispgpt.load(p, target="cpu").run(5), "an entry is called by its name, not 5"),
        (lambda p: lispgpt.load(p, target="cpu").run("twice", x=[[1], [1, 2]]), "x has not as many numbers in each"),
        (lambda p: lispgpt.train(p, data=5, run=p.parent / "run"), "data is a path or a list of paths, not 5"),
        (lambda p: lispgpt.compile(p, shapes=[{"n": 2}]).save("a\0b"), "no path is so written"),
    ],
)
def test_a_wrong_argument_is_one_error(call: Callable[[Path], Any], said: str, program: Path) -> None:
    with pytest.raises(UserError, match=said):
        call(program)


@pytest.mark.parametrize(
    "name", ["x" * 5000, "a/" * 3000 + "b.gguf", "a\0b", "a\ud800b"], ids=["x", "a/", "0", "letter"]
)
def test_a_name_that_no_file_can_have_is_one_error(name: str, program: Path) -> None:
    """Wherever a path is given, and without a word to the hub."""
    data = program.with_name("t.txt")
    data.write_text("a b c " * 99)
    run = {"run": program.with_name("run"), "data": data}
    calls = [
        lambda: lispgpt.load(name),
        lambda: lispgpt.load(program, name),
        lambda: lispgpt.load(program, tokenizer=name),
        lambda: lispgpt.load(program, pipeline=name),
        lambda: lispgpt.load(program, cache=name),
        lambda: lispgpt.compile(name),
        lambda: lispgpt.compile(program, shapes=[{"n": 2}], entries=["twice"], pipeline=name),
        lambda: replacing(Path(name)).__enter__(),
        lambda: lispgpt.train(program, **run | {"run": name}, vocab_size=300),
        lambda: lispgpt.train(run=name, resume=True),
        lambda: lispgpt.train(name, **run),
        lambda: lispgpt.train(program, **run | {"data": name}),
        lambda: lispgpt.train(program, **run, tokenizer=name),
        lambda: lispgpt.train(program, **run, checkpoint=name),
        lambda: lispgpt.train(program, **run, cache=name),
        lambda: lispgpt.evaluate(program, name, data),
        lambda: lispgpt.evaluate(program, None, name),
    ]
    for call in calls:
        with pytest.raises(UserError) as caught:
            call()
        assert len(str(caught.value)) < 600 and "Traceback" not in str(caught.value)
    assert not program.with_name("run").exists()


def test_a_traceback_shows_the_callers_lines_alone(program: Path) -> None:
    program.write_text("(require nn")
    for call in (lispgpt.load, lispgpt.compile):
        with pytest.raises(UserError, match="never closed") as raised:
            call(program)
        files = [Path(str(entry.path)).name for entry in raised.traceback]
        assert files == ["test_misuse.py", "errors.py"] and raised.value.__cause__ is None
