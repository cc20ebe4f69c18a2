"""Llama, which only Lisp tells from GPT-2: against transformers' tokens, the float64 reference, and bad folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import recorded
import reference_llama
import seeded
from reference_gpt2 import float64_weights

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import convert, make
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

DOUBLES = ("one-key-bf16", "tied-f32", "slowed-alike-f32")
"""Recorded models whose parts others have, too."""


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(m, id=m.name, marks=[pytest.mark.slow] if m.name in DOUBLES else [])
        for m in recorded.llama_models()
    ],
)
def test_greedy_tokens_are_those_of_transformers(model: recorded.Model, tmp_path: Path, examples: Path) -> None:
    model.check(model.make(tmp_path / "llama", "huggingface"), examples / "llama_tiny.lisp")


@pytest.mark.parametrize("model", recorded.llama_models(), ids=lambda m: m.name)
def test_the_reference_gives_transformers_logits_and_tokens(model: recorded.Model, tmp_path: Path) -> None:
    weights = float64_weights(checkpoints.open(model.make(tmp_path / "llama", "huggingface")))
    for case in model.cases:
        logits = reference_llama.logits(weights, model.shape, case.prompt + case.tokens[:-1])[len(case.prompt) - 1 :]
        for token, value in case.logits.items():
            assert abs(logits[0, token] - value) < 1e-3
        assert case.accepts(logits.argmax(-1).tolist())


def random_shape(rng: np.random.Generator) -> LlamaShape:
    groups, sharing = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    return LlamaShape(
        vocab=int(rng.integers(60, 300)),
        context=int(rng.integers(90, 130)),
        layers=2,
        heads=groups * sharing,
        kv_heads=groups,
        width=int(rng.integers(20, 100)),
        hidden=int(rng.integers(20, 150)),
        head_width=2 * int(rng.integers(2, 20)),
        rope_theta=float(rng.choice([1e2, 1e4, 5e5])),
        epsilon=float(rng.choice([1e-5, 1e-6])),
        tied_head=bool(rng.integers(2)),
        rope_factor=float(rng.choice([1.0, 4.0])),
        rope_original=int(rng.choice([0, 24])),
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-3), ("bf16", 2e-2)])
def test_logits_are_near_the_float64_reference(dtype: str, tolerance: float, tmp_path: Path, examples: Path) -> None:
    rng = seeded.rng()
    shape = random_shape(rng)
    make(tmp_path / "llama", shape, "huggingface", dtype, int(rng.integers(1 << 30)))
    weights = float64_weights(checkpoints.open(tmp_path / "llama"))
    tokens = [int(t) for t in rng.integers(0, shape.vocab, int(rng.integers(3, 90)))]
    wanted = reference_llama.logits(weights, shape, tokens)
    prompt = int(rng.integers(1, len(tokens)))
    seen: list[np.ndarray] = []
    with recorded.open_session(examples / "llama_tiny.lisp", tmp_path / "llama") as session:
        generator = Generator(session, "logits", sampler=lambda row: seen.append(row.copy()) or 0)
        generator.prefill(tokens[:prompt])
        for token in tokens[prompt:]:
            generator.tokens.append(token)
            generator.decode()
    np.testing.assert_allclose(seen, wanted[prompt - 1 :], atol=tolerance, rtol=0, err_msg=f"{shape} {tokens}")


def test_no_kernel_of_llama_falls_back_to_plain_loops(examples: Path) -> None:
    config = LlamaShape(131, 64, 2, 6, 2, 48, 77, 10).config("bf16")
    artifact, _ = compile_request(Request(examples / "llama_tiny.lisp", checkpoint_config=config), Observer())
    step = next(entry for entry in artifact.plan.entries if entry.sizes["positions"] == 1)
    names = [launch.kernel for launch in step.launches]
    assert len(names) == 2 + 8 * 2 + 2
    assert not any(name.startswith("generic") for name in names)
    assert len(set(names)) < 8 + 2 + 4, "the two layers share their kernels"
    attention = [launch for launch in step.launches if launch.kernel.startswith("attention")]
    assert [launch.grid for launch in attention] == [(2, 1, 1)] * 2, "a block for each key and value head"


@pytest.mark.parametrize("target", ["cuda:sm_90", "rocm:gfx1151"])
def test_gpus_recompute_norms_and_turn_pairs_on_the_way(target: str, examples: Path) -> None:
    config = LlamaShape(131, 16, 2, 6, 2, 48, 77, 10).config("bf16")
    artifact, _ = compile_request(Request(examples / "llama_tiny.lisp", target, checkpoint_config=config), Observer())
    step = next(entry for entry in artifact.plan.entries if entry.sizes["positions"] == 1)
    names = [launch.kernel for launch in step.launches]
    assert sum(name.startswith("rows") for name in names) == 2, "angles and embedding"
    assert sum(name.startswith(("contraction", "attention")) for name in names) == 6 * 2 + 1


def test_sequences_of_a_batch_do_not_mix(tmp_path: Path, examples: Path) -> None:
    rng = seeded.rng()
    shape = LlamaShape(80, 24, 2, 6, 3, 36, 41, 12)
    make(tmp_path / "llama", shape, "huggingface", "f32", int(rng.integers(1 << 30)))
    opened = checkpoints.open(tmp_path / "llama")
    weights = float64_weights(opened)
    request = Request(examples / "llama_tiny.lisp", checkpoint_config=dict(opened.config), batch=3)
    texts = rng.integers(0, shape.vocab, (3, 9)).astype(np.int32)
    with Session(compile_request(request, Observer())[0], CpuDevice(2), opened) as session:
        for position in range(9):
            tokens = texts[:, position : position + 1]
            found = session.run("decode-greedy", tokens, np.full((3, 1), position, np.int32))["logits"]
    wanted = [reference_llama.logits(weights, shape, list(text))[-1] for text in texts]
    np.testing.assert_allclose(found, wanted, atol=1e-3, rtol=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "llama", LlamaShape(50, 32, 2, 2, 1, 8, 12, 4), "huggingface", "f32", 1)
    return tmp_path / "llama"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'"),
        ({"rope_theta": -1}, "rope_theta is -1"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"num_key_value_heads": 3}, "heads (2) is not a multiple of kv-heads (3)"),
        ({"head_dim": 3}, "is odd"),
        ({"intermediate_size": 13}, "tensor 'layers.0.mlp.gate_proj.weight' has shape (12, 8)"),
        ({"num_hidden_layers": 3}, "tensor 'layers.2."),
        ({"num_hidden_layers": 1}, "tensor 'layers.1."),
        ({"tie_word_embeddings": True}, "'lm_head.weight' differs from 'embed_tokens.weight'"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(folder: Path, change: dict, message: str) -> None:
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError) as caught:
        checkpoints.open(folder)
    assert message in caught.value.message


def test_rotary_settings_are_read_from_both_places(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["rope_theta"]
    scaling = {"factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 5.0, "original_max_position_embeddings": 16}
    for changed in (
        config | {"rope_theta": 7e4, "rope_scaling": {"rope_type": "llama3"} | scaling},
        config | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 7e4} | scaling},
    ):
        (folder / "config.json").write_text(json.dumps(changed))
        found = checkpoints.open(folder).config
        assert [found[f"rope-{k}"] for k in ("theta", "factor", "low", "high", "original")] == [7e4, 8.0, 2.0, 5.0, 16]


def test_conversion_keeps_every_value_and_llmc_refuses(folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "again", "huggingface", "f32")
    old, new = checkpoints.open(folder), checkpoints.open(tmp_path / "again")
    assert old.config == new.config
    assert old.names() == new.names()
    for name in old.names():
        np.testing.assert_array_equal(old.tensor(name), new.tensor(name))
    with pytest.raises(UserError, match="holds GPT-2s only"):
        convert(folder, tmp_path / "model.bin", "llmc", "f32")
