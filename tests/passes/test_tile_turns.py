"""Products of warpgroups as tile programs, whose blocks have tiles in turns: by numpy, as PTX, and unsafe ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from bulk_products import PRODUCTS, SHAPES, close, random_values, results
from changed_tiles import Change, shifted, without
from random_products import RandomProduct
from tile_programs import kernel_of, memory_of, plain

from lispgpt.compiler.driver import Observer, Request, compile_request, evaluate_request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import integers
from lispgpt.passes.targets import GPU_CHIPS, find_target
from lispgpt.passes.tile import tasks
from lispgpt.passes.tile.check_types import Unsafe
from lispgpt.passes.tile.interpret import interpret
from lispgpt.passes.tile.verify import verify
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline
from lispgpt.runtime.plan.artifact import Artifact

CHOICE = '(pass choose-tiles {:use "warpgroups" :copies "bulk"})'
EPILOGUE = "(let [y (+ r (gelu (+ (contract [n o] x [n i] w [o i]) b)))] {:wide y :narrow (cast y bf16)})"
FORMS = PRODUCTS | {
    "of stored parts": ("(contract [n o] (relu f) [n i] w [o i])", lambda f, w: np.maximum(f, 0) @ w.T),
    "of F32": ("(contract [n o] f [n i] w [o i])", lambda f, w: f @ w.T),
}


@pytest.fixture
def few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that each has several tiles, and columns that exceed the cache."""
    chip = replace(GPU_CHIPS["cuda"]["sm_90a"], cores=4, cluster_cores=0, l2_bytes=1)
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", chip)
    monkeypatch.setattr(tasks, "ROW_GROUP", 2)


def pipeline(folder: Path) -> Path:
    path = folder / "turns.lisp"
    path.write_text(pipeline_path("gpu").read_text().replace("(pass choose-tiles)", CHOICE, 1))
    return path


def made(folder: Path, form: str) -> tuple[Artifact, list[str]]:
    """A form of SHAPES' weights, and which of them it is of."""
    used = [name for name in SHAPES if f" {name} " in form or f" {name})" in form]
    weights = " ".join(f"({name} {SHAPES[name]})" for name in used)
    program = folder / "product.lisp"
    program.write_text(f"(require nn)(config context 1)(weights {weights})(entry out [tokens positions] {form})")
    artifact, _ = compile_request(Request(program, "cuda:sm_90a", pipeline=pipeline(folder)), Observer())
    assert [f["tiles"] for k, f in artifact.kernels.items() if k.startswith("contraction")] == ["warpgroups"]
    return artifact, used


def agrees(name: str, folder: Path) -> Artifact:
    """Check a form's PTX; races are looked for but where registers are multiplied, which those of others order."""
    form, reference = FORMS[name]
    artifact, used = made(folder, form)
    rng = seeded.rng()
    values, seed = random_values(used, rng), int(rng.integers(1 << 30))
    found = results(artifact, values, seed, name not in ("from registers", "of F32"))
    exact = {n: v.astype(np.float64) for n, v in values.items()}
    assert close(found["out"], reference(**exact), 3e-5), f"turns of seed {seed}"
    return artifact


@pytest.mark.drawn
@pytest.mark.usefixtures("few_cores")
@pytest.mark.parametrize("name", FORMS)
def test_tiles_in_turns_equal_float64(name: str, tmp_path: Path) -> None:
    (launch,) = [x for x in agrees(name, tmp_path).plan.entries[0].launches if x.kernel.startswith("contraction")]
    assert launch.grid[0] <= 4


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["forward", "from registers", "of slices"])
def test_a_block_for_each_tile_equals_float64(name: str, tmp_path: Path) -> None:
    agrees(name, tmp_path)


