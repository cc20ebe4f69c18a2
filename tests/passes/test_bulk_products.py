"""Products by tensor maps, executed as PTX on numpy: tiles, clusters, layouts, what follows them, and seeded faults."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from bulk_products import PRODUCTS, SHAPES, close, random_values, results

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.targets import GPU_CHIPS, shared_steps, warpgroup_tiles
from lispgpt.passes.tile import tasks
from lispgpt.runtime.plan.artifact import Artifact

PIPELINE = (Path(__file__).parents[2] / "passes/pipelines/gpu.lisp").read_text().replace("(pass choose) ", "")
PAIR, SPLIT, LOW, WIDE = (
    ":pair 2 :outputs 128 :rows 128",
    ":splits 3 :outputs 64",
    ":rows 64 :outputs 128",
    ":outputs 192",
)
CASES = [
    *(("forward", options) for options in (PAIR, SPLIT, LOW, WIDE)),
    *(("backward", options) for options in (PAIR, WIDE)),
    *(("of a weight", options) for options in (PAIR, SPLIT)),
    *(("from registers", options) for options in (PAIR, SPLIT, LOW)),
    ("of slices", WIDE),
    ("of heads", PAIR),
]
ONE, ONE_SPLIT = ":warpgroups 1 :outputs 64", ":warpgroups 1 :outputs 64 :splits 3"


@pytest.fixture
def few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that each has several tiles; columns that exceed the cache; stages that are soon used again."""
    chip = replace(GPU_CHIPS["cuda"]["sm_90a"], cores=4, cluster_cores=0, l2_bytes=1)
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", chip)
    monkeypatch.setattr(tasks, "ROW_GROUP", 2)
    monkeypatch.setattr(warpgroup_tiles, "MOST_STAGES", 3)


def made(folder: Path, result: str, options: str = "") -> Artifact:
    program, pipeline = folder / "product.lisp", folder / "mine.lisp"
    used = [name for name in SHAPES if re.search(rf"[ (]{name}[ )]", result)]
    weights = " ".join(f"({name} {SHAPES[name]})" for name in used)
    program.write_text(f"(require nn)(config context 1)(weights {weights})(entry out [tokens positions] {result})")
    pipeline.write_text(PIPELINE.replace("schedule-gpu-warpgroups)", f"schedule-gpu-warpgroups {{{options}}})"))
    artifact = compile_request(Request(program, "cuda:sm_90a", pipeline=pipeline), Observer())[0]
    assert any("tensor_maps" in facts for facts in artifact.kernels.values())
    return artifact


@pytest.mark.drawn
@pytest.mark.usefixtures("few_cores")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_products_equal_float64(name: str, options: str, tmp_path: Path) -> None:
    _check_product(made(tmp_path, PRODUCTS[name][0], options), name, watched=name == "forward")


