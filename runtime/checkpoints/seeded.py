"""A model with seeded random weights: a checkpoint like any other, whose tensors are made as they are read.

The numbers depend on the seed alone, on any machine and with any numpy: each tensor of each layer has its own Philox
stream, whose raw bits are read as 16-bit integers and scaled, without numpy's (versioned) distributions.

Weights are uniform, scaled by their fan-in so that every layer changes the residual stream by about its own size: then
the model's greedy text depends on its whole context instead of repeating the last token, as a GPT-2 at its usual
initialisation would, and the best token wins by more than rounding errors.  Biases and norms are random too, and the
vocabulary's padding rows are louder than the real ones, so that a program which ignores any of them is found out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.architecture import Shape
from lispgpt.runtime.checkpoints.base import TensorInfo, UnmappedCheckpoint
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.numbers import CHUNK, f32_to_bf16

PRESETS: dict[str, Gpt2Shape | LlamaShape] = {
    "tiny": Gpt2Shape.unpadded(512, 128, 2, 4, 64),
    "gpt2-124m": Gpt2Shape.unpadded(50257, 1024, 12, 12, 768),
    "gpt2-medium": Gpt2Shape.unpadded(50257, 1024, 24, 16, 1024),
    "gpt2-large": Gpt2Shape.unpadded(50257, 1024, 36, 20, 1280),
    "gpt2-xl": Gpt2Shape.unpadded(50257, 1024, 48, 25, 1600),
    "llama-tiny": LlamaShape(512, 128, 2, 4, 2, 64, 172, 16),
    "llama-110m": LlamaShape(32000, 1024, 12, 12, 4, 768, 2048, 64),
}

LOGIT_DEVIATION = 3.0
"""Standard deviation of the logits, about."""

PADDING_GAIN = 4.0
"""How much larger the vocabulary's padding rows are than the others."""


_GAINS = {"wte": LOGIT_DEVIATION, "wpe": LOGIT_DEVIATION, "head-w": LOGIT_DEVIATION, "qkv-w": 1.0, "proj-w": 1.5}
_GAINS |= {"fc-w": 1.0, "out-w": 3.0, "gate-w": 1.5, "up-w": 1.5, "down-w": 3.0}
"""Standard deviation of a matrix's products with rows of unit deviation."""


class RandomCheckpoint(UnmappedCheckpoint):
    """Seeded weights of a given shape, in f32."""

    format = "random"

    def __init__(self, shape: Shape, seed: int) -> None:
        if not 0 <= seed < 1 << 64:
            raise UserError(f"the seed is {seed}, which must be between 0 and 2**64 - 1")
        self.path = Path(f"(random weights, seed {seed})")
        self.config = shape.config("f32")
        self._seed = seed
        self._tensors = {name: TensorInfo(extents, "f32", stacked) for name, extents, stacked in shape.tensors()}

    def check_finite(self, names: Iterable[str] | None = None) -> None:
        for name in names or ():
            self.info(name)

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        self.info(name)
        stream = np.random.Philox(key=np.array([self._seed, self.names().index(name) << 32 | layer], np.uint64))
        center, deviation = self._distribution(name)
        scale = np.float32(deviation * 12**0.5 / 65536)
        flat = destination.reshape(-1)
        if dtype == "i32":
            flat[:] = 0
            return
        known = name == "wte" and {"vocab", "width"} <= set(self.config)
        real = self.config["vocab"] * self.config["width"] if known else flat.size
        for start in range(0, flat.size, CHUNK):
            part = flat[start : start + CHUNK]
            bits = stream.random_raw(-(-part.size // 4)).astype("<u8", copy=False).view("<u2")[: part.size]
            values = (bits.astype(np.float32) - np.float32(32767.5)) * scale + np.float32(center)
            values[max(0, real - start) :] *= np.float32(PADDING_GAIN)
            part[...] = f32_to_bf16(values) if dtype == "bf16" else values

    def _distribution(self, name: str) -> tuple[float, float]:
        """Mean and standard deviation of a tensor's values."""
        scale = 1 / self._tensors[name].shape[-1] ** 0.5
        if name in _GAINS:
            return 0.0, _GAINS[name] * scale
        if name.startswith(("ln", "norm")):
            return (1.0, 0.2) if name.endswith("w") else (0.0, 0.1)
        rank = len(self._tensors[name].shape) - self._tensors[name].stacked
        return 0.0, scale if rank > 1 else 0.1
