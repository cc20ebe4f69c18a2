"""Samplers: distributions against ones worked out another way, ranges, repeatability."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import seeded

from lispgpt.base.errors import UserError
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.samplers.philox import philox4x32
from lispgpt.runtime.samplers.weighted import Weighted

DRAWS = 10_000


def expected_distribution(
    logits: np.ndarray, temperature: float, top_k: int | None, top_p: float | None, min_p: float = 0.0
) -> np.ndarray:
    """Token probabilities, the slow and obvious way."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    kept = order[: top_k or len(order)]
    weights = {token: float(np.exp(np.float64(logits[token] - logits[order[0]]) / temperature)) for token in kept}
    total, reached, nucleus = sum(weights.values()), 0.0, []
    for token in kept:
        nucleus.append(token)
        reached += weights[token] / total
        if top_p is not None and reached >= top_p:
            break
    probabilities = np.zeros(len(logits))
    for token in (token for token in nucleus if weights[token] >= min_p * weights[kept[0]]):
        probabilities[token] = weights[token]
    return probabilities / probabilities.sum()


def assert_drawn_from(tokens: list[int], probabilities: np.ndarray) -> None:
    counts = np.bincount(tokens, minlength=len(probabilities))
    assert not counts[probabilities == 0].any()
    expected = probabilities * len(tokens)
    deviation = np.sqrt(expected * (1 - probabilities)) + 1
    assert (np.abs(counts - expected) < 6 * deviation).all()


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, None, None, None),
        (0.5, None, None, 0.0),
        (2.0, 0, 1.0, None),
        (1.0, 5, None, None),
        (0.7, 1, None, None),
        (1.0, 100, None, None),
        (1.0, None, 0.6, None),
        (1.5, 8, 0.7, None),
        (1.0, None, 1e-6, None),
        (1.0, 12, 1.0, None),
        (1.0, None, None, 0.1),
        (2.0, None, None, 1.0),
        (1.5, 12, 0.8, 0.05),
        (3.0, None, 0.9, 0.3),
    ],
)
def test_draws_follow_the_distribution(
    temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    logits = seeded.rng().normal(0, 2, 20).astype(np.float32)
    sampler = make_sampler(temperature, top_k, top_p, seed=1, min_p=min_p)
    drawn = [sampler(logits) for _ in range(DRAWS)]
    assert_drawn_from(drawn, expected_distribution(logits, temperature, top_k or None, top_p, min_p or 0.0))


@pytest.mark.parametrize("top_p", [0.05, 0.9, 0.999999])
def test_the_nucleus_of_a_large_vocabulary(top_p: float) -> None:
    logits = seeded.rng().normal(0, 1, 30_000).astype(np.float32)
    allowed = set(np.flatnonzero(expected_distribution(logits, 1.0, None, top_p)))
    sampler = make_sampler(top_p=top_p)
    drawn = Counter(sampler(logits) for _ in range(100))
    # The last token of the set may fall either way by rounding.
    assert len(set(drawn) - allowed) <= 1
    assert len(drawn) > 50


def test_ties_go_to_the_lowest_ids() -> None:
    logits = np.zeros(3000, np.float32)
    logits[[7, 90]] = 2
    assert make_sampler(greedy=True)(logits) == 7
    assert {make_sampler(top_k=1)(logits) for _ in range(20)} == {7}
    sampler = make_sampler(top_k=5)
    assert {sampler(logits) for _ in range(500)} == {0, 1, 2, 7, 90}


def test_greedy_is_the_argmax() -> None:
    for sampler in (make_sampler(greedy=True), make_sampler(temperature=0), make_sampler(0.9, 3, 0.5, 1, greedy=True)):
        logits = seeded.rng().normal(size=1000).astype(np.float32)
        assert sampler(logits) == int(logits.argmax())


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    logits = seeded.rng().normal(size=1000).astype(np.float32)

    def draw(seed: int | None) -> list[int]:
        sampler = make_sampler(seed=seed)
        return [sampler(logits) for _ in range(50)]

    assert draw(5) == draw(5) != draw(6)
    assert draw(None) != draw(None)


def test_draws_of_a_seed_do_not_repeat_and_streams_differ() -> None:
    logits = np.zeros(1 << 16, np.float32)
    sampler, other = Weighted(1.0, None, None, 3), Weighted(1.0, None, None, 3, stream=1)
    tokens = [s(logits) for s in (sampler, other) for _ in range(40)]
    assert len(set(tokens)) > 75
    assert sampler.drawn == 40


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter: list[int], key: list[int], words: str) -> None:
    (found,) = philox4x32(np.array(counter[:1]), (counter[1], counter[2], counter[3]), (key[0], key[1]))
    assert " ".join(f"{word:08x}" for word in found) == words


def test_extreme_logits_and_temperatures() -> None:
    logits = np.float32([-3e38, 3e38, -np.inf, 0])
    assert {make_sampler(temperature=t)(logits) for t in (1e-300, 1.0, 1e30)} == {1}
    hot = make_sampler(temperature=1e300, seed=1)
    assert {hot(np.float32([-100, 100, -np.inf])) for _ in range(100)} == {0, 1}
    for options in ({}, {"top_k": 3}, {"top_p": 0.9}, {"greedy": True}):
        before = logits.copy()
        make_sampler(**options)(logits)  # type: ignore[arg-type]
        assert np.array_equal(logits, before)


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.5}, {"greedy": True}])
@pytest.mark.parametrize("bad", [[1, np.nan, 2], [np.nan] * 3, [1, np.inf, 2], [-np.inf] * 3])
def test_damaged_logits_are_an_error(options: dict, bad: list[float]) -> None:
    with pytest.raises(UserError, match="best logit"):
        make_sampler(**options)(np.float32(bad))


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"temperature": -0.1}, "the temperature is -0.1"),
        ({"temperature": float("nan")}, "the temperature is nan"),
        ({"temperature": float("inf")}, "the temperature is inf"),
        ({"top_k": -1}, "top-k is -1"),
        ({"top_p": 0.0}, "top-p is 0"),
        ({"top_p": 1.1}, "top-p is 1.1"),
        ({"top_p": float("nan")}, "top-p is nan"),
        ({"seed": -1}, "the seed is -1"),
    ],
)
def test_options_out_of_range(options: dict, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        make_sampler(**options)
    assert hint in caught.value.message
