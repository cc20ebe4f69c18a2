"""Making checkpoints: seeded random ones of any shape, and conversions between formats and precisions."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import WEIGHT_DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.runtime import tokenizers
from lispgpt.runtime.checkpoints import format_named, open
from lispgpt.runtime.checkpoints.architecture import Shape
from lispgpt.runtime.checkpoints.base import Checkpoint
from lispgpt.runtime.checkpoints.named import write_blocks
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors
from lispgpt.runtime.checkpoints.seeded import RandomCheckpoint
from lispgpt.runtime.tokenizers.synthetic import synthetic_pieces

WRITTEN = {
    "llmc": ("an llm.c file", ".bin"),
    "huggingface": ("a folder", ""),
    "safetensors": ("a safetensors file", ".safetensors"),
}
"""What is written, and how that ends."""

SUFFIXES = (".bin", ".safetensors", ".gguf", ".pt", ".pth", ".onnx", ".lgpt")
"""What says by itself of which kind a file is."""


def make(
    path: str | Path,
    shape: Shape,
    format: str = "llmc",
    dtype: str = "bf16",
    seed: int = 0,
    source: Checkpoint | None = None,
) -> Path | None:
    """Write a random checkpoint ("f32" or "bf16") and a tokenizer that fits it; returns the tokenizer's path.

    source: of the weights, where they are not as loud as `RandomCheckpoint` makes them.

    A vocabulary of fewer than 257 tokens cannot spell every byte and gets no tokenizer (None).
    """
    path = Path(path)
    writer = format_named(format)
    source = source or RandomCheckpoint(shape, seed)
    _check_place(path, format, _nbytes(source, _checked(dtype)))
    writer.write(path, source, _checked(dtype))
    vocab = source.config["vocab"]
    pieces = synthetic_pieces(vocab)
    return None if pieces is None else tokenizers.write_beside(path, format, pieces, end_of_text=vocab - 1)


def make_for(
    path: str | Path,
    config: Mapping[str, Any],
    weights: Sequence[tuple[str, tuple[int, ...], str, bool]],
    seed: int = 0,
) -> Path | None:
    """Write random weights for a program to a safetensors file, and where its config has a vocabulary a tokenizer.

    weights: (name, shape, dtype, whether the first dimension counts layers).  Returns the tokenizer's path, as `make`.
    """
    path = Path(path)
    source = RandomCheckpoint(_Declared(config, weights), seed)
    _check_place(path, "safetensors", sum(find_dtype(d).nbytes(math.prod(shape)) for _, shape, d, _ in weights))

    def contents() -> Iterator[np.ndarray]:
        for name, shape, dtype, _ in weights:
            array = np.empty(shape, find_dtype(dtype).numpy)
            source.read_into(name, array, dtype)
            yield array

    header = [(name, shape, dtype) for name, shape, dtype, _ in weights]
    write_safetensors(path, header, contents(), {"config": json.dumps(dict(config))})
    vocab = config.get("vocab")
    pieces = synthetic_pieces(vocab) if isinstance(vocab, int) else None
    return None if pieces is None else tokenizers.write_beside(path, "llmc", pieces, end_of_text=len(pieces) - 1)


@dataclass(frozen=True)
class _Declared:
    """What a program declares, as an architecture's sizes are."""

    given: Mapping[str, Any]
    weights: Sequence[tuple[str, tuple[int, ...], str, bool]]

    @property
    def layers(self) -> int:
        return max((shape[0] for _, shape, _, stacked in self.weights if stacked), default=0)

    def config(self, weight_type: str) -> dict[str, Any]:
        return dict(self.given)

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], bool]]:
        return ((name, shape, stacked) for name, shape, _, stacked in self.weights)


def convert(source: str | Path, path: str | Path, format: str = "llmc", dtype: str | None = None) -> Path | None:
    """Rewrite a checkpoint, and the tokenizer beside it, in another format or precision (its own by default).

    Returns the tokenizer's path, None where the source has none.
    """
    checkpoint = open(source)
    if "wte" not in checkpoint.names():
        raise UserError(f"{source} is not a GPT-2 or a Llama ({checkpoint.format}), and only those can be converted")
    path, dtype = Path(path), _checked(dtype or checkpoint.config["weight-type"])
    _check_place(path, format, _nbytes(checkpoint, dtype))
    format_named(format).write(path, checkpoint, dtype)
    whole = Path(source) / "tokenizer.json"
    if format == "huggingface" and whole.is_file():
        with replacing(path / whole.name) as file:
            file.write(whole.read_bytes())
        return path / whole.name
    tokenizer = tokenizers.find(source, None)
    if tokenizer is None:
        return None
    pieces = [tokenizer.decode_bytes(token) for token in range(tokenizer.size)]
    return tokenizers.write_beside(path, format, pieces, tokenizer.end_of_text)


def convert_to_blocks(
    source: Checkpoint, path: str | Path, dtype: str, program: str | None = None
) -> tuple[list[str], Path | None]:
    """Write any checkpoint's matrices in blocks, by the names that it has here, and the tokenizer that it came with.

    program: the name of the program's file that has these names.  Returns the names of matrices that stay what they
    were, and the tokenizer's path.
    """
    path = Path(path)
    _check_place(path, "safetensors", _nbytes(source, dtype))
    left = write_blocks(path, source, dtype, program)
    tokenizer = tokenizers.find(source.path, None)
    return left, None if tokenizer is None else tokenizers.write_copy(path, tokenizer)


def _check_place(path: Path, format: str, nbytes: int) -> None:
    """UserError where a name says of another kind of file than what is written there, or the disk has no room."""
    what, own = WRITTEN[format]
    suffix, folder = path.suffix.lower(), path.absolute().parent
    if suffix in SUFFIXES and suffix != own:
        hint = "; GGUF files are read here, and not written" if suffix == ".gguf" else ""
        raise UserError(f"what would be written to {path} is {what}: call it {path.with_suffix(own)}{hint}")
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise UserError(f"cannot write {path}: its weights take {nbytes:,} bytes, and the disk has {free:,} left")


def _nbytes(source: Checkpoint, dtype: str) -> int:
    """Bytes of a checkpoint's weights in one type."""
    return find_dtype(dtype).nbytes(sum(math.prod(source.info(name).shape) for name in source.names()))


def _checked(dtype: str) -> str:
    if dtype not in WEIGHT_DTYPES:
        raise UserError(f"no weight type {dtype!r}; there are {' and '.join(WEIGHT_DTYPES)}")
    return dtype
