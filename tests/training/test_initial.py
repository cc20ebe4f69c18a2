"""What training from nothing begins with: what the program says of each weight, drawn by the seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded

from lispgpt.base.errors import UserError
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.request import Request
from lispgpt.runtime.checkpoints.initial import InitialWeights
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32

PROGRAM = """(config layers 3  width 64)
(weights
  (plain [128 width]) (low [128 width] bf16) (vector [width]) (ids [5] i32)
  (per layers
    (scale [width] {:init 1}) (shift [width] bf16 {:init -0.5})
    (proj [width width] bf16 {:init (normal (/ 0.1 (sqrt layers)))}) (flat [width width] {:init (uniform 0.25)})))
(entry run [(x [rows width])] x)
"""


def initial(tmp_path: Path, seed: int, program: str = PROGRAM) -> InitialWeights:
    (tmp_path / "model.lisp").write_text(program)
    found = declared(Request(tmp_path / "model.lisp"))
    return InitialWeights(found.config, found.weights, found.initial, seed)


def values(weights: InitialWeights, name: str) -> np.ndarray:
    info = weights.info(name)
    storage = {"f32": np.float32, "bf16": np.uint16, "i32": np.int32}[info.dtype]
    array = np.full(info.shape, 0x7FC1, storage)
    weights.read_into(name, array, info.dtype)
    return bf16_to_f32(array) if info.dtype == "bf16" else array


def test_weights_begin_as_the_program_says(tmp_path: Path) -> None:
    weights = initial(tmp_path, seeded.fresh_seed())
    for name, deviation in [("plain", 0.02), ("low", 0.02), ("proj", 0.1 / 3**0.5), ("flat", 0.25 / 3**0.5)]:
        drawn = values(weights, name)
        assert abs(drawn.std() / deviation - 1) < 0.05 and abs(drawn.mean()) < 0.05 * deviation, name
    assert abs(values(weights, "flat")).max() <= 0.25 and abs(values(weights, "plain")).max() > 0.05
    assert not np.array_equal(*values(weights, "proj")[:2])
    assert (values(weights, "scale") == 1).all() and (values(weights, "shift") == -0.5).all()
    assert not values(weights, "vector").any() and not values(weights, "ids").any()


def test_the_seed_alone_decides(tmp_path: Path) -> None:
    seed = seeded.fresh_seed() % (1 << 30)
    first, again, other = (initial(tmp_path, s) for s in (seed, seed, seed + 1))
    for name in ("plain", "proj", "flat"):
        np.testing.assert_array_equal(values(first, name), values(again, name))
        assert not np.array_equal(values(first, name), values(other, name))
    with pytest.raises(UserError, match="the seed is -1"):
        initial(tmp_path, -1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("{:init (normal -1)}", "may not be below 0"),
        ("{:init true}", "`:init` is a number"),
        ("{:init (normal 0.1 0.2)}", "normal"),
        ("{:start 1}", "a weight's one option is"),
        ("{}", "a weight's one option is"),
    ],
)
def test_what_is_no_beginning_is_refused_at_its_place(tmp_path: Path, option: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as found:
        initial(tmp_path, 0, f"(weights (w [4 4] {option}))\n(entry run [(x [4])] x)")
    assert found.value.span is not None


def test_a_gpt2_begins_as_gpt2_did(examples: Path) -> None:
    found = declared(Request(examples / "gpt2.lisp", overrides={"layers": 2}))
    assert found.initial == {
        **dict.fromkeys(("ln1-w", "ln2-w", "lnf-w"), ("constant", 1.0)),
        **dict.fromkeys(("proj-w", "out-w"), ("normal", 0.01)),
    }
