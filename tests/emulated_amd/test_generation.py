"""A tiny GPT-2 on emulated AMD GPUs: hip-python, our code objects, the CPU's tokens."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from click.testing import CliRunner
from emulated_amd.running import CHIPS, Emulation

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.targets import GPU_CHIPS
from lispgpt.runtime import checkpoints
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.emulated import EmulatedDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact, load_artifact
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "gpt2_generate.lisp"
VOCAB, COUNT, PROMPT = 211, 3, 17
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 7}


def make_checkpoint(path: Path, seed: int, layers: int, heads: int, context: int) -> Path:
    """Width 64 with 16-bit weights."""
    from lispgpt.cli.checkpoint import checkpoint as command

    sizes = {"layers": layers, "heads": heads, "width": 64, "vocab": VOCAB, "context": context, "seed": seed}
    options = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    result = CliRunner().invoke(command, ["make", str(path), *options])
    assert result.exit_code == 0, result.output
    return path


def compiled(checkpoint: Path, target: str, folder: Path, **wanted: Any) -> Path:
    """wanted: entries and their sizes, where not all are."""
    config = dict(checkpoints.open(checkpoint).config)
    request = Request(PROGRAM, target, checkpoint_config=config, **wanted)
    artifact, _ = compile_request(request, Observer())
    path = folder / f"{target.replace(':', '_')}.lgpt"
    artifact.save(path)
    return path


def by_cpu(artifact: Path, checkpoint: Path, prompt: list[int], sampling: dict | None) -> tuple[list[int], np.ndarray]:
    """The tokens, and the last step's logits."""
    with Session(load_artifact(artifact), CpuDevice(), checkpoints.open(checkpoint)) as session:
        sampler = make_sampler(**sampling) if sampling else None
        tokens = list(Generator(session, "logits", sampler).generate(prompt, COUNT))
        return tokens, session.read(session.entry("decode-greedy").results["logits"])[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A checkpoint, a prompt, and what the CPU makes of them, greedily and drawn."""
    folder, seed = tmp_path_factory.mktemp("tiny"), int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(folder / "tiny.bin", seed, layers=2, heads=4, context=32)
    prompt = [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, PROMPT)]
    cpu = compiled(checkpoint, "cpu", folder)
    expected = [by_cpu(cpu, checkpoint, prompt, sampling) for sampling in (None, SAMPLING)]
    return {"seed": seed, "checkpoint": checkpoint, "prompt": prompt, "expected": expected}


@pytest.mark.parametrize("chip", CHIPS)
def test_tokens_are_the_cpus(chip: str, tiny: dict[str, Any], tmp_path: Path) -> None:
    """Through hip-python, which is what a session on an emulated chip calls; the chip chooses the tokens."""
    artifact = load_artifact(compiled(tiny["checkpoint"], f"rocm:{chip}", tmp_path))
    weights, about = checkpoints.open(tiny["checkpoint"]), f"seed {tiny['seed']}"
    for sampling, (tokens, logits) in zip((None, SAMPLING), tiny["expected"], strict=True):
        device = EmulatedDevice(chip)
        assert device.name == f"Emulated GPU ({chip})"
        with Session(artifact, device, weights) as session:
            generator = Generator(session, "logits", make_sampler(**sampling) if sampling else None)
            found = list(generator.generate(tiny["prompt"], COUNT))
            entry = session.entry("decode-drawn" if sampling else "decode-greedy")
            assert generator.decoder() is entry, about
            near = session.read(entry.results["logits"])[0]
        np.testing.assert_allclose(near[:VOCAB], logits[:VOCAB], atol=2e-4, err_msg=about)
        assert found == tokens, about


PREFILL: dict[str, Any] = {"entries": ["prefill"], "sizes": [{"batch": 1, "positions": 128}]}


@pytest.fixture(scope="module")
def prefilled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A checkpoint, a prompt of 128 tokens, and the CPU's logits and cache."""
    folder, seed = tmp_path_factory.mktemp("prefilled"), int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(folder / "tiny.bin", seed, layers=1, heads=2, context=128)
    prompt = np.random.default_rng(seed).integers(0, VOCAB, 128).astype(np.int32)
    cpu = load_artifact(compiled(checkpoint, "cpu", folder, **PREFILL))
    with Session(cpu, CpuDevice(), checkpoints.open(checkpoint)) as session:
        logits = session.run("prefill", prompt[None], np.arange(128, dtype=np.int32)[None])["logits"]
        return {"seed": seed, "checkpoint": checkpoint, "prompt": prompt, "logits": logits, "cache": session.read("kv")}


@pytest.mark.parametrize("chip", CHIPS)
def test_prefill_on_matrix_instructions_agrees_with_the_cpu(
    chip: str, prefilled: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one core to fill, products take their largest tiles; 128 rows bring tiled attention."""
    one_core = dataclasses.replace(GPU_CHIPS["rocm"][chip], cores=1)
    monkeypatch.setitem(GPU_CHIPS["rocm"], chip, one_core)
    checkpoint, prompt, expected, cache = (prefilled[name] for name in ("checkpoint", "prompt", "logits", "cache"))
    artifact = load_artifact(compiled(checkpoint, f"rocm:{chip}", tmp_path, **PREFILL))
    weights = {name: stored(artifact, checkpoint, name) for name in artifact.weights}
    kv = np.zeros(cache.shape, cache.dtype)
    emulation = Emulation(
        artifact, {**weights, "kv": kv, "tokens": prompt, "positions": np.arange(128, dtype=np.int32)}
    )
    logits = emulation.run(emulation.entry("prefill", 128)).reshape(expected.shape)
    matrix = sum(n for name, n in emulation.machine.counts().items() if name.startswith(("V_WMMA", "V_MFMA")))
    assert matrix > 0
    found = emulation.buffers["kv"].view(cache.dtype).reshape(cache.shape)
    about = f"seed {prefilled['seed']}"
    np.testing.assert_allclose(found, cache, atol=2e-4, err_msg=about)
    np.testing.assert_allclose(logits[:, :VOCAB], expected[:, :VOCAB], atol=5e-4, err_msg=about)


def stored(artifact: Artifact, checkpoint: Path, name: str) -> np.ndarray:
    """A weight's bytes as the session puts them into the device's memory."""
    buffer = next(b for b in artifact.plan.buffers if b.name == name)
    values = np.zeros(buffer.shape, {"bf16": np.uint16, "f32": np.float32}[buffer.dtype])
    checkpoints.open(checkpoint).read_into(name, values, buffer.dtype)
    return values
