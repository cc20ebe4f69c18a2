"""HipGPT's checkpoint: four int32 sizes (vocabulary, context, width, layers), then F32 tensors layer by layer.

Each layer opens with its own width, heads and hidden width.  Its model is not GPT-2's (ReLU, no final norm, and a head
of its own, `out-proj`), but tensors with the same part in a layer have the same names; matrices, stored (in, out), are
given (out, in) as everywhere here.  There is no magic: a file whose sizes fit together is taken as HipGPT's.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.mapped_file import MappedFile

_LAYER = ("qkv-w", "proj-w", "fc-w", "out-w", "qkv-b", "proj-b", "fc-b", "out-b", "ln1-w", "ln1-b", "ln2-w", "ln2-b")


def recognises(path: Path, head: bytes) -> bool:
    if path.is_dir() or len(head) < 16:
        return False
    vocab, context, width, layers = struct.unpack_from("<4i", head)
    if not (0 < vocab < 1 << 24 and 0 < context < 1 << 24 and 0 < width < 1 << 20 and 0 < layers < 1 << 12):
        return False
    first = 16 + 4 * (vocab + context) * width
    size = path.stat().st_size
    if first + 12 > size:
        return False
    with path.open("rb") as file:
        file.seek(first)
        repeated, heads, hidden = struct.unpack("<3i", file.read(12))
    return repeated == width and heads > 0 and hidden > 0 and width % heads == 0


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a checkpoint after checking every layer's header and the file's size."""
    file = MappedFile(path)
    vocab, context, width, layers = _ints(file, 0, 4)
    first = 16 + 4 * (vocab + context) * width
    _, heads, hidden = _ints(file, first, 3)
    shapes = _layer_shapes(width, hidden)
    layer_bytes = 12 + 4 * (4 * width * width + 2 * hidden * width + 9 * width + hidden)
    expected = first + layers * layer_bytes + 4 * width * vocab
    if file.nbytes != expected:
        raise UserError(f"{path} has {file.nbytes} bytes, where the sizes in a HipGPT checkpoint need {expected}")
    pieces: dict[str, list] = {name: [] for name in _LAYER}
    offset = first
    for layer in range(layers):
        if _ints(file, offset, 3) != [width, heads, hidden]:
            raise UserError(f"{path}: layer {layer}'s sizes {_ints(file, offset, 3)} differ from the first layer's")
        offset += 12
        for name in _LAYER:
            stored = shapes[name][::-1]
            pieces[name].append(file.array(offset, stored, "f32"))
            offset += pieces[name][-1].nbytes
    tensors = {
        "tok-emb": _whole(file, 16, (vocab, width)),
        "pos-emb": _whole(file, 16 + 4 * vocab * width, (context, width)),
    }
    for name in _LAYER:
        info = TensorInfo((layers, *shapes[name]), "f32", stacked=True)
        tensors[name] = StoredTensor(info, tuple(pieces[name]), transposed=len(shapes[name]) == 2)
    tensors["out-proj"] = _whole(file, offset, (width, vocab), transposed=True)
    config: dict[str, Any] = {
        "vocab": vocab,
        "padded-vocab": vocab,
        "context": context,
        "layers": layers,
        "heads": heads,
    }
    config |= {"width": width, "hidden": hidden, "weight-type": "f32"}
    return MappedCheckpoint("hipgpt", path, config, [file], tensors)


def _layer_shapes(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    vectors: dict[str, tuple[int, ...]] = dict.fromkeys(_LAYER, (width,))
    matrices = {
        "qkv-w": (3 * width, width),
        "proj-w": (width, width),
        "fc-w": (hidden, width),
        "out-w": (width, hidden),
    }
    return vectors | matrices | {"qkv-b": (3 * width,), "fc-b": (hidden,)}


def _whole(file: MappedFile, offset: int, stored: tuple[int, int], transposed: bool = False) -> StoredTensor:
    shape = stored[::-1] if transposed else stored
    return StoredTensor(TensorInfo(shape, "f32"), (file.array(offset, stored, "f32"),), transposed)


def _ints(file: MappedFile, offset: int, count: int) -> list[int]:
    return [int(value) for value in file.array(offset, (4 * count,), "u8").view("<i4")]
