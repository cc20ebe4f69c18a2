"""A model is written once: a loss looks at whole texts by the definitions that text is generated with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file

import lispgpt
from lispgpt.base.errors import UserError

SHAPES: dict[str, tuple[int, ...]] = {
    "wte": (11, 8), "wpe": (6, 8), "qkv-w": (24, 8), "sinks": (2,), "mix-w": (8, 1, 3), "kv-a": (5, 8), "kv-n": (3,),
    "kv-b": (12, 3), "w": (8, 8), "g": (8,), "b": (8,), "head-b": (11,),
}  # fmt: skip
MODEL = f"""(require nn scan latent training)
(config vocab 11  context 6  heads 2  rate 0.3)
(weights {" ".join(f"({name} [{' '.join(map(str, shape))}])" for name, shape in SHAPES.items())})
(state (kv [batch 2 2 context 4])
       (sinking [batch 2 2 context 4]) (one [batch 2 1 context 4]) (sloping [batch 2 2 context 4])
       (latents [batch 1 1 context 5]) (before [batch 2 8]))
(defn turn [x] ((turning-by (row-positions) (quot (dim x 2) 2) (rotary-frequency 9.0 2)) x))
(defn parts [x] (split-heads (linear x qkv-w) 4 2 2))
(defn one-head [x] (reshape (slice x [0 0] [(dim x 0) 4]) [(dim x 0) 1 4]))
(def layers
  [(fn [x] (attention (linear x qkv-w) kv heads))
   (fn [x] (attend (turn (first (parts x))) (turn (one-head x)) (one-head (silu x)) one (within 3)))
   (fn [x] (let [[q k v] (parts x)] (attend-with-sinks q k v sinking sinks plain-score)))
   (fn [x] (let [[q k v] (parts x)] (attend q k v sloping (lowered-by (alibi-slope 2)))))
   (fn [x] (latent-attention x x kv-a kv-n kv-b latents turn 2))
   (fn [x] (convolved x mix-w b before))
   (fn [x] (relu (linear x w)))])
(defn block [x layer] (+ x (dropout (layer (layer-norm x g b)) rate)))
(entry logits [tokens positions]
  (let [x (fold (fn [x layer] (recompute block x layer)) (+ (rows wte tokens) (rows wpe positions)) layers)]
    (linear (rms-norm (last x) g 1e-5) wte head-b)))
(generate logits)
(training logits)
(entry probe [(tokens [batch length] i32) (targets [batch length] i32) (seed [] i32) (step [] i32)]
  (let [loss (first (loss-in-texts logits tokens targets [seed step]))
        found (gradients loss (all-weights))]
    {{:loss loss {" ".join(f":d-{name} (nth found {number})" for number, name in enumerate(SHAPES))}}}))
"""


Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "model.lisp").write_text(MODEL)
    return folder


@contextmanager
def opened(place: Path, weights: Arrays) -> Iterator[Any]:
    save_file(weights, place / "w.safetensors")
    with lispgpt.load(place / "model.lisp", place / "w.safetensors", cache=place / "cache") as model:
        yield model


@pytest.fixture(scope="module")
def drawn() -> Arrays:
    rng = seeded.rng()
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return seeded.rng().integers(0, 11, (3, 7)).astype(np.int32)


def test_a_loss_over_whole_texts_is_what_generating_says(place: Path, drawn: Arrays, tokens: np.ndarray) -> None:
    """Which goes token by token, with caches and states."""
    losses = []
    with opened(place, drawn) as model:
        for text in tokens:
            for position, (token, target) in enumerate(pairwise(text)):
                logits = model.run("logits", tokens=[[token]], positions=[[position]])["logits"][0].astype(np.float64)
                losses.append(np.log(np.exp(logits).sum()) - logits[target])
            model.session.forget()
        found = model.run("evaluate", tokens=tokens[:, :-1], targets=tokens[:, 1:])
    np.testing.assert_allclose(found["loss"], np.mean(losses), rtol=1e-4)


@pytest.mark.slow
def test_its_gradients_are_those_of_differences(place: Path, drawn: Arrays, tokens: np.ndarray) -> None:
    """With what is dropped: what is computed again for the gradient drops the same."""
    given = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "seed": 3, "step": 2}
    rng = seeded.rng()
    with opened(place, drawn) as model:
        found = model.run("probe", **given)
    sizes = {name: float(np.linalg.norm(found[f"d-{name}"])) for name in drawn}
    assert min(sizes.values()) > 1e-4, sizes
    for _ in range(4):
        ways = {n: rng.standard_normal(w.shape).astype(np.float32) / max(sizes[n], 0.05) for n, w in drawn.items()}
        ends = []
        for step in (2e-4, -2e-4):
            with opened(place, {name: w + np.float32(step) * ways[name] for name, w in drawn.items()}) as model:
                ends.append(float(model.run("probe", **given)["loss"]))
        wanted = sum(float((found[f"d-{name}"] * way).sum()) for name, way in ways.items())
        assert abs((ends[0] - ends[1]) / 4e-4 - wanted) < 0.05, (sizes, wanted)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(row-positions)", "`row-positions` needs an entry with an input named positions, or (whole-texts"),
        ("(whole-texts [2] nil (fn [] x))", "`whole-texts` wants how many texts and how long they are, not"),
        ("(whole-texts [3 4] nil (fn [] (attention (linear x w) kv 2)))", "tensor<24x2x4xf32> cannot become 3x4x2x4"),
        (
            "(whole-texts [4 6] nil (fn [] (other (: dense<0> tensor<24xi32>) (: dense<1> tensor<24xi32>))))",
            "in `whole-texts` each row stands at its place in its text, and other positions are given",
        ),
    ],
)
def test_what_is_amiss_is_said(body: str, message: str, tmp_path: Path) -> None:
    text = f"""(require nn) (weights (w [24 8]) (t [24 8])) (state (kv [batch 2 2 8 4]))
(entry other [tokens positions] (attention (linear (rows t tokens) w) kv 2))
(entry e [(x [24 8])] {body})"""
    (tmp_path / "e.lisp").write_text(text)
    with pytest.raises(UserError) as caught:
        lispgpt.compile(tmp_path / "e.lisp")
    assert message in str(caught.value)
