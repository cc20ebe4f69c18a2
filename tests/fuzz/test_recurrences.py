"""Some random recurrences and their gradients."""

from __future__ import annotations

import pytest
import seeded
from fuzz.recurrences import check


@pytest.mark.drawn
@pytest.mark.parametrize(("target", "count"), [("cpu", 4), ("emulated:gfx1151", 1)])
def test_loops_and_their_gradients_are_those_written_out(target: str, count: int) -> None:
    seeds = [int(seed) for seed in seeded.rng().choice(1 << 30, count, replace=False)]
    assert not (wrong := check(seeds, target)), "\n".join(wrong)
