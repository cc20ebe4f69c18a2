"""Numbers that are made of the whole batch, sums and extremes, and then used on each of its rows, where devices share
it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import together
from compiled_models import Weights
from training.test_divided_entries import NUMBERS, SIZES

from lispgpt.base.errors import UserError
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.plan.steps import Collective

pytestmark = pytest.mark.drawn

PROGRAM = """
(require nn)
(require training)

(config vocab 20  context 8  width 8)

(weights (table [vocab width]) (w [width width]) (b [width]))

(defn transposed [x] (let [[n c] (shape x)] (tensor [j c i n] (at x i j))))

(defn columns [x] (sum (transposed x)))

(defn least [x] (reduce min inf x))

(defn changed [x] (let [[n c] (shape x)] FORM))

(defn loss-of [tokens targets random]
  (let [[batch length] (shape tokens)
        n (* batch length)
        x (relu (linear (rows table (reshape tokens [n])) w b))
        found (head-loss (changed x) table (reshape targets [n]) vocab)]
    [(first found) (nth found 1)]))

(training loss-of)
"""
FORMS = {
    "the mean": "(- x (/ (sum (reshape x [(* n c)])) (* n c)))",
    "a root": "(/ x (sqrt (/ (sum (sum (square x))) n)))",
    "two numbers": "(+ (* x (sum (sum x))) (exp (* -0.01 (sum (sum (square x))))))",
    "normed columns": """(let [y (- x (/ (columns x) n))] (/ y (sqrt (+ 0.1 (/ (columns (square y)) n)))))""",
    "rows of all of it": """(let [m (/ (columns x) n) rows (reshape (tensor [i n j c] (at m j)) [(* n c)])]
                             (* x (reshape rows [n c])))""",
    "the largest": "(/ x (maximum (maximum x)))",
    "one of many least": "(+ x (least (least (* x (- x 1.0)))) (least (least x)))",
    "the largest of columns": "(/ x (+ 0.1 (maximum (transposed (+ x 0.5)))))",
    "a softmax of columns": "(let [e (exp (- x (maximum (transposed x))))] (/ e (columns e)))",
    "the rows of the largest": "(* x (+ 1.0 (cast (argmax (transposed x)) f32)))",
}
DOUBLES = ("one of many least", "rows of all of it", "the largest of columns", "the rows of the largest")
"""Of others that are divided in the same way."""
WEIGHTS = {"table": (20, 8), "w": (8, 8), "b": (8,)}
SLOW = NUMBERS | {"lr": 1e-3, "min-lr": 1e-4}
"""Columns that are normed have biases without an effect: AdamW moves those by the signs of roundings, as far as it
moves any."""
SMALL = 4 * 8
"""Bytes of the largest of these numbers."""


def losses(program: Path, weights: Weights, batches: list[tuple[np.ndarray, ...]], devices: int) -> list[list[float]]:
    """Of each device, over steps that change all weights."""
    with Model(Request(program), weights) as model:
        artifacts = model.compiled(["train"], SIZES, devices=devices)
    (train,) = (entry for artifact in artifacts for entry in artifact.plan.entries if entry.name == "train")
    sizes = [argument.nbytes for step in train.steps if isinstance(step, Collective) for argument in step.arguments]
    assert devices == 1 or set(sizes) <= {4, SMALL, 4 * 64, 4 * 160}, "more is added up than numbers and gradients"

    def work(peers: Peers | None) -> list[float]:
        rank = 0 if peers is None else peers.place.rank
        own = slice(rank * SIZES["batch"] // devices, (rank + 1) * SIZES["batch"] // devices)
        with Model(Request(program), weights, device="cpu", threads=1, peers=peers) as model:
            model.add(artifacts)
            found: list[Any] = []
            for number, (tokens, targets) in enumerate(batches, 1):
                given = {"tokens": tokens[own], "targets": targets[own], "step": number}
                found.append(model.session.run("train", **given, **SLOW))
            return [float(said[name]) for said in found for name in ("loss", "grad-norm")]

    return [work(None)] if devices == 1 else together(devices, work)


@pytest.mark.parametrize("what", [pytest.param(n, marks=[pytest.mark.slow] if n in DOUBLES else []) for n in FORMS])
def test_numbers_of_the_whole_batch_are_those_of_one_device(tmp_path: Path, what: str) -> None:
    program = tmp_path / "numbers.lisp"
    program.write_text(PROGRAM.replace("FORM", FORMS[what]))
    rng = seeded.rng()
    weights = Weights({n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in WEIGHTS.items()}, frozenset())
    shape = (4, SIZES["batch"], SIZES["length"])
    tokens, targets = (rng.integers(-i, 20, shape).astype(np.int32) for i in (0, 1))
    batches = list(zip(tokens, targets, strict=True))
    (alone,) = losses(program, weights, batches, 1)
    for devices in (2, 4):
        for found in losses(program, weights, batches, devices):
            np.testing.assert_allclose(found, alone, rtol=2e-5)


@pytest.mark.parametrize(
    "form, message",
    [
        ("(* x (reduce * 1.0 (maximum x)))", "together is no sum, and neither their largest nor their least"),
        (
            "(* x (cast (reduce max 0 (reduce max 0 (cast x i64))) f32))",
            "devices combine numbers of f32, bf16, i32, and these are i64",
        ),
        ("(* x (maximum (maximum (slice x [0 0] [16 8]))))", "and others are not treated as those are"),
    ],
)
def test_what_parts_say_nothing_of_is_refused_at_its_form(tmp_path: Path, form: str, message: str) -> None:
    program = tmp_path / "numbers.lisp"
    program.write_text(PROGRAM.replace("FORM", form))
    weights = Weights({n: np.ones(s, np.float32) for n, s in WEIGHTS.items()}, frozenset())
    with pytest.raises(UserError, match=message) as raised:
        losses(program, weights, [], 2)
    assert raised.value.span is not None
