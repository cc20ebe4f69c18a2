"""Hugging Face's GPT-2 folders: config.json beside model.safetensors, whole or in shards.

Tensors are named per layer, with or without `transformer.` in front, and the four matrices of a layer are Conv1D,
stored (in, out).  The vocabulary is padded here, as llm.c pads it, so that one compiled model serves both formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.errors import UserError
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.numbers import CHUNK
from lispgpt.runtime.checkpoints.safetensors_file import Stored, read_safetensors, write_safetensors
from lispgpt.runtime.files import read_json, replacing

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

_WHOLE = {"wte": "wte.weight", "wpe": "wpe.weight", "lnf-w": "ln_f.weight", "lnf-b": "ln_f.bias"}
_PER_LAYER = {"ln1": "ln_1", "qkv": "attn.c_attn", "proj": "attn.c_proj", "ln2": "ln_2", "fc": "mlp.c_fc"}
_PER_LAYER |= {"out": "mlp.c_proj"}
_BUFFERS = (".attn.bias", ".attn.masked_bias")
_HEAD = "lm_head.weight"
_MATRICES = {"qkv-w", "proj-w", "fc-w", "out-w"}

_REQUIRED = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
"""Settings that must have one of these values where config.json gives them."""


def recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return any((path / name).exists() for name in (CONFIG, WEIGHTS, INDEX))
    return path.suffix == ".safetensors"


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a folder's weights after checking names, shapes and offsets against config.json."""
    folder = path if path.is_dir() else path.parent
    shape, epsilon = _read_config(folder / CONFIG)
    stored = _read_weights(folder, None if path.is_dir() else path)
    tensors = _assemble(folder, shape, stored)
    dtype = tensors["wte"].info.dtype
    config = shape.config("bf16" if dtype == "bf16" else "f32") | {"epsilon": epsilon}
    files = {id(entry.file): entry.file for entry in stored.values()}
    checkpoint = MappedCheckpoint("huggingface", folder, config, files.values(), tensors)
    _check_tied(folder, stored)
    return checkpoint


def write(path: Path, source: Checkpoint, dtype: str) -> None:
    """Write a GPT-2 checkpoint, without the vocabulary's padding, as config.json and model.safetensors."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; a Hugging Face checkpoint is a folder")
    shape = Gpt2Shape.from_config(source.config)
    parts = list(_parts(shape))
    header = [(hf_name, extents[::-1] if name in _MATRICES else extents) for name, _, hf_name, extents in parts]
    shapes = {name: extents[1:] if stacked else extents for name, extents, stacked in shape.tensors()}

    def contents() -> Iterator[np.ndarray]:
        for name, layer, _, extents in parts:
            array = np.empty(shapes[name], np.uint16 if dtype == "bf16" else np.float32)
            source.read_layer_into(name, layer, array, dtype)
            yield np.ascontiguousarray(array.T) if name in _MATRICES else array[: extents[0]]

    write_safetensors(path / WEIGHTS, header, dtype, contents())
    (path / INDEX).unlink(missing_ok=True)
    with replacing(path / CONFIG) as file:
        file.write(
            json.dumps(_config_json(shape, dtype, source.config.get("epsilon", 1e-5)), indent=2).encode() + b"\n"
        )


def _parts(shape: Gpt2Shape) -> Iterator[tuple[str, int, str, tuple[int, ...]]]:
    """(our name, layer, Hugging Face's name, shape as (out, in)) of each stored tensor."""
    for name, extents, stacked in shape.tensors():
        if not stacked:
            yield name, 0, _WHOLE[name], (shape.vocab, shape.width) if name == "wte" else extents
            continue
        module, kind = name.split("-")
        for layer in range(shape.layers):
            suffix = "weight" if kind == "w" else "bias"
            yield name, layer, f"h.{layer}.{_PER_LAYER[module]}.{suffix}", extents[1:]


def _read_config(path: Path) -> tuple[Gpt2Shape, float]:
    data = read_json(path)
    for key, allowed in _REQUIRED.items():
        if key in data and data[key] not in allowed:
            raise UserError(
                f"{path}: {key} is {data[key]!r}, and only {' or '.join(map(repr, allowed))} is GPT-2 as known here"
            )
    width = _integer(path, data, "n_embd")
    if data.get("n_inner") not in (None, 4 * width):
        raise UserError(f"{path}: n_inner is {data['n_inner']!r}, and only 4 times n_embd ({4 * width}) is known here")
    context = _integer(path, data, "n_positions", "n_ctx")
    vocab, layers, heads = (_integer(path, data, key) for key in ("vocab_size", "n_layer", "n_head"))
    epsilon = data.get("layer_norm_epsilon", 1e-5)
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 < epsilon < 1:
        raise UserError(f"{path}: layer_norm_epsilon is {epsilon!r}, not a small positive number")
    try:
        return Gpt2Shape.unpadded(vocab, context, layers, heads, width), float(epsilon)
    except UserError as error:
        raise UserError(f"{path}: {error.message}") from error


def _integer(path: Path, data: dict[str, Any], *keys: str) -> int:
    for key in keys:
        value = data.get(key)
        if value is not None:
            if type(value) is not int or not 0 < value < 1 << 31:
                raise UserError(f"{path}: {key} is {value!r}, which must be a positive integer")
            return value
    raise UserError(f"{path} lacks {' or '.join(keys)}; is it the config.json of a GPT-2?")


def _read_weights(folder: Path, file: Path | None) -> dict[str, Stored]:
    """All tensors of the folder by their names without `transformer.`."""
    if file is None and not (folder / WEIGHTS).exists() and (folder / INDEX).exists():
        index = read_json(folder / INDEX)
        places = index.get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(v, str) and Path(v).name == v for v in places.values()):
            raise UserError(f"{folder / INDEX}: weight_map must name a file in the folder for each tensor")
        files = [folder / name for name in sorted(set(places.values()))]
    else:
        files = [file or folder / WEIGHTS]
    found: dict[str, Stored] = {}
    for path in files:
        for full_name, tensor in read_safetensors(path).items():
            name = full_name.removeprefix("transformer.")
            if name in found:
                raise UserError(f"{path}: tensor {name!r} is there twice")
            found[name] = tensor
    return found


