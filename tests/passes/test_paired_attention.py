"""Attention of many rows on a CPU's instructions for pairs, and in one part of BF16 on GPUs, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_text, rounded_to_bf16
from emulated_amd.running import Emulation
from emulated_cuda.entries import run

from lispgpt.base.host import cpu_features, may_use_tiles
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

PROGRAM = """
(require nn)
(config context {context})
(weights (x [{rows} {columns}]) (w [4 {width}] bf16))
(state (kv [1 2 {groups} context {depth}] {dtype}))
(defn nothing-of [z] (tensor [r {rows} c {width}] (* 0.0 (at z r 0))))
(entry out [tokens positions]
  (let [part (fn [first count]
               (reshape (slice x [0 (* first {depth})] [{rows} (* count {depth})]) [{rows} count {depth}]))
        y (attend (part 0 {heads}) (part {heads} {groups}) (part (+ {heads} {groups}) {groups}) (kv 0))]
    (+ y (nothing-of (linear y w)))))
"""


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("precision", "dtype", "rows", "context", "heads", "groups", "depth", "first"),
    [
        ("exact", "bf16", 128, 300, 2, 2, 64, 150),
        ("exact", "bf16", 128, 300, 2, 2, 1, 150),
        ("fast", "f32", 77, 300, 4, 2, 80, 5),
        ("fast", "f32", 300, 700, 1, 1, 33, 380),
        ("fast", "bf16", 200, 256, 2, 1, 20, 17),
    ],
)
def test_values(
    precision: str,
    dtype: str,
    rows: int,
    context: int,
    heads: int,
    groups: int,
    depth: int,
    first: int,
    tmp_path: Path,
) -> None:
    columns, width = (heads + 2 * groups) * depth, heads * depth
    sizes = {"rows": rows, "columns": columns, "width": width, "groups": groups, "depth": depth, "heads": heads}
    text = PROGRAM.format(context=context, dtype=dtype, **sizes)
    artifact = compile_text(text, tmp_path, precision=precision, sizes=[{"batch": 1, "positions": rows}])
    (kernel,) = [facts for name, facts in artifact.kernels.items() if name.startswith("attention")]
    if "amx_bf16" in cpu_features() and may_use_tiles(ask=True):
        assert kernel["permission"] == "amx"
    rng = seeded.rng()
    x = rounded_to_bf16(rng.standard_normal((rows, columns)))
    kv = rounded_to_bf16(rng.standard_normal((1, 2, groups, context, depth)))
    wanted = reference(x.astype(np.float64), kv[0].astype(np.float64), heads, groups, first)
    kv[..., first + rows :, :] = np.nan
    weights = Weights({"x": x, "w": np.zeros((4, width), np.float32)}, frozenset({"w"}))
    with Session(artifact, CpuDevice(2), weights) as session:  # type: ignore[arg-type]
        for buffer in artifact.plan.buffers:
            memory = session._buffers[buffer.name]
            if buffer.kind in ("arena", "result"):
                memory[:] = 0xFF
            elif buffer.kind == "state":
                stored = (kv.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else kv
                memory[:] = stored.reshape(-1).view(np.uint8)
        positions = np.arange(first, first + rows, dtype=np.int32)
        found = session.run("out", np.zeros((1, rows), np.int32), positions[None])["out"]
    error = np.abs(found.reshape(wanted.shape) - wanted).max()
    assert error < (2e-6 if precision == "exact" else 0.02)


def reference(x: np.ndarray, kv: np.ndarray, heads: int, groups: int, first: int) -> np.ndarray:
    """[rows heads depth], the rows' own keys and values in place of the cache's."""
    rows, depth = x.shape[0], kv.shape[-1]
    parts = x.reshape(rows, heads + 2 * groups, depth)
    for which in range(2):
        kv[which, :, first : first + rows] = parts[:, heads + which * groups :][:, :groups].transpose(1, 0, 2)
    keys, values = (np.repeat(each, heads // groups, 0) for each in kv)
    scores = np.einsum("rhd,htd->hrt", parts[:, :heads], keys) / np.sqrt(depth)
    scores[:, np.arange(kv.shape[2])[None] > first + np.arange(rows)[:, None]] = -np.inf
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hrt,htd->rhd", powers / powers.sum(-1, keepdims=True), values)


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "rocm:gfx942", "rocm:gfx1151"])
def test_fast_values_on_gpus(target: str, tmp_path: Path) -> None:
    rows, context, heads, depth, first = 64, 128, 2, 64, 40
    sizes = {"rows": rows, "columns": 3 * heads * depth, "width": heads * depth, "groups": heads, "depth": depth}
    text = PROGRAM.format(context=context, dtype="f32", heads=heads, **sizes)
    given = {"target": target, "sizes": [{"batch": 1, "positions": rows}]}
    artifact = compile_text(text, tmp_path, precision="fast", **given)
    rng = seeded.rng()
    x = rounded_to_bf16(rng.standard_normal((rows, 3 * heads * depth)))
    kv = rounded_to_bf16(rng.standard_normal((1, 2, heads, context, depth)))
    wanted = reference(x.astype(np.float64), kv[0].astype(np.float64), heads, heads, first)
    positions = np.arange(first, first + rows, dtype=np.int32)
    values = {"x": x, "w": np.zeros((4, heads * depth), np.uint16), "kv": kv, "positions": positions}
    values["tokens"] = np.zeros(rows, np.int32)
    if target.startswith("rocm"):
        emulation = Emulation(artifact, values)
        found = emulation.run(emulation.entry("out", rows))
    else:
        (entry,) = artifact.plan.entries
        found = run(artifact, entry, values)
    error = np.abs(found.reshape(wanted.shape) - wanted).max()
    assert 1e-4 < error < 0.02
