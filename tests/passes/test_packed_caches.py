"""Keys and values in 8 bits, rows packed by themselves: attention of steps and prompts beside float64 on the rounded
rows, at real sizes, and the rows themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.base.dtypes import row_bytes
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import compile_request
from lispgpt.compiler.request import Observer, Request
from lispgpt.passes.schedule.attention import schedule_gpu_attention
from lispgpt.runtime.checkpoints.floats_of_8_bits import floats_of_8_bits, nearest_e4m3
from lispgpt.runtime.checkpoints.none import NoWeights
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PROGRAM = """
(require nn)
(config context 64 heads 4 groups 2 size 64 window 0 cache-type f32)
(weights (table [50 (* (+ heads (* 2 groups)) size)] f32))
(state (kv [1 batch 2 groups context size] cache-type))
(entry out [tokens positions]
  (let [[q k v] (split-heads (rows table tokens) size heads groups)]
    (attend q k v (kv 0) (within window))))
"""
CHIPS: dict[str, Callable[[], Any]] = {
    "cpu": CpuDevice,
    "cuda:sm_90a": EmulatedCuda,
    **{f"rocm:{chip}": lambda chip=chip: open_device(f"emulated:{chip}") for chip in ("gfx1151", "gfx942", "gfx1201")},
}
OFF_CPU = [chip for chip in CHIPS if chip != "cpu"]


def packed(rows: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of f32 [… size] as bytes [… bytes], and what these stand for, in float64."""
    if kind == "fp8":
        exponent = np.frexp(np.abs(rows).max(-1, keepdims=True))[1] - 9  # largest below 2^(exponent + 9)
        exponent += np.ldexp(np.abs(rows).max(-1, keepdims=True), -exponent) > 448
        scale, codes = np.ldexp(np.float32(1), exponent), nearest_e4m3(np.ldexp(rows, -exponent))
        numbers = floats_of_8_bits("f8e4m3")[codes].astype(np.float64) * scale
        return np.concatenate([scale.view(np.uint8), codes], -1), numbers
    blocks = rows.reshape(*rows.shape[:-1], -1, 32)
    scale16 = (np.abs(blocks).max(-1, keepdims=True) / np.float32(127)).astype(np.float16)
    codes8 = np.rint(blocks / scale16.astype(np.float32)).astype(np.int8)
    numbers = to_bf16(codes8 * scale16.astype(np.float32)).astype(np.float64)
    return np.concatenate([scale16.view(np.uint8), codes8.view(np.uint8)], -1).reshape(
        *rows.shape[:-1], -1
    ), numbers.reshape(rows.shape)


