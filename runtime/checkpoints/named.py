"""A safetensors file of any model: tensors by their names, and the layers' slices of one under one name.

`layers.0.w`, `layers.1.w`, … (whatever stands before the number) is the stacked tensor `w`, as a program's
`(per layers (w …))` wants it, where every layer is there in one shape and type and nothing else is called `w`.  What is
stored whole is there as it is.  A program's config may stand in the file's metadata, as JSON under "config".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import parse_json
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.safetensors_file import MODEL, Stored, has_config, read_metadata, read_safetensors

FORMAT = "safetensors"
SLICE = re.compile(r"(?P<stack>.*)(?<![^.])(?P<layer>0|[1-9][0-9]*)\.(?P<name>.+)")
READABLE = ("f64", "f32", "f16", "bf16", "i32")


def recognises(path: Path, head: bytes) -> bool:
    """A file with the format's header, or a folder of one that has a config; formats that know an architecture are
    asked before."""
    if path.is_dir():
        return has_config(path)
    return path.is_file() and (path.suffix == ".safetensors" or head[8:9] == b"{")


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a file whose header, names, shapes and offsets are right."""
    path = path / MODEL if path.is_dir() else path
    stored = {name: tensor for name, tensor in read_safetensors(path).items() if tensor.dtype in READABLE}
    if not stored:
        raise UserError(f"{path} holds no tensor of {', '.join(READABLE)}")
    tensors = {name: StoredTensor(TensorInfo(t.array.shape, t.dtype), (t.array,)) for name, t in stored.items()}
    for name, slices in _stacks(stored).items():
        first = slices[0]
        info = TensorInfo((len(slices), *first.array.shape), first.dtype, stacked=True)
        tensors.setdefault(name, StoredTensor(info, tuple(tensor.array for tensor in slices)))
    files = {id(tensor.file): tensor.file for tensor in stored.values()}
    return MappedCheckpoint(FORMAT, path, _config(path), files.values(), tensors)


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
        if not isinstance(value, (bool, int, float, str)):
            raise UserError(f"{path}: the config in its metadata gives {name} as {value!r}")
    return config
