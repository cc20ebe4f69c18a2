"""Experts in MXFP4 as gpt-oss's folders have them: numbers of 4 bits beside exponents, which become blocks as they are
read.

`w_blocks`, bytes [experts, rows, groups, 16], has each group's 2i-th number in the i-th byte's lower half and the next
one in its upper; a block has the i-th and the (i + 16)-th there.  `w_scales`, [experts, rows, groups], has exponents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.numbers import CHUNK, copy_converted
from lispgpt.runtime.checkpoints.safetensors_file import Stored

METHOD, KIND = "mxfp4", "mxfp4"
BLOCKS, EXPONENTS = "_blocks", "_scales"
HALVES = np.dtype([("pairs", "u1", (16,))])
"""A group's numbers as they are stored."""


@dataclass(frozen=True)
class Exponents:
    """u8 [experts, rows, groups]: those of a tensor's groups."""

    grid: np.ndarray

    def fill(self, source: np.ndarray, kind: str, destination: np.ndarray, dtype: str) -> None:
        """Fill rows of blocks, or of numbers of another type, with these groups of HALVES."""
        exponents, step = self.grid.reshape(source.shape), max(1, CHUNK // source.shape[1])
        for start in range(0, len(source), step):
            part = slice(start, start + step)
            pairs = source[part]["pairs"]
            numbers = np.stack([pairs & 15, pairs >> 4], -1).reshape(*pairs.shape[:-1], 2, 16)
            blocks = np.empty(pairs.shape[:-1], find_dtype(KIND).numpy)
            blocks["e"], blocks["qs"] = exponents[part], numbers[..., 0, :] | numbers[..., 1, :] << 4
            if dtype == KIND:
                destination[part] = blocks
            else:
                copy_converted(blocks, KIND, destination[part], dtype)


def with_exponents(folder: Path, stored: dict[str, Stored]) -> dict[str, Stored]:
    """The tensors, each two that are one matrix of each expert as one; UserError for what does not fit."""
    found = {name: tensor for name, tensor in stored.items() if not name.endswith((BLOCKS, EXPONENTS))}
    for name in stored.keys() - found.keys():
        whole = name.removesuffix(BLOCKS).removesuffix(EXPONENTS)
        if whole in found:
            continue
        pair = [stored[own] for own in (whole + BLOCKS, whole + EXPONENTS) if own in stored]
        if len(pair) < 2 or any(tensor.dtype != "u8" for tensor in pair):
            raise UserError(f"{folder}: tensor {name!r} is one of two, of blocks and scales, that are bytes")
        numbers, exponents = (np.asarray(tensor.array) for tensor in pair)
        if numbers.shape != (*exponents.shape, 16) or exponents.ndim != 3:
            shapes = f"{list(numbers.shape)} and {list(exponents.shape)}"
            raise UserError(f"{folder}: blocks and scales of {whole!r} are {shapes}, and no [experts, rows, groups]")
        halves = numbers.reshape(-1).view(HALVES).reshape(exponents.shape)
        found[whole] = Stored(pair[0].file, halves, KIND, scales=Exponents(exponents))
    return found


def method_of(quantization: Any) -> Any:
    """What config.json's quantization_config calls the way in which numbers are stored; None where it says nothing."""
    return quantization.get("quant_method") if isinstance(quantization, Mapping) else None
