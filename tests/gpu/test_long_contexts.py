"""Caches whose memory is mapped as texts reach further: right at any position of a long context, and small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from gpu.chips import Chip
from gpu.decoding import EXAMPLES, NEAR
from gpu.models import Pair

import lispgpt

LONG = 131072
SIZES = {"layers": 2, "heads": 4, "kv-heads": 2, "width": 128, "hidden": 256, "vocab": 500, "head-width": 64}


@pytest.fixture
def pair(chip: Chip, shared: Path) -> Pair:
    return Pair(chip, EXAMPLES / "llama_tiny.lisp", shared, SIZES | {"context": chip.sized(LONG, 64)})


def test_memory_is_taken_as_positions_are_reached(pair: Pair, chip: Chip) -> None:
    with pair.on_chip() as model:
        rng, taken = seeded.rng(), []
        for count in chip.sized((10, 9000, 10, 20000), (3, 9)):
            prompt = [int(t) for t in rng.integers(0, 500, count)]
            list(model.generate(prompt, max_new_tokens=chip.sized(20, 2), greedy=True))
            taken.append(model.session.state_bytes())
        whole = taken[0][0]
        if model.session.device.whole or chip.emulated:
            assert all(each == (whole, whole) for each in taken), model.session.device.whole
            pytest.skip(f"all memory is taken at once: {model.session.device.whole or 'it is emulated'}")
        found = [each for _, each in taken]
        assert found == sorted(found) and found[0] < found[1] == found[2] < found[3] < whole // 4, taken


def test_tokens_at_any_position_are_the_cpus(pair: Pair, chip: Chip) -> None:
    """Behind a cache of zeros that nobody has written, in any order; NaN of other memory would be seen."""
    places = chip.sized((5, 70_000, 300, 131_060, 40_000), (5, 50))
    found: list[list[np.ndarray]] = []
    for model in (pair.on_chip(), pair.on_cpu()):
        with model:
            entry, logits = model.entry("decode-greedy", "this", batch=1, positions=1), []
            for place in places:
                for position in range(place, place + chip.sized(8, 2)):
                    given = {"tokens": [[position % 500]], "positions": [[position]]}
                    logits.append(model.session.run(entry.name, **given)["logits"][0].copy())
        found.append(logits)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=NEAR * np.abs(other).max(), err_msg=pair.about)


def test_a_long_text_goes_on_where_a_short_one_was(pair: Pair, chip: Chip) -> None:
    """Growing while steps are under way: the tokens of a model whose memory was there from the start."""
    rng, count = seeded.rng(), chip.sized(3000, 4)
    prompt = [int(t) for t in rng.integers(0, 500, 5)]
    found = []
    for whole in (False, True):
        with pair.on_chip() as model:
            if whole:
                for name in model.session.held("state"):
                    model.session.committed.whole(name)
            text = model.generate(prompt, max_new_tokens=count, greedy=True)
            list(text)
            found.append(text.tokens)
    assert found[0] == found[1] and len(found[0]) == count, pair.about


def test_memory_that_no_gpu_has_is_one_error(chip: Chip) -> None:
    if chip.emulated:
        pytest.skip("the host's memory is promised, not taken")
    device = chip.open()
    try:
        with pytest.raises(lispgpt.UserError, match="short of memory"):
            device.alloc(1 << 45)
        given, found = np.arange(64, dtype=np.int32), np.empty(64, np.int32)
        buffer = device.alloc(given.nbytes)
        device.copy_in(buffer, given)
        device.copy_out(buffer, found)
        np.testing.assert_array_equal(found, given)
    finally:
        device.close()
