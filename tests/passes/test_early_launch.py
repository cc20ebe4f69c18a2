"""Kernels that start before those ahead of them are done read ahead only what none of them writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.plan import Entry

PROGRAM = """(require nn)
(weights (x [1 96]) (table [64 96]) (w [64 96]))
(entry constant [tokens positions] (contract [n o] (softmax x) [n k] w [o k]))
(entry computed [tokens positions] (contract [n o] x [n k] (softmax table) [o k]))
"""


def read_ahead(code: str, kernel: str) -> set[int]:
    """The parameters that a kernel's PTX loads from before it waits for the kernels ahead of it."""
    body = re.search(rf"\.entry {kernel}\(.*?\n}}\n", code, re.DOTALL)
    assert body is not None and "griddepcontrol.wait" in body[0]
    origins: dict[str, set[int]] = {}
    found: set[int] = set()
    for line in body[0].partition("griddepcontrol.wait")[0].splitlines():
        parameter = re.search(rf"(%rd\d+), \[{kernel}_param_(\d+)\]", line)
        if parameter:
            origins[parameter[1]] = {int(parameter[2])}
            continue
        registers = re.findall(r"%rd\d+", line)
        taken = set().union(*(origins.get(r, set()) for r in registers[1:])) if registers else set()
        if "ld.global" in line:
            found |= set().union(*(origins.get(r, set()) for r in registers))
        elif registers:
            origins[registers[0]] = taken
    return found


@pytest.mark.parametrize("chip", ["sm_90", "sm_90a"])
def test_a_product_waits_for_a_matrix_that_another_kernel_makes(chip: str, tmp_path: Path) -> None:
    program = tmp_path / "early.lisp"
    program.write_text(PROGRAM)
    artifact = compile_request(Request(program, f"cuda:{chip}"), Observer())[0]
    kinds = {buffer.name: buffer.kind for buffer in artifact.plan.buffers}

    def kinds_ahead(entry: Entry) -> set[str]:
        launch = entry.launches[-1]
        assert launch.kernel.startswith("contraction")
        return {kinds[launch.arguments[i].buffer] for i in read_ahead(artifact.code.decode(), launch.kernel)}

    ahead = {entry.name: kinds_ahead(entry) for entry in artifact.plan.entries}
    assert ahead["constant"] == {"weight"} and ahead["computed"] <= {"weight"}
