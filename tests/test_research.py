"""Programs of research as examples have them: losses and gradients beside those that PyTorch gave in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_research import PROGRAMS, drawn_weights, path_of, recorded

import lispgpt


@pytest.mark.drawn
@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_and_gradients_are_pytorchs(name: str) -> None:
    size, wanted = PROGRAMS[name][0], recorded()[name]
    with lispgpt.load(path_of(name), weights={}, settings=size.settings, cache=None) as model:
        shapes = {key: tuple(facts["shape"]) for key, facts in model.artifact.weights.items()}
        model.set(drawn_weights(name, shapes))
        found = model.run("accumulate", **size.given(name), step=1, seed=0, accumulate=1.0)
        assert float(found["loss"]) == pytest.approx(wanted["loss"], rel=1e-4)
        learned = {key.removesuffix(".gradient") for key in model.session.held("state") if key.endswith(".gradient")}
        assert learned == set(wanted["gradients"])
        for key, (length, along) in wanted["gradients"].items():
            gradient = model.session.read(f"{key}.gradient").astype(np.float64).ravel()
            assert np.linalg.norm(gradient) == pytest.approx(length, rel=2e-3, abs=1e-6), key
            off = abs((gradient * np.cos(np.arange(gradient.size))).sum() - along)
            assert off <= 2e-3 * max(length, 1e-4), f"{key}: off by {off} of {length}"


def test_attention_says_which_options_it_has(tmp_path: Path) -> None:
    (tmp_path / "p.lisp").write_text(
        "(require nn)\n(entry e [(q [1 2 1 4] f32)]\n  (attention-to q q q {:casual true}))\n"
    )
    with pytest.raises(lispgpt.UserError, match="`attention-to` has no option :casual; it has :causal, :mask"):
        lispgpt.load(tmp_path / "p.lisp", cache=None)
