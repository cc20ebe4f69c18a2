"""Products of the same rows that meet element by element are one kernel (join-products): by the library's schedules and
by a user's, on the PTX interpreter, on AMD's emulator and by numpy, against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from changed_pipelines import changed_pipeline
from emulated_amd.running import Emulation
from emulated_cuda.entries import run
from few_rows import CHIPS, agrees, in_blocks, rms

from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request, evaluate_request
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions, symbol_of
from lispgpt.passes.targets import find_target
from lispgpt.passes.tile.evaluate import reference
from lispgpt.passes.tile.interpret import interpret
from lispgpt.passes.tile.verify import verify
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline
from lispgpt.runtime.checkpoints.blocks import widened
from lispgpt.runtime.plan.artifact import Artifact

pytestmark = pytest.mark.drawn

OWN = """
(schedule mine [gate up]
  {:takes (and (>= (tile.rows gate) 2) (>= (tile.columns gate) 16))}
  (let [[batch row column] (tile.task gate [32 64])]
    (tile.pipeline gate SLOTS (ceil-div (tile.inner gate) 32)
      (fn [n] [(tile.box (tile.left gate) [batch row (* n 32)] [32 32])
               (tile.box (tile.right gate) [batch column (* n 32)] [64 32])
               (tile.box (tile.right up) [batch column (* n 32)] [64 32])])
      (fn [] [(tile.sums gate [32 64] 1 [2 2] "subgroup") (tile.sums up [32 64] 1 [2 2] "subgroup")])
      (fn [[g u] [x a b]] [(tile.mma gate g x a) (tile.mma up u x b)])
      (fn [sums] (tile.store gate sums [batch row column])))))
