"""Tile programs: what they mean by numpy, as machine code on emulators, as text, and which of them are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_amd.running import Emulation
from emulated_products import check, on_emulated_amd, on_emulated_cuda
from random_products import RandomProduct, random_product
from tile_programs import WAYS, Way, kernel_of, memory_of, plain

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request, emit, evaluate_request
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import integers
from lispgpt.passes import tile
from lispgpt.passes.pipeline import Runner
from lispgpt.passes.targets import find_target
from lispgpt.passes.tile.evaluate import reference
from lispgpt.passes.tile.interpret import interpret
from lispgpt.passes.tile.verify import verify
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline
from lispgpt.runtime.plan.artifact import load_artifact

pytestmark = pytest.mark.drawn


def sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Rows, columns and sums that fill neither the last tile nor the last step; sums in pieces of eight."""
    return int(rng.integers(8, 150)), int(rng.integers(8, 150)), 8 * int(rng.integers(1, 40))


def interpreted(way: Way, product: RandomProduct, folder: Path, seed: int) -> None:
    """Check that a program is safe and that numpy makes of it what float64 makes of the kernel's tensors, and both what
    the product is."""
    values = product.values(np.random.default_rng(seed))
    with new_context(), ir.Location.unknown():
        module = way.module(product, folder)
        kernel = kernel_of(module)
        verify(kernel, find_target(way.target))
        memory = memory_of(kernel, values)
        (exact,), (found,) = reference(kernel, memory), interpret(kernel, memory, np.random.default_rng(seed))
    result = [product.sizes[i] for i in product.result]
    check(exact.reshape(result), product, values, 1e-12, f"the reference, seed {seed}")
    check(found.reshape(result), product, values, 1e-6 if "f32" not in product.dtypes else 3e-5, f"seed {seed}")


@pytest.mark.parametrize("name", WAYS)
def test_numpy_makes_of_a_program_what_float64_makes_of_its_kernel(name: str, tmp_path: Path) -> None:
    way, rng = WAYS[name], seeded.rng()
    interpreted(way, way.product(*sizes(rng)), tmp_path, int(rng.integers(1 << 30)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WAYS if name != "boxes"])
def test_random_products(name: str, tmp_path: Path) -> None:
    """Of every layout, which are brought through registers where copies cannot, and of F32 in parts."""
    rng = seeded.rng()
    for number in range(40):
        product = random_product(rng, {"b": 4, "r": 90, "c": 90, "k": 200}, int(rng.choice([1, 8])))
        if min(product.extent("r"), product.extent("c")) > 1:
            folder = tmp_path / str(number)
            folder.mkdir()
            interpreted(WAYS[name], product, folder, int(rng.integers(1 << 30)))


INSTRUCTIONS = {"pieces": "cp.async.cg.shared.global", "boxes": "wgmma.mma_async.sync.aligned.m64n64k16"}
"""The chips' own, by which tiles come and are multiplied."""


@pytest.mark.parametrize("name", WAYS)
def test_chips_make_the_same_of_it(name: str, tmp_path: Path) -> None:
    way, rng = WAYS[name], seeded.rng()
    product = way.product(*sizes(rng))
    values = product.values(rng)
    artifact, _ = compile_request(way.request(product, tmp_path), Observer())
    assert [facts.get("tiles") for facts in artifact.kernels.values()] == ["fixed"]
    amd = way.target.startswith("rocm")
    assert INSTRUCTIONS.get(name, "") in ("" if amd else artifact.code.decode())
    found = on_emulated_amd(product, values, artifact) if amd else on_emulated_cuda(artifact, values)
    check(found, product, values, 1e-6 if "f32" not in product.dtypes else 3e-5, f"{name}: {product}")


@pytest.mark.parametrize("dtype", [pytest.param("bf16", marks=pytest.mark.slow), "f32"])
def test_few_rows_by_a_ring_of_weights(dtype: str, tmp_path: Path) -> None:
    """The library's skinny.lisp, which a pipeline asks for; rows, columns and sums that fill no tile."""
    rng = seeded.rng()
    extents = int(rng.integers(2, 17)), int(rng.integers(16, 120)), 8 * int(rng.integers(2, 160))
    product = plain(*extents, (dtype, "bf16"))
    pipeline = tmp_path / "skinny.lisp"
    choice = '(pass choose-tiles {:use "skinny" :copies "async"})'
    pipeline.write_text(pipeline_path("gpu").read_text().replace("(pass choose-tiles)", choice, 1))
    request = Request(product.write(tmp_path), "cuda:sm_90a", pipeline=pipeline)
    artifact, _ = compile_request(request, Observer())
    assert [facts["tiles"] for facts in artifact.kernels.values()] == ["skinny"]
    values = product.values(rng)
    check(on_emulated_cuda(artifact, values), product, values, 1e-6 if dtype == "bf16" else 3e-5, str(product))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "boxes" else pytest.mark.slow) for n in WAYS])
