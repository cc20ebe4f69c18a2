"""A model on a device: the artifact's code, the checkpoint's weights, and the state between steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lispgpt.errors import UserError
from lispgpt.runtime.artifact import Artifact
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.devices.base import READS_AHEAD, Device
from lispgpt.runtime.plan import Buffer, Entry

NUMPY_TYPES = {"f32": np.float32, "bf16": np.uint16, "i32": np.int32, "i8": np.uint8}


class Session:
    """Loads code and weights once, then runs entries; use it in a `with`, which frees the device's memory.

    BF16 weights that the file holds as the kernels want them are adopted where they are; others are converted once.
    """

    def __init__(self, artifact: Artifact, device: Device, checkpoint: Checkpoint) -> None:
        self.artifact, self.device = artifact, device
        self.config: Mapping[str, Any] = artifact.config
        self._declared = {buffer.name: buffer for buffer in artifact.plan.buffers}
        self._buffers: dict[str, Any] = {}
        try:
            self._load(checkpoint)
        except BaseException:
            device.close()
            raise
        self._entries = {(e.name, e.batch, e.positions, e.drawn): e for e in artifact.plan.entries}
        self._executables: dict[tuple[str, int, int, bool], Any] = {}

    def _load(self, checkpoint: Checkpoint) -> None:
        artifact, device = self.artifact, self.device
        device.load(artifact.code, artifact.kernels)
        views = []
        for buffer in artifact.plan.buffers:
            if buffer.kind == "weight":
                array = None if device.name.startswith("null") else checkpoint_view(checkpoint, buffer)
                views += [buffer.name] if array is not None else []
                self._buffers[buffer.name] = device.adopt(read_weight(checkpoint, buffer) if array is None else array)
            else:
                self._buffers[buffer.name] = device.alloc(buffer.nbytes)
        if views:
            checkpoint.check_finite(views)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.device.close()

    def shapes(self, entry: str) -> list[tuple[int, int]]:
        """The (batch, positions) that an entry was compiled for."""
        return sorted((b, positions) for name, b, positions, drawn in self._entries if name == entry and not drawn)

    def run(
        self, entry: str, tokens: np.ndarray, positions: np.ndarray, settings: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Run an entry on tokens and their positions, i32 [batch, positions] each; its results by name.

        settings: i32 [batch, SETTINGS], by which `next` is drawn where the entry `draws`; None takes the most probable.
        States change in place.  UserError when the entry was not compiled for that shape.
        """
        key = (entry, *tokens.shape, settings is not None)
        compiled = self._entries.get(key)
        if compiled is None:
            drawing = "" if settings is None else " with drawn tokens"
            raise UserError(
                f"entry {entry!r} is compiled for {self.shapes(entry)} (batch, positions), not {tokens.shape}{drawing}"
            )
        self.set_inputs(compiled, (tokens, positions) if settings is None else (tokens, positions, settings))
        self.device.launch(self._prepared(key))
        return {name.rpartition("/")[2]: self.read(name) for name in compiled.results}

    def advances(self, entry: str, drawn: bool = False) -> bool:
        """Whether the device can decode one sequence step after step by itself, drawing the tokens or greedily."""
        compiled = self._entries.get((entry, 1, 1, drawn))
        return compiled is not None and compiled.advance

    def steps(
        self, entry: str, token: int, position: int, count: int, settings: np.ndarray | None = None
    ) -> Iterator[int]:
        """Decode on the device: the token after `token`, the one after that, …, `count` of them.

        settings: i32 [SETTINGS], by which tokens are drawn; None decodes greedily.  Several steps are launched ahead of
        what has been read.  When the caller stops early, states hold rows past what it read; later steps write over
        them.
        """
        key = (entry, 1, 1, settings is not None)
        compiled, executable = self._entries[key], self._prepared(key)
        self.set_inputs(compiled, ([token], [position], *([] if settings is None else [settings])))
        result = self._buffers[next(name for name in compiled.results if name.endswith("/next"))]
        waiting: deque[Callable[[], np.ndarray]] = deque()
        for number in range(count):
            while len(waiting) < READS_AHEAD and number + len(waiting) < count:
                waiting.append(self.device.launch_reading(executable, result, np.empty(1, np.int32)))
            yield int(waiting.popleft()()[0])

    def set_inputs(self, entry: Entry, values: Sequence[Any]) -> None:
        """Copy i32 values to an entry's inputs, in their order."""
        for name, value in zip(entry.inputs, values, strict=True):
            self.device.copy_in(self._buffers[name], np.ascontiguousarray(value, np.int32))

    def prepare(self, entry: Entry) -> Any:
        """What the device launches for an entry of this session's plan, or one made from its launches."""
        return self.device.prepare(entry, self._buffers)

    def _prepared(self, key: tuple[str, int, int, bool]) -> Any:
        if key not in self._executables:
            self._executables[key] = self.prepare(self._entries[key])
        return self._executables[key]

    def read(self, name: str) -> np.ndarray:
        """A buffer's contents in its declared shape (BF16 as uint16)."""
        buffer = self._declared[name]
        array = np.empty(buffer.shape, NUMPY_TYPES[buffer.dtype])
        self.device.copy_out(self._buffers[name], array)
        return array

    def entry(self, name: str, batch: int, positions: int, drawn: bool = False) -> Entry:
        return self._entries[(name, batch, positions, drawn)]


def checkpoint_view(checkpoint: Checkpoint, buffer: Buffer) -> np.ndarray | None:
    """The file's own bytes, where they are what the kernels want."""
    info = _checked_info(checkpoint, buffer)
    return checkpoint.view(buffer.name) if info.dtype == buffer.dtype else None


def read_weight(checkpoint: Checkpoint, buffer: Buffer) -> np.ndarray:
    """A converted copy of a weight in the buffer's shape and dtype."""
    _checked_info(checkpoint, buffer)
    array = np.empty(buffer.shape, NUMPY_TYPES[buffer.dtype])
    checkpoint.read_into(buffer.name, array, buffer.dtype)
    return array


def _checked_info(checkpoint: Checkpoint, buffer: Buffer) -> Any:
    if buffer.name not in checkpoint.names():
        known = ", ".join(checkpoint.names())
        raise UserError(f"the checkpoint has no weight {buffer.name!r}, which the program declares (it has {known})")
    info = checkpoint.info(buffer.name)
    if tuple(info.shape) != buffer.shape:
        raise UserError(
            f"weight {buffer.name!r} is {_shape(buffer.shape)} in the program, {_shape(info.shape)} in the checkpoint"
        )
    return info


def _shape(extents: Sequence[int]) -> str:
    return "[" + " ".join(map(str, extents)) + "]"
