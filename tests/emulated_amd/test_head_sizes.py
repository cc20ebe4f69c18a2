"""Attention with heads of many sizes, compiled for AMD GPUs and run on the instruction emulator, against float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated_amd.running import run_entries
from head_sizes import HeadSize, assert_near, random_inputs, write_program
from real_sizes.chips import Amd

from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.compiler.kernel_report import kernel_facts

pytestmark = pytest.mark.drawn

FEW = [HeadSize(depth, cache) for depth in (16, 80, 128, 256) for cache in ("f32", "bf16")]
MANY = FEW + [HeadSize(depth, cache) for depth in (96, 132, 320) for cache in ("f32", "bf16")]
WIDE = [HeadSize(80, "bf16"), HeadSize(256, "f32")]


@pytest.mark.parametrize(
    ("chip", "rows", "sizes"),
    [
        ("gfx1151", 1, WIDE),
        ("gfx942", 16, WIDE),
        ("gfx1201", 16, WIDE),
        pytest.param("gfx1151", 1, MANY, marks=pytest.mark.slow),
        pytest.param("gfx1151", 16, FEW, marks=pytest.mark.slow),
        pytest.param("gfx1151", 128, FEW, marks=pytest.mark.slow),
        pytest.param("gfx1201", 128, FEW, marks=pytest.mark.slow),
        pytest.param("gfx942", 1, FEW, marks=pytest.mark.slow),
        pytest.param("gfx942", 128, FEW, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, list) else str(value),
)
def test_values(chip: str, rows: int, sizes: list[HeadSize], tmp_path: Path) -> None:
    context = 32 if rows < 32 else rows + 32
    program = write_program(tmp_path / "attention.lisp", sizes, context)
    artifact, _ = compile_request(Request(program, f"rocm:{chip}"), Observer())
    values, expected = random_inputs(sizes, context, rows)
    found = run_entries(artifact, list(expected), values)
    for name, right in expected.items():
        assert_near(found[name], right, name)


def test_attention_of_a_prompt_keeps_to_its_registers(tmp_path: Path) -> None:
    """GPT-2's heads of 64 in f32, whose tiles of 32 positions spilled."""
    size = HeadSize(64, "f32")
    program = write_program(tmp_path / "attention.lisp", [size], 160)
    facts = kernel_facts(emit(Request(program, "rocm:gfx1201"), "asm", Observer()))
    assert facts and [name for name, f in facts.items() if f.spills or f.scratch] == []
    artifact, _ = compile_request(Request(program, "rocm:gfx1201"), Observer())
    values, expected = random_inputs([size], 160, 128)
    found = run_entries(artifact, list(expected), values)
    for name, right in expected.items():
        assert_near(found[name], right, name)


@pytest.mark.parametrize("cache", ["f32", "bf16"])
def test_queries_that_are_computed_are_so_once_for_a_block(cache: str, tmp_path: Path) -> None:
    """Of heads whose queries lanes do not keep: made in shared memory, beside fewer keys where these are in f32."""
    sizes = [HeadSize(128, cache)]
    program = write_program(tmp_path / "attention.lisp", sizes, 160)
    text = (
        program.read_text()
        .replace("(attend (heads-of q", "(attend (* 2.0 (heads-of q")
        .replace(" 2) (heads-of k", " 2)) (heads-of k")
    )
    program.write_text(text)
    artifact, _ = compile_request(Request(program, "rocm:gfx1151"), Observer())
    values, expected = random_inputs(sizes, 160, 128)
    halves = {name: value / 2 if name.startswith("q") else value for name, value in values.items()}
    found = run_entries(artifact, list(expected), halves)
    for name, right in expected.items():
        assert_near(found[name], right, name)
    assert {name: Amd(artifact).scratch(name) for name in artifact.kernels} == dict.fromkeys(artifact.kernels, 0)
