"""Decode steps by the thousand: what waits for other blocks does so each time, whatever the chip is at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpu.chips import Chip
from gpu.decoding import FORMS, References, compiled, decode, decode_texts, opened

pytestmark = pytest.mark.slow
LONG = {"context": 4096}
OF_124M = {"layers": 12, "heads": 12, "width": 768, "vocab": 50257, "context": 1024}
WAITING = [name for name, form in FORMS.items() if "always" in str(form.passes)]


@pytest.mark.parametrize("form", [*WAITING, "several in a graph"])
@pytest.mark.parametrize("model", ["gpt2", "llama", "gpt2, int8", "window", "recurrence"])
def test_long_texts_are_the_same_each_time(
    model: str, form: str, chip: Chip, references: References, tmp_path: Path
) -> None:
    more = chip.sized(LONG if model != "recurrence" else {}, {})
    reference, count = references.of(model, **more), chip.sized(4000 if more else 250, 2)
    artifact = compiled(chip, model, tmp_path, FORMS[form], **more)
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        tokens, logits = decode(session, FORMS[form], count)
        reference.check(tokens, logits)
        for number in range(chip.sized(20, 1)):
            others, other = decode(session, FORMS[form], count)
            parted = next((i for i, (a, b) in enumerate(zip(others, tokens, strict=True)) if a != b), None)
            assert parted is None, f"{reference.about}: text {number} parts at token {parted}"
            np.testing.assert_array_equal(other, logits, err_msg=f"{reference.about}, text {number}")


@pytest.mark.parametrize("form", ["several in a graph", "shared by clusters"])
def test_eight_long_texts_are_the_same_each_time(form: str, chip: Chip, references: References, tmp_path: Path) -> None:
    reference, count, starts = references.of("gpt2"), chip.sized(230, 2), [3 * text for text in range(8)]
    artifact = compiled(chip, "gpt2", tmp_path, FORMS[form], texts=8)
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        tokens, logits = decode_texts(session, starts, count)
        for text, start in enumerate(starts):
            reference.check(tokens[text], logits[text], start)
        for number in range(chip.sized(50, 1)):
            others, other = decode_texts(session, starts, count)
            assert others == tokens, f"{reference.about}: time {number}"
            np.testing.assert_array_equal(other, logits, err_msg=f"{reference.about}, time {number}")


@pytest.mark.parametrize("form", ["several in a graph", "shared by clusters"])
def test_eight_texts_of_a_gpt2_of_124m(form: str, chip: Chip, references: References, tmp_path: Path) -> None:
    if chip.emulated:
        pytest.skip("an emulator takes days")
    reference, starts = references.of("gpt2", **OF_124M), [100 * text for text in range(8)]
    artifact = compiled(chip, "gpt2", tmp_path, FORMS[form], texts=8, **OF_124M)
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        tokens, logits = decode_texts(session, starts, 300)
        for _ in range(20):
            others, other = decode_texts(session, starts, 300)
            assert others == tokens, reference.about
            np.testing.assert_array_equal(other, logits, err_msg=reference.about)
    for text in (0, 7):
        reference.check(tokens[text], logits[text], starts[text])


@pytest.mark.parametrize("form", FORMS)
def test_a_gpt2_of_124m_writes_900_tokens(form: str, chip: Chip, references: References, tmp_path: Path) -> None:
    if chip.emulated:
        pytest.skip("an emulator takes days")
    reference = references.of("gpt2", **OF_124M)
    artifact = compiled(chip, "gpt2", tmp_path, FORMS[form], **OF_124M)
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        tokens, logits = decode(session, FORMS[form], 900)
        others, other = decode(session, FORMS[form], 900)
    assert others == tokens
    np.testing.assert_array_equal(other, logits)
    reference.check(tokens, logits)
