"""llm.c's model files: a header of 256 int32, then GPT-2's tensors one after another, stacked over the layers.

Version 3 holds F32 and version 5 BF16 (norms and biases too).  Sizes follow magic and version in the order context,
vocabulary, layers, heads, width, padded vocabulary.  Everything is little-endian.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.runtime.checkpoints.architecture import holds
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.mapped_file import MappedFile

MAGIC = 20240326
HEADER_BYTES = 1024
DTYPES = {3: "f32", 5: "bf16"}
EPSILON = 1e-5
"""Of the layer norms."""

_OTHER_FILES = {
    20240327: "llm.c's debug state",
    20240328: "an llm.c tokenizer (pass it with --tokenizer)",
    20240520: "an llm.c token shard",
    20240522: "an llm.c multiple-choice evaluation set",
    20240527: "llm.c's optimiser state",
}


def recognises(path: Path, head: bytes) -> bool:
    return len(head) >= 4 and int.from_bytes(head[:4], "little") in {MAGIC, *_OTHER_FILES}


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a model file after checking its header and its size."""
    file = MappedFile(path)
    if file.nbytes < HEADER_BYTES:
        raise UserError(f"{path} is cut short: {file.nbytes} bytes, and llm.c's header alone has {HEADER_BYTES}")
    header = [int(field) for field in file.array(0, (HEADER_BYTES,), "u8").view("<i4")]
    if header[0] in _OTHER_FILES:
        raise UserError(f"{path} is {_OTHER_FILES[header[0]]}, not a model checkpoint")
    dtype = _dtype_of_version(path, header[1])
    shape = _shape(path, header)
    size = find_dtype(dtype).item_bytes
    expected = HEADER_BYTES + shape.count * size
    if file.nbytes != expected:
        damage = "is cut short" if file.nbytes < expected else "is too long"
        raise UserError(
            f"{path} {damage}: {file.nbytes} bytes, where its header's sizes need {expected}; copy or export it again"
        )
    tensors, offset = {}, HEADER_BYTES
    for name, extents, stacked in shape.tensors():
        array = file.array(offset, extents, dtype)
        tensors[name] = StoredTensor(TensorInfo(extents, dtype, stacked), (array,))
        offset += array.nbytes
    return MappedCheckpoint("llmc", path, shape.config(dtype), [file], tensors)


def export(folder: Path, source: Checkpoint) -> None:
    """Write model.bin where the checkpoint is a GPT-2, all of it, with the epsilon that this format assumes."""
    if holds(Gpt2Shape.from_config, source) and source.config.get("epsilon", EPSILON) == EPSILON:
        write(folder / "model.bin", source, source.config["weight-type"])


def write(path: Path, source: Checkpoint, dtype: str) -> None:
    """Write a GPT-2 checkpoint as version 3 (f32) or 5 (bf16)."""
    if "padded-vocab" not in source.config:
        raise UserError(f"llm.c's format holds GPT-2s only, and {source.path} is none; write it as huggingface")
    shape = Gpt2Shape.from_config(source.config)
    epsilon = source.config.get("epsilon", EPSILON)
    if epsilon != EPSILON:
        raise UserError(f"llm.c's format has no place for a layer norm's epsilon of {epsilon}; it assumes {EPSILON}")
    header = np.zeros(256, "<i4")
    version = next(version for version, stored in DTYPES.items() if stored == dtype)
    sizes = (shape.context, shape.vocab, shape.layers, shape.heads, shape.width, shape.padded_vocab)
    header[:8] = [MAGIC, version, *sizes]
    with replacing(path) as file:
        file.write(header.tobytes())
        for name, extents, stacked in shape.tensors():
            part = np.empty(extents[1:] if stacked else extents, find_dtype(dtype).numpy)
            for layer in range(extents[0] if stacked else 1):
                source.read_layer_into(name, layer, part, dtype)
                file.write(part.data)


def _dtype_of_version(path: Path, version: int) -> str:
    if version in DTYPES:
        return DTYPES[version]
    if version in (1, 2):
        hint = "it is from before the vocabulary was padded; export it again with a current llm.c (train_gpt2.py)"
    elif version > max(DTYPES):
        hint = "it was written by a newer llm.c than this program knows"
    else:
        hint = "the file is damaged, or not llm.c's"
    raise UserError(f"{path} is llm.c's model version {version}, and only 3 (F32) and 5 (BF16) can be read: {hint}")


def _shape(path: Path, header: list[int]) -> Gpt2Shape:
    context, vocab, layers, heads, width, padded = header[2:8]
    try:
        return Gpt2Shape(vocab, context, layers, heads, width, padded)
    except UserError as error:
        raise UserError(f"{path}: the header is damaged: {error.message}") from error
