"""A tiny GPT-2 on emulated AMD GPUs: our calls of HIP, our code objects, the CPU's tokens."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import seeded
from click.testing import CliRunner

from lispgpt.driver import Observer, Request, compile_request
from lispgpt.passes.targets import GPU_CHIPS
from lispgpt.runtime import checkpoints
from lispgpt.runtime.artifact import load_artifact
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.session import Session

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent.parent.parent / "shared" / "tools"
VOCAB, COUNT = 211, 3


def missing() -> str:
    """What emulation needs and this machine lacks; "" if nothing."""
    if not (Path(os.environ.get("TINYGRAD_DIR", "")) / "test" / "mockgpu" / "amd" / "emu.py").is_file():
        return "TINYGRAD_DIR names no checkout of tinygrad"
    if not (TOOLS / "emulate_amdgpu.py").is_file():
        return "no emulate_amdgpu.py in ../shared/tools"
    if find_spec("elftools") is None:
        return "the Python package pyelftools is missing"
    return "" if shutil.which("cc") else "no C compiler"


pytestmark = [pytest.mark.emulator, pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A process environment with the shim as HIP and a clang for the emulator."""
    folder = tmp_path_factory.mktemp("hip")
    library = str(folder / "libamdhip64.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, str(HERE / "shim.c")], check=True)
    clang = folder / "clang"
    clang.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang clang "$@"\n')
    clang.chmod(0o700)
    (Path(os.environ["TINYGRAD_DIR"]) / "test" / "__init__.py").touch()
    paths = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(TOOLS), "CC": shutil.which("clang") or str(clang)}
    return {**os.environ, **paths}


def make_checkpoint(path: Path, layers: int, heads: int, context: int) -> Path:
    """Width 64 with 16-bit weights, other ones in every run."""
    from lispgpt.cli.checkpoint import checkpoint as command

    seed = str(seeded.rng().integers(1 << 30))
    sizes = {"layers": layers, "heads": heads, "width": 64, "vocab": VOCAB, "context": context, "seed": seed}
    options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    result = CliRunner().invoke(command, ["make", str(path), *options])
    assert result.exit_code == 0, result.output
    return path


def compiled(examples: Path, checkpoint: Path, target: str, folder: Path) -> Path:
    config = dict(checkpoints.open(checkpoint).config)
    request = Request(examples / "gpt2_generate.lisp", target, checkpoint_config=config)
    artifact, _ = compile_request(request, Observer())
    path = folder / f"{target.replace(':', '_')}.lgpt"
    artifact.save(path)
    return path


@pytest.mark.parametrize(
    ("chip", "sampling"),
    [
        ("gfx1151", None),
        ("gfx1201", None),
        ("gfx942", None),
        ("gfx1151", {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 7}),
        ("gfx942", {"temperature": 1.5, "top_k": 60, "top_p": 0.8, "seed": 8}),
    ],
)
def test_tokens_are_the_cpus(
    chip: str, sampling: dict | None, examples: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", layers=2, heads=4, context=32)
    prompt = [int(t) for t in seeded.rng().integers(0, VOCAB, 5)]
    cpu = load_artifact(compiled(examples, checkpoint, "cpu", tmp_path))
    with Session(cpu, CpuDevice(), checkpoints.open(checkpoint)) as session:
        sampler = make_sampler(**sampling) if sampling else None
        expected = list(Generator(session, "logits", sampler).generate(prompt, COUNT))
        logits = session.read(session.entry("decode-greedy").results["logits"])[0]
    artifact = compiled(examples, checkpoint, f"rocm:{chip}", tmp_path)
    arguments = [chip, str(artifact), str(checkpoint), str(COUNT), json.dumps(sampling), *map(str, prompt)]
    command = [sys.executable, str(HERE / "generate.py"), *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["device"] == f"Emulated GPU ({chip})"
    assert found["tokens"] == expected
    assert found["broken"] == 0
    np.testing.assert_allclose(found["logits"][:VOCAB], logits[:VOCAB], atol=2e-4)


@pytest.mark.parametrize("chip", ["gfx1151", "gfx1201"])
def test_matrix_products_start_from_constants(chip: str, environment: dict[str, str]) -> None:
    """What the prefill test below rests on: the emulator alone takes a constant accumulator for registers."""
    command = [sys.executable, str(HERE / "constant_accumulator.py"), chip]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    alone, amended = json.loads(ran.stdout)
    assert alone > 100, "the emulator knows constants by now: drop accumulators.py"
    assert amended == 0


@pytest.mark.parametrize("chip", ["gfx1151", "gfx1201", "gfx942"])
def test_prefill_on_matrix_instructions_agrees_with_the_cpu(
    chip: str, examples: Path, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one core to fill, products take their largest tiles; 128 rows bring tiled attention."""
    one_core = dataclasses.replace(GPU_CHIPS["rocm"][chip], cores=1)
    monkeypatch.setitem(GPU_CHIPS["rocm"], chip, one_core)
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", layers=1, heads=2, context=128)
    prompt = [int(t) for t in seeded.rng().integers(0, VOCAB, 128)]
    cpu = load_artifact(compiled(examples, checkpoint, "cpu", tmp_path))
    with Session(cpu, CpuDevice(), checkpoints.open(checkpoint)) as session:
        expected = session.run("logits", np.array([prompt], np.int32), np.arange(128, dtype=np.int32)[None])["logits"]
        cache = session.read("kv")
    artifact = compiled(examples, checkpoint, f"rocm:{chip}", tmp_path)
    out = tmp_path / "found.npz"
    arguments = [chip, str(artifact), str(checkpoint), str(out), *map(str, prompt)]
    command = [sys.executable, str(HERE / "prefill.py"), *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.split()[-1] == "0"
    found = np.load(out)
    np.testing.assert_allclose(found["kv"], cache, atol=2e-4)
    np.testing.assert_allclose(found["logits"][:, :VOCAB], expected[:, :VOCAB], atol=5e-4)
