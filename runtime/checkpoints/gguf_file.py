"""GGUF files, llama.cpp's: metadata, tokenizer and tensors in one file, or in several that number each other.

A program reads one by what its `hugging-face` form calls the things in a folder of its model: the `gguf` package knows
llama.cpp's name of each such tensor, and `gguf_settings` that of each setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import DTYPES, OWN_BLOCKS
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime.checkpoints.base import Checkpoint
from lispgpt.runtime.checkpoints.gguf_positions import FREQUENCIES, LONG, SHORT
from lispgpt.runtime.checkpoints.gguf_settings import config_of, rows_of
from lispgpt.runtime.checkpoints.mapped_file import MappedFile
from lispgpt.runtime.checkpoints.mapped_folder import assemble, read_settings
from lispgpt.runtime.checkpoints.numbers import widened
from lispgpt.runtime.checkpoints.safetensors_file import Stored
from lispgpt.runtime.gguf.header import MAGIC, Header, TensorPlace, read_header

FORMAT, DIVISORS = "gguf", (FREQUENCIES, LONG, SHORT)
PART = re.compile(r"(?P<name>.*)-00001-of-(?P<count>[0-9]{5})\.gguf")
READABLE = (
    "f32",
    "f16",
    "bf16",
    "f64",
    *(name for name, dtype in DTYPES.items() if dtype.block > 1 and name not in OWN_BLOCKS),
)


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def open_checkpoint(path: Path, names: FolderMap | None = None) -> Checkpoint:
    """Map a file's weights after checking its header.

    names: what the program to be run calls them.
    """
    header = read_header(path)
    if names is None:
        what = f"{path} is a GGUF file of the architecture {header.architecture!r}"
        raise UserError(f"{what}, which only a program for that can read: lispgpt run {path}")
    tensors = {place.name: (file, place) for file, place in _places(header)}
    for _, place in tensors.values():
        if place.kind not in READABLE:
            known = ", ".join(READABLE)
            raise UserError(f"{path}: tensor {place.name!r} is of type {place.kind}; known are {known}")
    divisors = {name: _divisors(path, *tensors[name]) for name in DIVISORS if name in tensors}
    data = config_of(header, {name: place.shape for name, (_, place) in tensors.items()}, divisors, names)
    config = read_settings(path, data, names)
    stored = dict(_stored(header, names, config.get("layers", 1), tensors, data))
    # Matrices are (out, in) in all of these files.
    plain = {name: tuple(replace(p, transposed=False) for p in several) for name, several in names.weights.items()}
    names = replace(names, weights=plain)
    return assemble(path, names, config, stored, FORMAT)


def _places(header: Header) -> Iterator[tuple[MappedFile, TensorPlace]]:
    """All tensors of a file, and of those that it numbers as its other parts."""
    count, match = header.metadata.get("split.count", 1), PART.fullmatch(header.path.name)
    if count == 1 or not match:
        if header.metadata.get("split.no"):
            raise UserError(f"{header.path} is a part of a model: name its first one, …-00001-of-….gguf")
        if type(count) is int and count > 1:
            wanted = f"NAME-00001-of-{count:05}.gguf"
            raise UserError(f"{header.path} is the first of {count} parts, which find each other as {wanted} and so on")
        headers = [header]
    else:
        names = [f"{match['name']}-{number + 1:05}-of-{match['count']}.gguf" for number in range(int(match["count"]))]
        headers = [header, *(read_header(header.path.with_name(name)) for name in names[1:])]
    for part in headers:
        file = MappedFile(part.path)
        for place in part.tensors:
            yield file, place


def _array(file: MappedFile, place: TensorPlace) -> np.ndarray:
    block = DTYPES[place.kind].block
    return file.array(place.offset, (*place.shape[:-1], place.shape[-1] // block), place.kind)


def _divisors(path: Path, file: MappedFile, place: TensorPlace) -> np.ndarray:
    """What rotary frequencies are divided by; UserError where that is no list of numbers above 0."""
    values = widened(_array(file, place), place.kind).astype(np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or values.min() <= 0:
        raise UserError(f"{path} is damaged: tensor {place.name!r} should be numbers above 0")
    return values


def _stored(
    header: Header, names: FolderMap, layers: int, tensors: dict[str, tuple[MappedFile, TensorPlace]], data: dict
) -> Iterator[tuple[str, Stored]]:
    """The tensors by the names that they have in folders; those that no program's weight is have their own."""
    known, used = _table(header, layers), set(DIVISORS)
    patterns = [pattern for several in names.weights.values() for pattern in several]
    for pattern, layer in product(patterns, range(layers)):
        name = pattern.name.replace("*", str(layer), 1)
        own = next((k for p in (*names.prefix, "") if (k := known(f"{p}{name}".replace(".*", ""))) is not None), None)
        if own is None or own not in tensors or (layer and "*" not in pattern.name):
            continue
        used.add(own)
        tensor = _rearranged(Stored(tensors[own][0], _array(*tensors[own]), tensors[own][1].kind), name, names, data)
        if "*" not in name:
            yield name, tensor
            continue
        for number, array in enumerate(tensor.array):
            yield name.replace("*", str(number)), Stored(tensor.file, array, tensor.dtype)
    for own, (file, place) in tensors.items():
        if own not in used:
            yield own, Stored(file, _array(file, place), place.kind)


def _table(header: Header, layers: int):  # type: ignore[no-untyped-def]
    """A function from folders' names of tensors to llama.cpp's, for a file's architecture."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map  # as late as here: few models come in such files

    kind = header.architecture
    found = next((arch for arch, name in MODEL_ARCH_NAMES.items() if name == kind), None)
    if found is None:
        raise UserError(f"{header.path}: the architecture {kind!r} is not one of llama.cpp's")
    table = get_tensor_name_map(found, layers)
    plain = {"lm_head.weight": "output.weight", "embed_out.weight": "output.weight"}  # some architectures' lack it
    return lambda name: table.get_name(name, try_suffixes=(".weight", ".bias")) or plain.get(name)


def _rearranged(tensor: Stored, name: str, names: FolderMap, data: dict) -> Stored:
    """With the rows and values of a folder."""
    added = next((more for part, more in names.gguf.added.items() if part in name), 0.0)
    rows = next((rows for part, rows in names.gguf.rows.items() if part in name), None)
    if rows is None:
        return Stored(tensor.file, tensor.array, tensor.dtype, added=added)
    array = tensor.array
    sizes = rows_of(data, rows.sizes, array.shape[0], f"{tensor.file.path}: tensor {name!r}")
    stored = array.reshape(*(sizes[i] for i in rows.order), *array.shape[1:])
    back = [rows.order.index(i) for i in range(len(sizes))]
    turned = stored.transpose(*back, *range(len(sizes), stored.ndim))
    return Stored(tensor.file, turned, tensor.dtype, tensor.shape, added)
