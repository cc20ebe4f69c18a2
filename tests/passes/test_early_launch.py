"""Kernels that start before those ahead of them are done read ahead only what none of them writes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_text, poison
from emulated_cuda.device import EmulatedCuda

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

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


LOOP = """(require nn)
(require-dialect arith scf)
(weights (x [6 12] f32))
(entry f []
  (let [first (+ 0.0 (square x))
        kept (scf.for {:result (type first)} (: 1 index) (: 6 index) (: 1 index) first
               (region (block [(: row index) (: kept (type first))]
                 (scf.yield (insert (+ (slice kept [row 0] [nil 12])
                                       (* 0.5 (slice kept [(- row (: 1 index)) 0] [nil 12])))
                                    kept [row 0] [nil 12])))))]
    {:kept kept}))
"""


def test_an_index_that_another_kernel_makes_is_waited_for(tmp_path: Path) -> None:
    """The round that a loop's body is in comes from memory that a launch ahead of it writes."""
    x = np.random.default_rng(seeded.fresh_seed()).standard_normal((6, 12)).astype(np.float32)
    wanted = np.square(x.astype(np.float64))
    for row in range(1, 6):
        wanted[row] += 0.5 * wanted[row - 1]
    artifact = compile_text(LOOP, tmp_path, target="cuda:sm_90")
    with Session(artifact, EmulatedCuda(), Weights({"x": x})) as session:
        poison(session)
        np.testing.assert_allclose(session.run("f")["kept"], wanted, 1e-5)


SHAPES = {"x": (2, 5), "a": (16,), "b": (16,), "w": (5,)}
GATHER = """(require nn)
(weights (x [2 5]) (a [16]) (b [16]) (w [5]))
(entry f []
  (let [made (square x) rows (rows made (max 0 (min 1 (cast (< a b) i32))))] (contract [i] w [k] rows [i k])))
"""


def test_rows_that_another_kernel_makes_are_waited_for(tmp_path: Path) -> None:
    """Whichever rows weights say: what they are of is captured by what reads them, and is no operand."""
    rng = np.random.default_rng(seeded.fresh_seed())
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    x, a, b, w = (given[name].astype(np.float64) for name in "xabw")
    artifact = compile_text(GATHER, tmp_path, target="cuda:sm_90")
    with Session(artifact, EmulatedCuda(), Weights(given)) as session:
        poison(session)
        np.testing.assert_allclose(session.run("f")["f"], np.square(x)[(a < b).astype(int)] @ w, 1e-3, 1e-3)
