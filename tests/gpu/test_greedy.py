"""Greedy tokens of small models, in every form of a decode step: the CPU's, and bit for bit the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpu.chips import Chip
from gpu.decoding import FORMS, MODELS, References, compiled, decode, decode_texts, opened

QUICK = ("gpt2", "llama", "recurrence")
"""Of which every form runs without --slow; of the others one form of each kind does."""
SOME = ("several in a graph", "shared by clusters")
CASES = [
    pytest.param(model, form, marks=[] if model in QUICK or form in SOME else pytest.mark.slow)
    for model in MODELS
    for form in FORMS
]


@pytest.mark.parametrize(("model", "form"), CASES)
def test_tokens_are_the_cpus_each_time(
    model: str, form: str, chip: Chip, references: References, tmp_path: Path
) -> None:
    reference, count = references.of(model), chip.sized(150, 3)
    artifact = compiled(chip, model, tmp_path, FORMS[form])
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        tokens, logits = decode(session, FORMS[form], count)
        again = [decode(session, FORMS[form], count) for _ in range(chip.sized(3, 1))]
    reference.check(tokens, logits)
    for others, other in again:
        assert others == tokens, reference.about
        np.testing.assert_array_equal(other, logits, err_msg=reference.about)


@pytest.mark.parametrize(("width", "heads"), [(832, 13), (1280, 20), (1600, 25), (1792, 28)])
@pytest.mark.parametrize("kind", ["bf16", "q8_0"])
def test_tokens_of_wide_models_are_the_cpus(
    kind: str, width: int, heads: int, chip: Chip, references: References, tmp_path: Path
) -> None:
    """Of widths whose rows clusters divide otherwise, such as larger GPT-2s have."""
    form = FORMS["shared by clusters"]
    settings = {"weight-type": kind, **chip.sized({"width": width, "heads": heads, "layers": 1}, {})}
    reference = references.of("gpt2", **settings)
    artifact = compiled(chip, "gpt2", tmp_path, form, **settings)
    with opened(chip, artifact, reference.weights, form) as session:
        tokens, logits = decode(session, form, chip.sized(40, 2))
    reference.check(tokens, logits)


@pytest.mark.parametrize("texts", [2, 5, 8])
@pytest.mark.parametrize("model", ["gpt2", "llama"])
@pytest.mark.parametrize("form", SOME)
def test_tokens_of_several_texts_are_the_cpus_each_time(
    model: str, form: str, texts: int, chip: Chip, references: References, tmp_path: Path
) -> None:
    reference, count = references.of(model), chip.sized(100, 2)
    starts = [chip.sized(17, 3) * text for text in range(texts)]
    artifact = compiled(chip, model, tmp_path, FORMS[form], texts=texts)
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        tokens, logits = decode_texts(session, starts, count)
        again = [decode_texts(session, starts, count) for _ in range(chip.sized(3, 1))]
    for text, start in enumerate(starts):
        reference.check(tokens[text], logits[text], start)
    for others, other in again:
        assert others == tokens, reference.about
        np.testing.assert_array_equal(other, logits, err_msg=reference.about)


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_a_graph_of_launches_gives_what_they_give_apart(
    model: str, chip: Chip, references: References, tmp_path: Path
) -> None:
    """To the bit: kernels that start before the one ahead of them has ended wait for what they read."""
    reference, found = references.of(model), []
    for form in ("launches apart", "graph", "several in a graph"):
        artifact = compiled(chip, model, tmp_path, FORMS[form])
        with opened(chip, artifact, reference.weights, FORMS[form]) as session:
            found.append(decode(session, FORMS[form], chip.sized(100, 2)))
    for tokens, logits in found[1:]:
        assert tokens == found[0][0], reference.about
        np.testing.assert_array_equal(logits, found[0][1], err_msg=reference.about)
