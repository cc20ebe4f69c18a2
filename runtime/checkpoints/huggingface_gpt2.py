"""GPT-2 in Hugging Face's folders: tensors per layer, whose four matrices are Conv1D, stored (in, out).

The vocabulary is padded here, as llm.c pads it, so that one compiled model serves both formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.architecture import Part, integer, number, require
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape

NAME = "GPT-2"
MODEL_TYPES = ("gpt2",)
PREFIX = "transformer."
IGNORED = (".attn.bias", ".attn.masked_bias")
HEAD = ("lm_head.weight", "wte.weight")

_WHOLE = {"wte": "wte.weight", "wpe": "wpe.weight", "lnf-w": "ln_f.weight", "lnf-b": "ln_f.bias"}
_PER_LAYER = {"ln1": "ln_1", "qkv": "attn.c_attn", "proj": "attn.c_proj", "ln2": "ln_2", "fc": "mlp.c_fc"}
_PER_LAYER |= {"out": "mlp.c_proj"}
_MATRICES = {"qkv-w", "proj-w", "fc-w", "out-w"}

_REQUIRED = {
    "model_type": MODEL_TYPES,
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
"""Settings that must have one of these values where config.json gives them."""


def read_config(path: Path, data: dict[str, Any]) -> tuple[Gpt2Shape, dict[str, Any]]:
    require(path, data, _REQUIRED, "GPT-2")
    width = integer(path, data, "GPT-2", "n_embd")
    if data.get("n_inner") not in (None, 4 * width):
        raise UserError(f"{path}: n_inner is {data['n_inner']!r}, and only 4 times n_embd ({4 * width}) is known here")
    context = integer(path, data, "GPT-2", "n_positions", "n_ctx")
    vocab, layers, heads = (integer(path, data, "GPT-2", key) for key in ("vocab_size", "n_layer", "n_head"))
    epsilon = number(data, "layer_norm_epsilon", 1e-5)
    return Gpt2Shape.unpadded(vocab, context, layers, heads, width), {"epsilon": epsilon}


def shape_from(config: dict[str, Any]) -> Gpt2Shape:
    return Gpt2Shape.from_config(config)


def parts(shape: Gpt2Shape) -> Iterator[Part]:
    for name, extents, stacked in shape.tensors():
        if not stacked:
            yield Part(name, 0, _WHOLE[name], (shape.vocab, shape.width) if name == "wte" else extents)
            continue
        module, kind = name.split("-")
        suffix = "weight" if kind == "w" else "bias"
        for layer in range(shape.layers):
            yield Part(name, layer, f"h.{layer}.{_PER_LAYER[module]}.{suffix}", extents[1:], name in _MATRICES)


def config_json(shape: Gpt2Shape, config: dict[str, Any], dtype: str) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.get("epsilon", 1e-5),
        "n_positions": shape.context,
        "n_ctx": shape.context,
        "n_embd": shape.width,
        "n_head": shape.heads,
        "n_layer": shape.layers,
        "vocab_size": shape.vocab,
        "bos_token_id": shape.vocab - 1,
        "eos_token_id": shape.vocab - 1,
        "dtype": dtype,
    }
