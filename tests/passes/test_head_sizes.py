"""Decode attention for NVIDIA with heads of many sizes: the PTX, run on numpy, against float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated_cuda.entries import run
from head_sizes import HeadSize, assert_near, random_inputs, write_program

from lispgpt.compiler.driver import Observer, Request, compile_request

CONTEXT = 32
QUICK = [HeadSize(80, "f32"), HeadSize(256, "f32"), HeadSize(256, "bf16")]
REST = [HeadSize(d, cache) for d in (16, 96, 128, 132, 320, 640) for cache in ("f32", "bf16")]


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(1, QUICK), pytest.param(1, REST, marks=pytest.mark.slow), pytest.param(16, QUICK, marks=pytest.mark.slow)],
    ids=["alone", "alone-rest", "several"],
)
def test_values(rows: int, sizes: list[HeadSize], tmp_path: Path) -> None:
    program = write_program(tmp_path / "attention.lisp", sizes, CONTEXT)
    artifact, _ = compile_request(Request(program, "cuda:sm_90"), Observer())
    values, expected = random_inputs(sizes, CONTEXT, rows)
    for name, right in expected.items():
        entry = next(e for e in artifact.plan.entries if e.name == name and e.sizes["positions"] == rows)
        assert_near(run(artifact, entry, values), right, name)
