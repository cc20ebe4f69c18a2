"""`lispgpt run --target emulated:…`: the CPU's tokens, a kernel's trace, and what it says when it cannot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import forked
import pytest
import seeded
from emulated_amd.test_generation import PROGRAM, VOCAB, make_checkpoint

import lispgpt
from lispgpt.base.fresh import ask_in_child
from lispgpt.runtime.devices import device_module

pytestmark = pytest.mark.drawn


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.lispgpt("run", *arguments)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    seed = int(seeded.rng().integers(1 << 30))
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "tiny.bin", seed, layers=1, heads=2, context=32)


def test_an_emulated_chip_gives_the_cpus_tokens_and_a_trace(checkpoint: Path) -> None:
    prompt = [int(t) for t in seeded.rng().integers(0, VOCAB, 3)]
    common = [str(PROGRAM), "--checkpoint", str(checkpoint), "--prompt-tokens", ",".join(map(str, prompt))]
    common += ["--max-new-tokens", "2", "--greedy", "--format", "json"]
    cpu, traced = run(*common), run(*common, "--target", "emulated:gfx1201", "--trace", "rows_1x64")
    assert (cpu.returncode, traced.returncode) == (0, 0), traced.stderr[-2000:]
    found = json.loads(traced.stdout)
    assert found["tokens"] == json.loads(cpu.stdout)["tokens"], prompt
    assert found["device"] == "Emulated GPU (gfx1201)"
    lines = [line for line in traced.stderr.splitlines() if line.startswith("+0x")]
    assert "s_load_b" in lines[0] and "s_endpgm" in lines[-1]
    assert any("global_store_b" in line and "v0=" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "emulated:gfx1151", "--trace", "no_such"], "there is no kernel no_such to trace; there are"),
        (["--trace", "rows_1x64"], "kernels are traced on emulated GPUs only"),
    ],
)
def test_what_cannot_be_is_said(arguments: list[str], message: str, checkpoint: Path) -> None:
    ran = run(str(PROGRAM), "--checkpoint", str(checkpoint), "--prompt-tokens", "1", *arguments)
    assert ran.returncode == 1 and message in ran.stderr, ran.stderr


def test_programs_with_a_main_do_not_run_on_an_emulated_chip() -> None:
    ran = run(str(PROGRAM.parent / "tour" / "12-gpu-vector-add.lisp"), "--target", "emulated:gfx1151")
    assert ran.returncode == 1 and "emulated GPUs run models alone" in ran.stderr, ran.stderr


def test_a_process_that_emulated_a_gpu_has_none_afterwards_and_may_fork(tmp_path: Path) -> None:
    program = tmp_path / "double.lisp"
    program.write_text("(require nn)\n(entry double [(x [n] f32)] {:shapes [{n 8}]} (+ x x))\n")

    def doubled() -> list[float]:
        with lispgpt.load(program, target="emulated:gfx1151") as model:
            return [float(value) for value in model.run("double", x=range(8))["double"]]

    assert doubled() == [2.0 * i for i in range(8)]
    assert "finds no GPU" in str(device_module("rocm").missing())
    assert ask_in_child(doubled) == doubled()
