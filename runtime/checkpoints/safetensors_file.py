"""Safetensors files, mapped: the library checks a file's header, and the offsets in it give views of the bytes.

(The library's own numpy reader copies every tensor and has no bfloat16.)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from lispgpt.base.dtypes import DTYPES, INTEGERS, MOST_DIMENSIONS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import parse_json
from lispgpt.base.reading import is_there
from lispgpt.runtime.checkpoints.mapped_file import MappedFile
from lispgpt.runtime.checkpoints.scales import Scaling

MODEL = "model.safetensors"
POINTER = b"version https://git-lfs"
"""The file in a folder that is a checkpoint."""

_READ = {dtype.safetensors: dtype.name for dtype in DTYPES.values() if dtype.smallest_nonfinite is not None}
_READ |= {DTYPES["i32"].safetensors: "i32"}
_INTEGERS = {DTYPES[name].safetensors: name for name in INTEGERS}


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies in a mapped file; dtype is a float's, blocks' or i32, or another type's safetensors name.

    rearranged: the tensor's shape, where the array has its rows in more dimensions.  added: what the values are larger
    by than the tensor's.  scales: what 8-bit floats are multiplied by.
    """

    file: MappedFile
    array: np.ndarray
    dtype: str
    rearranged: tuple[int, ...] = ()
    added: float = 0.0
    scales: Scaling | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""
        block = DTYPES[self.dtype].block if self.dtype in DTYPES else 1
        return self.rearranged or (*self.array.shape[:-1], self.array.shape[-1] * block)


def read_safetensors(path: Path, integers: bool = False) -> dict[str, Stored]:
    """Views of all tensors of floats and of i32 of a file by name (others appear as raw bytes); UserError for a damaged
    file.  integers: of all integers."""
    if not is_there(path):
        if path.name == MODEL:
            raise UserError(f"{path} is missing; save the model with save_pretrained, which writes model.safetensors")
        raise UserError(f"{path} is missing, which is a part of the model: copy or download it, too")
    if _is_pointer(path):
        raise UserError(f"{path} is but Git LFS's pointer to the file: `git lfs pull` fetches it")
    try:
        with safe_open(str(path), framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: {str(error)[:200]}; copy or download it again") from error
    file = MappedFile(path)
    length = int.from_bytes(file.array(0, (8,), "u8").tobytes(), "little")
    header = parse_json(path, file.array(8, (length,), "u8").tobytes())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = (_READ | _INTEGERS if integers else _READ).get(entry["dtype"])
        if len(entry["shape"]) > MOST_DIMENSIONS:
            raise UserError(f"{path} is damaged: tensor {name!r} has {len(entry['shape'])} dimensions")
        extents = tuple(entry["shape"]) if dtype else (end - begin,)
        array = file.array(8 + length + begin, extents, dtype or "u8")
        tensors[name] = Stored(file, array, dtype or entry["dtype"])
    return tensors


def _is_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def read_metadata(path: Path) -> dict[str, str]:
    """What a file that `read_safetensors` has read says about itself."""
    with safe_open(str(path), framework="numpy") as file:
        return dict(file.metadata() or {})


def has_config(folder: Path) -> bool:
    """Whether a folder is a program's own checkpoint: its only description is the config in its model.safetensors."""
    if (folder / "config.json").exists() or not (folder / MODEL).is_file():
        return False
    try:
        return "config" in read_metadata(folder / MODEL)
    except (SafetensorError, OSError):
        return False


def write_safetensors(
    path: Path,
    header: Iterable[tuple[str, tuple[int, ...], str]],
    contents: Iterable[np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors one after another: names, shapes and dtypes first, then their contents.

    metadata: what the file says about itself, beside that PyTorch can read it.
    """
    entries: dict[str, dict] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    offset = 0
    for name, extents, dtype in header:
        end = offset + find_dtype(dtype).item_bytes * int(np.prod(extents, dtype=object))
        entries[name] = {"dtype": find_dtype(dtype).safetensors, "shape": list(extents), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    # Padded with spaces, as the format allows, so that every tensor is aligned.
    text += b" " * ((56 - len(text)) % 64)
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in contents:
            file.write(np.ascontiguousarray(array).data)
