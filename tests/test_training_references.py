"""Training beside PyTorch's, as tools/record_training.py has recorded it: curves of 50 steps, and a debug state."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gpt2_curves
import numpy as np
import pytest

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from check_debug_state import compare, read_debug_state  # noqa: E402

RECORDED = json.loads((ROOT / "tests" / "references" / "training.json").read_text())
STATE = ROOT / "tests" / "references" / "gpt2_debug_state.bin"


@pytest.mark.parametrize("dtype,tolerance", [("f32", 1e-4), ("bf16", 2e-2)])
def test_fifty_steps_have_pytorchs_losses(tmp_path: Path, dtype: str, tolerance: float) -> None:
    model = gpt2_curves.write_weights(tmp_path, dtype)
    settings = {"weight-type": dtype, "activation-type": dtype}
    wanted = RECORDED[dtype]
    with lispgpt.load(ROOT / "examples" / "gpt2_train.lisp", model, settings=settings) as loaded:
        for step in range(1, gpt2_curves.STEPS + 1):
            tokens, targets = gpt2_curves.batch(step)
            found = loaded.run("train", tokens=tokens, targets=targets, step=step, seed=0, **gpt2_curves.RATES)
            for name, allowed in (("loss", tolerance), ("grad-norm", 10 * tolerance), ("lr", 1e-5)):
                right = wanted[name][step - 1]
                error = abs(float(found[name]) - right) / right
                assert error < allowed, f"{name} of step {step}: {found[name]}, and PyTorch's is {right}"
    assert wanted["loss"][-1] < 0.7 * wanted["loss"][0]


def test_a_debug_state_of_llmc_is_met(tmp_path: Path) -> None:
    model = gpt2_curves.write_weights(tmp_path, "f32")
    found = compare(model, STATE)
    assert len(found) == 18
    for name, (difference, allowed) in found.items():
        assert difference < allowed, f"{name} is {difference} away"
        assert difference < 1e-4, f"{name} is {difference} away, which F32 does not explain"


def test_a_debug_state_of_other_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="bytes"):
        read_debug_state(STATE, Gpt2Shape.unpadded(51, 64, 2, 2, 16))
    (tmp_path / "x.bin").write_bytes(np.zeros(256, np.int32).tobytes())
    with pytest.raises(UserError, match="no debug state"):
        read_debug_state(tmp_path / "x.bin", gpt2_curves.SHAPE)
