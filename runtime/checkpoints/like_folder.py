"""A Hugging Face folder that is as another one, with other numbers in its weights.

Each tensor has the name, the shape and the type that it has there; config.json, the tokenizer's files and whatever else
describes the model are copied, and so are tensors that are no weights of the program.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.json_files import read_json
from lispgpt.runtime.checkpoints.base import Checkpoint
from lispgpt.runtime.checkpoints.huggingface import CONFIG, INDEX, WEIGHTS, read_named
from lispgpt.runtime.checkpoints.mapped_folder import pieces_of_weights, read_settings
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16, is_finite
from lispgpt.runtime.checkpoints.safetensors_file import Stored, write_safetensors

COPIED = ("*.json", "*.txt", "*.model", "*.jinja")
"""Files that are copied; the index of weights is not, which are in one file."""


class LikeFolder:
    """How to write checkpoints as a folder is.  names: what the program calls what is in it."""

    def __init__(self, folder: Path, names: FolderMap) -> None:
        self._folder, self._names = folder, names

    def write(self, path: Path, source: Checkpoint) -> None:
        """Write a checkpoint of the same weights into a folder; UserError where the model is gone or is another."""
        if not (self._folder / CONFIG).is_file():
            raise UserError(f"{self._folder} is gone, by which what is trained is written")
        config = read_settings(self._folder / CONFIG, read_json(self._folder / CONFIG), self._names)
        named = read_named(self._folder, None, self._names.prefix)
        stored = {name: tensor for name, (_, tensor) in named.items()}
        places = pieces_of_weights(self._folder, self._names, config, stored)
        trained = {piece for name, (_, pieces) in places.items() if name in source.names() for piece in pieces}
        others = [name for name in named if name not in trained and named[name][1].dtype in DTYPES]
        header, contents = [], []
        for name, (own, pieces) in places.items():
            if name in source.names():
                each = len(pieces) // len(own)
                for place in range(len(own)):
                    parts = [named[piece] for piece in pieces[place * each : (place + 1) * each]]
                    turned = self._names.weights[name][0].transposed
                    header += [(full, tensor.shape, tensor.dtype) for full, tensor in parts]
                    contents.append((source, name, place, [tensor for _, tensor in parts], turned))
        header += [(named[name][0], stored[name].array.shape, stored[name].dtype) for name in others]

        def arrays() -> Iterator[np.ndarray]:
            for content in contents:
                yield from _parts_of(*content)
            for name in others:
                yield stored[name].array

        write_safetensors(path / WEIGHTS, header, arrays())
        self._copy(path)

    def _copy(self, path: Path) -> None:
        for pattern in COPIED:
            for file in sorted(self._folder.glob(pattern)):
                if file.is_file() and file.name != INDEX:
                    shutil.copyfile(file, path / file.name)


def _parts_of(
    source: Checkpoint, name: str, layer: int, parts: Sequence[Stored], transposed: bool
) -> Iterator[np.ndarray]:
    """The tensors that a layer's part of a weight is stored as, in order."""
    info = source.info(name)
    array = np.empty(info.shape[1:] if info.stacked else info.shape, find_dtype(info.dtype).numpy)
    source.read_layer_into(name, layer, array, info.dtype)
    shapes = [part.shape[::-1] if transposed else part.shape for part in parts]
    rows, start = array.reshape(-1, math.prod(shapes[0][1:])), 0
    for part, shape in zip(parts, shapes, strict=True):
        own = rows[start : start + shape[0]].reshape(shape)
        start += shape[0]
        yield stored_as(own.T if transposed else own, info.dtype, part.dtype, name)


def stored_as(array: np.ndarray, dtype: str, kind: str, name: str) -> np.ndarray:
    """Floats of 16 or 32 bits as others; UserError where a number has no place there."""
    if kind == dtype:
        return array
    wide = bf16_to_f32(array) if dtype == "bf16" else array
    with np.errstate(over="ignore"):
        found = f32_to_bf16(wide) if kind == "bf16" else wide.astype(find_dtype(kind).numpy)
    if not is_finite(found, kind):
        raise UserError(f"{name} has grown too large for {kind}, in which the model's folder has it")
    return found