def _check_product(artifact: Artifact, name: str, watched: bool) -> None:
    _, reference = PRODUCTS[name]
    names = list(reference.__code__.co_varnames)
    rng = seeded.rng()
    seed, values = int(rng.integers(1 << 30)), random_values(names, rng)
    found = results(artifact, values, seed, watched)
    wanted = reference(*(values[n].astype(np.float64) for n in names))
    assert close(found["out"], wanted, 3e-5), f"turns of seed {seed}"


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, ONE) for name in ("forward", "backward", "of a weight", "from registers", "of heads")),
        *((name, ONE_SPLIT) for name in ("forward", "from registers")),
        ("backward", ":warpgroups 1 :outputs 64 :splits 2"),
    ],
)
def test_one_warpgroup_makes_a_tile(name: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a block for each tile; stages are used again."""
    monkeypatch.setattr(warpgroup_tiles, "MOST_STAGES", 3)
    artifact = made(tmp_path, PRODUCTS[name][0], options)
    assert {launch.block[0] for launch in artifact.plan.entries[0].launches} == {256}
    _check_product(artifact, name, watched=name == "forward")


@pytest.mark.drawn
@pytest.mark.parametrize("options", (WIDE, SPLIT, ONE, ONE_SPLIT))
def test_what_follows_is_computed_on_the_way(options: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A bias, an activation and a residual sum, results of two dtypes."""
    if options in (WIDE, SPLIT):
        request.getfixturevalue("few_cores")
    product = "(contract [n o] x [n i] w [o i])"
    form = f"(let [y (+ r (gelu (+ {product} b)))] {{:wide y :narrow (cast y bf16)}})"
    rng = seeded.rng()
    seed, values = int(rng.integers(1 << 30)), random_values(["x", "w", "b", "r"], rng)
    artifact = made(tmp_path, form, options)
    assert len([k for k in artifact.kernels if k.startswith("contraction")]) == 1
    assert (b"bulk.prefetch.tensor" in artifact.code) == (options in (WIDE, ONE)), "r is read ahead"
    found = results(artifact, values, seed)
    x, w, bias, residual = (values[n].astype(np.float64) for n in ("x", "w", "b", "r"))
    y = x @ w.T + bias
    wanted = residual + 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
    assert close(found["wide"], wanted, 3e-5) and close(found["narrow"], wanted, 4e-3), f"turns of seed {seed}"


@pytest.mark.drawn
@pytest.mark.usefixtures("few_cores")
@pytest.mark.parametrize(("cores", "outputs", "used"), [(10, 128, 10), (6, 256, 6), (16, 128, 16), (14, 128, 12)])
def test_blocks_share_the_steps_of_few_tiles(
    cores: int, outputs: int, used: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of blocks, rounds of those that are left, tiles that remain for several, groups that leave nothing to
    others: alike in any order of turns."""
    chip = replace(GPU_CHIPS["cuda"]["sm_90a"], cores=cores, cluster_cores=0)
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", chip)
    monkeypatch.setattr(shared_steps, "FEWEST_STEPS", 16)
    monkeypatch.setattr(shared_steps, "FEWEST_OF_A_PIECE", 3)
    monkeypatch.setattr(shared_steps, "FRAGMENT", 0)
    artifact = made(tmp_path, "(contract [o i] dz [n o] z [n i])", f":rows 128 :outputs {outputs} :pair 2")
    (step,) = artifact.plan.entries[0].launches
    assert any(a.access == "scratch" for a in step.arguments) and step.grid[0] == used
    rng = seeded.rng()
    values = random_values(["dz", "z"], rng)
    wanted = values["dz"].astype(np.float64).T @ values["z"]
    first, second = (results(artifact, values, int(seed))["out"] for seed in rng.integers(1 << 30, size=2))
    assert close(first, wanted, 3e-5)
    assert np.array_equal(first, second)


def test_blocks_that_share_steps_all_have_some() -> None:
    for tiles in range(1, 66):
        for steps in (64, 100, 128, 256, 512):
            shares = shared_steps.shared_steps(tiles, 66, steps)
            if shares is not None:
                done = shares.groups * shares.each + shares.rest
                assert done == steps and (shares.left > 0) == (shares.rest > 0), shares


FAULTS = {
    "nobody waits for what copies bring": (
        r"mbarrier\.try_wait.*?selp\.u32 (%r\d+), 0, 1, over; \}",
        r"mov.b32 \1, 0;",
    ),
    "a stage is never released": (r"mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\];", ""),
    "matrix instructions are not waited for": (r"wgmma\.wait_group\.sync\.aligned\s+1;", ""),
    "fewer bytes are expected": (r"(arrive\.expect_tx\.shared::cta\.b64 _, \[%r\d+\], )%r\d+;", r"\g<1>16384;"),
    "stores are read too late": (r"cp\.async\.bulk\.wait_group\.read \d;", ""),
    "stores are not fenced": (r"\n\tfence\.proxy\.async\.shared::cta;", "\n"),
}


@pytest.mark.drawn
@pytest.mark.usefixtures("few_cores")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, tmp_path: Path) -> None:
    form, reference = PRODUCTS["forward"]
    artifact = made(tmp_path, form, ":rows 128 :outputs 64 :pair 1 :splits 1")
    rng = seeded.rng()
    values = random_values(["x", "w"], rng)
    wanted = reference(values["x"].astype(np.float64), values["w"].astype(np.float64))
    pattern, replacement = FAULTS[fault]
    code, count = re.subn(pattern, replacement, artifact.code.decode())
    assert count
    for seed in rng.integers(1 << 30, size=8):
        assert close(results(artifact, values, int(seed))["out"], wanted, 3e-5), f"turns of seed {seed}"
        try:
            if not close(results(replace(artifact, code=code.encode()), values, int(seed))["out"], wanted, 3e-5):
                return
        except AssertionError:
            return
    raise AssertionError("the fault goes unnoticed")
