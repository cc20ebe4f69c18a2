"""Quotients of numbers of every size, which AMD's chips make of scaled ones: nearest numbers, or as good as."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.emulated import EmulatedDevice
from lispgpt.runtime.session import Session

pytest.importorskip("tinygrad")
COUNT = 2048
SMALLEST = 2.0**-126


@pytest.mark.parametrize("chip", ["gfx942", "gfx1151", "gfx1201"])
def test_quotients_are_right_however_large_or_small(chip: str, tmp_path: Path) -> None:
    path = tmp_path / "quotients.lisp"
    path.write_text("(entry f [(x [n]) (y [n])] (/ x y))")
    request = Request(path, f"rocm:{chip}", inputs={"f": {"x": [COUNT], "y": [COUNT]}})
    artifact, rng = compile_request(request, Observer())[0], seeded.rng()
    signs, shares = rng.choice([-1.0, 1.0], (2, COUNT)), 1 + rng.random((2, COUNT))
    x, y = (signs * shares * 2.0 ** rng.integers(-149, 128, (2, COUNT))).astype(np.float32)
    with Session(artifact, EmulatedDevice(chip), Weights({})) as session:  # type: ignore[arg-type]
        (found,) = session.run("f", x=x, y=y).values()
    exact = x.astype(np.float64) / y.astype(np.float64)
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float32)
    near = np.abs(found.astype(np.float64) - exact) <= np.maximum(np.abs(exact) * 2.0**-22, SMALLEST)
    wrong = ~((found == nearest) | near)
    assert not wrong.any(), (x[wrong][:4], y[wrong][:4], found[wrong][:4], exact[wrong][:4])
    assert np.isinf(nearest).any() and (np.abs(exact) < SMALLEST).any() and (np.abs(y) > 2.0**126).any()
