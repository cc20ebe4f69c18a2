"""Kernels written in Lisp, compiled for AMD GPUs and run on the instruction emulator, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_amd.running import CHIPS, run_entries
from kernels.test_hand_kernels import PROGRAM, VOCAB, expected

from lispgpt.compiler.driver import Observer, Request, compile_request

ENTRIES = ["softmax-by-hand", "norm-by-hand", "linear-by-hand", "vectors-by-hand", "chain"]


@pytest.mark.drawn
@pytest.mark.parametrize("chip", CHIPS)
def test_values(chip: str, tmp_path: Path) -> None:
    program = tmp_path / "layers.lisp"
    program.write_text(PROGRAM)
    artifact, _ = compile_request(Request(program, target=f"rocm:{chip}"), Observer())
    weights, seed = random_weights(artifact), seeded.rng().integers(1 << 30)
    tokens = np.random.default_rng(seed).integers(0, VOCAB, 16).astype(np.int32)
    values = {"tokens": tokens, **{name: weights.view(name) for name in weights.names()}}
    found = run_entries(artifact, ENTRIES, values)
    for entry in ENTRIES:
        right = expected(weights, tokens)[entry.partition("-by-")[0]]
        message = f"{entry}, tokens from seed {seed}"
        np.testing.assert_allclose(found[entry].reshape(right.shape), right, rtol=2e-5, atol=2e-5, err_msg=message)
