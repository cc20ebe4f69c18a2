"""The guide's model of two layers with attention says the same in training, of a prompt and token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import seeded
from guide_pages import TEXTS
from safetensors.numpy import save_file
from test_guide import blocks

import lispgpt

SIZES = {"vocab": 70, "context": 24, "layers": 2, "heads": 2, "width": 16, "hidden": 20}
LENGTH = 19
Arrays = dict[str, np.ndarray]


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def mixed(x: np.ndarray, w: Arrays, layer: int) -> np.ndarray:
    n, heads = len(x), SIZES["heads"]
    q, k, v = (part.reshape(n, heads, -1) for part in np.split(x @ w["qkv"][layer].T, 3, axis=1))
    scores = np.einsum("shd,thd->hst", q, k) / np.sqrt(q.shape[2])
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    return np.einsum("hst,thd->shd", softmax(scores), v).reshape(n, -1) @ w["out"][layer].T


def logits_of(tokens: np.ndarray, weights: Arrays) -> np.ndarray:
    """The model of the page, in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = w["table"][tokens] + w["places"][: len(tokens)]
    for layer in range(SIZES["layers"]):
        x = x + mixed(rms_norm(x, w["norm-1"][layer]), w, layer)
        h = rms_norm(x, w["norm-2"][layer])
        gate = h @ w["gate"][layer].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"][layer].T)) @ w["down"][layer].T
    return rms_norm(x, w["norm"]) @ w["table"].T


@pytest.fixture(scope="module")
def weights() -> Arrays:
    rng, width, hidden = seeded.rng(), SIZES["width"], SIZES["hidden"]
    shapes = {"table": (SIZES["vocab"], width), "places": (SIZES["context"], width), "norm": (width,)}
    layer = {"norm-1": (width,), "qkv": (3 * width, width), "out": (width, width), "norm-2": (width,)}
    layer |= {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
    shapes |= {name: (SIZES["layers"], *shape) for name, shape in layer.items()}
    return {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def model(weights: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("own")
    for block in blocks(TEXTS["attention"], "lisp"):
        (folder / block.split()[1]).write_text(block)
    save_file(weights, folder / "w.safetensors")
    with lispgpt.load(folder / "small_train.lisp", folder / "w.safetensors", settings=SIZES, cache=False) as model:
        yield model


def test_logits_of_all_positions_and_of_one_after_the_other(model: Any, weights: Arrays) -> None:
    tokens = seeded.rng().integers(0, SIZES["vocab"], LENGTH).astype(np.int32)
    wanted = logits_of(tokens, weights)
    assert np.abs(model.logits(tokens.tolist()) - wanted).max() < 2e-5
    for place, token in enumerate(tokens):
        found = model.run("logits", tokens=[[token]], positions=[[place]])["logits"]
        assert np.abs(found[0] - wanted[place]).max() < 2e-5, place


def test_the_loss_of_training_is_that_of_the_same_logits(model: Any, weights: Arrays) -> None:
    texts = seeded.rng().integers(0, SIZES["vocab"], (3, LENGTH + 1)).astype(np.int32)
    scores = np.concatenate([logits_of(text[:-1], weights) for text in texts])
    targets = texts[:, 1:].reshape(-1)
    found = model.run("evaluate", tokens=texts[:, :-1], targets=texts[:, 1:])
    loss = -np.log(softmax(scores)[np.arange(len(targets)), targets]).mean()
    assert abs(float(found["loss"]) - loss) < 1e-5
    assert int(found["correct"]) == int((scores.argmax(1) == targets).sum())
