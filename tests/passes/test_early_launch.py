"""Kernels that start before those ahead of them are done read ahead only what none of them writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lispgpt.compiler.driver import Observer, Request, compile_request

PROGRAM = """(require nn)
(weights (x [1 96]) (table [64 96]) (w [64 96]))
(entry constant [tokens positions] (contract [n o] (softmax x) [n k] w [o k]))
(entry computed [tokens positions] (contract [n o] x [n k] (softmax table) [o k]))
"""


@pytest.mark.parametrize("chip", ["sm_90", "sm_90a"])
def test_a_product_waits_for_a_matrix_that_another_kernel_makes(chip: str, tmp_path: Path) -> None:
    program = tmp_path / "early.lisp"
    program.write_text(PROGRAM)
    artifact = compile_request(Request(program, f"cuda:{chip}"), Observer())[0]
    code = artifact.code.decode()
    ahead = {}
    for entry in artifact.plan.entries:
        name = entry.launches[-1].kernel
        body = re.search(rf"\.entry {name}\(.*?\n}}\n", code, re.DOTALL)
        assert body is not None and name.startswith("contraction") and "griddepcontrol.wait" in body[0]
        ahead[entry.name] = body[0].partition("griddepcontrol.wait")[0].count("ld.global")
    assert ahead["constant"] > 0 and ahead["computed"] == 0
