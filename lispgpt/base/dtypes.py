"""The one table of element types: how many bits each has, how MLIR and files spell it, and how numpy sees its bytes.

A row is all that another type needs to be stored, planned and copied; arithmetic on it is for those who read the table.
A type whose elements share a scale is a row with `block` elements in an item of `bits`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lispgpt.base.errors import InternalError


@dataclass(frozen=True)
class Dtype:
    """name: as programs and plans have it.  bits: of an item of `block` elements.

    numpy: an item as arrays hold it, little-endian; bfloat16 is its pattern in a uint16, and a block a record whose
    fields have llama.cpp's names.  safetensors: that format's name, where it has one.  smallest_nonfinite: of a float's
    patterns, that of infinity; None for integers and blocks.  floats: the type of a block's numbers, `qs`, where they
    are floats.
    """

    name: str
    bits: int
    numpy: np.dtype
    safetensors: str = ""
    smallest_nonfinite: int | None = None
    block: int = 1
    floats: str = ""

    @property
    def mlir(self) -> str:
        """MLIR's text for one element; its integers have no sign."""
        return "i8" if self.name == "u8" else self.name

    @property
    def item_bytes(self) -> int:
        return -(-self.bits // 8)

    def items(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array of items that elements of this shape are; rows are of whole blocks."""
        return shape if self.block == 1 else (*shape[:-1], shape[-1] // self.block)

    def nbytes(self, elements: int) -> int:
        """Bytes of that many elements in a row; they fill whole items."""
        return -(-elements // self.block) * self.item_bytes


def _block(name: str, elements: int, *fields: tuple[str, str, int], floats: str = "") -> Dtype:
    """A row of blocks of so many elements.  fields: names, type and count of what one consists of, in order."""
    each = [(field, kind, count) for names, kind, count in fields for field in names.split()]
    record = np.dtype([(field, kind, (count,)) if count > 1 else (field, kind) for field, kind, count in each])
    return Dtype(name, 8 * record.itemsize, record, block=elements, floats=floats)


DTYPES = {
    dtype.name: dtype
    for dtype in (
        Dtype("f64", 64, np.dtype("<f8"), "F64", 0x7FF0000000000000),
        Dtype("f32", 32, np.dtype("<f4"), "F32", 0x7F800000),
        Dtype("f16", 16, np.dtype("<f2"), "F16", 0x7C00),
        Dtype("bf16", 16, np.dtype("<u2"), "BF16", 0x7F80),
        Dtype("f8e4m3", 8, np.dtype("u1"), "F8_E4M3", 0x7F),
        Dtype("f8e5m2", 8, np.dtype("u1"), "F8_E5M2", 0x7C),
        Dtype("i64", 64, np.dtype("<i8"), "I64"),
        Dtype("i32", 32, np.dtype("<i4"), "I32"),
        Dtype("i16", 16, np.dtype("<i2"), "I16"),
        Dtype("i8", 8, np.dtype("i1"), "I8"),
        Dtype("u8", 8, np.dtype("u1"), "U8"),
        Dtype("i1", 8, np.dtype("?"), "BOOL"),
        Dtype("index", 64, np.dtype("<i8")),
        _block("q8_0", 32, ("d", "<f2", 1), ("qs", "i1", 32)),
        _block("q4_0", 32, ("d", "<f2", 1), ("qs", "u1", 16)),
        _block("q4_1", 32, ("d m", "<f2", 1), ("qs", "u1", 16)),
        _block("q5_0", 32, ("d", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)),
        _block("q5_1", 32, ("d m", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)),
        _block("q2_k", 256, ("scales", "u1", 16), ("qs", "u1", 64), ("d dmin", "<f2", 1)),
        _block("q3_k", 256, ("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2", 1)),
        _block("q4_k", 256, ("d dmin", "<f2", 1), ("scales", "u1", 12), ("qs", "u1", 128)),
        _block("q5_k", 256, ("d dmin", "<f2", 1), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)),
        _block("q6_k", 256, ("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2", 1)),
        _block(
            "k_mix",
            256,
            ("d dmin", "<f2", 1),
            ("minima", "u1", 8),
            ("scales", "i1", 16),
            ("ql", "u1", 128),
            ("qh", "u1", 64),
        ),
        _block("int8", 128, ("d", "<f4", 1), ("qs", "i1", 128)),
        _block("fp8", 128, ("d", "<f4", 1), ("qs", "u1", 128), floats="f8e4m3"),
        _block("mxfp4", 32, ("e", "u1", 1), ("qs", "u1", 16)),
        _block("iq4_nl", 32, ("d", "<f2", 1), ("qs", "u1", 16)),
        _block("iq4_xs", 256, ("d", "<f2", 1), ("scales_h", "<u2", 1), ("scales_l", "u1", 4), ("qs", "u1", 128)),
    )
}
"""By name; i1 takes a byte wherever it is stored.  Blocks are llama.cpp's, but for OWN_BLOCKS, along rows,
which are of whole blocks."""

FLOATS_OF_8_BITS = ("f8e4m3", "f8e5m2")
"""Whose numbers BF16 has all; E4M3 has no infinity, and its largest pattern is a NaN."""

MODEL_DTYPES = ("f32", "bf16", "i32")
"""What weights and states of language models are of."""

CONFIG_DTYPES = (*MODEL_DTYPES, "f16")
"""What a checkpoint or `--set` may give a program's types as, beside blocks."""

DECLARED_DTYPES = (*MODEL_DTYPES, "f64", "f16", "i64", "i16", "i8", "u8", "i1")
"""What a program's inputs, weights and states may be of."""

MOST_DIMENSIONS = 32
"""Of a tensor: what arrays of every numpy may have."""

MIXED = {"k_mix": ("q4_k", "q5_k", "q6_k")}
"""Blocks that have all numbers of several types of others, where a matrix is of those."""

INTEGERS = ("i64", "i32", "i16", "i8", "u8", "i1")

BLOCK_DTYPES = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "iq4_xs", "mxfp4", "k_mix", "int8", "fp8")
"""What a model's weights may also be of: blocks that kernels read as they are."""

OWN_BLOCKS = ("k_mix", "int8", "fp8")
"""Those of them that no GGUF file has."""

ROW_DTYPES = ("fp8", "q8_0")
"""What rows of a state, along its last dimension, may also be packed in: blocks of 8-bit numbers, of fp8 a row one."""

CACHE_TYPE = "cache-type"
"""What programs call the type of their keys and values in `config`."""

COLLECTIVE_DTYPES = ("f32", "bf16", "i32")
"""What devices may combine numbers of: what a plan's collectives take."""

WEIGHT_DTYPES = ("bf16", "f32")
"""What checkpoints are written in."""


def find_dtype(name: str) -> Dtype:
    """A type by its name, or by MLIR's text for it; InternalError where the table has none."""
    if name not in DTYPES:
        raise InternalError(f"there is no element type {name} in the table of them")
    return DTYPES[name]


def row_bytes(name: str, elements: int) -> int:
    """Bytes of a state's row of so many elements in one of ROW_DTYPES."""
    dtype = find_dtype(name)
    return dtype.item_bytes - dtype.block + elements if name in OWN_BLOCKS else dtype.nbytes(elements)
