"""A safetensors file of any model: tensors by their names, and the layers' slices of one under one name.

`layers.0.w`, `layers.1.w`, … (whatever stands before the number) is the stacked tensor `w`, as a program's
`(per layers (w …))` wants it, where every layer is there in one shape and type and nothing else is called `w`.  What is
stored whole is there as it is.  A program's config may stand in the file's metadata, as JSON under "config", and the
name of its file under "program".

Weights in blocks are bytes there; what they are stands in the metadata, as JSON under "blocks": by name the type, the
shape in elements, and whether the first dimension counts layers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from lispgpt.base.dtypes import BLOCK_DTYPES, DECLARED_DTYPES, FLOATS_OF_8_BITS, INTEGERS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.json_files import parse_json
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.safetensors_file import (
    MODEL,
    Stored,
    has_config,
    read_metadata,
    read_safetensors,
    write_safetensors,
)

FORMAT = "safetensors"
SLICE = re.compile(r"(?P<stack>.*)(?<![^.])(?P<layer>0|[1-9][0-9]*)\.(?P<name>.+)")
READABLE = ("f64", "f32", "f16", "bf16", *FLOATS_OF_8_BITS, *INTEGERS)


def recognises(path: Path, head: bytes) -> bool:
    """A file with the format's header, or a folder of one that has a config; formats that know an architecture are
    asked before."""
    if path.is_dir():
        return has_config(path)
    return path.is_file() and (path.suffix == ".safetensors" or head[8:9] == b"{")


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a file whose header, names, shapes and offsets are right."""
    path = path / MODEL if path.is_dir() else path
    every = read_safetensors(path, integers=True)
    blocks = dict(_blocks(path, every))
    stored = {name: tensor for name, tensor in every.items() if tensor.dtype in READABLE and name not in blocks}
    if not stored and not blocks:
        raise UserError(f"{path} holds no tensor of {', '.join(READABLE)}")
    tensors = {name: StoredTensor(TensorInfo(t.array.shape, t.dtype), (t.array,)) for name, t in stored.items()}
    for name, slices in _stacks(stored).items():
        first = slices[0]
        info = TensorInfo((len(slices), *first.array.shape), first.dtype, stacked=True)
        tensors.setdefault(name, StoredTensor(info, tuple(tensor.array for tensor in slices)))
    files = {id(tensor.file): tensor.file for tensor in every.values()}
    config = _config(path) | ({"weight-types": {n: t.info.dtype for n, t in blocks.items()}} if blocks else {})
    return MappedCheckpoint(FORMAT, path, config, files.values(), tensors | blocks)


def program_of(path: Path) -> str | None:
    """The name of the program's file that a checkpoint says it is for."""
    try:
        return read_metadata(path).get("program") if path.suffix == ".safetensors" and path.is_file() else None
    except (SafetensorError, OSError):
        return None


def write_blocks(path: Path, source: Checkpoint, dtype: str, program: str | None = None) -> list[str]:
    """Write a checkpoint by its own names, matrices in blocks; the names of those whose rows are not of whole blocks,
    which stay what they are.  program: the name of the program's file that has these names."""
    kind, blocks, left, header = find_dtype(dtype), {}, [], []
    for name in source.names():
        info = source.info(name)
        if len(info.shape) - info.stacked > 1 and info.shape[-1] % kind.block == 0:
            blocks[name] = (dtype, info.shape, info.stacked)
            header.append((name, (*info.shape[:-1], info.shape[-1] // kind.block * kind.item_bytes), "u8"))
            continue
        left += [name] if len(info.shape) - info.stacked > 1 else []
        header.append((name, info.shape, info.dtype if info.dtype in DECLARED_DTYPES else "f32"))

    def contents() -> Iterator[np.ndarray]:
        for name, shape, stored in header:
            for layer in range(shape[0] if source.info(name).stacked else 1):
                yield _written(source, name, layer, dtype if name in blocks else stored)

    config = {name: value for name, value in source.config.items() if name != "weight-types"}
    about = {"config": json.dumps(config), "blocks": json.dumps(blocks)}
    about |= {} if program is None else {"program": program}
    write_safetensors(path, header, contents(), about)
    return left


def _written(source: Checkpoint, name: str, layer: int, dtype: str) -> np.ndarray:
    """A layer of a tensor, as it is stored."""
    info, kind = source.info(name), find_dtype(dtype)
    shape = info.shape[1:] if info.stacked else info.shape
    values = np.empty(kind.items(shape), kind.numpy)
    if kind.block == 1:
        source.read_layer_into(name, layer, values, dtype)
        return values
    source.read_blocks_into(name, layer, values, dtype)
    return values.view(np.uint8)


def _blocks(path: Path, stored: dict[str, Stored]) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors that the metadata says are blocks; UserError where they cannot be."""
    text = read_metadata(path).get("blocks")
    for name, about in ({} if text is None else parse_json(path, text.encode())).items():
        kind, shape, stacked = about if isinstance(about, list) and len(about) == 3 else ("", [], False)
        fine = kind in BLOCK_DTYPES and isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)
        if fine and name in stored and stored[name].dtype == "u8" and len(shape) > 1:
            array, record = stored[name].array, find_dtype(kind)
            if shape[-1] % record.block == 0 and array.nbytes == record.nbytes(math.prod(shape)):
                items = array.reshape(-1).view(record.numpy).reshape(record.items(tuple(shape)))
                yield name, StoredTensor(TensorInfo(tuple(shape), kind, bool(stacked)), (items,))
                continue
        raise UserError(f"{path}: what its metadata says of the blocks of {name!r} is not what the file holds")


def _stacks(stored: dict[str, Stored]) -> dict[str, list[Stored]]:
    """The slices of each stacked tensor in the order of layers; what could be of two stacks is of none."""
    found: dict[str, dict[str, dict[int, Stored]]] = {}
    for name, tensor in stored.items():
        match = SLICE.fullmatch(name)
        if match:
            found.setdefault(match["name"], {}).setdefault(match["stack"], {})[int(match["layer"])] = tensor
    stacks = {}
    for name, by_prefix in found.items():
        (slices, *others) = by_prefix.values()
        kinds = {(tensor.array.shape, tensor.dtype) for tensor in slices.values()}
        if not others and len(kinds) == 1 and set(slices) == set(range(len(slices))):
            stacks[name] = [slices[layer] for layer in range(len(slices))]
    return stacks


def _config(path: Path) -> dict[str, Any]:
    text = read_metadata(path).get("config")
    if text is None:
        return {}
    config = parse_json(path, text.encode())
    for name, value in config.items():
        if not isinstance(value, (bool, int, float, str, list)):
            raise UserError(f"{path}: the config in its metadata gives {name} as {value!r}")
    return config