@pytest.mark.drawn
@pytest.mark.parametrize("cores", [4, 132])
def test_what_follows_is_computed_on_the_way(cores: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if cores == 4:
        request.getfixturevalue("few_cores")
    artifact, used = made(tmp_path, EPILOGUE)
    assert b"bulk.prefetch.tensor" in artifact.code, "r is read ahead"
    rng = seeded.rng()
    values = random_values(used, rng)
    found = results(artifact, values, int(rng.integers(1 << 30)), True)
    x, w, bias, residual = (values[n].astype(np.float64) for n in ("x", "w", "b", "r"))
    y = x @ w.T + bias
    wanted = residual + 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
    assert close(found["wide"], wanted, 3e-5) and close(found["narrow"], wanted, 4e-3)


def module_of(product: RandomProduct, folder: Path) -> ir.Module:
    """The product's module once its tile program is chosen; needs an active context and location."""
    request = Request(product.write(folder), "cuda:sm_90a", pipeline=pipeline(folder))
    passes, program = read_pipeline(request.pipeline), evaluate_request(request)
    stop = [call.name for call in passes.calls].index("lower-tiles")
    runner_for(find_target("cuda:sm_90a")).run(program.module, passes.before(stop))
    return program.module


@pytest.mark.drawn
@pytest.mark.parametrize(("rows", "columns", "inner"), [(100, 72, 328), (16, 256, 1024)])
def test_numpy_makes_of_clusters_what_float64_makes(rows: int, columns: int, inner: int, tmp_path: Path) -> None:
    """Blocks that share out k store what they have all added up, which numpy executes one by one."""
    product, rng = plain(rows, columns, inner), seeded.rng()
    values = product.values(rng)
    with new_context(), ir.Location.unknown():
        module = module_of(product, tmp_path)
        kernel = kernel_of(module)
        verify(kernel, find_target("cuda:sm_90a"))
        (found,) = interpret(kernel, memory_of(kernel, values), rng)
    assert close(found, product.expected(values), 1e-6)


def unsettled(text: str, rng: np.random.Generator) -> str:
    """A program that stores sums while instructions add to them."""
    settle = re.search(r'^ *(%\w+) = "tile\.settle"\((%\w+)\).*\n', text, re.MULTILINE)
    assert settle is not None
    return re.sub(rf"{settle[1]}\b", settle[2], text[: settle.start()] + text[settle.end() :])


def released_early(text: str, rng: np.random.Generator) -> str:
    """A program that releases the last slot while instructions read it."""
    settle = re.search(r'^ *%\w+ = "tile\.settle".*\n', text, re.MULTILINE)
    assert settle is not None
    release = re.compile(r'^ *"tile\.release".*\n', re.MULTILINE).search(text, settle.end())
    assert release is not None
    return text[: settle.start()] + text[settle.end() : release.end()] + settle[0] + text[release.end() :]


CHANGES: dict[str, Change] = {
    "release": without(r'"tile\.release"'),
    "settle": unsettled,
    "early release": released_early,
    "fill": without(r'"tile\.fill"'),
    "numbers": shifted(r"tile\.(?:wait|fill|release)\""),
}


@pytest.mark.usefixtures("few_cores")
@pytest.mark.parametrize("steps", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_no_unsafe_turns_are_taken(steps: int, tmp_path: Path) -> None:
    rng = seeded.rng()
    with new_context() as context, ir.Location.unknown():
        module = module_of(plain(600, 264, 64 * steps), tmp_path)
        assert integers(ir.DictAttr(kernel_of(module).attributes["tile"])["grid"]) == [4]
        verify(kernel_of(module), find_target("cuda:sm_90a"))
        for kind, change in CHANGES.items():
            for _ in range(3):
                changed = change(str(module), rng)
                try:
                    parsed = ir.Module.parse(changed, context)
                except ir.MLIRError:
                    continue  # MLIR's own verifier has refused it
                with pytest.raises(Unsafe):
                    verify(kernel_of(parsed), find_target("cuda:sm_90a"))
                    print(f"not refused, changed by {kind}:\n{changed}")
