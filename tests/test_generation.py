"""The whole way, program to tokens: against what transformers generated and against the float64 reference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import recorded
import reference_gpt2
import seeded
from recorded import open_session

from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.decoding import chunk_sizes
from lispgpt.runtime.generate import Generator


@pytest.mark.drawn
@pytest.mark.parametrize("format", ["llmc", "huggingface"])
@pytest.mark.parametrize("model", recorded.gpt2_models(), ids=lambda m: m.name)
def test_greedy_tokens_are_those_of_transformers(
    model: recorded.Model, format: str, tmp_path: Path, examples: Path
) -> None:
    path = model.make(tmp_path / "checkpoint", format)
    model.check(path, examples / "gpt2_generate.lisp")


@pytest.mark.slow
def test_greedy_tokens_of_gpt2_124m_are_those_of_transformers(tmp_path: Path, examples: Path) -> None:
    model = next(m for m in recorded.gpt2_models(768) if m.name == "gpt2-124m-bf16")
    model.check(model.make(tmp_path / "checkpoint", "llmc"), examples / "gpt2_generate.lisp")


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-3), ("bf16", 2e-2)])
def test_logits_are_near_the_float64_reference(dtype: str, tolerance: float, tmp_path: Path, examples: Path) -> None:
    rng = seeded.rng()
    heads = int(rng.integers(1, 5))
    shape = Gpt2Shape.unpadded(
        vocab=int(rng.integers(60, 300)), context=96, layers=2, heads=heads, width=heads * int(rng.integers(2, 9)) * 4
    )
    path = tmp_path / "model.bin"
    make(path, shape, "llmc", dtype, int(rng.integers(1 << 30)))
    weights = reference_gpt2.float64_weights(checkpoints.open(path))
    tokens = [int(t) for t in rng.integers(0, shape.vocab, int(rng.integers(1, 90)))]
    wanted = reference_gpt2.logits(weights, shape.heads, tokens, shape.vocab)[-1]
    with open_session(examples / "gpt2_generate.lisp", path) as session:
        generator = Generator(session, "logits", sampler=lambda row: seen.append(row.copy()) or 0)
        seen: list[np.ndarray] = []
        generator.prefill(tokens)
    assert np.isfinite(seen[0]).all()
    np.testing.assert_allclose(seen[0], wanted, atol=tolerance, rtol=0, err_msg=f"{shape} {tokens}")


def test_every_chunking_gives_the_same_token(tmp_path: Path, examples: Path) -> None:
    model = recorded.gpt2_models()[0]
    prompt = [int(t) for t in seeded.rng().integers(0, model.shape.vocab, 77)]
    with open_session(examples / "gpt2_generate.lisp", model.make(tmp_path / "checkpoint", "llmc")) as session:
        found = []
        for chunks in ((1,), (1, 16), (1, 16, 128)):
            generator = Generator(session, "logits", sampler=lambda row: found.append(row.copy()) or 0)
            generator.chunks = chunks
            generator.prefill(prompt)
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)
    np.testing.assert_allclose(found[2], found[0], atol=1e-4)


def test_generation_goes_on_past_the_context(tmp_path: Path, examples: Path) -> None:
    shape = Gpt2Shape.unpadded(vocab=67, context=32, layers=1, heads=2, width=16)
    make(tmp_path / "model.bin", shape, "llmc", "f32", 3)
    with open_session(examples / "gpt2_generate.lisp", tmp_path / "model.bin") as session:
        generator = Generator(session, "logits")
        tokens = list(generator.generate([1, 2, 3], 80))
        assert len(tokens) == 80
        window = (generator.tokens[:-1])[-generator.position :]
        fresh = Generator(session, "logits")
        assert fresh.prefill(window) == tokens[-1]


def test_chunks_cover_the_prompt_and_only_the_last_is_larger_than_what_is_left() -> None:
    for count in range(1, 700):
        sizes = chunk_sizes(count, (1, 16, 128), 16)
        left = count
        for size in sizes[:-1]:
            left -= size
        assert 0 < left <= sizes[-1]


def test_the_command_line_prints_json_and_needs_no_mlir_for_an_artifact(tmp_path: Path, examples: Path) -> None:
    model = recorded.gpt2_models()[0]
    path = model.make(tmp_path / "model.bin", "llmc")
    artifact = tmp_path / "model.lgpt"
    lispgpt = [sys.executable, "-m", "lispgpt"]
    program = str(examples / "gpt2_generate.lisp")
    subprocess.run([*lispgpt, "compile", program, "--checkpoint", str(path), "-o", str(artifact)], check=True)
    blocked = (
        "import sys\n"
        "for name in ('lark', 'mlir', 'flydsl', 'lispgpt.ir.mlir', 'lispgpt.language', 'lispgpt.passes'):\n"
        "    sys.modules[name] = None\n"
        "from lispgpt.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    case = model.cases[0]
    arguments = [
        "run",
        str(artifact),
        "--checkpoint",
        str(path),
        "--greedy",
        "--format",
        "json",
        "--max-new-tokens",
        "64",
    ]
    arguments += ["--prompt-tokens", ",".join(map(str, case.prompt))]
    done = subprocess.run([sys.executable, "-c", blocked, *arguments], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert case.accepts(result["tokens"])
    assert result["prompt_tokens"] == case.prompt
    assert result["target"] == "cpu"
    assert result["timing"]["first_token_s"] > 0