def _assemble(folder: Path, shape: Gpt2Shape, stored: dict[str, Stored]) -> dict[str, StoredTensor]:
    pieces: dict[str, list[Stored]] = {}
    expected = {_HEAD}
    for name, _, hf_name, extents in _parts(shape):
        wanted = extents[::-1] if name in _MATRICES else extents
        if hf_name not in stored:
            raise UserError(f"{folder}: tensor {hf_name!r} is missing; config.json asks for {shape.layers} layers")
        if stored[hf_name].array.shape != wanted:
            has = stored[hf_name].array.shape
            raise UserError(f"{folder}: tensor {hf_name!r} has shape {has}, where config.json's sizes need {wanted}")
        pieces.setdefault(name, []).append(stored[hf_name])
        expected.add(hf_name)
    for hf_name in stored:
        if hf_name not in expected and not hf_name.endswith(_BUFFERS):
            raise UserError(f"{folder}: tensor {hf_name!r} is no part of the GPT-2 that config.json describes")
    tensors = {}
    for name, extents, stacked in shape.tensors():
        dtypes = {piece.dtype for piece in pieces[name]}
        if len(dtypes) > 1:
            raise UserError(f"{folder}: the layers' {name!r} have different types: {', '.join(sorted(dtypes))}")
        info = TensorInfo(extents, dtypes.pop(), stacked)
        tensors[name] = StoredTensor(info, tuple(piece.array for piece in pieces[name]), name in _MATRICES)
    return tensors


def _check_tied(folder: Path, stored: dict[str, Stored]) -> None:
    """A head of its own would be silently lost, so it must equal the embedding."""
    if _HEAD not in stored:
        return
    head, embedding = stored[_HEAD], stored["wte.weight"]
    same = head.dtype == embedding.dtype and head.array.shape == embedding.array.shape
    if same:
        ours, theirs = (tensor.array.reshape(-1) for tensor in (embedding, head))
        steps = range(0, ours.size, CHUNK)
        same = all(np.array_equal(ours[i : i + CHUNK], theirs[i : i + CHUNK]) for i in steps)
        embedding.file.release(embedding.array)
        head.file.release(head.array)
    if not same:
        raise UserError(f"{folder}: {_HEAD!r} differs from 'wte.weight', and GPT-2's head is tied to its embedding")


def _config_json(shape: Gpt2Shape, dtype: str, epsilon: float) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": epsilon,
        "n_positions": shape.context,
        "n_ctx": shape.context,
        "n_embd": shape.width,
        "n_head": shape.heads,
        "n_layer": shape.layers,
        "vocab_size": shape.vocab,
        "bos_token_id": shape.vocab - 1,
        "eos_token_id": shape.vocab - 1,
        "dtype": "bfloat16" if dtype == "bf16" else "float32",
    }
