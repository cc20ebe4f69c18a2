"""The checkpoint of a program without weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.runtime.checkpoints.base import Checkpoint, TensorInfo


class NoWeights(Checkpoint):
    """No tensor at all."""

    format = "none"

    def __init__(self) -> None:
        self.path = Path("(no checkpoint)")
        self.config: dict[str, Any] = {}

    def names(self) -> tuple[str, ...]:
        return ()

    def info(self, name: str) -> TensorInfo:
        raise self.missing(name)

    def view(self, name: str) -> np.ndarray | None:
        raise self.missing(name)

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        raise self.missing(name)

    def check_finite(self, names: Iterable[str] | None = None) -> None:
        """There is nothing to look at."""
