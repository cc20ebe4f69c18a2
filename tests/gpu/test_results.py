"""Results that a GPU writes into the host's pinned memory, or that are read while it goes on: each is its own run's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded
from gpu.chips import Chip
from safetensors.numpy import save_file

import lispgpt
from lispgpt.runtime.session import Session

PROGRAM = """
(require nn)
(weights (w [5 7]) (b [5]))
(entry small [(x [n 7] f32) (number [] f32)] {:y (+ (linear x w b) number) :twice (* 2.0 number)})
(entry added [(x [n] f32)] {:total (sum x) :x (+ x 1.0)})
"""


@pytest.fixture
def model(chip: Chip, tmp_path: Path) -> lispgpt.Model:
    path = tmp_path / "small.lisp"
    path.write_text(PROGRAM)
    weights = tmp_path / "w.safetensors"
    rng = seeded.rng()
    save_file({n: rng.normal(0, 1, s).astype(np.float32) for n, s in {"w": (5, 7), "b": (5,)}.items()}, weights)
    return lispgpt.load(path, weights, target=chip.device)


def right(session: Session, x: np.ndarray, number: float) -> np.ndarray:
    w, b = (session.read(name).astype(np.float64) for name in ("w", "b"))
    return x.astype(np.float64) @ w.T + b + number


def test_results_of_runs_stay_what_they_were(model: lispgpt.Model, chip: Chip) -> None:
    """Of entries for many sizes in turns, while others run."""
    rng, kept = seeded.rng(), []
    sizes = chip.sized((1, 2, 3, 8, 64, 200, 3000), (1, 3))
    with model:
        for turn in range(chip.sized(30, 2)):
            for n in sizes:
                x, number = rng.normal(0, 1, (n, 7)).astype(np.float32), float(turn * 1000 + n)
                found = model.run("small", x=x, number=number)
                kept.append((found, right(model.session, x, number), number))
        for found, y, number in kept:
            assert found["twice"].item() == 2 * number
            np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-4 * (1 + number))


@pytest.mark.parametrize("shared", [False, True])
def test_results_that_are_read_at_once_or_later(shared: bool, model: lispgpt.Model, chip: Chip) -> None:
    """shared: in pinned memory that the kernel writes; of that each result is read before the next run."""
    rng, sizes = seeded.rng(), chip.sized((1, 5, 100, 1000, 5000), (1, 5))
    with model:
        for n in sizes:
            model.run("added", x=np.zeros(n, np.float32))
            entry = model.session.entry("added", n=n)
            if shared:
                model.session.read_at_once(entry)
            waiting: deque[tuple[np.ndarray, Callable[[], np.ndarray], Callable[[], np.ndarray]]] = deque()
            for _ in range(chip.sized(200, 4)):
                x = rng.integers(0, 100, n).astype(np.float32)
                model.session.start(entry, {"x": x})
                waiting.append((x, *(model.session.result_later(entry, name) for name in ("total", "x"))))
                if len(waiting) > (0 if shared else 5):
                    given, total, moved = waiting.popleft()
                    assert total().item() == given.sum(dtype=np.float64)
                    np.testing.assert_array_equal(moved(), given + 1)


def test_inputs_are_sent_while_steps_go_on(model: lispgpt.Model, chip: Chip) -> None:
    """Through pinned memory that is used again and again: no run sees another's input."""
    rng, n = seeded.rng(), chip.sized(20000, 50)
    with model:
        model.run("added", x=np.zeros(n, np.float32))
        entry, totals = model.session.entry("added", n=n), []
        for _ in range(chip.sized(300, 4)):
            x = rng.integers(0, 4, n).astype(np.float32)
            model.session.start(entry, {"x": x})
            totals.append((model.session.result_later(entry, "total"), x.sum(dtype=np.float64)))
            if len(totals) == 16:
                assert [wait().item() for wait, _ in totals] == [wanted for _, wanted in totals]
                totals.clear()
        assert [wait().item() for wait, _ in totals] == [wanted for _, wanted in totals]
