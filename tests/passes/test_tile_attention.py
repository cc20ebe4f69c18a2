"""The library's attention by tiles: by numpy, as machine code on emulators, and changed, which is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from attention_variants import Variant, exact, random_inputs, tiled_variant, write_variants
from changed_tiles import Change, replaced, shifted, without
from emulated_amd.running import run_entries
from emulated_cuda.entries import run

from lispgpt.compiler.driver import Observer, compile_request, evaluate_request
from lispgpt.compiler.request import Request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import entry_functions, kernel_functions, operations, strings, viewed
from lispgpt.passes.targets import find_target
from lispgpt.passes.tile.check_types import Unsafe
from lispgpt.passes.tile.evaluate import reference
from lispgpt.passes.tile.interpret import interpret
from lispgpt.passes.tile.verify import verify
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

pytestmark = pytest.mark.drawn

CHOICE = '(pass choose-tiles {:use "attention" :copies "bulk"})'
TARGETS = ("cuda:sm_80", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201")


def request(variant: Variant, target: str, folder: Path) -> Request:
    """Its program, whose attention is one by tiles whatever else there is."""
    pipeline = folder / "tiles.lisp"
    text = pipeline_path("gpu").read_text()
    pipeline.write_text(text.replace("(pass choose-tiles)", CHOICE, 1))
    return Request(write_variants(folder / "variant.lisp", [variant]), target, pipeline=pipeline)


def module_of(variant: Variant, target: str, folder: Path) -> ir.Module:
    """With its tile program; needs an active context and location."""
    wanted = request(variant, target, folder)
    assert wanted.pipeline is not None
    pipeline, program = read_pipeline(wanted.pipeline), evaluate_request(wanted)
    names = [call.name for call in pipeline.calls]
    runner_for(find_target(target)).run(program.module, pipeline.before(names.index("lower-tiles")))
    return program.module


def memory_of(module: ir.Module, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The arrays of a kernel's arguments, as its one call gives them; poison for its result."""
    (kernel,), (entry,) = kernel_functions(module), entry_functions(module)
    (call,) = (op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call")
    names = [name.rpartition(":")[2] for name in strings(entry.attributes["arguments"])]
    roots = [ir.BlockArgument(viewed(operand, ("memref.view",))).arg_number for operand in call.operands]
    shapes = [tuple(argument.type.shape) for argument in kernel.regions[0].blocks[0].arguments]
    given = zip((values.get(names[root]) for root in roots), shapes, strict=True)
    return [np.full(shape, np.nan) if array is None else _floats(array) for array, shape in given]


def _floats(array: np.ndarray) -> np.ndarray:
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array


def drawn(target: str) -> Variant:
    """Heads of so many numbers that warpgroups, where there are any, take them in lines."""
    rng = seeded.rng()
    variant = tiled_variant(int(rng.integers(1 << 20)))
    if target.endswith("a"):
        variant.extents.update(dict.fromkeys("ed", int(rng.choice([64, 128]))))
    return variant


def assert_near(found: np.ndarray, wanted: np.ndarray, variant: Variant, tolerance: float = 3e-4) -> None:
    np.testing.assert_allclose(
        found.reshape(wanted.shape), wanted, atol=tolerance, rtol=tolerance, equal_nan=True, err_msg=str(variant)
    )


@pytest.mark.parametrize("target", TARGETS)
def test_numpy_makes_of_attention_what_float64_makes_of_its_kernel(target: str, tmp_path: Path) -> None:
    variant = drawn(target)
    values = random_inputs(variant)
    with new_context(), ir.Location.unknown():
        module = module_of(variant, target, tmp_path)
        (kernel,) = kernel_functions(module)
        verify(kernel, find_target(target))
        memory = memory_of(module, values)
        (right,), (found,) = reference(kernel, memory), interpret(kernel, memory, seeded.rng())
    wanted = exact(variant, values)
    assert_near(right, wanted, variant, 1e-6)
    assert_near(found, wanted, variant)


@pytest.mark.parametrize("target", TARGETS)
def test_chips_make_the_same_of_it(target: str, tmp_path: Path) -> None:
    """With races detected, and memory poisoned."""
    variant = drawn(target)
    values, name = random_inputs(variant), f"out{variant.seed}"
    artifact, _ = compile_request(request(variant, target, tmp_path), Observer())
    assert [facts.get("tiles") for facts in artifact.kernels.values()] == ["attention"]
    assert ("wgmma" in artifact.code.decode(errors="replace")) == target.endswith("a")
    values |= dict.fromkeys(("tokens", "positions"), np.zeros((1, 1), np.int32))
    if target.startswith("cuda"):
        found = run(artifact, artifact.plan.entries[0], values)
    else:
        found = run_entries(artifact, [name], values)[name]
    assert_near(found, exact(variant, values), variant)


def test_a_subgroup_of_more_lanes_than_rows_sees_none_past_the_last(tmp_path: Path) -> None:
    """Blocks of 32 rows for 64 lanes, and keys whose memory ends with the last position."""
    extents = {"b": 1, "g": 1, "h": 1, "s": 64, "t": 64, "e": 64, "d": 64}
    axes = {"q": "sbghe", "k": "tbge", "v": "bgtd", "o": "bghsd", "w": "bghst"}
    variant = Variant(1, extents, axes, "shifted", "tensor", "f32", False)
    artifact, _ = compile_request(request(variant, "rocm:gfx942", tmp_path), Observer())
    (facts,), (entry,) = artifact.kernels.values(), artifact.plan.entries
    assert facts["tiles"] == "attention" and entry.launches[0].grid == (1, 2, 1)
    values = {**random_inputs(variant), **dict.fromkeys(("tokens", "positions"), np.zeros((1, 1), np.int32))}
    assert_near(run_entries(artifact, ["out1"], values)["out1"], exact(variant, values), variant)


CHANGES: dict[str, dict[str, Change]] = {
    "cuda:sm_80": {
        "barrier": without("gpu.barrier"),
        "drain": without(r'"tile\.drain"'),
        "fill": without(r'"tile\.fill"'),
        "groups": replaced(
            r"(ahead = )(\d)", lambda place, rng: f"{place[1]}{int(place[2]) + int(rng.integers(1, 3))}"
        ),
        "numbers": shifted(r"tile\.(?:wait|fill)\""),
        "teams": replaced(r'("rows", teams = array<i64: )(\d+)', lambda place, _: f"{place[1]}{int(place[2]) + 1}"),
        "layout": replaced(r'layout = "shares"', lambda place, _: 'layout = "rows"'),
        "rows": replaced(r"(rows = )(\d+)( : i64\})", lambda place, _: f"{place[1]}{int(place[2]) + 16}{place[3]}"),
    },
    "cuda:sm_90a": {
        "release": without(r'"tile\.release"'),
        "fill": without(r'"tile\.fill"'),
        "clear": without(r'"tile\.clear"'),
        "meet": without(r'"tile\.meet"'),
        "put": without(r'"tile\.put"'),
        "numbers": shifted(r"tile\.(?:wait|fill|release)\""),
        "teams": replaced(r'("rows", teams = array<i64: )(\d+)', lambda place, _: f"{place[1]}{int(place[2]) + 1}"),
        "lines": replaced(r"(padding = 0 : i64, swizzle = )128", lambda place, _: f"{place[1]}0"),
    },
    "rocm:gfx1151": {
        "barrier": without("gpu.barrier"),
        "put": without(r'"tile\.put"'),
        "across": replaced(r'("tile\.mma"\(%\w+, %\w+, %\w+\)) :', lambda place, _: f"{place[1]} {{across = true}} :"),
        "teams": replaced(r'("rows", teams = array<i64: )(\d+)', lambda place, _: f"{place[1]}{int(place[2]) + 1}"),
    },
}


@pytest.mark.parametrize("target", CHANGES)
def test_no_unsafe_attention_is_taken(target: str, tmp_path: Path) -> None:
    rng = seeded.rng()
    variant = tiled_variant(int(rng.integers(1 << 20)))
    variant.extents.update(b=8, g=8, s=1000, t=1100, e=64, d=64)  # many blocks, each of which has a ring
    stored = Variant(**{**vars(variant), "stored": "bf16" if target.startswith("cuda") else "f32"})
    with new_context() as context, ir.Location.unknown():
        text = str(module_of(stored, target, tmp_path))
        for kind, change in CHANGES[target].items():
            for _ in range(3):
                changed = change(text, rng)
                assert changed != text, kind
                try:
                    module = ir.Module.parse(changed, context)
                except ir.MLIRError:
                    continue  # MLIR's own verifier has refused it
                with pytest.raises(Unsafe):
                    verify(next(iter(kernel_functions(module))), find_target(target))
                    print(f"not refused, changed by {kind}:\n{changed}")


def test_a_dump_of_attention_goes_back_in(tmp_path: Path) -> None:
    with new_context() as context, ir.Location.unknown():
        text = str(module_of(tiled_variant(6), "cuda:sm_80", tmp_path))
        assert str(ir.Module.parse(text, context)) == text
