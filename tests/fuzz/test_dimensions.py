"""Generators of programs have dimensions of known models now and then."""

from __future__ import annotations

import re

import pytest
import seeded
from fuzz.parallel import Check
from fuzz.real import REAL


@pytest.mark.parametrize("generator", ["typed", "wide", "rounds"])
def test_some_programs_have_dimensions_of_known_models(generator: str) -> None:
    """Of 200 that have one at a tenth each none has at 1e-9; other dimensions are below 500."""
    check, first = Check("cpu", generator), int(seeded.rng().integers(1 << 20))
    known = {str(size) for size in REAL if size > 500}
    texts = (check.text(check.program(seed)) for seed in range(first, first + 200))
    assert any(known & set(re.findall(r"\d+", text)) for text in texts), first
