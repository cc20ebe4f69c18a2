"""Weights from several places: checkpoints, arrays of the caller's, and what a program says its weights begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import DTYPES
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime.checkpoints.base import SHOWN, Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.initial import InitialWeights

WHOLE = ("huggingface", "gguf")
"""Formats of whole models, which have all that a program says it calls theirs."""


class Several(Checkpoint):
    """The tensors of several checkpoints: of a name that several have, the last one's; of their configs, too."""

    format = "several"

    def __init__(self, parts: Sequence[Checkpoint]) -> None:
        self.parts: tuple[Checkpoint, ...] = tuple(
            each for part in parts for each in (part.parts if isinstance(part, Several) else (part,))
        )
        self.path = Path(", ".join(str(part.path) for part in self.parts))
        self.config = {name: value for part in self.parts for name, value in part.config.items()}
        self.notice = " ".join(part.notice for part in self.parts if part.notice)
        self._holds = {name: part for part in self.parts for name in part.names()}

    def names(self) -> tuple[str, ...]:
        return tuple(self._holds)

    def info(self, name: str) -> TensorInfo:
        return self._of(name).info(name)

    def view(self, name: str) -> np.ndarray | None:
        return self._of(name).view(name)

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        self._of(name).read_layer_into(name, layer, destination, dtype)

    def check_finite(self, names: Iterable[str] | None = None) -> None:
        for name in self.names() if names is None else names:
            self._of(name).check_finite([name])

    def _of(self, name: str) -> Checkpoint:
        if name not in self._holds:
            raise self.missing(name)
        return self._holds[name]


def arrays_given(arrays: Mapping[str, Any]) -> Checkpoint:
    """Arrays by weights' names as a checkpoint; bf16 may be given by its bits, as uint16.  UserError for what is no
    array of numbers."""
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
        raise UserError(f"weights are arrays by their names, not {arrays!r:.60}")
    tensors = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise UserError(f"weight {name!r} is an array of numbers, not of {array.dtype}")
        kinds = [dtype.name for dtype in DTYPES.values() if dtype.block == 1 and dtype.numpy == array.dtype]
        kind = next((name for name in kinds if name not in ("f8e4m3", "f8e5m2", "index")), None)
        if kind is None:
            array, kind = array.astype(np.float32 if array.dtype.kind == "f" else np.int64), None
            kind = "f32" if array.dtype.kind == "f" else "i64"
        stored = np.array(array, order="C")
        stored.flags.writeable = False
        tensors[name] = StoredTensor(TensorInfo(stored.shape, kind), (stored,))
    return MappedCheckpoint("arrays", Path("(the weights given)"), {}, (), tensors)


def completed(
    checkpoint: Checkpoint,
    weights: Mapping[str, Mapping[str, Any]],
    names: FolderMap | None,
    *,
    seed: int = 0,
    everything: bool = False,
) -> tuple[Checkpoint, list[str]]:
    """A checkpoint with what it lacks of a program's weights, as the program's :init says, and the names of those.

    weights: what an artifact says of them.  names: what the program calls the weights of model folders: such a folder
    has to have those.  everything: also those without an :init, as training from nothing begins.  Where a checkpoint
    has none of the weights, or not all of those without an :init, it is of another program, and nothing is added.
    """
    there = set(checkpoint.names())
    missing = [name for name in weights if name not in there]
    if checkpoint.format in WHOLE and names is not None:
        missing = [name for name in missing if name not in names.weights]
    other = not there & set(weights) or any("init" not in weights[name] for name in missing)
    if not missing or (other and not everything):
        return checkpoint, []
    return Several([InitialWeights.declared({}, weights, seed, missing), checkpoint]), missing


def check_known(checkpoint: Checkpoint, weights: Iterable[str]) -> None:
    """UserError where a caller gives an array for a weight that the program does not have."""
    known = list(weights)
    for name in checkpoint.names():
        if name not in known:
            more = f" and {len(known) - SHOWN} others" if len(known) > SHOWN else ""
            raise UserError(f"the program has no weight {name!r}; it has {', '.join(known[:SHOWN])}{more}")


def said_of(missing: Sequence[str], paths: Sequence[str]) -> str:
    """What a user should know of weights that checkpoints lack."""
    more = f" and {len(missing) - SHOWN} others" if len(missing) > SHOWN else ""
    lack = f"{', '.join(paths)} {'has' if len(paths) == 1 else 'have'} no"
    return f"{lack} {', '.join(missing[:SHOWN])}{more}: they begin as the program's :init says"
