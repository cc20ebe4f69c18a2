"""Inputs by which an entry reads or writes rows are refused where there are no such rows, whatever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import seeded

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

pytestmark = pytest.mark.drawn

Loaded = tuple[lispgpt.Model, np.ndarray]

VOCAB = 10
ROWS = """
(require nn)
(weights (table [10 4]))
(entry embed [(tokens [n] i32)] (rows table tokens))
(entry later [(tokens [2 3] i32)] (rows table (slice (reshape tokens [6]) [0] [6])))
(entry ahead [(tokens [5] i32)] (tensor [n 5 c 4] (at table (+ (at tokens n) 2) c)))
(entry label [(tokens [3] i32)] (tensor [n 3 c 4] (at table (max (at tokens n) 0) c)))
(entry first [(numbers [3] i32)] (tensor [c 4] (at table (at numbers 0) c)))
(entry within [(tokens [3] i32)] (tensor [n 3 c 4] (at table (max 0 (min 9 (at tokens n))) c)))
(entry masked [(tokens [3] i32)] (tensor [n 3 c 4] (if (>= (at tokens n) 0) (at table (at tokens n) c) 0.0)))
"""
GOOD = {
    "embed": np.array([0, 9, 3]),
    "later": np.array([[0, 1, 2], [3, 4, 9]]),
    "ahead": np.array([-2, 7, 0, 1, 2]),
    "label": np.array([-70, 3, 9]),
    "first": np.array([9, 1000, -1000]),
    "within": np.array([-70, 3, 900]),
}
BAD = {
    "embed": (np.array([0, 10, 3]), "tokens has 10, and entry 'embed' reads or writes by it where 0 to 9 are"),
    "later": (np.array([[0, 1, 2], [3, -1, 9]]), "tokens has -1, and entry 'later' .* where 0 to 9 are"),
    "ahead": (np.array([-3, 0, 0, 0, 0]), "tokens has -3, and entry 'ahead' .* where -2 to 7 are"),
    "label": (np.array([-1, 10, 0]), "tokens has 10, and entry 'label' .* where -2147483648 to 9 are"),
    "first": (np.array([1 << 20, 0, 0]), "numbers has 1048576, and entry 'first' .* where 0 to 9 are"),
}


@pytest.fixture(params=["cpu", pytest.param("emulated:gfx1151", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Loaded]:
    (tmp_path / "rows.lisp").write_text(ROWS)
    rng = seeded.rng()
    table = rng.standard_normal((VOCAB, 4)).astype(np.float32)
    write_safetensors(tmp_path / "rows.safetensors", [("table", table.shape, "f32")], [table])
    with lispgpt.load(tmp_path / "rows.lisp", tmp_path / "rows.safetensors", target=request.param) as opened:
        yield opened, table


def test_rows_that_are_there_are_read(model: Loaded) -> None:
    for name, numbers in GOOD.items():
        key = "numbers" if name == "first" else "tokens"
        found = model[0].run(name, **{key: numbers.astype(np.int32)})[name]
        wanted = {
            "ahead": numbers + 2,
            "first": numbers[0],
            "within": np.clip(numbers, 0, 9),
            "label": np.maximum(numbers, 0),
        }.get(name, numbers.reshape(-1))
        np.testing.assert_array_equal(found, model[1][wanted])
    found = model[0].run("masked", tokens=np.array([-100, 4, -1], np.int32))["masked"]
    np.testing.assert_array_equal(found, [np.zeros(4), model[1][4], np.zeros(4)])


def test_rows_that_are_not_there_are_refused(model: Loaded) -> None:
    for name, (numbers, said) in BAD.items():
        key = "numbers" if name == "first" else "tokens"
        with pytest.raises(UserError, match=said):
            model[0].run(name, **{key: numbers.astype(np.int32)})


def test_an_input_that_is_put_is_looked_at_too(model: Loaded) -> None:
    model[0].run("first", numbers=GOOD["first"].astype(np.int32))
    session = model[0].session
    with pytest.raises(UserError, match=BAD["first"][1]):
        session.put(session.entry("first"), {"numbers": BAD["first"][0].astype(np.int32)})
