"""Some random recurrences and their gradients."""

from __future__ import annotations

import pytest
import seeded
from fuzz.recurrences import check

from lispgpt.language.model import loop_gradients


@pytest.mark.drawn
@pytest.mark.parametrize(("target", "count", "terms"), [("cpu", 2, 8), ("cpu", 2, 1), ("emulated:gfx1151", 1, 1)])
def test_loops_and_their_gradients_are_those_written_out(
    monkeypatch: pytest.MonkeyPatch, target: str, count: int, terms: int
) -> None:
    """Where products of so few terms are kept, too."""
    monkeypatch.setattr(loop_gradients, "SHORTEST_PRODUCT", terms)
    seeds = [int(seed) for seed in seeded.rng().choice(1 << 30, count, replace=False)]
    assert not (wrong := check(seeds, target)), "\n".join(wrong)
