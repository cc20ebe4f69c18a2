"""Attention of steps whose heads look at the same keys: a block has several of them, and reads the keys once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import fill_cache

from lispgpt.compiler.driver import compile_request
from lispgpt.compiler.request import Observer, Request
from lispgpt.passes.schedule.attention import schedule_gpu_attention
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

PROGRAM = """
(require nn)
(config context {context} heads {heads} groups {groups} size {size} window {window} cache-type {cache})
(weights (table [50 (* (+ heads (* 2 groups)) size)] f32))
(state (kv [1 batch 2 groups context size] cache-type))
(entry out [tokens positions]
  (let [[q k v] (split-heads (rows table tokens) size heads groups)
        weigh (if (= window 0) (lowered-by (alibi-slope heads)) (within window))]
    (attend q k v (kv 0) weigh)))
"""
CHIPS = {"cuda:sm_90a": EmulatedCuda, "rocm:gfx1151": lambda: open_device("emulated:gfx1151")}


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("cache", ["f32", "bf16"])
def test_each_head_has_its_own_result(cache: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, batch = seeded.rng(), 2
    groups, each = int(rng.choice([1, 2])), int(rng.choice([2, 3, 4, 6]))
    sizes = {"context": 40, "heads": groups * each, "groups": groups, "size": int(rng.choice([16, 24, 64]))}
    sizes["window"] = int(rng.choice([0, 7]))
    about = f"{sizes}, seed {seeded.run_seed()}"
    monkeypatch.setattr(schedule_gpu_attention, "FEWEST_BLOCKS", 0)
    path = tmp_path / "program.lisp"
    path.write_text(PROGRAM.format(cache=cache, **sizes))
    shapes = ({"batch": batch, "positions": 1},)
    cpu, made = (
        compile_request(Request(path, chip, entries=("out",), sizes=shapes), Observer())[0] for chip in ("cpu", target)
    )
    (kernel,) = [name for name in made.kernels if name.startswith("attention")]
    blocks = made.kernels[kernel]["grid"][0]
    assert blocks % (batch * groups) == 0 and blocks < batch * groups * each, about
    seed, weights = seeded.fresh_seed(), random_weights(cpu)
    tokens, positions = rng.integers(0, 50, (batch, 1)), rng.integers(0, 40, (batch, 1))
    found = []
    for artifact, device in ((cpu, CpuDevice()), (made, CHIPS[target]())):
        with Session(artifact, device, weights) as session:  # type: ignore[arg-type]
            fill_cache(session, seed)
            found.append(next(iter(session.run("out", tokens=tokens, positions=positions).values())).copy())
    size = np.abs(found[0]).max()
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-4 * size, equal_nan=False, err_msg=about)
