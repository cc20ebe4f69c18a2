"""The weights that a model is trained from when nothing else is given: a checkpoint whose tensors are drawn as they are
read.

A weight begins as its program says, `(w [out in] {:init (normal 0.02)})`.  Where it says nothing, matrices are normal
with deviation 0.02, as in "Language Models are Unsupervised Multitask Learners", Radford et al. 2019, and vectors zero.
Each layer of each tensor has a Philox stream of its own, chosen by the seed and its place among the weights, so that
the numbers depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import INTEGERS
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.base import TensorInfo, UnmappedCheckpoint
from lispgpt.runtime.checkpoints.numbers import CHUNK, converted

MATRIX, VECTOR = ("normal", 0.02), ("constant", 0.0)


class InitialWeights(UnmappedCheckpoint):
    """weights: (name, shape, dtype, whether the first dimension counts layers).  initial: of those whose program says
    it, ("constant", value), ("normal", deviation) or ("uniform", limit).  only: the names of those that it has,
    with the numbers that they would have among all."""

    format = "initial"

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Sequence[tuple[str, tuple[int, ...], str, bool]],
        initial: Mapping[str, tuple[str, float]],
        seed: int,
        only: Iterable[str] | None = None,
    ) -> None:
        if not 0 <= seed < 1 << 31:
            raise UserError(f"the seed is {seed}, which must be between 0 and 2**31 - 1")
        self.path = Path(f"(initial weights, seed {seed})")
        self.config = dict(config)
        self._seed, self._initial = seed, dict(initial)
        every = {name: TensorInfo(shape, dtype, stacked) for name, shape, dtype, stacked in weights}
        self._places = {name: place for place, name in enumerate(every)}
        self._tensors = every if only is None else {name: every[name] for name in only}

    @staticmethod
    def declared(
        config: Mapping[str, Any],
        weights: Mapping[str, Mapping[str, Any]],
        seed: int,
        only: Iterable[str] | None = None,
    ) -> InitialWeights:
        """Those of an artifact, by what it says of each."""
        listed = [(n, tuple(w["shape"]), w["dtype"], bool(w.get("stacked"))) for n, w in weights.items()]
        said = {name: (str(w["init"][0]), float(w["init"][1])) for name, w in weights.items() if "init" in w}
        return InitialWeights(config, listed, said, seed, only)

    def check_finite(self, names: Iterable[str] | None = None) -> None:
        """What is drawn is finite."""

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        info = self.info(name)
        matrix = len(info.shape) - info.stacked > 1
        kind, parameter = self._initial.get(name, MATRIX if matrix and info.dtype not in INTEGERS else VECTOR)
        flat = destination.reshape(-1)
        if kind == "constant":
            flat[:] = parameter if dtype == "i32" else converted(np.array([parameter], np.float32), "f32", dtype)
            return
        number = self._places[name] << 32 | layer
        drawn = np.random.Generator(np.random.Philox(key=np.array([self._seed, number], np.uint64)))
        for start in range(0, flat.size, CHUNK):
            part = flat[start : start + CHUNK]
            normal = kind == "normal"
            values = (
                drawn.standard_normal(part.size, np.float32) if normal else 2 * drawn.random(part.size, np.float32) - 1
            )
            part[...] = converted(values * np.float32(parameter), "f32", dtype)
