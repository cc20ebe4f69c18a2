"""Products on warpgroup instructions: which are made so, and for which shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.passes.schedule.warpgroups.product import (
    BESIDE_REGISTERS,
    READER_REGISTERS,
    WIDENER_REGISTERS,
    WRITER_REGISTERS,
)
from lispgpt.passes.targets import Gpu, find_target
from lispgpt.passes.targets.warpgroup_tiles import Shape, cost, tilings
from lispgpt.runtime.plan.artifact import Artifact

PROGRAM = """
(require nn)
(config context 128)
(weights (table [64 192]) (w [{outputs} 192] bf16) (b [{outputs}]))
(entry product [tokens positions] (gelu (linear (rows table tokens) w b)))
"""


def made(folder: Path, outputs: int, target: str = "cuda:sm_90a", batch: int = 70, options: str = "") -> Request:
    """A request for a program of one product, of 128 positions or of `batch` sequences by one."""
    path = folder / "product.lisp"
    path.write_text(PROGRAM.format(outputs=outputs))
    pipeline = folder / "mine.lisp"
    text = (Path(__file__).parents[2] / "passes/pipelines/gpu.lisp").read_text().replace("(pass choose) ", "")
    pipeline.write_text(text.replace("schedule-gpu-warpgroups)", f"schedule-gpu-warpgroups {{{options}}})"))
    return Request(path, target, pipeline=pipeline, batch=batch)


def products(artifact: Artifact) -> dict[int, dict[str, object]]:
    """The facts of the kernel that computes the product, by rows."""
    names = re.compile(r"contraction_(\d+)x")
    return {int(m.group(1)): dict(facts) for name, facts in artifact.kernels.items() if (m := names.match(name))}


@pytest.mark.parametrize("outputs", [96, 200, 37])
def test_many_rows_take_warpgroups(tmp_path: Path, outputs: int) -> None:
    artifact = compile_request(made(tmp_path, outputs), Observer())[0]
    kernels = products(artifact)
    assert {rows: bool(facts["shared_bytes"]) for rows, facts in kernels.items()} == {
        1: False,
        16: False,  # few rows have no tile in shared memory
        70: True,
        128: True,
    }
    code = artifact.code.decode()
    assert ".target sm_90a" in code and "wgmma.mma_async.sync.aligned.m64n" in code
    assert "cp.async.bulk.tensor.2d.shared::cluster" in code and ".extern .shared" in code
    for entry in artifact.plan.entries:
        for launch in entry.launches:
            assert launch.shared_bytes == artifact.kernels[launch.kernel]["shared_bytes"] <= 227 * 1024


def test_a_portable_chip_has_none(tmp_path: Path) -> None:
    assembly = emit(made(tmp_path, 96, "cuda:sm_90"), "asm", Observer())
    assert ".target sm_90\n" in assembly and "wgmma" not in assembly and "mma.sync" in assembly


@pytest.mark.parametrize("rows", [64, 70, 128, 1024])
@pytest.mark.parametrize(("outputs", "inner"), [(2304, 768), (768, 768), (3072, 768), (768, 3072), (37, 192)])
def test_the_best_tile_fits_its_target(rows: int, outputs: int, inner: int) -> None:
    target = find_target("cuda:sm_90a")
    assert isinstance(target, Gpu)
    shape = Shape(rows, outputs, inner)
    best = min(tilings(target, shape), key=lambda tiling: cost(tiling, shape, target))
    assert best.outputs // best.output_parts % 8 == 0
    assert inner // 64 % best.splits == 0 and best.splits <= target.cluster
    assert best.blocks(rows, outputs) <= target.cores_for(best.splits), "one wave of blocks does it"


def test_clusters_use_every_core_of_a_chip_that_says_nothing_else() -> None:
    target = find_target("cuda:sm_90a")
    assert isinstance(target, Gpu) and target.cores_for(8) == target.cluster_cores < target.cores
    target = replace(target, cluster_cores=0)
    assert target.cores_for(8) == target.cores
    shape = Shape(128, 768, 3072)
    assert all(cost(tiling, shape, target) > 0 for tiling in tilings(target, shape))


def test_a_tile_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no tile of splits 8 for a product over 192"):
        compile_request(made(tmp_path, 96, options=":splits 8"), Observer())


@pytest.mark.parametrize("registers", [(WRITER_REGISTERS, READER_REGISTERS), (WIDENER_REGISTERS, BESIDE_REGISTERS)])
def test_warpgroups_ask_for_no_more_registers_than_a_launch_has(registers: tuple[int, int]) -> None:
    """Three warpgroups begin with what ptxas gives each thread, a multiple of eight: more never comes."""
    writer, reader = registers
    assert writer + 2 * reader <= 3 * (65536 // 384 // 8 * 8)
