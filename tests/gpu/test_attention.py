"""Attention with heads of many sizes, of one row and of many, with keys and values in F32 and BF16: float64's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled_models import Weights
from gpu.chips import Chip
from head_sizes import HeadSize, assert_near, random_inputs, write_program

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.session import Session

CONTEXT = 160
CASES = [pytest.param(depth, marks=[] if depth in (64, 80, 128, 256) else pytest.mark.slow) for depth in (
    16, 40, 64, 80, 96, 112, 128, 132, 192, 256, 320,
)]  # fmt: skip


@pytest.mark.parametrize("cache", ["f32", "bf16"])
@pytest.mark.parametrize("depth", CASES)
def test_heads_of_a_size(depth: int, cache: str, chip: Chip, tmp_path: Path) -> None:
    size = HeadSize(depth, cache)
    program = write_program(tmp_path / "attention.lisp", [size], chip.sized(CONTEXT, 32))
    rows = chip.sized((1, 7, 16, 64, 128), (1, 16))
    name = f"out{size.name}"
    sizes = [{"batch": 1, "positions": count} for count in rows]
    artifact = compile_request(Request(program, chip.target, entries=(name,), sizes=sizes), Observer())[0]
    for count in rows:
        values, expected = random_inputs([size], chip.sized(CONTEXT, 32), count)
        weights = Weights({w: values[w].reshape(facts["shape"]) for w, facts in artifact.weights.items()})
        with Session(artifact, chip.open(), weights) as session:  # type: ignore[arg-type]
            for state in session.held("state"):
                session.write(state, values[state].reshape(session.shape(state)))
            found = session.run(name, values["tokens"][None], values["positions"][None])[name]
        assert np.isfinite(found).all()
        assert_near(found, expected[name], f"{name} of {count} rows")
