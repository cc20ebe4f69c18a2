"""Macros that grow without bound end in one error, and soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import evaluate_request
from lispgpt.compiler.request import Request
from lispgpt.ir.mlir import new_context

GROWING = {
    "(defmacro twice [x] `(twice (do ~x ~x)))\n(twice 1)": "`twice` expands to more than 1,000,000 forms",
    "(defmacro wide [x] `(wide [~x ~x ~x ~x]))\n(wide 1)": "`wide` expands to more than 1,000,000 forms",
    "(defmacro more [x] `(do ~x (more ~x)))\n(more 1)": "nested|deep|calls",
}


@pytest.mark.parametrize("text", GROWING)
def test_a_macro_that_grows_without_bound_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.lisp").write_text(text)
    began = time.monotonic()
    with new_context(), pytest.raises(UserError, match=GROWING[text]):
        evaluate_request(Request(tmp_path / "p.lisp"))
    assert time.monotonic() - began < 20
