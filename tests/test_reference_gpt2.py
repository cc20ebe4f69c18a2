"""The float64 reference against what transformers was recorded to give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import recorded
import reference_gpt2

from lispgpt.runtime import checkpoints


@pytest.mark.parametrize("model", recorded.gpt2_models(), ids=lambda model: model.name)
def test_the_reference_gives_transformers_logits_and_tokens(tmp_path: Path, model: recorded.Model) -> None:
    weights = reference_gpt2.float64_weights(checkpoints.open(model.make(tmp_path / "model", "llmc")))
    shape = model.shape
    for case in model.cases:
        logits = reference_gpt2.logits(weights, shape.heads, case.prompt + case.tokens[:-1], shape.vocab)
        logits = logits[len(case.prompt) - 1 :]
        for token, value in case.logits.items():
            assert abs(logits[0, token] - value) < 1e-3
        assert logits.argmax(-1).tolist() == case.tokens
        best = np.sort(logits, axis=-1)[:, -2:]
        assert np.allclose(best[:, 1] - best[:, 0], case.gaps, rtol=0, atol=1e-3)
