"""Programs that read what a cache holds before a step's rows are written to it: on GPUs and on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import poison, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

READS = """
(require nn)
(config context 80 cache-type f32)
(weights (table [50 64]) (w [384 64] bf16) (b [384]))
(state (kv [1 batch 2 2 context 64] cache-type))
(entry out [tokens positions]
  (let [n (dim tokens 0)
        qkv (linear (rows table tokens) w b)
        part (fn [first] (slice (reshape qkv [n 6 64]) [0 first 0] [n 2 64]))
        held (reshape (slice (read-state (kv 0)) [0 0 0 0 0] [1 1 2 80 64]) [160 64])
        before BEFORE
        rows (attend (part 0) (part 2) (part 4) (kv 0))]
    {:rows LAST :before (AFTER before)}))
"""


@pytest.mark.drawn
@pytest.mark.parametrize("last", ["rows", "(slice (reshape rows [n 128]) [(- n 1) 0] [1 128])"])
@pytest.mark.parametrize(("before", "after"), [("(square held)", "* 1.0"), ("held", "square")])
def test_what_a_cache_holds_is_read_before_it_changes(tmp_path: Path, last: str, before: str, after: str) -> None:
    """Of all rows, whose attention writes them, and of the last one, whose attention does not; read by then, or only
    after that, which takes a copy."""
    text = READS.replace("LAST", last).replace("BEFORE", before).replace("AFTER", after)
    (tmp_path / "program.lisp").write_text(text)
    found, weights = [], None
    held = seeded.rng().standard_normal((1, 1, 2, 2, 80, 64), np.float32)
    for target, device in (("cuda:sm_90a", EmulatedCuda()), ("cpu", CpuDevice())):
        request = Request(tmp_path / "program.lisp", target=target, sizes=[{"batch": 1, "positions": 64}])
        artifact = compile_request(request, Observer())[0]
        weights = weights or random_weights(artifact, 0.3)
        with Session(artifact, device, weights) as session:  # type: ignore[arg-type]
            poison(session)
            session.write("kv", held)
            made = session.run("out", np.arange(64)[None] % 50, np.arange(64)[None])
            np.testing.assert_allclose(made["before"], held[0, 0, 0].reshape(160, 64) ** 2, rtol=1e-6)
            found.append(made["rows"])
    np.testing.assert_allclose(*found, rtol=0, atol=3e-5 * np.abs(found[1]).max())
