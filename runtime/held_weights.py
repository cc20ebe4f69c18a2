"""The weights that a session holds: the file's own bytes where entries only read them, copies where they write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Buffer
from lispgpt.runtime.weights import stored_weight


class HeldWeights:
    """checkpoint: what weights are read of.  buffers: the session's, by name.  owned: the names of those that entries
    may write."""

    def __init__(
        self, checkpoint: Checkpoint, device: Device, buffers: dict[str, Any], config: Mapping[str, Any]
    ) -> None:
        self.checkpoint, self._device, self._buffers, self._config = checkpoint, device, buffers, config
        self.owned: set[str] = set()

    def load(self, buffer: Buffer, artifact: Artifact, updated: bool) -> list[str]:
        """Give a weight its values; its name where they are the file's own bytes, which nobody has looked at."""
        array, own = stored_weight(self.checkpoint, buffer, artifact.weights, self._config.get("context"))
        if updated:
            self._buffers[buffer.name] = self._device.alloc(buffer.nbytes)
            self._device.copy_in(self._buffers[buffer.name], np.ascontiguousarray(array))
            self.owned.add(buffer.name)
        else:
            self._buffers[buffer.name] = self._device.adopt(array)
        return [buffer.as_declared.name] if own else []

    def replace(self, buffer: Buffer, artifact: Artifact) -> bool:
        """Give a weight that is held what the checkpoint has by now; whether it lies elsewhere than before."""
        array, _ = stored_weight(self.checkpoint, buffer, artifact.weights, self._config.get("context"))
        moves = buffer.name not in self.owned
        if moves:
            self._buffers[buffer.name] = self._device.alloc(buffer.nbytes)
            self.owned.add(buffer.name)
        self._device.copy_in(self._buffers[buffer.name], np.ascontiguousarray(array))
        return moves

    def own(self, buffer: Buffer) -> None:
        """Put a weight that entries have only read so far where they may write: into another buffer."""
        old, made = self._buffers[buffer.name], self._device.alloc(buffer.nbytes)
        self._device.copy(old, made, buffer.nbytes)
        self._buffers[buffer.name] = made
        self.owned.add(buffer.name)
