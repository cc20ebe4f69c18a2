"""gpt-oss's folders, whose experts are in MXFP4, beside the same numbers in BF16, which tests of folders are of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.numbers import f32_to_bf16
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

WIDTH, HIDDEN, EXPERTS = 64, 96, 7
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def config() -> dict:
    (folder,) = (f for f in recorded_folders.folders() if f.name == "gpt-oss-bf16")
    return {**folder.config, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_local_experts": EXPERTS}


def tensors(rng: np.random.Generator, given: dict) -> dict[str, np.ndarray]:
    """In f32, by transformers' names, without the experts' matrices."""
    heads, groups, size = (given[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (given["vocab_size"], WIDTH)}
    found["model.norm.weight"] = (WIDTH,)
    projections = (("q", heads), ("k", groups), ("v", groups))
    if not given.get("tie_word_embeddings"):
        found["lm_head.weight"] = (given["vocab_size"], WIDTH)
    for layer in range(given["num_hidden_layers"]):
        own = {
            "input_layernorm.weight": (WIDTH,), "post_attention_layernorm.weight": (WIDTH,),
            "self_attn.sinks": (heads,),
            **{f"self_attn.{n}_proj.weight": (rows * size, WIDTH) for n, rows in projections},
            **{f"self_attn.{n}_proj.bias": (rows * size,) for n, rows in projections},
            "self_attn.o_proj.weight": (WIDTH, heads * size), "self_attn.o_proj.bias": (WIDTH,),
            "mlp.router.weight": (EXPERTS, WIDTH), "mlp.router.bias": (EXPERTS,),
            "mlp.experts.gate_up_proj_bias": (EXPERTS, 2 * HIDDEN), "mlp.experts.down_proj_bias": (EXPERTS, WIDTH),
        }  # fmt: skip
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in found.items()}


def write(path: Path, given: dict, named: dict[str, np.ndarray]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(given))
    kinds = {name: "u8" if values.dtype == np.uint8 else "bf16" for name, values in named.items()}
    contents = (values if values.dtype == np.uint8 else f32_to_bf16(values) for values in named.values())
    write_safetensors(path / "model.safetensors", [(n, v.shape, kinds[n]) for n, v in named.items()], contents)
    return path


def folders(path: Path, seed: int) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """One in MXFP4, and one with what it stands for; the tensors of the first."""
    rng, given = np.random.default_rng(seed), config()
    same = tensors(rng, given)
    few, wide = dict(same), dict(same)
    for layer in range(given["num_hidden_layers"]):
        for name, rows, columns in (("gate_up_proj", 2 * HIDDEN, WIDTH), ("down_proj", WIDTH, HIDDEN)):
            whole = f"model.layers.{layer}.mlp.experts.{name}"
            blocks = rng.integers(0, 256, (EXPERTS, rows, columns // 32, 16)).astype(np.uint8)
            scales = rng.integers(122, 126, blocks.shape[:-1]).astype(np.uint8)
            numbers = np.empty((*scales.shape, 32), np.float32)
            numbers[..., 0::2], numbers[..., 1::2] = E2M1[blocks & 15], E2M1[blocks >> 4]
            numbers *= np.ldexp(np.float32(1), scales.astype(np.int32) - 127)[..., None]
            few[f"{whole}_blocks"], few[f"{whole}_scales"] = blocks, scales
            wide[whole] = numbers.reshape(EXPERTS, rows, columns).swapaxes(1, 2)
    said = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    return write(path / "few", given | said, few), write(path / "wide", given, wide), few


def logits(path: Path, tokens: list[int], kept: str | None) -> np.ndarray:
    with lispgpt.load(path) as model:
        dtypes = {name: facts["dtype"] for name, facts in model.artifact.weights.items()}
        assert kept is None or dtypes["gate-up-w"] == dtypes["down-w"] == kept, dtypes
        return np.asarray(model.logits(tokens))


def test_experts_stay_in_mxfp4(tmp_path: Path) -> None:
    seed = seeded.fresh_seed()
    few, wide, _ = folders(tmp_path, seed)
    tokens = np.random.default_rng(seed).integers(0, 50, 12).tolist()
    found, wanted = logits(few, tokens, "mxfp4"), logits(wide, tokens, None)
    most = 2e-3 * np.abs(wanted).max()  # products of blocks round activations
    np.testing.assert_allclose(found, wanted, rtol=0, atol=most, equal_nan=False, err_msg=f"seed {seed}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda named, name: named.pop(f"{name}_scales"), "is one of two, of blocks and scales, that are bytes"),
        (lambda named, name: named.update({f"{name}_scales": named[f"{name}_scales"][:, :-1]}), r"no \[experts, rows"),
    ],
)
def test_what_does_not_fit(change, said: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    few, _, named = folders(tmp_path, 1)
    change(named, "model.layers.0.mlp.experts.down_proj")
    broken = write(tmp_path / "broken", json.loads((few / "config.json").read_text()), named)
    with pytest.raises(UserError, match=said):
        lispgpt.load(broken)
