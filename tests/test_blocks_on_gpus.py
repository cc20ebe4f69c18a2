"""Weights in blocks on GPUs, whose instructions are executed here: products of one row and of several, and rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from drawn_weights import of_16_bits
from emulated_cuda.device import EmulatedCuda

import lispgpt
from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.checkpoints import open as open_checkpoint
from lispgpt.runtime.checkpoints.blocks import in_blocks_of, widened
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

DTYPES = BLOCK_DTYPES
COLUMNS = 24


def program_of(inner: int, kinds: Sequence[str]) -> str:
    weights = " ".join(f"(w-{dtype} [{COLUMNS} {inner}] {dtype})" for dtype in kinds)
    products = " ".join(f":{dtype} (linear x w-{dtype})" for dtype in kinds)
    return f"(require nn)\n(weights {weights})\n(entry products [(x [n {inner}])] {{{products}}})\n"


# Rows of 1280 numbers are split among subgroups, whose lanes have two and a half vectors each.
@pytest.mark.drawn
@pytest.mark.parametrize(("rows", "inner"), [(1, 256), (3, 1280), pytest.param(20, 256, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx1151"])
def test_products_with_blocks(target: str, rows: int, inner: int, tmp_path: Path, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    program, path, kinds = tmp_path / "products.lisp", tmp_path / "w.safetensors", rng.permutation(DTYPES)[:5].tolist()
    program.write_text(program_of(inner, kinds))
    made = {f"w-{dtype}": rng.normal(0, 1, (COLUMNS, inner)).astype(np.float32) for dtype in kinds}
    write_safetensors(path, [(name, (COLUMNS, inner), "f32") for name in made], made.values())
    x = rng.normal(0, 1, (rows, inner)).astype(np.float32)
    if target.startswith("rocm"):
        with lispgpt.load(program, path, target=target.replace("rocm", "emulated")) as model:
            found = model.run("products", x=x)
    else:
        request = Request(program, target, sizes=[{"n": rows}], entries=("products",))
        artifact, _ = compile_request(request, Observer())
        one_by_one = re.findall(rb"ld\.global\.[bsu]8", artifact.code)
        exponents = 12 * ("mxfp4" in kinds)  # which are bytes
        assert rows > 4 or len(one_by_one) <= exponents, "few rows are multiplied by bytes that are loaded one by one"
        with Session(artifact, EmulatedCuda(), open_checkpoint(path)) as session:  # type: ignore[arg-type]
            found = session.run("products", x)
    for dtype in kinds:
        numbers = widened(in_blocks_of(made[f"w-{dtype}"], dtype), dtype).astype(np.float64)
        wanted = x.astype(np.float64) @ numbers.T
        assert np.abs(found[dtype] - wanted).max() < 2e-5 * np.abs(wanted).max(), dtype


@pytest.mark.drawn
@pytest.mark.parametrize("options", ["", ":splits 2", ":pair 2", ":rows 64 :outputs 128 :splits 1"])
@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_prompts_widen_blocks_once_a_tile(
    dtype: str, precision: str, options: str, tmp_path: Path, fresh_seed: int
) -> None:
    """By warpgroups, of what an op makes; columns are no whole tiles."""
    rng = np.random.default_rng(fresh_seed)
    rows, columns, inner = int(rng.integers(65, 140)), int(rng.integers(33, 80)), 256 * int(rng.integers(1, 3))
    program, path, pipeline = (tmp_path / name for name in ("prompt.lisp", "w.safetensors", "mine.lisp"))
    body = "(linear (* x 1.5) w)"
    program.write_text(
        f"(require nn)\n(weights (w [{columns} {inner}] {dtype}))\n(entry prompt [(x [n {inner}])] {{:y {body}}})\n"
    )
    text = (Path(__file__).parents[1] / "passes/pipelines/gpu.lisp").read_text().replace("(pass choose) ", "")
    text = text.replace("(pass widen-weights)", "")
    text = text.replace("schedule-gpu-warpgroups)", f"schedule-gpu-warpgroups {{{options}}})")
    pipeline.write_text(text.replace('"skinny direct"', '""'))
    w = rng.normal(0, 1, (columns, inner)).astype(np.float32)
    write_safetensors(path, [("w", w.shape, "f32")], [w])
    x = rng.normal(0, 1, (rows, inner)).astype(np.float32)
    request = Request(
        program, "cuda:sm_90a", sizes=[{"n": rows}], entries=("prompt",), pipeline=pipeline, precision=precision
    )
    artifact, _ = compile_request(request, Observer())
    assert b"wgmma" in artifact.code, "the product is left to other schedules"
    with Session(artifact, EmulatedCuda(), open_checkpoint(path)) as session:  # type: ignore[arg-type]
        found = session.run("prompt", x)["y"]
    wanted = 1.5 * x.astype(np.float64) @ widened(in_blocks_of(w, dtype), dtype).astype(np.float64).T
    most = 2e-5 if precision == "exact" else 2e-2
    assert np.abs(found - wanted).max() < most * np.abs(wanted).max()


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201"])
def test_prompts_multiply_what_was_widened_ahead(target: str, dtype: str, tmp_path: Path, fresh_seed: int) -> None:
    """The closest in BF16 to what each of two layers' blocks stand for, in memory that both share; fewer rows, and
    exact ones, are left as they are."""
    rng = np.random.default_rng(fresh_seed)
    rows, columns, inner = int(rng.integers(33, 80)), int(rng.integers(81, 120)), 256 * int(rng.integers(1, 4))
    program, path, pipeline = (tmp_path / name for name in ("prompt.lisp", "w.safetensors", "mine.lisp"))
    program.write_text(
        f"(require nn)\n(weights (per 2 (w [{columns} {inner}] {dtype})))\n"
        f"(entry prompt [(x [n {inner}])] {{:y (linear (* x 1.5) (w 0)) :z (linear (* x 2.0) (w 1))}})\n"
    )
    text = (Path(__file__).parents[1] / "passes/pipelines/gpu.lisp").read_text()
    pipeline.write_text(text.replace("(pass widen-weights)", '(pass widen-weights {:when "always"})'))
    w = rng.normal(0, 1, (2, columns, inner)).astype(np.float32)
    write_safetensors(path, [("w", w.shape, "f32")], [w])
    x = rng.normal(0, 1, (rows, inner)).astype(np.float32)

    def compiled(rows: int, precision: str) -> Artifact:
        sizes = [{"n": rows}]
        request = Request(program, target, sizes=sizes, entries=("prompt",), pipeline=pipeline, precision=precision)
        return compile_request(request, Observer())[0]

    artifact = compiled(rows, "fast")
    widening = [f"rows_{columns}x{inner}"] * 2
    launched = [launch.kernel for launch in artifact.plan.entries[0].launches]
    assert [name for name in launched if name in widening] == widening
    for others in (compiled(rows, "exact"), compiled(31, "fast")):
        assert not {launch.kernel for launch in others.plan.entries[0].launches} & set(widening)
    device = EmulatedCuda() if target.startswith("cuda") else open_device(target.replace("rocm", "emulated"))
    with Session(artifact, device, open_checkpoint(path)) as session:  # type: ignore[arg-type]
        found = session.run("prompt", x)
    for name, factor, own in (("y", 1.5, w[0]), ("z", 2.0, w[1])):
        numbers = bf16_to_f32(f32_to_bf16(widened(in_blocks_of(own, dtype), dtype))).astype(np.float64)
        wanted = bf16_to_f32(f32_to_bf16(np.float32(factor) * x)).astype(np.float64) @ numbers.T
        assert np.abs(found[name] - wanted).max() < 1e-5 * np.abs(wanted).max(), name


@pytest.mark.parametrize("dtype", [kind for kind in DTYPES if not find_dtype(kind).floats])
def test_one_row_is_added_up_as_bytes(dtype: str, tmp_path: Path, fresh_seed: int) -> None:
    """Where a chip has an instruction for it: within a 65,000th of the largest of a lane's numbers; NaN stays NaN."""
    rng, inner = np.random.default_rng(fresh_seed), 512
    program, path, pipeline = (tmp_path / name for name in ("row.lisp", "w.safetensors", "mine.lisp"))
    text = (Path(__file__).parents[1] / "passes/pipelines/gpu.lisp").read_text()
    pipeline.write_text(text.replace("schedule-gpu-contractions)", "schedule-gpu-contractions {:whole-rows 1})"))
    program.write_text(f"(require nn)\n(weights (w [40 {inner}] {dtype}))\n(entry row [(x [n {inner}])] (linear x w))")
    w = rng.normal(0.1, 1, (40, inner)).astype(np.float32)
    write_safetensors(path, [("w", w.shape, "f32")], [w])
    request = Request(program, "cuda:sm_90a", sizes=[{"n": 1}], entries=("row",), pipeline=pipeline)
    artifact, _ = compile_request(request, Observer())
    assert b"dp4a.s32.s32" in artifact.code
    x, numbers = rng.normal(0, 1, (1, inner)).astype(np.float32), widened(in_blocks_of(w, dtype), dtype)
    x[:, 32:64] *= 1000  # what others lose by it, were the scale one for all
    x[:, 96:160] = 0
    with Session(artifact, EmulatedCuda(), open_checkpoint(path)) as session:  # type: ignore[arg-type]
        found = session.run("row", x)["row"]
        error = np.abs(found - x.astype(np.float64) @ numbers.T.astype(np.float64))
        assert (error <= of_16_bits(x, numbers.astype(np.float64))).all()
        x[0, inner - 1] = np.nan
        assert np.isnan(session.run("row", x)["row"]).all()
