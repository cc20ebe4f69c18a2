"""Powers, which AMD's back end takes quotients and extremes of 64-bit numbers for."""

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


@pytest.mark.parametrize("chip", ["gfx942", "gfx1201"])
def test_powers_of_reals_are_right(chip: str, tmp_path: Path) -> None:
    path = tmp_path / "powers.lisp"
    path.write_text(
        "(require-dialect math) (entry f [(x [300]) (y [300])] (elementwise (fn [x y] (math.powf x y)) x y))"
    )
    artifact = compile_request(Request(path, f"rocm:{chip}"), Observer())[0]
    rng = seeded.rng()
    x, y = rng.uniform(0.01, 30, 300).astype(np.float32), rng.uniform(-9, 9, 300).astype(np.float32)
    with Session(artifact, EmulatedDevice(chip), Weights({})) as session:  # type: ignore[arg-type]
        (found,) = session.run("f", x=x, y=y).values()
    np.testing.assert_allclose(found, x.astype(np.float64) ** y, rtol=1e-5)
