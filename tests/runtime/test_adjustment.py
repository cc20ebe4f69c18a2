"""Penalties, biases and log-probabilities, against float64 references: on the host, and by the library's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, open_poisoned, random_weights

from lispgpt.base.errors import UserError
from lispgpt.passes.targets import Cpu
from lispgpt.runtime.options import Options
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.samplers.adjustment import Adjustment, Penalties
from lispgpt.runtime.samplers.base import log_probability
from lispgpt.runtime.samplers.weighted import Weighted

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "gpt2_generate.lisp"
VOCAB = 67


def reference(logits: np.ndarray, prompt: list[int], written: list[int], penalties: Penalties) -> np.ndarray:
    """Adjusted logits, token by token in float64."""
    found = []
    for token, logit in enumerate(logits.astype(np.float64)):
        x, count = float(logit), written.count(token)
        if token in prompt or count:
            x = x / penalties.repeat if x > 0 else x * penalties.repeat
        if count:
            x -= penalties.presence + penalties.frequency * count
        found.append(x + penalties.logit_bias.get(token, 0.0))
    return np.array(found)


def drawn_penalties() -> Penalties:
    rng = seeded.rng()
    tokens = rng.choice(VOCAB, 4, replace=False)
    biases = {int(token): float(bias) for token, bias in zip(tokens, [*rng.normal(0, 2, 3), -np.inf], strict=True)}
    return Penalties(
        float(rng.uniform(0.5, 2)), float(rng.normal()), float(rng.normal(0, 0.5)), biases if rng.random() < 0.7 else {}
    )


def texts() -> tuple[list[int], list[int]]:
    """A prompt and what was written after it, with tokens that repeat."""
    rng = seeded.rng()
    return [int(t) for t in rng.integers(0, 20, 8)], [int(t) for t in rng.integers(10, 30, rng.integers(0, 25))]


def test_logits_are_adjusted_as_the_formula_says() -> None:
    for _ in range(40):
        penalties, (prompt, written) = drawn_penalties(), texts()
        adjustment = Adjustment(penalties, VOCAB)
        adjustment.read(prompt)
        for token in written:
            adjustment.wrote(token)
        logits = seeded.rng().normal(0, 3, VOCAB).astype(np.float32)
        found = adjustment(logits)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, reference(logits, prompt, written, penalties), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"repeat": 0.0}, "the repeat penalty is 0"),
        ({"repeat": float("nan")}, "the repeat penalty is nan"),
        ({"presence": float("inf")}, "the presence penalty is inf"),
        ({"frequency": float("nan")}, "the frequency penalty is nan"),
        ({"logit_bias": {3: float("inf")}}, "the bias of token 3"),
        ({"logit_bias": {VOCAB: 1.0}}, f"no token {VOCAB}"),
        ({"logit_bias": {-1: 1.0}}, "no token -1"),
    ],
)
def test_penalties_out_of_range(given: dict, word: str) -> None:
    with pytest.raises(UserError, match=word):
        Adjustment(Penalties(**given), VOCAB)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"greedy": True, "top_p": 0.5}, "greedy contradicts top-p"),
        ({"lookup": 4}, "most probable"),
        ({"lookup": 4, "greedy": True, "logprobs": True}, "no penalties"),
        ({"lookup": 4, "greedy": True, "repeat_penalty": 1.2}, "no penalties"),
        ({"lookup": -1}, "negative"),
        ({"max_new_tokens": -1}, "negative"),
        ({"seed": -1}, "the seed is -1"),
        ({"min_p": 1.5}, "min-p is 1.5"),
        ({"tempereture": 1.0}, "no option 'tempereture'"),
    ],
)
def test_options_that_contradict_themselves(given: dict, word: str) -> None:
    with pytest.raises(UserError, match=word):
        Options.of(given, {"temperature": 0.8})


def test_options_win_over_the_programs() -> None:
    program = {"max-new-tokens": 5, "temperature": 0.8, "top-k": 50, "greedy": True}
    assert Options.of({}, program).sampler() is None
    assert Options.of({"temperature": 1.5}, program).sampler() is not None
    assert Options.of({"temperature": 0.0}, {}).sampler() is None
    assert Options.of({}, program).max_new_tokens == 5
    assert str(Options.of({"temperature": 1.5, "repeat_penalty": 1.1}, program)) == (
        "temperature 1.5, top_k 50, repeat_penalty 1.1"
    )


@pytest.fixture(scope="module")
def on_the_cpu() -> Artifact:
    """A model whose steps choose by adjusted logits, made for the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        return compile_model(
            EXAMPLE, entries=("decode-adjusted",), sizes=[{"batch": 3, "positions": 1}], vocab=VOCAB,
            padded_vocab=128, context=32, layers=1, heads=2, width=32,
        )  # fmt: skip


@pytest.mark.drawn
@pytest.mark.parametrize("greedy", [False, True])
def test_steps_choose_by_adjusted_logits_and_report_on_their_tokens(on_the_cpu: Artifact, greedy: bool) -> None:
    rng, batch = seeded.rng(), 3
    penalties = [drawn_penalties() for _ in range(batch)]
    own = [Adjustment(each, VOCAB) for each in penalties]
    prompts = [texts() for _ in range(batch)]
    for adjustment, (prompt, written) in zip(own, prompts, strict=True):
        adjustment.read(prompt)
        for token in written:
            adjustment.wrote(token)
    samplers = [Weighted(1.2, 1 if greedy else 30, None if greedy else 0.95, 5 + i, min_p=0.01) for i in range(batch)]
    with open_poisoned(on_the_cpu, random_weights(on_the_cpu, 0.6)) as session:
        (entry,) = session.entries("decode-adjusted")
        for position in range(6):
            inputs = {
                "tokens": rng.integers(0, VOCAB, (batch, 1)),
                "positions": np.full((batch, 1), position),
                "sampling": np.stack([sampler.settings(position) for sampler in samplers]),
                "penalties": np.stack([each.strengths for each in own]),
                "bias": np.stack([each.bias for each in own]),
                "counts": np.stack([each.counts for each in own]),
            }
            results = session.run("decode-adjusted", **inputs)
            logits, report = results["logits"][:, :VOCAB], results["report"]
            wanted = [choose(adjust(row)) for choose, adjust, row in zip(samplers, own, logits, strict=True)]
            assert results["next"].tolist() == report[:, 0].tolist() == wanted
            said = np.ascontiguousarray(report[:, -1]).view(np.float32)
            np.testing.assert_allclose(
                said, [log_probability(r, t) for r, t in zip(logits, wanted, strict=True)], atol=1e-4
            )
            for adjustment, token in zip(own, wanted, strict=True):
                adjustment.wrote(token)
            counts = session.read(entry.inputs["counts"])
            np.testing.assert_array_equal(counts, np.stack([each.counts for each in own]))


def test_log_probabilities_are_those_of_the_softmax() -> None:
    logits = seeded.rng().normal(0, 5, 300).astype(np.float32)
    exact = np.exp(logits.astype(np.float64))
    expected = np.log(exact / exact.sum())
    found = [log_probability(logits, token) for token in range(300)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
