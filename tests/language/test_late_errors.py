"""What goes wrong in entries that the library makes is blamed on the form of the program that had it make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request

HEAD = "(require nn training)\n(config vocab 11 width 8 context 16)\n(weights (w [vocab width]))\n"
MISTAKES = {
    "too few arguments": ("(defn f [tokens targets] 1.0)\n(training f)", "`f` takes 2 arguments"),
    "no function": ("(training 5)", "the number 5 cannot be called"),
    "a name's text": ('(training "f")', "cannot be called"),
    "a number": ("(defn f [tokens targets random] 1.0)\n(training f)", "a tensor of one float"),
    "nothing": ("(defn f [tokens targets random] [])\n(training f)", "its list is empty"),
    "by a function of one's own": ("(defn made [f] (training f))\n(made 5)", "the number 5 cannot be called"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_wrong_loss_is_blamed_where_training_is_asked_for(what: str, tmp_path: Path) -> None:
    text, message = MISTAKES[what]
    path = tmp_path / "program.lisp"
    path.write_text(HEAD + text + "\n")
    with pytest.raises(UserError) as caught:
        compile_request(Request(path, sizes=[{"batch": 2, "length": 4}]), Observer())
    error = caught.value
    assert error.span is not None
    assert error.span.source.name == str(path)
    shown = error.span.source.text[error.span.start : error.span.end]
    assert shown.startswith("(training ")
    assert error.message.startswith("in `training`: ")
    assert message in error.message


def test_a_call_around_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "program.lisp"
    path.write_text(HEAD + MISTAKES["by a function of one's own"][0])
    with pytest.raises(UserError) as caught:
        compile_request(Request(path, sizes=[{"batch": 2, "length": 4}]), Observer())
    assert caught.value.expanded_from[-1][0] == "`made`"
