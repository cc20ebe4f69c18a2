"""The library's gradients of attention by tiles: by numpy, on emulators, and changed, which is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from changed_tiles import Change, replaced, shifted, without
from emulated_amd.running import Emulation
from emulated_cuda.entries import run_all
from trained_attention import WEIGH, Case

from lispgpt.compiler.driver import Observer, Request, compile_request, evaluate_request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.targets import find_target
from lispgpt.passes.tile.check_types import Unsafe
from lispgpt.passes.tile.evaluate import reference, to_bf16
from lispgpt.passes.tile.interpret import interpret
from lispgpt.passes.tile.verify import verify
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

pytestmark = pytest.mark.drawn

CHOICE = '(pass choose-tiles {:use "attention-gradients" :copies "bulk"})'
TARGETS = ("cuda:sm_80", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201")


def drawn(target: str) -> Case:
    """Rows enough, which tiles divide or do not; vectors of so many numbers that warpgroups take them, where there are
    any."""
    rng = seeded.rng()

    def one(*choices: int) -> int:
        return int(rng.choice(choices))

    groups = one(1, 1, 2)
    facts = {
        "length": one(64, 96, int(rng.integers(40, 100))),
        "texts": 1,
        "groups": groups,
        "heads": groups * one(1, 2),
    }
    size = one(64, 128) if target.endswith("a") else one(16, 32, 64, 80)
    dtype, weigh = (str(rng.choice(some)) for some in (["f32", "bf16"], list(WEIGH)))
    return Case(size=size, dtype=dtype, weigh=weigh, all=bool(rng.random() < 0.3 and weigh != "window"), **facts)


def request(case: Case, target: str, folder: Path) -> Request:
    """Its program, whose gradients are ones by tiles whatever else there is."""
    pipeline = folder / "tiles.lisp"
    pipeline.write_text(pipeline_path("gpu").read_text().replace("(pass choose-tiles)", CHOICE, 1))
    return Request(case.write(folder / "train.lisp"), target, pipeline=pipeline)


def module_of(case: Case, target: str, folder: Path) -> ir.Module:
    """With tile programs; needs an active context and location."""
    wanted = request(case, target, folder)
    assert wanted.pipeline is not None
    pipeline, program = read_pipeline(wanted.pipeline), evaluate_request(wanted)
    names = [call.name for call in pipeline.calls]
    runner_for(find_target(target)).run(program.module, pipeline.before(names.index("choose-tiles") + 1))
    return program.module


def written(module: ir.Module) -> list[ir.Operation]:
    """Kernels that have one."""
    return [kernel for kernel in kernel_functions(module) if "tile" in kernel.attributes]


def memory_of(kernel: ir.Operation, rng: np.random.Generator) -> list[np.ndarray]:
    found = []
    for argument in kernel.regions[0].blocks[0].arguments:
        values = 0.3 * rng.standard_normal(tuple(argument.type.shape), np.float32)
        found.append(to_bf16(values) if str(argument.type.element_type) == "bf16" else values)
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_numpy_makes_of_gradients_what_float64_makes_of_their_kernels(target: str, tmp_path: Path) -> None:
    case = drawn(target)
    with new_context(), ir.Location.unknown():
        module = module_of(case, target, tmp_path)
        kernels = written(module)
        assert len(kernels) == 2, case
        for kernel in kernels:
            verify(kernel, find_target(target))
            memory = memory_of(kernel, seeded.rng())
            for right, found in zip(reference(kernel, memory), interpret(kernel, memory, seeded.rng()), strict=True):
                error = np.linalg.norm(found - right) / np.linalg.norm(right)
                assert error < (1e-5 if case.dtype == "f32" else 6e-3), (case, error)


@pytest.mark.parametrize("target", TARGETS)
def test_chips_make_the_same_of_them(target: str, tmp_path: Path) -> None:
    """With races detected, and memory poisoned."""
    case = drawn(target)
    artifact, _ = compile_request(request(case, target, tmp_path), Observer())
    made = [facts.get("tiles") for name, facts in artifact.kernels.items() if name.startswith("attention_gradient")]
    assert made == ["attention-gradients"] * 2, case
    given, entry = case.inputs(seeded.rng()), artifact.plan.entries[0]
    if target.startswith("cuda"):
        found = run_all(artifact, entry, given)
        assert ("wgmma" in artifact.code.decode(errors="replace")) == target.endswith("a")
    else:
        emulation = Emulation(artifact, given)
        emulation.run(entry)
        found = {name: emulation.buffers[buffer].view(np.float32) for name, buffer in entry.results.items()}
    case.check(found, given)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "rocm:gfx1151"])
def test_nothing_is_read_past_the_last_tile(target: str, tmp_path: Path) -> None:
    """Though one tile is on its way while another is multiplied, and tiles divide all that there is."""
    case = Case(length=64, size=64 if target.endswith("a") else 32, heads=1, groups=1, texts=1)
    artifact, _ = compile_request(request(case, target, tmp_path), Observer())
    given, entry = case.inputs(seeded.rng()), artifact.plan.entries[0]
    if target.startswith("cuda"):
        found = run_all(artifact, entry, given)
    else:
        emulation = Emulation(artifact, given)
        emulation.run(entry)
        found = {name: emulation.buffers[buffer].view(np.float32) for name, buffer in entry.results.items()}
    case.check(found, given)


CHANGES: dict[str, Change] = {
    "release": without(r'"tile\.release"'),
    "fill": without(r'"tile\.fill"'),
    "numbers": shifted(r"tile\.(?:wait|release)\""),
    "lines": replaced(r"(padding = 0 : i64, swizzle = )128", lambda place, _: f"{place[1]}0"),
    "teams": replaced(
        r'(layout = "sums", teams = array<i64: )(\d+)', lambda place, _: f"{place[1]}{int(place[2]) + 1}"
    ),
}


def test_no_unsafe_gradients_are_taken(tmp_path: Path) -> None:
    rng, target = seeded.rng(), "cuda:sm_90a"
    with new_context() as context, ir.Location.unknown():
        case = Case(length=900, size=64, heads=1, groups=1, texts=1, dtype="bf16")
        text = str(module_of(case, target, tmp_path))
        for kind, change in CHANGES.items():
            changed = change(text, rng)
            assert changed != text, kind
            try:
                module = ir.Module.parse(changed, context)
            except ir.MLIRError:
                continue  # MLIR's own verifier has refused it
            with pytest.raises(Unsafe):
                for kernel in written(module):
                    verify(kernel, find_target(target))
                print(f"not refused, changed by {kind}:\n{changed}")