"""
TWO = "(* (silu (linear r gate)) (linear r up))", ("gate", "up")
THREE = "(+ (* (silu (linear r gate)) (linear r up)) (linear r more))", ("gate", "up", "more")


def program(folder: Path, rows: int, inner: int, outputs: int, kind: str, of: tuple = TWO) -> Path:
    weights = " ".join(f"({name} [{outputs} {inner}] {kind})" for name in of[1])
    path = folder / "p.lisp"
    path.write_text(
        f"(require nn)(weights (gamma [{inner}]) {weights})"
        f"(entry out [(x [{rows} {inner}] f32)] (let [r (rms-norm x gamma 1e-5)] {of[0]}))"
    )
    return path


def always(folder: Path, target: str) -> Request:
    """Of such a program, whatever should take less time."""
    return Request(folder / "p.lisp", target, pipeline=changed_pipeline(folder, {"join-products": ':when "always"'}))


def values(rows: int, inner: int, outputs: int, kind: str, names: tuple[str, ...]) -> tuple[dict, dict]:
    """What is in memory, and what it stands for."""
    rng = seeded.rng()
    exact = {"x": rng.standard_normal((rows, inner), np.float32), "gamma": rng.standard_normal(inner, np.float32)}
    stored: dict[str, np.ndarray] = dict(exact)
    for name in names:
        if kind in BLOCK_DTYPES:
            stored[name] = in_blocks(rng, outputs, inner, kind)
            exact[name] = widened(stored[name].reshape(outputs, -1).view(find_dtype(kind).numpy), kind)
            continue
        numbers = rng.standard_normal((outputs, inner), np.float32)
        bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        exact[name] = numbers if kind == "f32" else (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        stored[name] = numbers if kind == "f32" else bits
    return stored, {name: np.asarray(v, np.float64) for name, v in exact.items()}


def expected(exact: dict[str, np.ndarray]) -> np.ndarray:
    rows = rms(exact["x"], exact["gamma"])
    gate = rows @ exact["gate"].T
    found = gate / (1 + np.exp(-gate)) * (rows @ exact["up"].T)
    return found + rows @ exact["more"].T if "more" in exact else found


def check(artifact: Artifact, chip: str, given: dict[str, np.ndarray], wanted: np.ndarray, what: object) -> None:
    (entry,) = artifact.plan.entries
    found = run(artifact, entry, given) if chip.startswith("cuda") else Emulation(artifact, given).run(entry)
    agrees(found, wanted, what)


def joined(artifact: Artifact) -> dict[str, Any]:
    """The facts of the one kernel of several products."""
    (facts,) = [facts for name, facts in artifact.kernels.items() if name.startswith("products_")]
    return facts


@pytest.mark.parametrize("kind", ["bf16", "f32", "q8_0", "q4_k"])
@pytest.mark.parametrize("chip", CHIPS)
def test_the_library_writes_gate_and_up_as_one(chip: str, kind: str, tmp_path: Path) -> None:
    """Of few rows and their norm, which fill no tile."""
    rng = seeded.rng()
    inner = {"bf16": 32 * int(rng.integers(8, 40)), "f32": 32 * int(rng.integers(4, 20))}.get(kind, 2048)
    sizes = int(rng.integers(2, 17)), inner, int(rng.integers(16, 100))
    program(tmp_path, *sizes, kind)
    artifact, _ = compile_request(always(tmp_path, chip), Observer())
    assert joined(artifact)["tiles"] in ("direct", "skinny")
    given, exact = values(*sizes, kind, TWO[1])
    check(artifact, chip, given, expected(exact), (chip, sizes, kind))


@pytest.mark.parametrize("chip", CHIPS)
def test_so_does_a_schedule_of_the_users(chip: str, tmp_path: Path) -> None:
    """Of more rows than the library would take so, in a ring or in two slots."""
    rng = seeded.rng()
    (tmp_path / "mine.lisp").write_text(OWN.replace("SLOTS", str(rng.integers(1, 5))))
    sizes = int(rng.integers(2, 70)), 8 * int(rng.integers(4, 30)), int(rng.integers(16, 100))
    request = Request(program(tmp_path, *sizes, "bf16"), chip, schedules=[tmp_path / "mine.lisp"])
    artifact, _ = compile_request(request, Observer())
    assert joined(artifact)["tiles"] == "mine"
    assert "(yours, tried first)" in kernel_table(artifact, "")
    given, exact = values(*sizes, "bf16", TWO[1])
    check(artifact, chip, given, expected(exact), (chip, sizes))


@pytest.mark.parametrize("own", [False, True])
def test_numpy_makes_the_same_of_it(own: bool, tmp_path: Path) -> None:
    rng = seeded.rng()
    sizes = int(rng.integers(2, 17)), 32 * int(rng.integers(4, 20)), int(rng.integers(16, 100))
    (tmp_path / "mine.lisp").write_text(OWN.replace("SLOTS", "4"))
    schedules = [tmp_path / "mine.lisp"] if own else []
    request = Request(program(tmp_path, *sizes, "bf16"), "cuda:sm_90a", schedules=schedules)
    _, exact = values(*sizes, "bf16", TWO[1])
    with new_context(), ir.Location.unknown():
        target, pipeline = find_target(request.target), read_pipeline(pipeline_path("gpu"))
        found = evaluate_request(request)
        names = [call.name for call in pipeline.calls]
        stop = names.index("lower-tiles") if own else names.index("lower-tiles", names.index("lower-tiles") + 1)
        runner_for(target, request.schedules, found.schedules).run(found.module, pipeline.before(stop))
        (kernel,) = kernel_functions(found.module)
        assert symbol_of(kernel).startswith("products_")
        verify(kernel, target)
        shapes = [argument.type.shape for argument in kernel.regions[0].blocks[0].arguments]
        memory = [exact[name].astype(np.float32) for name in ("x", "gamma", "gate", "up")]
        memory = [*memory, *(np.full(shape, np.nan, np.float32) for shape in shapes[4:])]
        (whole,), (tiles,) = reference(kernel, memory), interpret(kernel, memory, rng)
    agrees(whole, expected(exact), sizes)
    agrees(tiles, expected(exact), sizes)


def test_three_products_are_one_too(tmp_path: Path) -> None:
    sizes = 8, 256, 48
    program(tmp_path, *sizes, "bf16", THREE)
    artifact, _ = compile_request(always(tmp_path, "cuda:sm_90a"), Observer())
    assert len(artifact.kernels) == 1 and joined(artifact)["tiles"] in ("direct", "skinny")
    given, exact = values(*sizes, "bf16", THREE[1])
    check(artifact, "cuda:sm_90a", given, expected(exact), sizes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(+ (linear r gate) (linear (linear r up) square))", "another's rows"),
        ("(* (softmax (linear r gate)) (linear r up))", "a whole row"),
        ("(* (linear r gate) (linear (* r 2.0) up))", "other rows"),
    ],
)
def test_products_that_meet_otherwise_stay_apart(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "p.lisp"
    path.write_text(
        "(require nn)(weights (gate [64 64] bf16) (up [64 64] bf16) (square [64 64] bf16))"
        f"(entry out [(x [4 64] f32)] (let [r (* x x)] {text}))"
    )
    artifact, _ = compile_request(Request(path, "cuda:sm_90a"), Observer())
    assert len(artifact.kernels) > 1 and not any(name.startswith("products_") for name in artifact.kernels), why


def test_schedules_are_given_as_many_products_as_they_name(tmp_path: Path) -> None:
    """One of a product takes neither; one that stores less than there is says so at its place."""
    path, mine = program(tmp_path, 8, 64, 64, "bf16"), tmp_path / "mine.lisp"
    mine.write_text(OWN.replace("SLOTS", "2").replace("[gate up]\n", "[gate up more]\n", 1))
    artifact, _ = compile_request(Request(path, "cuda:sm_90a", schedules=[mine]), Observer())
    assert joined(artifact)["tiles"] in ("direct", "skinny")
    mine.write_text(
        OWN.replace("SLOTS", "2").replace("(fn [sums] (tile.store gate sums", "(fn [[g u]] (tile.store gate g")
    )
    with pytest.raises(UserError, match="the kernel has 2 products, and this stores sums of 1") as found:
        compile_request(Request(path, "cuda:sm_90a", schedules=[mine]), Observer())
    assert found.value.render().startswith(f"{mine}:")
    mine.write_text("(schedule wrong [a b] {:takes true :of rows} 0)")
    with pytest.raises(UserError, match="a schedule of rows is given one kernel"):
        compile_request(Request(path, "cuda:sm_90a", schedules=[mine]), Observer())