def test_a_dump_goes_back_in(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    with new_context() as context, ir.Location.unknown():
        first = way.module(way.product(40, 40, 104), tmp_path)
        again = ir.Module.parse(str(first), context)
        texts = []
        for module in (first, again):
            pipeline = read_pipeline(pipeline_path("gpu"))
            start = [call.name for call in pipeline.calls].index("lower-tiles")
            Runner(find_target(way.target)).run(module, pipeline.after(start).before(1))
            texts.append(str(module))
    assert texts[0] == texts[1] and not re.search(r'^\s*(%\S+ = )?"?tile\.', texts[0], re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201"])
def test_matmul_at_a_real_size(target: str, tmp_path: Path) -> None:
    """One text for all chips: numpy executes two blocks of a product of 4096 rows, columns and sums on each, and where
    there is an emulator that runs single blocks, it does too."""
    product, rng = plain(4096, 4096, 4096), seeded.rng()
    pipeline = tmp_path / "all.lisp"
    choice = '(pass choose-tiles {:use "warpgroups matmul" :copies "bulk"})'
    pipeline.write_text(pipeline_path("gpu").read_text().replace("(pass choose-tiles)", choice, 1))
    request = Request(product.write(tmp_path), target, pipeline=pipeline)
    values = product.values(rng)
    x, w, bias = (values[name].astype(np.float64) for name in ("x", "w", "bias"))
    with new_context(), ir.Location.unknown():
        before = read_pipeline(pipeline)
        stop = [call.name for call in before.calls].index("lower-tiles")
        chip, program = find_target(target), evaluate_request(request)
        runner_for(chip).run(program.module, before.before(stop))
        kernel = kernel_of(program.module)
        verify(kernel, chip)
        grid = integers(ir.DictAttr(kernel.attributes["tile"])["grid"])
        blocks = [tuple(int(rng.integers(n)) for n in grid) for _ in range(2)]
        (found,) = interpret(kernel, memory_of(kernel, values), rng, blocks)  # type: ignore[arg-type]
    assert 0 < np.count_nonzero(~np.isnan(found)) <= 2.1 * 4096 * 4096 / prod(grid)
    agrees(found, x, w, bias)
    if target.startswith("rocm"):
        artifact, _ = compile_request(request, Observer())
        emulation = Emulation(artifact, {n: v if n == "bias" else bits_of(v) for n, v in values.items()})
        (launch,) = artifact.plan.entries[0].launches
        emulation.launch(launch, [(*blocks[0], 0)])
        result = emulation.buffers[next(iter(artifact.plan.entries[0].results.values()))].view(np.float32)
        agrees(result.reshape(4096, 4096), x, w, bias)


def bits_of(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def agrees(found: np.ndarray, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> None:
    """Check the elements that were computed."""
    known = ~np.isnan(found)
    rows, columns = np.flatnonzero(known.any(1)), np.flatnonzero(known.any(0))
    exact = x[rows] @ w[columns].T + bias[np.ix_(rows, columns)]
    mine = known[np.ix_(rows, columns)]
    error = np.linalg.norm((found[np.ix_(rows, columns)] - exact)[mine]) / np.linalg.norm(exact[mine])
    assert error < 1e-6


@pytest.mark.slow
def test_products_are_measured_by_two_artifacts(tmp_path: Path) -> None:
    tool = Path(__file__).parents[2] / "tools/bench_schedules.py"
    given = ["--target", "cuda:sm_90a", "--products", "out-8", "--compile", str(tmp_path)]
    subprocess.run([sys.executable, str(tool), *given], check=True, timeout=300)
    names = {
        path.stem: [facts.get("tiles") for facts in load_artifact(path).kernels.values()]
        for path in tmp_path.glob("*.lgpt")
    }
    assert names == {"own": [None], "tiles": ["skinny"]}


# ---- the language and the choice


def test_what_no_chip_can_multiply_is_left_to_others(tmp_path: Path) -> None:
    """F32 numbers on the right, which no copy splits, for instructions that read what copies bring."""
    request = WAYS["boxes"].request(plain(40, 40, 64, ("bf16", "f32")), tmp_path)
    (facts,) = compile_request(request, Observer())[0].kernels.values()
    assert "tiles" not in facts


def test_a_report_names_the_schedule(tmp_path: Path) -> None:
    product = plain(40, 40, 64)
    for request, name in (
        (Request(product.write(tmp_path), "rocm:gfx1151"), "matmul"),
        (WAYS["one slot"].request(product, tmp_path), "fixed"),
    ):
        artifact, _ = compile_request(request, Observer())
        assert f"is written by the schedule {name}" in kernel_table(artifact, "")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("(tile.mma p sums a b)", "(tile.mma p a b sums)", "`tile.mma` wants a register tile here"),
        ("{:takes true}", "{:takes 3}", "`:takes` is true or false"),
        ("{:takes true}", "{:when true}", "options are :takes, with an expression"),
        ("(schedule fixed [p]", "(schedule fixed []", "a schedule is"),
        ("[columns step])", "[columns 0])", r"`tile.box` wants \[rows columns\] here"),
        ("(ceil-div (tile.inner p) step)", "1", "1 step brings 64 of the 72 elements of k, along which"),
        ("column (* n step)] [columns", "column (* (+ n 1) step)] [columns", "of elements 64 to 127 and 0 to 63 of k"),
        ("(* n step)", "(* n 72)", "no step brings elements 64 to 71 of k"),
        (
            "(* n step)",
            "(* n 56)",
            "begins at element 56 of k, and another ends at 64: what is between is summed twice",
        ),
        ("[batch row (*", "[batch column (*", "a box of the left operand begins at a row, and this one at the other's"),
        ("(tile.task p [rows", "(tile.task p [(* 2 rows)", "the block's task has 64 rows, and a box 32 of them"),
        ("sums) [batch row column]", "sums) [batch column row]", "and this one at the column for a row"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said_at_its_place(before: str, after: str, says: str, tmp_path: Path) -> None:
    way, product = WAYS["one slot"], plain(40, 40, 72)
    request = way.request(product, tmp_path)
    path = request.schedules[0]
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(UserError, match=says) as found:
        compile_request(request, Observer())
    assert found.value.span is not None and found.value.span.source.name == str(path)


def test_the_pages_example_is_taken_as_it_is_written(tmp_path: Path) -> None:
    page = tile.__doc__ or ""
    start = page.index("    (schedule mine")
    (tmp_path / "mine.lisp").write_text(page[start : page.index("\n\n", start)])
    product, rng = plain(70, 70, 72), seeded.rng()
    request = Request(product.write(tmp_path), "rocm:gfx1151", schedules=[tmp_path / "mine.lisp"])
    artifact, _ = compile_request(request, Observer())
    assert [facts["tiles"] for facts in artifact.kernels.values()] == ["mine"]
    own = replace(request, program=tmp_path / "own.lisp", schedules=[])
    own.program.write_text(request.program.read_text() + page[start : page.index("\n\n", start)])
    of_the_model, _ = compile_request(own, Observer())
    assert [facts["tiles"] for facts in of_the_model.kernels.values()] == ["mine"], "a model's file may have it too"
    values = product.values(rng)
    check(on_emulated_amd(product, values, artifact), product, values, 1e-6, "mine")


def test_what_chips_execute_names_the_schedules_lines_and_the_models(tmp_path: Path) -> None:
    """Behind lower-tiles and in the LLVM dialect; machine code is of the model's lines."""
    product = plain(70, 70, 72)
    page = tile.__doc__ or ""
    start = page.index("    (schedule mine")
    (tmp_path / "mine.lisp").write_text(page[start : page.index("\n\n", start)])
    said: list[str] = []
    observer = Observer(print_after=["lower-tiles", "canonicalize"], locations=True, show=said.append)
    request = Request(product.write(tmp_path), "rocm:gfx1151", schedules=[tmp_path / "mine.lisp"])
    artifact, _ = compile_request(request, observer)
    assert [facts.get("tiles") for facts in artifact.kernels.values()] == ["mine"]
    lines = (tmp_path / "mine.lisp").read_text().splitlines()
    store = next(number for number, line in enumerate(lines, 1) if "tile.store" in line)
    own = re.escape(str(tmp_path / "mine.lisp"))
    for text in [text for text in said if "loc(" in text][-2:]:  # of passes that changed something
        named = set(map(int, re.findall(rf'loc\("{own}:(\d+):\d+"\(', text)))
        assert store in named and len(named) > 2, named
    assert b"mine.lisp" not in artifact.code


def test_a_schedule_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    pipeline = tmp_path / "mine.lisp"
    pipeline.write_text(pipeline_path("gpu").read_text().replace(' matmul"', ' matmull"'))
    with pytest.raises(
        UserError,
        match=r"there is no schedule 'matmull' \(there are: attention, attention-gradients, direct, matmul, "
        r"warpgroups, rows, widen, column-sums, skinny\)",
    ):
        compile_request(Request(plain(8, 8, 8).write(tmp_path), "rocm:gfx1151", pipeline=pipeline), Observer())


def test_schedules_are_for_pipelines_that_choose(tmp_path: Path) -> None:
    """A part of a pipeline need not choose among them."""
    request = WAYS["one slot"].request(plain(8, 8, 8), tmp_path)
    assert "linalg.contract" in emit(request, "kernels", Observer())
    own = tmp_path / "own.lisp"
    own.write_text(pipeline_path("cpu").read_text().replace('(pass choose-tiles {:use "rows"})', ""))
    with pytest.raises(UserError, match="pipeline cpu has no choose-tiles pass, which would"):
        compile_request(replace(request, target="cpu", pipeline=own), Observer())
    with pytest.raises(UserError, match="has no schedule of rows, which are all that CPUs run"):
        compile_request(replace(request, target="cpu"), Observer())
