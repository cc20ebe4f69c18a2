"""The whole CPU pipeline against float64 on fresh odd shapes: schedules, arena, batches, threads, both weight types."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_gpt2
import seeded
from compiled_models import compile_model, open_poisoned, poison, random_weights, shapes_of, step

pytestmark = pytest.mark.drawn

SHAPES: list[dict[str, int]] = [
    {"vocab": 1, "width": 1, "heads": 1, "context": 5, "layers": 1},
    {"vocab": 2, "width": 6, "heads": 2, "context": 16, "layers": 2},
    {"vocab": 127, "width": 39, "heads": 3, "context": 17, "layers": 1},
    {"vocab": 49, "width": 62, "heads": 1, "context": 18, "layers": 2},
]


def random_shape() -> dict[str, int]:
    rng = seeded.rng()
    heads = int(rng.integers(1, 6))
    return {
        "vocab": int(rng.integers(1, 200)),
        "heads": heads,
        "width": heads * int(rng.integers(1, 20)),
        "context": int(rng.integers(1, 40)),
        "layers": 2,
    }


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [*zip(SHAPES, ["f32", "bf16", "f32", "bf16"], strict=True), (None, "f32"), (None, "bf16")],
    ids=lambda v: "-".join(map(str, v.values())) if isinstance(v, dict) else v or "random",
)
def test_gpt2_of_odd_sizes(shape: dict[str, int] | None, dtype: str, examples: Path) -> None:
    rng = seeded.rng()
    shape = shape or random_shape()
    batch, threads = int(rng.integers(2, 6)), int(rng.choice([1, 2, 3, 5]))
    settings: dict[str, Any] = {**shape, "padded_vocab": shape["vocab"] + int(rng.integers(3)), "weight_type": dtype}
    artifact = compile_model(examples / "gpt2_generate.lisp", batch=batch, **settings)
    weights = random_weights(artifact)
    exact = weights.exact()
    what = f"{settings} batch {batch} threads {threads}"
    with open_poisoned(artifact, weights, threads) as session:
        for sequences, positions in shapes_of(session):
            if positions > shape["context"]:
                continue
            session._buffers["kv"][:] = 0
            tokens = rng.integers(0, shape["vocab"], (sequences, positions))
            found = step(session, tokens, np.tile(np.arange(positions), (sequences, 1)))
            for row in range(sequences):
                wanted = reference_gpt2.logits(exact, shape["heads"], list(tokens[row]), shape["vocab"])[-1]
                logits = found["logits"][row, : shape["vocab"]]
                np.testing.assert_allclose(logits, wanted, atol=2e-4 * max(1, abs(wanted).max()), err_msg=what)
                assert found["next"][row] == logits.argmax(), what


def test_a_longer_sequence_token_by_token_and_in_chunks(examples: Path) -> None:
    rng = seeded.rng()
    sizes = {
        "vocab": 61,
        "padded_vocab": 64,
        "width": 30,
        "heads": 5,
        "context": 33,
        "layers": 2,
        "weight_type": "bf16",
    }
    artifact = compile_model(examples / "gpt2_generate.lisp", **sizes)
    weights = random_weights(artifact)
    tokens = [int(t) for t in rng.integers(0, 61, 33)]
    wanted = reference_gpt2.logits(weights.exact(), 5, tokens, 61)
    with open_poisoned(artifact, weights) as session:
        step(session, tokens[:16], np.arange(16))
        for position in range(16, 33):
            found = step(session, [tokens[position]], [position])["logits"][0, :61]
            np.testing.assert_allclose(found, wanted[position], atol=2e-4 * abs(wanted).max())


def test_a_padded_chunk_changes_nothing(examples: Path) -> None:
    rng = seeded.rng()
    sizes = {"vocab": 31, "padded_vocab": 32, "width": 12, "heads": 3, "context": 20, "layers": 1, "weight_type": "f32"}
    artifact = compile_model(examples / "gpt2_generate.lisp", **sizes)
    weights = random_weights(artifact)
    tokens = rng.integers(0, 31, 20)
    real = int(rng.integers(1, 16))
    wanted = reference_gpt2.logits(weights.exact(), 3, [int(t) for t in tokens[: 3 + real]], 31)[-1]
    with open_poisoned(artifact, weights) as session:
        for position in range(3):
            step(session, [tokens[position]], [position])
        rows = [*[tokens[3]] * (16 - real), *tokens[3 : 3 + real]]
        places = [*[3] * (16 - real), *range(3, 3 + real)]
        found = step(session, rows, places)["logits"][0, :31]
    np.testing.assert_allclose(found, wanted, atol=2e-4 * max(1, abs(wanted).max()))


def test_steps_repeat_to_the_bit_whatever_the_threads(examples: Path) -> None:
    sizes = {
        "vocab": 101,
        "padded_vocab": 104,
        "width": 48,
        "heads": 4,
        "context": 16,
        "layers": 2,
        "weight_type": "bf16",
    }
    artifact = compile_model(examples / "gpt2_generate.lisp", **sizes)
    weights = random_weights(artifact)
    tokens = seeded.rng().integers(0, 101, 16)
    found = []
    for threads in (1, 2, 4):
        with open_poisoned(artifact, weights, threads) as session:
            for _ in range(3):
                poison(session)
                found.append(step(session, tokens, np.arange(16))["logits"])
    assert all((f == found[0]).all() for f in found)


def test_the_arena_is_shared_and_smaller_than_its_parts(examples: Path) -> None:
    sizes = {"vocab": 31, "padded_vocab": 32, "width": 64, "heads": 2, "context": 16, "layers": 6, "weight_type": "f32"}
    arenas = []
    for layers in (2, 6):
        artifact = compile_model(examples / "gpt2_generate.lisp", **{**sizes, "layers": layers})
        (arena,) = (b for b in artifact.plan.buffers if b.kind == "arena")
        arenas.append(arena.nbytes)
        for entry in artifact.plan.entries:
            check_no_launch_overwrites_what_it_reads(entry.launches)
    assert arenas[0] == arenas[1], "more layers need no larger arena"


def check_no_launch_overwrites_what_it_reads(launches: Any) -> None:
    """Different arguments of one launch in the arena do not overlap, unless they are the same bytes."""
    for launch in launches:
        spans = {(a.offset, a.offset + a.nbytes) for a in launch.arguments if a.buffer == "arena"}
        ordered = sorted(spans)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered)), launch


def test_kernels_are_made_once_for_all_layers(examples: Path) -> None:
    counts = []
    for layers in (2, 7):
        artifact = compile_model(examples / "gpt2_generate.lisp", layers=layers, width=16, heads=2, context=16)
        counts.append((len(artifact.kernels), len(artifact.plan.entries[0].launches)))
    assert counts[0][0] == counts[1][0]
    assert counts[1][1] > counts[0][1]
