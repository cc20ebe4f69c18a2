"""Texts of all lengths in a batch, and drafts that are looked up: each text is what it is alone, token by token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import seeded
from gpu.chips import Chip
from gpu.decoding import EXAMPLES
from gpu.models import Pair

VOCAB = 300
PROGRAMS: dict[str, dict[str, Any]] = {
    "gpt2_generate": {"layers": 2, "heads": 4, "width": 128},
    "llama_tiny": {"layers": 2, "heads": 4, "kv-heads": 2, "width": 128, "hidden": 192},
    "recurrence": {"layers": 2, "width": 128, "hidden": 192},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"greedy": True},
    "drawn": {"temperature": 1.3, "top_k": 40, "top_p": 0.95, "seed": 5},
    "penalised": {"greedy": True, "repeat_penalty": 1.4, "frequency_penalty": 0.3, "logprobs": True},
}


def made(name: str, chip: Chip, folder: Path) -> Pair:
    return Pair(chip, EXAMPLES / f"{name}.lisp", folder, PROGRAMS[name] | {"vocab": VOCAB, "context": 128})


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ragged_texts_are_those_of_single_runs(name: str, options: str, chip: Chip, shared: Path) -> None:
    """Some of them go past the context.  Drawn ones are so up to rounded probabilities: one may be another."""
    rng, pair, given = seeded.rng(), made(name, chip, shared), OPTIONS[options]
    count, batch, longest, most = chip.sized((20, 6, 120, 60), (3, 2, 5, 2))
    prompts = [[int(t) for t in rng.integers(0, VOCAB, n)] for n in rng.integers(1, longest + 1, count)]
    with pair.on_chip() as model:
        together = model.generate_batch(prompts, batch=batch, max_new_tokens=most, **given)
        parted = 0
        for number, (prompt, text) in enumerate(zip(prompts, together, strict=True)):
            own = {**given, "seed": given["seed"] + number} if "seed" in given else given
            alone = model.generate(prompt, max_new_tokens=most, **own)
            list(alone)
            parted += text.tokens != alone.tokens
            assert parted <= ("seed" in given), f"{pair.about}, text {number}: {text.tokens} and {alone.tokens}"
            assert text.logprobs == pytest.approx(alone.logprobs, abs=1e-3), pair.about


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 17, 32, 64])
def test_large_batches_of_ragged_texts(batch: int, chip: Chip, shared: Path) -> None:
    """Whose prompts are taken in several at once."""
    rng, pair = seeded.rng(), made("gpt2_generate", chip, shared)
    prompts = [[int(t) for t in rng.integers(0, VOCAB, n)] for n in rng.integers(1, 100, chip.sized(150, 2))]
    with pair.on_chip() as model:
        together = model.generate_batch(prompts, batch=batch, max_new_tokens=chip.sized(50, 2), greedy=True)
        for prompt, text in zip(prompts, together, strict=True):
            alone = model.generate(prompt, max_new_tokens=chip.sized(50, 2), greedy=True)
            list(alone)
            assert text.tokens == alone.tokens, pair.about


def test_looked_up_drafts_change_no_token(chip: Chip, shared: Path) -> None:
    rng, pair = seeded.rng(), made("gpt2_generate", chip, shared)
    with pair.on_chip() as model:
        for most in chip.sized((3, 7), (3,)):
            for _ in range(chip.sized(8, 1)):
                prompt = ([int(t) for t in rng.integers(0, VOCAB, rng.integers(1, 5))] * 5)[: int(rng.integers(1, 20))]
                plain, drafted = (
                    model.generate(prompt, max_new_tokens=chip.sized(160, 6), greedy=True, **more)
                    for more in ({}, {"lookup": most})
                )
                list(plain), list(drafted)
                assert drafted.tokens == plain.tokens, f"{pair.about}, {prompt}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_texts_are_the_cpus(name: str, chip: Chip, shared: Path) -> None:
    """Prompts of many lengths, texts past the context; near ties go as the GPU says, so most texts have to agree."""
    rng, pair, found = seeded.rng(), made(name, chip, shared), []
    longest, most = chip.sized((140, 40), (6, 2))
    prompts = [[int(t) for t in rng.integers(0, VOCAB, n)] for n in rng.integers(1, longest, chip.sized(12, 2))]
    for model in (pair.on_chip(), pair.on_cpu()):
        with model:
            found.append([])
            for prompt in prompts:
                text = model.generate(prompt, max_new_tokens=most, greedy=True)
                list(text)
                found[-1].append(text.tokens)
    equal = sum(one == other for one, other in zip(*found, strict=True))
    assert equal >= 0.75 * len(prompts), f"{pair.about}: {equal} of {len(prompts)} texts"
