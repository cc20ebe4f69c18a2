"""Indices that leave their tensor: an error where that is known while compiling, checked where an input gives them, and
else held to the tensor's range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, open_checked
from tensor_functions import program

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir, new_context

HEADER = "(require nn) (require kernels) (require-dialect linalg tensor scf arith)"
HELD: list[tuple[str, Callable[..., Any]]] = [
    ("(tensor [i 3] (at x (* (at k i) (at k i))))", lambda x, k: x[np.clip((k * k).astype(np.int32), 0, 4)]),
    ("(tensor [i 3] (at x (quot (at k i) 2)))", lambda x, k: x[np.clip(np.trunc(k / 2).astype(int), 0, 4)]),
    ("(tensor [i 3] (at x (mod (at k i) 5)))", lambda x, k: x[k % 5]),
    ("(tensor [i 5] (select (< i 4) (at x (+ i 1)) 7.0))", lambda x, k: np.append(x[1:], 7)),
    ("(tensor [i 5] (if (< i 4) (at x (+ i 1)) 7.0))", lambda x, k: np.append(x[1:], 7)),
    ("(tensor [i 5] (at x (mod (+ i 3) 5)))", lambda x, k: np.roll(x, -3)),
    (
        "(slice x [(* 2 (at k 0))] [2])",
        lambda x, k: x[(s := int(np.clip(np.int32(2 * k[0]), 0, 3))) : s + 2],
    ),
    (
        "(insert (slice x [0] [2]) x [(* 3 (at k 1))] [2])",
        lambda x, k: np.concatenate([x[: (s := int(np.clip(np.int32(3 * k[1]), 0, 3)))], x[:2], x[s + 2 :]]),
    ),
    (
        "(rows (reshape x [5 1]) (argmax (* (reshape x [1 5]) (reshape nothing [1 1]))))",
        lambda x, k: x[:1, None],
    ),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    inputs = "(x [5] f32) (k [3] i32) (nothing [1] f32)"
    entries = [f"(entry e{number} [{inputs}] {text})" for number, (text, _) in enumerate(HELD)]
    return compile_text("\n".join([HEADER, *entries]), tmp_path_factory.mktemp("indices"))


@pytest.mark.parametrize("number", range(len(HELD)))
def test_an_index_that_is_computed_is_held_to_its_range(compiled: Any, number: int) -> None:
    """Products that overflow and an argmax of no numbers included; nothing behind the tensor is read."""
    text, right = HELD[number]
    x = seeded.rng().normal(size=5).astype(np.float32)
    for k in ([46341, -46341, 3], [1, 0, 2], [-2_000_000_000, 2_000_000_000, 1]):
        numbers = np.array(k, np.int32)
        with open_checked(compiled) as session:
            found = session.run(f"e{number}", x=x, k=numbers, nothing=np.array([np.nan], np.float32))[f"e{number}"]
        with np.errstate(over="ignore"):
            wanted = right(x, numbers)
        np.testing.assert_array_equal(found, wanted.astype(np.float32), err_msg=f"{text} {k}")


@pytest.mark.parametrize(
    "text,place,reached",
    [
        ("(tensor [i 4] (at x (+ i 2)))", "(at x (+ i 2))", 5),
        ("(tensor [i 4] (at x (- i 1)))", "(at x (- i 1))", -1),
        ("(tensor [i 300 j 300] (at y i (+ 1 j)))", "(at y i (+ 1 j))", 300),
        ("(at x 5)", "(at x 5)", 5),
        ("(at x -1)", "(at x -1)", -1),
        ("(over [i 0 6 1] [s (: 0.0 f32)] (+ s (at x i)))", "(at x i)", 5),
        ("(over [i 0 5 1] [z x] (insert (slice x [0] [2]) z [i] [2]))", "(insert (slice x [0] [2]) z [i] [2])", 4),
    ],
)
def test_an_index_that_is_known_to_leave_its_tensor_is_an_error_at_its_form(
    text: str, place: str, reached: int
) -> None:
    entry = f"{HEADER} (entry f [(x [5] f32) (y [300 300] f32)] {{:shapes [{{}}]}} {text})"
    with new_context(), ir.Location.unknown(), pytest.raises(UserError, match=f"reaches index {reached} ") as caught:
        program(entry)
    span = caught.value.span
    assert span is not None and span.source.text[span.start : span.end] == place
