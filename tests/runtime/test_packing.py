"""Weights whose bytes are put in another order when they are loaded."""

from __future__ import annotations

import numpy as np
import pytest

from lispgpt.base.errors import UserError
from lispgpt.passes.plan.packings import pieces_of, runs_of
from lispgpt.runtime.plan.packing import Packing, packing_from_json
from lispgpt.runtime.plan.plan import Buffer, Plan


def packing_of(places: list[tuple[int, int]], size: int) -> Packing:
    return packing_from_json({"weight": "w", "shape": [size], "pieces": pieces_of(runs_of(places))})


def test_every_byte_goes_to_its_place(fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    weight = rng.integers(-128, 128, 60).astype(np.int8)
    places = [(int(i), 2 * number) for number, i in enumerate(rng.permutation(60))]
    regular = [
        (12 * row + 3 * part + i, 4 * row + 20 * part + i) for row in range(5) for part in range(4) for i in (0, 1)
    ]
    for chosen in (places, regular):
        found = packing_of(chosen, 60).packed(weight, [130])
        wanted = np.zeros(130, np.int8)
        for source, to in chosen:
            wanted[to] = weight[source]
        np.testing.assert_array_equal(found, wanted)
    assert len(packing_of(regular, 60).pieces) == 1


def test_a_piece_past_an_end_is_refused() -> None:
    for source, to in ((60, 0), (0, 64)):
        buffer = Buffer("w, rows", "weight", (64,), "i8", packing=packing_of([(source, to)], 60))
        with pytest.raises(UserError, match="packing of buffer 'w, rows': a piece that reaches past"):
            Plan((buffer,), ()).validate({})
