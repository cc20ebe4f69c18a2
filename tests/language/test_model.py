"""The model tier: whole models, as upstream's passes lower them, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from reference_gpt2 import logits
from tensor_functions import call

from lispgpt.base.source import Source
from lispgpt.ir.mlir import ir, new_context
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.program import Program, evaluate

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = {"vocab": 23, "padded-vocab": 32, "context": 12, "layers": 2, "heads": 3, "width": 12, "weight-type": "f32"}


def gpt2(shapes: list[tuple[int, int]], **overrides: int | float | str | bool) -> Program:
    path = EXAMPLES / "gpt2_generate.lisp"
    given = {name.replace("_", "-"): value for name, value in overrides.items()}
    source = Source(str(path), path.read_text())
    return evaluate(source, overrides=given, checkpoint_config=SMALL, wanted=Wanted(shapes), root=EXAMPLES)


def random_weights(made: Program) -> list[np.ndarray]:
    rng = seeded.rng()
    return [rng.normal(0, 0.3, w.shape).astype(np.float32) for w in made.weights]


def check_logits(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found[: len(wanted)], wanted, atol=2e-4)


def test_gpt2_prefill_and_decode_agree_with_float64() -> None:
    with new_context(), ir.Location.unknown():
        made = gpt2([(1, 6), (1, 1), (2, 1)])
        weights = random_weights(made)
        exact = {w.name: a.astype(np.float64) for w, a in zip(made.weights, weights, strict=True)}
        tokens = seeded.rng().integers(0, 23, 8)
        kv = np.full((2, 1, 2, 3, 12, 4), np.inf, np.float32)
        # Five tokens in six rows: the chunk's first token comes twice, at its own position.
        rows = np.array([tokens[0], *tokens[:5]], np.int32), np.array([0, 0, 1, 2, 3, 4], np.int32)
        kv[:, :, :, :, :, :] = 0
        out, following, report, kv = call(made, [*rows, *weights, kv], "prefill_batch1_positions6")
        assert following[0] == report[0, 0] == np.argmax(out[0, :23])
        check_logits(out[0], logits(exact, 3, list(tokens[:5]), 23)[-1])
        for position in range(5, 8):
            one = np.array([tokens[position]], np.int32), np.array([position], np.int32)
            out, following, report, kv = call(made, [*one, *weights, kv], "decode_greedy_batch1_positions1")
            check_logits(out[0], logits(exact, 3, list(tokens[: position + 1]), 23)[-1])
            assert following[0] == report[0, 0] == np.argmax(out[0, :23])


def test_sequences_of_a_batch_do_not_meet() -> None:
    with new_context(), ir.Location.unknown():
        made = gpt2([(2, 3)])
        weights = random_weights(made)
        exact = {w.name: a.astype(np.float64) for w, a in zip(made.weights, weights, strict=True)}
        tokens = seeded.rng().integers(0, 23, (2, 3))
        positions = np.array([0, 1, 2, 0, 1, 2], np.int32)
        kv = np.zeros((2, 2, 2, 3, 12, 4), np.float32)
        inputs = [tokens.reshape(-1).astype(np.int32), positions, *weights, kv]
        out, *_ = call(made, inputs, "prefill_batch2_positions3")
        for sequence in range(2):
            wanted = logits(exact, 3, list(tokens[sequence]), 23)[-1]
            check_logits(out[sequence], wanted)


@pytest.mark.parametrize(
    ("expression", "warned"),
    [("(+ (last x) w)", True), ("(+ (* (last x) 2.0) (* w w))", True), ("(+ (reshape (last x) [4]) w)", False),
     ("(+ w v)", False), ("(+ x (last x))", False), ("(* (reshape (last x) [4 1]) v)", False), ("(+ one w)", False)],
)  # fmt: skip
def test_a_row_that_is_repeated_by_chance_is_a_warning(expression: str, warned: bool) -> None:
    text = f"""(require nn) (weights (t [8 4]) (w [4 4]) (v [4]) (one [1 4]))
      (entry f [tokens positions] (let [x (rows t tokens)] {expression}))"""
    with new_context():
        source, wanted = Source("t.lisp", text), Wanted([(1, 1)])
        made = evaluate(source, overrides={}, checkpoint_config={}, wanted=wanted, root=Path("/none"))
        assert len(made.warnings) == warned
        assert all("repeats the one row of tensor<1x4xf32>" in warning.message for warning in made.warnings)
