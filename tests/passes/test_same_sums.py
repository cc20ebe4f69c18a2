"""Sums of a row have the same bits whatever columns are beside it, and whatever rows are as long as they are as few:
those of products and norms, and those of attention, of sequences and of tokens of a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from gpu.chips import emulated_cuda_opener

import lispgpt
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.decoding import GREEDY
from lispgpt.runtime.devices import cuda
from lispgpt.runtime.every_position import ROWS

INNER, COLUMNS, FEW = 256, (96, 1000), (1, 2, 8)
PROGRAM = """
(require nn)
(config columns 96)
(entry product [(x [n 256] f32) (w [columns 256] f32)] (matmul-transposed x w))
(entry normed [(x [n 256] f32) (w [columns 256] f32)]
  (softmax (rms-norm x (reshape (slice w [3 0] [1 256]) [256]) 1e-6)))
"""


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "open_device", emulated_cuda_opener)
        yield


def bits(results: np.ndarray) -> bytes:
    """Of the first row's first columns."""
    return results[0, : COLUMNS[0]].tobytes()


CHIPS = pytest.mark.parametrize(
    "target", ["cpu", *(pytest.param(t, marks=pytest.mark.slow) for t in ("emulated:gfx1151", "cuda:sm_90a"))]
)


@CHIPS
def test_a_row_is_the_same_beside_others(target: str, tmp_path: Path) -> None:
    program, rng = tmp_path / "sums.lisp", seeded.rng()
    program.write_text(PROGRAM)
    x, w = (rng.normal(size=(n, INNER)).astype(np.float32) for n in (FEW[-1], COLUMNS[-1]))
    found: dict[tuple[str, int], list[bytes]] = {}
    for columns in COLUMNS:
        shapes = [{"n": rows} for rows in FEW]
        with lispgpt.load(program, target=target, settings={"columns": columns}, shapes=shapes) as model:
            for name in ("product", "normed"):
                for rows in FEW:
                    result = model.run(name, x=x[:rows], w=w[:columns])[name]
                    found.setdefault((name, min(rows, 2)), []).append(bits(result))
                    if name == "product":
                        np.testing.assert_allclose(result, x[:rows] @ w[:columns].T, atol=1e-3)
    for form, each in found.items():
        assert len(set(each)) == 1, form
    assert bits(x) != bits(x[1:])
    assert set(found["normed", 1]) == set(found["normed", 2])


GENERATE = Path(__file__).resolve().parents[2] / "examples" / "gpt2_generate.lisp"
SIZES = {"layers": 1, "heads": 2, "width": 64, "vocab": 96, "context": 32}
SEQUENCES, STEPS = (2, 8), 3


def opened(target: str, batch: int, seed: int) -> Model:
    """A model of random weights."""
    request = Request(GENERATE, target.replace("emulated", "rocm"), SIZES, batch=batch)
    made = artifact_of(request)
    return Model(made, random_weights(made, 0.2, seed), device=target, threads=2, program=request)


@CHIPS
def test_a_sequence_is_the_same_beside_others(target: str) -> None:
    """Among 2 and among 8, which are at other positions and of other tokens each time."""
    rng, seed, found = seeded.rng(), seeded.fresh_seed(), []
    own = rng.integers(0, SIZES["vocab"], STEPS)
    start = int(rng.integers(0, SIZES["context"] - STEPS))
    for batch in SEQUENCES:
        with opened(target, batch, seed) as model:
            place = int(rng.integers(batch))
            for step, token in enumerate(own):
                tokens = rng.integers(0, SIZES["vocab"], (batch, 1))
                positions = rng.integers(0, SIZES["context"], (batch, 1))
                tokens[place], positions[place] = token, start + step
                found.append(model.session.run(GREEDY, tokens=tokens, positions=positions)["logits"][place].tobytes())
    assert found[:STEPS] == found[STEPS:], f"at {start}"
    assert len(set(found)) == STEPS


@CHIPS
def test_a_token_of_a_text_is_the_same_before_others(target: str) -> None:
    """Whatever comes behind it, and however much of the run is padding, which has as many rows."""
    rng = seeded.rng()
    text, other = rng.integers(0, SIZES["vocab"], (2, SIZES["context"])).tolist()
    few = int(rng.integers(ROWS[0] + 1, SIZES["context"]))
    with opened(target, 1, seeded.fresh_seed()) as model:
        rows = [model.logits(each)[:few].tobytes() for each in (text[:few], text[:few] + other[few:], text)]
        assert len(set(rows)) == 1, few
        assert model.logits(text)[-1].tobytes() != model.logits(text[:few] + other[few:])[-1].tobytes()
