"""What recorded training of GPT-2 starts from and learns: random weights, and texts made by a rule; numpy alone.

tools/record_training.py has PyTorch learn them, tests this project.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

SHAPE = Gpt2Shape.unpadded(50, 64, 2, 2, 16)
BATCH, LENGTH, STEPS, SEED = 4, 64, 50, 31
RATES = {"lr": 3e-3, "warmup": 5.0, "steps": 50.0, "min-lr": 3e-4, "clip": 1.0, "weight-decay": 0.1}
RATES |= {"beta1": 0.9, "beta2": 0.95}
"""As the entry `train` takes them; the schedule is cosine."""


def write_weights(folder: Path, dtype: str) -> Path:
    """A checkpoint of llm.c's format in a folder."""
    path = folder / f"gpt2-{dtype}.bin"
    make(path, SHAPE, "llmc", dtype, SEED)
    return path


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the ones after them, [BATCH LENGTH] i32 each: 3 times the last token and up to 2 more."""
    rng = np.random.default_rng(1000 + step)
    rows = np.empty((BATCH, LENGTH + 1), np.int32)
    rows[:, 0] = rng.integers(0, SHAPE.vocab, BATCH)
    for place in range(LENGTH):
        rows[:, place + 1] = (3 * rows[:, place] + rng.integers(0, 3, BATCH)) % SHAPE.vocab
    return rows[:, :-1].copy(), rows[:, 1:].copy()
