"""Products of a few rows on matrix instructions, executed as PTX and as AMD's code on numpy, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import rounded_to_bf16
from emulated_amd.running import Emulation
from emulated_cuda.entries import run
from real_sizes.models import sizes

from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.passes.targets import GPU_CHIPS, find_target
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.plan.artifact import Artifact

PIPELINE = (Path(__file__).parents[2] / "passes/pipelines/gpu.lisp").read_text().replace("(pass choose) ", "")
NORM = "(layer-norm x g c 1e-5)"


def normed(x: np.ndarray, g: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + c


FORMS: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "plain": ("(* (linear x w) 1.0)", lambda v: v["x"] @ v["w"].T),
    "with what follows": (
        "(+ (* (linear x w d) r) r)",
        lambda v: (v["x"] @ v["w"].T + v["d"]) * v["r"] + v["r"],
    ),
    "of a norm": (f"(+ (linear {NORM} w d) r)", lambda v: normed(v["x"], v["g"], v["c"]) @ v["w"].T + v["d"] + v["r"]),
    "of elements": ("(+ (linear (* x x) w) r)", lambda v: v["x"] ** 2 @ v["w"].T + v["r"]),
}
CASES = [
    # form, rows, outputs, k, dtypes of x and w
    ("plain", 8, 64, 512, ("f32", "bf16")),
    ("plain", 5, 40, 96, ("bf16", "bf16")),
    ("with what follows", 8, 96, 1088, ("f32", "bf16")),
    ("with what follows", 13, 100, 288, ("f32", "bf16")),
    ("with what follows", 2, 72, 256, ("f32", "f32")),
    ("of a norm", 8, 80, 256, ("f32", "bf16")),
    ("of a norm", 11, 56, 288, ("f32", "bf16")),
    ("of a norm", 16, 128, 96, ("f32", "f32")),
    ("of elements", 3, 48, 160, ("f32", "bf16")),
]


def made(folder: Path, form: str, sizes: tuple[int, int, int], dtypes: tuple[str, str], target: str, options: str):  # type: ignore[no-untyped-def]
    """The program's artifact, its operands, and its result in float64."""
    rows, outputs, inner = sizes
    text, reference = FORMS[form]
    rng = seeded.rng()
    shapes = {"x": (rows, inner), "w": (outputs, inner), "g": (inner,), "c": (inner,), "d": (outputs,)}
    shapes["r"] = (rows, outputs)
    types = dict(zip(("x", "w"), dtypes, strict=True))
    used = {n for n in shapes if any(f"{before}{n}{after}" in text for before in " (" for after in " )")}
    values = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items() if n in used}
    values = {n: rounded_to_bf16(v) if types.get(n) == "bf16" else v for n, v in values.items()}
    weights = " ".join(f"({n} [{' '.join(map(str, v.shape))}] {types.get(n, 'f32')})" for n, v in values.items())
    program, pipeline = folder / "product.lisp", folder / "mine.lisp"
    program.write_text(f"(require nn)(config context 1)(weights {weights})(entry out [tokens positions] {text})")
    pipeline.write_text(
        PIPELINE.replace("(pass schedule-gpu-skinny-products)", f"(pass schedule-gpu-skinny-products {{{options}}})")
    )
    request = Request(program, target, pipeline=pipeline)
    expected = reference({n: v.astype(np.float64) for n, v in values.items()})
    bits = {n: (v.view(np.uint32) >> 16).astype(np.uint16) if types.get(n) == "bf16" else v for n, v in values.items()}
    return request, bits, expected


def check(found: np.ndarray, expected: np.ndarray, what: object) -> None:
    assert np.isfinite(found).all(), what
    assert np.linalg.norm(found.reshape(expected.shape) - expected) <= 3e-5 * np.linalg.norm(expected), what


def blocks_of(artifact: Artifact) -> list[int]:
    return [launch.grid[0] for launch in artifact.plan.entries[0].launches if launch.kernel.startswith("contraction")]


@pytest.mark.parametrize(("form", "rows", "outputs", "inner", "dtypes"), CASES)
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_products_equal_float64(
    chip: str, form: str, rows: int, outputs: int, inner: int, dtypes: tuple[str, str], tmp_path: Path
) -> None:
    request, values, expected = made(tmp_path, form, (rows, outputs, inner), dtypes, f"cuda:{chip}", "")
    artifact, _ = compile_request(request, Observer())
    assert b"mma.sync" in artifact.code and len(artifact.plan.entries[0].launches) == 1
    check(run(artifact, artifact.plan.entries[0], values), expected, (form, rows, outputs, inner))


