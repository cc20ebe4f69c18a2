"""The library's layers and their gradients, compiled for the CPU, against those that PyTorch gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled_models import compile_text, random_weights
from recorded_gradients import DEFINITIONS, LAYERS, Layer, recorded

from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

CLOSE = 2e-5
"""Of the largest element: sums in F32 against those in F64."""


OFTEN = ("rows", "layer-norm", "geglu", "rotary of a part", "attention within a window", "mixture, normed", "head-loss")
CASES = [pytest.param(a, id=a.name, marks=[] if a.name in OFTEN else [pytest.mark.slow]) for a in LAYERS]


@pytest.mark.drawn
@pytest.mark.parametrize("layer", CASES)
def test_a_layer_has_pytorchs_gradients(layer: Layer, tmp_path: Path) -> None:
    wanted, given = recorded()[layer.name], layer.given()
    weigh = layer.weigh(wanted["value"].shape)
    inputs = {**given, "weigh-of-sum": weigh}
    declared = " ".join(
        f"({n} [{' '.join(map(str, a.shape))}] {'i32' if n == 'ids' else 'f32'})" for n, a in inputs.items()
    )
    total = "(* value weigh-of-sum)"
    for _ in weigh.shape:
        total = f"(sum {total})"
    names = [name for name in given if name != "ids"]
    text = f"""{DEFINITIONS}
(entry f [{declared}]
  (let [value {layer.expression}
        [{" ".join(f"by-{n}" for n in names)}] (gradients {total} [{" ".join(names)}])]
    {{:value value {" ".join(f":{n} by-{n}" for n in names)}}}))"""
    artifact = compile_text(text, tmp_path)
    with Session(artifact, CpuDevice(2), random_weights(artifact)) as session:
        found = session.run("f", **inputs)
    for name in ("value", *names):
        error = np.abs(found[name].reshape(wanted[name].shape) - wanted[name]).max()
        assert error <= CLOSE * max(1.0, np.abs(wanted[name]).max()), f"{layer.name}: {name} is off by {error:.1e}"


def test_every_layer_of_the_library_is_recorded() -> None:
    assert set(recorded()) == {layer.name for layer in LAYERS}
