"""A session's weights and states on disk: exactly as they are, to go on from, and in the formats that others read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints import Checkpoint, TensorInfo, formats
from lispgpt.runtime.checkpoints.adapter_folder import AdapterFolder
from lispgpt.runtime.checkpoints.base import MappedCheckpoint, StoredTensor, UnmappedCheckpoint
from lispgpt.runtime.checkpoints.like_folder import LikeFolder
from lispgpt.runtime.checkpoints.numbers import converted, is_finite
from lispgpt.runtime.checkpoints.safetensors_file import read_safetensors, write_safetensors
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.training.wholes import Wholes

TRAINING, WEIGHTS = "training.safetensors", "model.safetensors"
WEIGHT, STATE = "weight/", "state/"
"""What names of tensors to go on from begin with."""


class SessionWeights(UnmappedCheckpoint):
    """The weights that a session holds by now, as a checkpoint like any other.

    beginning: the checkpoint that the session was opened with; a weight that no entry uses is as it is there.  stacked:
    the weights whose first dimension counts layers.
    """

    format = "session"

    def __init__(self, session: Session, beginning: Checkpoint, infos: dict[str, TensorInfo]) -> None:
        self.path = Path("(the weights that are trained)")
        self.config = dict(session.config)
        self._session, self._beginning, self._tensors = session, beginning, infos
        self._held = set(session.held("weight"))
        self._last: tuple[str, np.ndarray] | None = None
        matrices = {info.dtype for info in infos.values() if len(info.shape) - info.stacked > 1}
        self.config.setdefault("weight-type", "bf16" if matrices == {"bf16"} else "f32")

    def refresh(self) -> None:
        """Read weights anew: steps have changed them."""
        self._last = None

    def whole(self, name: str) -> np.ndarray:
        """A weight as it is stored; UserError where it holds NaN or infinity."""
        info = self.info(name)
        if self._last is None or self._last[0] != name:
            if name in self._held and info.dtype not in BLOCK_DTYPES:
                array = self._session.read(name)
            else:
                array = np.empty(find_dtype(info.dtype).items(info.shape), find_dtype(info.dtype).numpy)
                self._beginning.read_into(name, array, info.dtype)
            if info.dtype not in BLOCK_DTYPES and not is_finite(array, info.dtype):
                raise UserError(f"weight {name!r} holds NaN or infinity: the training has diverged")
            self._last = name, array
        return self._last[1]

    def sums(self) -> dict[str, str]:
        """A hash of each weight that steps change, by what to call it."""
        names = (name for name in self._tensors if name in self._held)
        return {f"weight {name}": hashlib.sha256(self.whole(name).data).hexdigest() for name in names}

    def check_finite(self, names: Iterable[str] | None = None) -> None:
        for name in self.names() if names is None else names:
            self.whole(name)

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        info, array = self.info(name), self.whole(name)
        destination[...] = converted(array[layer] if info.stacked else array, info.dtype, dtype)


def held_states(session: Session, entries: Iterable[Entry], wholes: Wholes) -> dict[str, np.ndarray]:
    """The states of these entries of which each device has a part, as wholes; all processes have to ask for them."""
    return {name: wholes.read(name) for name in session.held("state", entries) if wholes.is_sharded(name)}


def write_snapshot(
    folder: Path,
    weights: SessionWeights,
    session: Session,
    entries: Iterable[Entry],
    states: Mapping[str, np.ndarray],
    like: LikeFolder | AdapterFolder | None = None,
) -> None:
    """Write everything that these entries change between runs, and the weights for others to read.

    states: what `held_states` gives.  like: the folder of the model that is trained, if it is one.

    The weights are as that has them, or else in every format that has a place for them: a Hugging Face folder and
    llm.c's file for what is of an architecture that those know, else safetensors under the program's own names.
    """
    weights.check_finite()

    def whole(name: str) -> np.ndarray:
        return states[name] if name in states else session.read(name)

    used = [name for name in session.held("state", entries) if whole(name).any()]
    header = [(WEIGHT + name, weights.info(name).shape, weights.info(name).dtype) for name in weights.names()]
    header += [(STATE + name, whole(name).shape, session.declared(name).dtype) for name in used]

    def contents() -> Iterator[np.ndarray]:
        yield from map(weights.whole, weights.names())
        yield from map(whole, used)

    write_safetensors(folder / TRAINING, header, contents())
    if like is not None:
        like.write(folder, weights)
        return
    for module in formats().values():
        if hasattr(module, "export"):
            module.export(folder, weights)
    if not (folder / WEIGHTS).exists():
        own = [(name, weights.info(name).shape, weights.info(name).dtype) for name in weights.names()]
        config = {k: v for k, v in weights.config.items() if isinstance(v, (bool, int, float, str))}
        write_safetensors(folder / WEIGHTS, own, map(weights.whole, weights.names()), {"config": json.dumps(config)})


def open_snapshot(folder: Path) -> Checkpoint:
    """The weights that `write_snapshot` wrote, exactly."""
    stored = {name: tensor for name, tensor in read_safetensors(folder / TRAINING).items() if name.startswith(WEIGHT)}
    tensors = {
        name.removeprefix(WEIGHT): StoredTensor(TensorInfo(t.array.shape, t.dtype), (t.array,))
        for name, t in stored.items()
    }
    files = {id(tensor.file): tensor.file for tensor in stored.values()}
    return MappedCheckpoint("run", folder, {}, files.values(), tensors)


def read_states(folder: Path, session: Session, entries: Iterable[Entry], wholes: Wholes) -> None:
    """Give a session the states that `write_snapshot` wrote; those that it did not write are zeros."""
    stored = read_safetensors(folder / TRAINING)
    for name in session.held("state", entries):
        declared, tensor = session.declared(name), stored.get(STATE + name)
        if tensor is None:
            session.write(name, np.zeros(declared.shape, find_dtype(declared.dtype).numpy))
            continue
        if (tensor.array.shape, tensor.dtype) != (wholes.shape(name), declared.dtype):
            raise UserError(
                f"{folder} is of another program: its state {name!r} is {tensor.dtype} {list(tensor.array.shape)}, "
                f"and the program's {declared.dtype} {list(wholes.shape(name))}"
            )
        wholes.write(name, tensor.array)