@pytest.mark.parametrize("options", [":outputs 8", ":outputs 16", ":outputs 32", ":outputs 64", ":subgroups 4"])
@pytest.mark.parametrize("form", ["with what follows", "of a norm"])
def test_every_tile_equals_float64(form: str, options: str, tmp_path: Path) -> None:
    """Outputs and rows that fill no tile."""
    sizes = (int(seeded.rng().integers(2, 17)), 100, 96)
    request, values, expected = made(tmp_path, form, sizes, ("f32", "bf16"), "cuda:sm_90a", options)
    artifact, _ = compile_request(request, Observer())
    if "outputs" in options:
        assert blocks_of(artifact) == [-(-sizes[1] // int(options.split()[1]))]
    check(run(artifact, artifact.plan.entries[0], values), expected, (form, sizes, options))


@pytest.mark.parametrize("form", ["with what follows", "of a norm"])
def test_blocks_loop_over_many_outputs(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", replace(GPU_CHIPS["cuda"]["sm_90a"], cores=2, cluster_cores=0))
    request, values, expected = made(tmp_path, form, (9, 200, 96), ("f32", "bf16"), "cuda:sm_90a", "")
    artifact, _ = compile_request(request, Observer())
    assert blocks_of(artifact) == [4]
    check(run(artifact, artifact.plan.entries[0], values), expected, form)


@pytest.mark.parametrize("form", ["with what follows", "of a norm"])
@pytest.mark.parametrize("chip", ["gfx1151", "gfx1201"])
def test_on_an_emulated_amd_gpu(chip: str, form: str, tmp_path: Path) -> None:
    request, values, expected = made(tmp_path, form, (7, 52, 96), ("f32", "bf16"), f"rocm:{chip}", "")
    assert "v_wmma_f32_16x16x16_bf16" in emit(request, "asm", Observer())
    artifact, _ = compile_request(request, Observer())
    (entry,) = artifact.plan.entries
    check(Emulation(artifact, values).run(entry), expected, form)


def test_many_rows_are_left_to_others(tmp_path: Path) -> None:
    request, _, _ = made(tmp_path, "plain", (17, 64, 128), ("f32", "bf16"), "cuda:sm_90a", "")
    code = compile_request(request, Observer())[0].code
    assert b"wgmma.mma_async" in code


@pytest.mark.drawn
@pytest.mark.parametrize("chip", ["gfx942", "gfx1151", "gfx1201"])
def test_lanes_keep_to_their_registers(chip: str, tmp_path: Path) -> None:
    """At widths of models that people run, of which some spilled where blocks loop, others where they do not."""
    widths = {1600, 4096, int(seeded.rng().choice(sorted({each["width"] for each in sizes().values()})))}
    shapes = [(width, columns) for width in widths for columns in (1600, 50304)]
    forms = [f"(entry e{n} [(x [8 {k}] f32) (w [{o} {k}] bf16)] (linear x w))" for n, (k, o) in enumerate(shapes)]
    program = tmp_path / "products.lisp"
    program.write_text("\n".join(["(require nn)", *forms]))
    artifact, _ = compile_request(Request(program, f"rocm:{chip}"), Observer())
    code = CodeObject(artifact.code, chip)
    kernels = {launch.kernel for entry in artifact.plan.entries for launch in entry.launches}
    assert len(kernels) == len(shapes)
    assert {name: code.descriptor(name).private_bytes for name in kernels} == dict.fromkeys(kernels, 0)


def test_lanes_have_registers_for_blocks_that_share_a_core(tmp_path: Path) -> None:
    """As few as NVIDIA's compiler gives where two of 512 threads do: GPT-2 XL's vocabulary is not looped over there."""
    program = tmp_path / "product.lisp"
    grids = {}
    for width in (1024, 1600):
        program.write_text(f"(require nn) (entry e [(x [8 {width}] f32) (w [50304 {width}] bf16)] (linear x w))")
        artifact, _ = compile_request(Request(program, "cuda:sm_80"), Observer())
        (launch,) = artifact.plan.entries[0].launches
        grids[width] = launch.grid[0]
    assert grids[1024] == 2 * find_target("cuda:sm_80").cores and grids[1600] == 50304 // 16
