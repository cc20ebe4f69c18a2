"""Programs of research as examples have them: losses and gradients beside those that PyTorch gave in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_research import PROGRAMS, drawn_weights, path_of, recorded

import lispgpt
from lispgpt.compiler.driver import load_pipeline
from lispgpt.compiler.request import Request
from lispgpt.passes.targets import find_target

MADE_QUICKLY = ("bert", "lstm", "resnet", "mixture", "ssd")
"""Programs that have all kinds of kernels."""


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "quick"), [*((name, False) for name in PROGRAMS), *((name, True) for name in MADE_QUICKLY)]
)
def test_losses_and_gradients_are_pytorchs(name: str, quick: bool, target: str = "cpu") -> None:
    size, wanted = PROGRAMS[name][0], recorded()[name]
    how: dict[str, Any] = {"settings": size.settings, "quick": quick, "target": target, "cache": None}
    with lispgpt.load(path_of(name), weights={}, **how) as model:
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "lstm", "resnet"])
def test_code_that_is_made_quickly_for_a_gpu_has_the_same_results(name: str) -> None:
    """Run it after a change of which passes are only faster, or of schedule-generic."""
    test_losses_and_gradients_are_pytorchs(name, True, "emulated:gfx1151")


def test_quick_code_has_no_passes_that_are_only_faster(tmp_path: Path) -> None:
    """And what was compiled well before is taken instead."""
    of_all, quick = (
        {
            target: load_pipeline(Request(tmp_path, target, quick=quick), find_target(target))
            for target in ("cpu", "cuda")
        }
        for quick in (False, True)
    )
    for target, pipeline in quick.items():
        left = [call.name for call in pipeline.calls]
        assert "schedule-generic" in left and "plan-arena" in left
        gone = {call.name for call in of_all[target].calls} - set(left)
        assert len(gone) >= 4 and all(name.startswith(("schedule-", "choose", "split-")) for name in gone), gone
    assert find_target("cpu").quick() != find_target("cpu") and str(find_target("cpu").quick()) == "cpu"
    asked = Request(tmp_path, longest=16, quick=True)
    assert [each.quick for each in asked.wider()] == [True] * 4 + [False] * 4
    with pytest.raises(lispgpt.UserError, match="no schedules of your own"):
        load_pipeline(Request(tmp_path, "cuda", quick=True, schedules=[tmp_path]), find_target("cuda"))


def test_attention_says_which_options_it_has(tmp_path: Path) -> None:
    (tmp_path / "p.lisp").write_text(
        "(require nn)\n(entry e [(q [1 2 1 4] f32)]\n  (attention-to q q q {:casual true}))\n"
    )
    with pytest.raises(lispgpt.UserError, match="`attention-to` has no option :casual; it has :causal, :mask"):
        lispgpt.load(tmp_path / "p.lisp", cache=None)