def to_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def attended(q: np.ndarray, keys: np.ndarray, values: np.ndarray, last: int, window: int) -> np.ndarray:
    """q [heads size], keys and values [groups context size] -> [heads size], in float64."""
    first, each = max(0, last + 1 - window) if window else 0, len(q) // len(keys)
    found = []
    for head, query in enumerate(q.astype(np.float64)):
        own = [part[head // each, first : last + 1] for part in (keys, values)]
        scores = own[0] @ query / np.sqrt(len(query))
        weights = np.exp(scores - scores.max())
        found.append(weights @ own[1] / weights.sum())
    return np.array(found)


def compiled(folder: Path, target: str, kind: str, batch: int, rows: int, **sizes: int) -> Artifact:
    path = folder / "program.lisp"
    path.write_text(PROGRAM)
    shapes = ({"batch": batch, "positions": rows},)
    request = Request(path, target, entries=("out",), sizes=shapes, overrides={**sizes, "cache-type": kind})
    return compile_request(request, Observer())[0]


def check(folder: Path, target: str, kind: str, batch: int, rows: int, seed: int, **sizes: int) -> None:
    made, rng, about = compiled(folder, target, kind, batch, rows, **sizes), np.random.default_rng(seed), f"seed {seed}"
    heads, groups, size, context = (sizes[name] for name in ("heads", "groups", "size", "context"))
    weights, tokens = random_weights(made, scale=1.0, seed=seed), rng.integers(0, 50, (batch, rows))
    starts = rng.integers(0, context - rows + 1, batch)
    positions = starts[:, None] + np.arange(rows)
    before = (rng.normal(0, 1, (1, batch, 2, groups, context, size)) * 10 ** rng.uniform(-3, 3)).astype(np.float32)
    before[:, :, 0] /= np.abs(before).max()  # keys whose scores are no choice of one
    held, numbers = packed(before, kind)
    with Session(made, CHIPS[target](), weights) as session:
        session.write("kv", held.view(np.int8))
        found = session.run("out", tokens=tokens, positions=positions)
        result, kept = next(iter(found.values())).copy(), session.read("kv").view(np.uint8)
    table = weights.values["table"].reshape(50, heads + 2 * groups, size)
    for text in range(batch):
        own = table[tokens[text]]
        new = [own[:, heads : heads + groups], own[:, heads + groups :]]
        for part in range(2):
            stored, stands = packed(np.ascontiguousarray(new[part]), kind)
            at = (0, text, part, slice(None), positions[text])
            numbers[at], held[at] = stands, stored
        for row, last in enumerate(positions[text]):
            wanted = attended(own[row, :heads], *numbers[0, text], last, sizes.get("window", 0))
            rounded = 2e-5 if rows == 1 else 2e-4
            np.testing.assert_allclose(
                result.reshape(batch, rows, heads, size)[text, row], wanted, rtol=0,
                atol=rounded * np.abs(wanted).max(), equal_nan=False, err_msg=about,
            )  # fmt: skip
    np.testing.assert_array_equal(kept, held, err_msg=about)


REAL = [
    {"heads": 12, "groups": 12, "size": 64},
    {"heads": 8, "groups": 2, "size": 128, "window": 1000},
    {"heads": 4, "groups": 1, "size": 256},
]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("sizes", REAL, ids=lambda sizes: str(sizes["size"]))
@pytest.mark.parametrize("kind", ["fp8", "q8_0"])
def test_the_cpu(kind: str, sizes: dict[str, int], rows: int, tmp_path: Path) -> None:
    check(tmp_path, "cpu", kind, 2 if rows == 1 else 1, rows, seeded.fresh_seed(), context=4096, **sizes)


@pytest.mark.parametrize("kind", ["fp8", "q8_0"])
def test_a_step_of_several_sequences(kind: str, tmp_path: Path) -> None:
    """Heads of another size each time."""
    check(tmp_path, "cpu", kind, 2, 1, seeded.fresh_seed(), context=4096, **REAL[int(seeded.rng().choice(3))])


def test_a_prompt(tmp_path: Path) -> None:
    rng = seeded.rng()
    kind, sizes = str(rng.choice(["fp8", "q8_0"])), REAL[int(rng.choice(3))]
    check(tmp_path, "cpu", kind, 1, 70, seeded.fresh_seed(), context=1024, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("sizes", REAL, ids=lambda sizes: str(sizes["size"]))
@pytest.mark.parametrize("kind", ["fp8", "q8_0"])
@pytest.mark.parametrize("target", OFF_CPU)
def test_chips(target: str, kind: str, sizes: dict[str, int], rows: int, tmp_path: Path) -> None:
    check(tmp_path, target, kind, 1, rows, seeded.fresh_seed(), context=4096 if rows == 1 else 512, **sizes)


def test_a_chip(tmp_path: Path) -> None:
    """Another each time."""
    rng = seeded.rng()
    target, kind, sizes = str(rng.choice(OFF_CPU)), str(rng.choice(["fp8", "q8_0"])), REAL[int(rng.choice(3))]
    few = {**sizes, "heads": sizes["heads"] // sizes["groups"], "groups": 1}
    batch, rows = [(1, 70), (1, 1), (3, 1)][int(rng.choice(3))]
    check(tmp_path, target, kind, batch, rows, seeded.fresh_seed(), context=256, **few)


@pytest.mark.parametrize("kind", ["fp8", "q8_0"])
def test_steps_pack_and_write_their_rows_in_attention(kind: str, tmp_path: Path) -> None:
    """Heads that share keys are of one block where there are sequences enough."""
    for batch in (1, 64):
        made = compiled(tmp_path, "cuda:sm_90a", kind, batch, 1, context=64, heads=32, groups=8, size=64, window=0)
        (entry,) = made.plan.entries
        attention, result = entry.launches
        assert attention.kernel.startswith("attention") and result.kernel == f"rows_{batch}x2048"
        assert batch == 1 or attention.grid[0] == batch * 8
        assert ("cvt.rn.f16x2.e4m3x2" in made.code.decode()) == (kind == "fp8")
        assert made.kernels[attention.kernel]["work"]["position_bytes"] == 2 * 8 * row_bytes(kind, 64)


@pytest.mark.parametrize("kind", ["fp8", "q8_0"])
def test_heads_of_one_block(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has all heads that share keys; on another chip each time."""
    monkeypatch.setattr(schedule_gpu_attention, "FEWEST_BLOCKS", 0)
    rng = seeded.rng()
    heads, size = [(4, 64), (2, 128), (3, 96)][int(rng.choice(3))]
    sizes = {"heads": 2 * heads, "groups": 2, "size": size, "window": int(rng.choice([0, 30]))}
    check(tmp_path, str(rng.choice(OFF_CPU)), kind, 2, 1, seeded.fresh_seed(), context=150, **sizes)


def test_rows_that_are_no_numbers(tmp_path: Path) -> None:
    """What sees them is none either; numbers of any size are kept, and so are zeros."""
    for kind in ("fp8", "q8_0"):
        made = compiled(tmp_path, "cpu", kind, 1, 1, context=64, heads=1, groups=1, size=64, window=0)
        weights = random_weights(made, scale=1.0)
        table = weights.values["table"]
        table[1], table[2], table[3] = 3e6, 0.0, np.nan
        with Session(made, CpuDevice(), weights) as session:
            found = [next(iter(session.run("out", tokens=[[n]], positions=[[0]]).values())).copy() for n in (1, 2, 3)]
        np.testing.assert_allclose(found[0], 3e6, rtol=0.05)
        assert not found[1].any() and np.isnan(found[2]).all(), kind


@pytest.mark.parametrize("kind", ["fp8", "q8_0"])
def test_a_state_is_read_as_numbers(kind: str, tmp_path: Path) -> None:
    text = f"(state (memory [4 64] {kind})) (entry keep [(x [4 64])] (do (write-state memory x) (read-state memory)))"
    x = seeded.rng().normal(0, 10, (4, 64)).astype(np.float32)
    with Session(compile_text(text, tmp_path), CpuDevice(), NoWeights()) as session:
        found = next(iter(session.run("keep", x=x).values()))
        held, numbers = packed(x, kind)
        np.testing.assert_array_equal(found.astype(np.float64), numbers, err_msg=f"seed {seeded.run_seed()}")
        np.testing.assert_array_equal(session.read("memory").view(np.uint8), held)


def test_rows_of_no_whole_blocks(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rows of the state kv have 80 elements, and blocks of q8_0 have 32"):
        compiled(tmp_path, "cpu", "q8_0", 1, 1, context=64, heads=1, groups=1, size=80, window=0)
