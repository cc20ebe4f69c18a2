"""Decode steps that clusters share in one launch, of models of random sizes: the CPU's tokens and logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import compiled, fill_cache

from lispgpt.passes.decode_step import layout as sharded_layout
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

NEAR = 2e-3
"""How far logits may be from the CPU's, beside the largest; tokens are compared where the choice is twice as clear."""

ROOM = sharded_layout.SHARED_BYTES
DEPTHS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 256)
OPTIONS = ("", ":steps 0", ":steps 0 :numbers 8", ":numbers 16", ":rows 16")


def sizes(rng: np.random.Generator, program: str, widest: int) -> dict[str, int | str]:
    """Config values that the program allows and clusters can share: widths are whole lines of 64."""
    while True:
        depth, heads = int(rng.choice(DEPTHS)), int(rng.integers(1, 17))
        width = depth * heads
        if width % 64 == 0 and 128 <= width <= widest:
            break
    vocab, context = int(rng.integers(40, 700)), int(rng.choice([32, 64, 100]))
    kinds = ["bf16", "q8_0", *(["int8"] if width % 128 == 0 else [])]
    found: dict[str, int | str] = {"layers": 1, "heads": heads, "width": width, "vocab": vocab, "context": context}
    found |= {"weight-type": str(rng.choice(kinds)), "cache-type": str(rng.choice(["f32", "bf16"]))}
    if program == "gpt2.lisp":
        return found
    groups = [n for n in range(1, heads + 1) if heads % n == 0]
    return found | {"kv-heads": int(rng.choice(groups)), "hidden": 128 * int(rng.integers(1, width // 32))}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("program", ["gpt2.lisp", "llama_tiny.lisp"])
def test_models_of_any_size(program: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = seeded.fresh_seed()
    rng = np.random.default_rng(seed)
    batch = int(rng.choice([1, 1, 2, 5]))
    config, clusters = sizes(rng, program, 640 if batch == 1 else 320), int(rng.integers(2, 5))
    if batch > 1:
        config["weight-type"] = "bf16"
    options, room = str(rng.choice(OPTIONS)), int(rng.choice([ROOM, ROOM, 60000, 100000]))
    order = int(rng.choice([0, 1 + seed % 1000]))
    about = f"seed {seed}: {config}, {batch} texts, {clusters} clusters, {options!r}, {room} bytes, order {order}"
    monkeypatch.setattr(sharded_layout, "SHARED_BYTES", room)
    cpu = compiled(tmp_path, "cpu", program=program, batch=batch, **config)
    artifact = compiled(tmp_path, "cuda:sm_90a", clusters, program, options=options, batch=batch, **config)
    (entry,), (own,) = artifact.plan.entries, cpu.plan.entries
    if len(entry.launches) > 1:
        pytest.skip(f"{entry.remarks[0]} ({about})")
    weights, vocab = random_weights(cpu, 0.2, seed), int(config["vocab"])
    starts = rng.integers(0, int(config["context"]) - 3, (batch, 1))
    tokens = rng.integers(0, vocab, (batch, 1))
    with Session(cpu, CpuDevice(), weights) as right, Session(artifact, EmulatedCuda(order), weights) as made:  # type: ignore[arg-type]
        fill_cache(right, seed)
        fill_cache(made, seed)
        for step in range(2):
            found = []
            for session, its in ((right, own), (made, entry)):
                session.put(its, {"tokens": tokens, "positions": starts + step})
                (next_,) = (x.reshape(-1).copy() for x in session.repeat(its, "next", 1))
                found.append((next_, session.read(its.results["logits"]).reshape(batch, -1)[:, :vocab]))
            (wanted, logits), (chosen, others) = found
            size = np.abs(logits).max()
            np.testing.assert_allclose(others, logits, rtol=0, atol=NEAR * size, equal_nan=False, err_msg=about)
            ranked = np.sort(logits, axis=1)
            clear = ranked[:, -1] - ranked[:, -2] > 2 * NEAR * size
            np.testing.assert_array_equal(chosen[clear], wanted[clear], err_msg=about)
            tokens = wanted[:, None]
