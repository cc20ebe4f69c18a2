"""What a checkpoint format is.  A new one is one file in this folder; copy `llmc.py`, the smallest.

A format's module is found by its name in this folder.  It must offer

    recognises(path: Path, head: bytes) -> bool
        Whether the path is this format's, judged by content.  path exists; head is a file's first 1024 bytes (fewer in
        a shorter file, none for a folder).  A damaged file that is clearly meant to be this format is recognised, so
        that the error comes from here and names the damage.
    open_checkpoint(path: Path) -> Checkpoint
        Checks everything that can be checked without reading the weights (header, names, shapes, sizes against the
        file's), before anything is allocated; raises UserError with what is wrong and how to mend it.

and may offer

    write(path: Path, source: Checkpoint, dtype: str) -> None
        Write `source`'s tensors in this format as "f32" or "bf16", holding one tensor of one layer in memory at a
        time.
    export(folder: Path, source: Checkpoint) -> None
        Write `source` in a folder under the format's usual name, for others to read, where its tensors are what the
        format holds, no more and no fewer; do nothing where they are not.

You get paths from users and bytes from strangers: nothing in a file may be believed before it is checked.  You may not
import MLIR or the front end.  Most formats need only map a file, check it, and describe where each tensor lies: return
a `MappedCheckpoint` made of `StoredTensor`s, and the conversions below come for free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import BLOCK_DTYPES, MIXED, MODEL_DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.blocks import in_blocks_of
from lispgpt.runtime.checkpoints.mapped_file import MappedFile
from lispgpt.runtime.checkpoints.numbers import copy_converted, in_parallel, is_finite
from lispgpt.runtime.checkpoints.scales import Scales, Scaling

SHOWN = 12
"""Names of tensors that a message has at most."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as programs see it, with matrices as (out, in) and layers stacked on a leading dimension.

    dtype: what the file stores, any float of the table.  stacked: whether the first dimension counts layers.  layers:
    which, where the file says that some have a part.
    """

    shape: tuple[int, ...]
    dtype: str
    stacked: bool = False
    layers: tuple[int, ...] | None = None


class Checkpoint(ABC):
    """Named tensors and the model's sizes.

    config holds what a program's `config` form may be overridden with: vocab, padded-vocab, context, layers, heads,
    width (integers), weight-type ("f32" or "bf16") and, where the file says it, epsilon (of the layer norms).  notice:
    a sentence for the user, where weights become something else than what is stored.
    """

    notice = ""

    format: str
    path: Path
    config: dict[str, Any]

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All tensors' names, in the order of the file."""

    @abstractmethod
    def info(self, name: str) -> TensorInfo:
        """Shape and stored dtype; UserError for a name that the checkpoint lacks."""

    @abstractmethod
    def view(self, name: str) -> np.ndarray | None:
        """The file's own bytes as a read-only, C-contiguous array of the info's shape (bf16 as uint16, blocks as
        items).

        None where what is stored is not directly usable: transposed, in pieces, misaligned, to be padded, or of a type
        that is read as f32.
        Values are not looked at: see check_finite.
        """

    @abstractmethod
    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        """Fill an array with one layer of a stacked tensor, or (layer 0) with the whole of one that is not stacked.

        destination: C-contiguous, of dtype "f32" (float32) or "bf16" (uint16 patterns, rounded to nearest even).
        UserError names the tensor if it holds NaN or infinity.
        """

    @abstractmethod
    def check_finite(self, names: Iterable[str] | None = None) -> None:
        """UserError naming the first tensor (of those given; of all by default) that holds NaN or infinity."""

    def has_blocks(self, name: str, dtype: str) -> bool:
        """Whether a tensor's numbers are those of such blocks, which `read_layer_into` then reads as they are."""
        return self.info(name).dtype == dtype

    def read_into(self, name: str, destination: np.ndarray, dtype: str) -> None:
        """Fill a whole tensor's array, converting on the way and checking for NaN; see read_layer_into.

        dtype: also of blocks, for an array of them.
        """
        info, kind = self.info(name), find_dtype(dtype)
        if tuple(destination.shape) != kind.items(info.shape) or destination.dtype != kind.numpy:
            raise ValueError(f"{name}: {destination.dtype}{destination.shape} for {dtype}{info.shape}")
        read = self.read_layer_into if kind.block == 1 else self.read_blocks_into

        def layer(number: int) -> None:
            read(name, number, destination[number] if info.stacked else destination, dtype)

        in_parallel(layer, range(info.shape[0] if info.stacked else 1))

    def read_blocks_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        """As `read_layer_into`, an array of blocks: the tensor's own, or those nearest to its numbers."""
        if self.has_blocks(name, dtype):
            self.read_layer_into(name, layer, destination, dtype)
            return
        values = np.empty((*destination.shape[:-1], destination.shape[-1] * find_dtype(dtype).block), np.float32)
        self.read_layer_into(name, layer, values, "f32")
        destination[...] = in_blocks_of(values, dtype)

    def tensor(self, name: str) -> np.ndarray:
        """The tensor as stored, or as f32 for types that kernels do not read: the file's own bytes where possible."""
        view = self.view(name)
        if view is not None and self.info(name).dtype in MODEL_DTYPES:
            return view
        info = self.info(name)
        dtype = info.dtype if info.dtype in MODEL_DTYPES else "f32"
        array = np.empty(info.shape, find_dtype(dtype).numpy)
        self.read_into(name, array, dtype)
        return array

    def missing(self, name: str) -> UserError:
        """The error for a name that the checkpoint lacks."""
        names = self.names()
        more = f" and {len(names) - SHOWN} others" if len(names) > SHOWN else ""
        return UserError(f"{self.path} has no tensor {name!r}; it has {', '.join(names[:SHOWN])}{more}")


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in mapped files.

    pieces: the file's arrays as stored: one for the whole tensor, or one or more a layer, whose rows follow each other.
    transposed: matrices are stored (in, out).  kinds: the pieces' types, where they are not all the info's.  added:
    what stored values are larger by.  scales: of the pieces, where they are multiplied by some.  Rows that the pieces
    lack (the padded vocabulary's) read as zeros.
    """

    info: TensorInfo
    pieces: tuple[np.ndarray, ...]
    transposed: bool = False
    added: float = 0.0
    kinds: tuple[str, ...] = ()
    scales: tuple[Scaling | None, ...] = ()

    def typed(self) -> list[tuple[np.ndarray, str]]:
        """The pieces as stored, views, and their types."""
        return list(zip(self.pieces, self.kinds or (self.info.dtype,) * len(self.pieces), strict=True))

    def layer(self, index: int, rank: int) -> list[tuple[np.ndarray, str]]:
        """Those of one layer, which has so many dimensions: files that do not say so may hold layers stacked, too."""
        pieces = self.typed()
        if not self.info.stacked:
            whole = pieces[0][0]
            if len(pieces) == 1 and whole.ndim == rank + 1 and index < len(whole):
                return [(whole[index], pieces[0][1])]
            return pieces
        if len(pieces) == 1 and pieces[0][0].ndim == len(self.info.shape):
            return [(pieces[0][0][index], pieces[0][1])]
        each = len(pieces) // self.info.shape[0]
        return pieces[index * each : (index + 1) * each]

    @property
    def is_in_fp8(self) -> bool:
        """Whether it is floats of 8 bits with scales that are the same throughout each block of "fp8"."""
        fp8, columns = find_dtype("fp8"), self.info.shape[-1]
        alike = bool(self.kinds) and set(self.kinds) == {fp8.floats} and not self.transposed and not self.added
        if not alike or columns % fp8.block or len(self.scales) != len(self.pieces):
            return False
        grids = [scales for scales in self.scales if isinstance(scales, Scales)]
        widths = [columns if s.block[1] >= columns else s.block[1] for s in grids]
        return len(grids) == len(self.pieces) and not any(width % fp8.block for width in widths)

    def is_mixed_in(self, dtype: str) -> bool:
        """Whether all its pieces are in blocks of which others have all numbers."""
        return (
            set(self.kinds) <= set(MIXED.get(dtype, ())) and not self.added and not self.transposed and bool(self.kinds)
        )

    def scales_of(self, pieces: Sequence[tuple[np.ndarray, str]]) -> list[Scaling | None]:
        """What these of the pieces are multiplied by."""
        places = {id(piece): scale for piece, scale in zip(self.pieces, self.scales, strict=False)}
        return [places.get(id(piece)) for piece, _ in pieces]

    def view(self) -> np.ndarray | None:
        piece, dtype = self.typed()[0]
        usable = not self.transposed and not self.added and not any(self.scales) and dtype == self.info.dtype
        usable &= dtype in (*MODEL_DTYPES, *BLOCK_DTYPES) and piece.shape == find_dtype(dtype).items(self.info.shape)
        return piece if usable and piece.flags.aligned else None


class UnmappedCheckpoint(Checkpoint):
    """A checkpoint whose tensors lie in no file: each layer of them is made as it is read."""

    _tensors: Mapping[str, TensorInfo]

    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def info(self, name: str) -> TensorInfo:
        if name not in self._tensors:
            raise self.missing(name)
        return self._tensors[name]

    def view(self, name: str) -> np.ndarray | None:
        return None


class MappedCheckpoint(Checkpoint):
    """A checkpoint whose tensors lie in mapped files."""

    def __init__(
        self,
        format: str,
        path: Path,
        config: dict[str, Any],
        files: Iterable[MappedFile],
        tensors: Mapping[str, StoredTensor],
    ) -> None:
        self.format, self.path, self.config = format, path, config
        self._files = tuple(files)
        self._tensors = dict(tensors)

    def with_more(self, tensors: Mapping[str, StoredTensor]) -> MappedCheckpoint:
        """The same with more tensors, which need not lie in its files."""
        made = MappedCheckpoint(self.format, self.path, self.config, self._files, {**self._tensors, **tensors})
        made.notice = self.notice
        return made

    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def info(self, name: str) -> TensorInfo:
        return self._stored(name).info

    def view(self, name: str) -> np.ndarray | None:
        return self._stored(name).view()

    def has_blocks(self, name: str, dtype: str) -> bool:
        stored = self._stored(name)
        own = stored.is_in_fp8 if dtype == "fp8" else stored.is_mixed_in(dtype)
        return own or super().has_blocks(name, dtype)

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        stored = self._stored(name)
        pieces, start = stored.layer(layer, destination.ndim), 0
        scales = stored.scales_of(pieces)
        vectors = len(stored.info.shape) - stored.info.stacked < 2  # which may come in pieces as matrices do
        columns = 1 if vectors else destination.shape[-1]
        rows, elements = destination.reshape(-1, columns), columns * find_dtype(dtype).block
        for (piece, kind), scale in zip(pieces, scales, strict=True):
            self._require_finite(name, piece, kind)
            items = max(1, elements // find_dtype(kind).block)
            source = (piece.T if stored.transposed else piece).reshape(-1, items)
            if start + len(source) > len(rows):
                expected = f"one layer of a model of its sizes has {list(destination.shape)}"
                raise UserError(f"{self.path}: {name} is {list(stored.info.shape)}, and {expected}")
            own = rows[start : start + len(source)]
            if scale is None:
                copy_converted(source, kind, own, dtype, stored.added)
            else:
                scale.fill(source, kind, own, dtype)
            start += len(source)
            self._release(piece)
        rows[start:] = 0

    def check_finite(self, names: Iterable[str] | None = None) -> None:
        blocks = []
        for name in self.names() if names is None else names:
            for piece, kind in self._stored(name).typed():
                flat = piece.reshape(-1)
                step = 1 << 23
                blocks += [(name, flat[start : start + step], kind) for start in range(0, flat.size, step)]
        in_parallel(lambda block: self._check_block(*block), blocks)

    def _check_block(self, name: str, array: np.ndarray, kind: str) -> None:
        self._require_finite(name, array, kind)
        if self.view(name) is None:
            self._release(array)

    def _require_finite(self, name: str, array: np.ndarray, kind: str) -> None:
        if not is_finite(array, kind):
            raise UserError(
                f"{self.path}: tensor {name!r} holds NaN or infinity: the checkpoint is damaged or diverged"
            )

    def _release(self, array: np.ndarray) -> None:
        for file in self._files:
            file.release(array)

    def _stored(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise self.missing(name)
        return self._tensors[name]
