"""Documents of a sequence that do not see each other: a loss over them is that of the documents one by one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import seeded

import lispgpt
from lispgpt.base.errors import UserError

SHAPES: dict[str, tuple[int, ...]] = {
    "wte": (11, 8), "wpe": (16, 8), "qkv-w": (24, 8), "sinks": (2,), "kv-a": (5, 8), "kv-n": (3,), "kv-b": (12, 3),
    "g": (8,), "b": (8,),
}  # fmt: skip
MODEL = f"""(require nn latent training)
(config vocab 11  context 16)
(weights {" ".join(f"({name} [{' '.join(map(str, shape))}])" for name, shape in SHAPES.items())})
(state (kv [batch 2 2 context 4]) (sinking [batch 2 2 context 4]) (latents [batch 1 1 context 5])
       (sloping [batch 2 2 context 4]))
(defn turn [x] ((turning-by (row-positions) (quot (dim x 2) 2) (rotary-frequency 9.0 2)) x))
(defn parts [x] (split-heads (linear x qkv-w) 4 2 2))
(def layers
  [(fn [x] (attention (linear x qkv-w) kv 2))
   (fn [x] (let [[q k v] (parts x)] (attend-with-sinks (turn q) (turn k) v sinking sinks (within 3))))
   (fn [x] (let [[q k v] (parts x)] (attend q k v sloping (lowered-by (alibi-slope 2)))))
   (fn [x] (latent-attention x x kv-a kv-n kv-b latents turn 2))])
(entry logits [tokens positions]
  (let [x (+ (rows wte tokens) (rows wpe positions))]
    (linear (last (fold (fn [x layer] (+ x (layer (layer-norm x g b)))) x layers)) wte)))
(training logits)
(entry probe [(tokens [batch length] i32) (targets [batch length] i32)]
  (let [loss (first (loss-in-texts logits tokens targets nil))
        found (gradients loss (all-weights))]
    {{:loss loss {" ".join(f":d-{name} (nth found {number})" for number, name in enumerate(SHAPES))}}}))
"""
BEGINS = 0
SIZES = {"batch": 2, "length": 8}


@pytest.mark.parametrize(
    ("target", "entry"),
    [
        ("cpu", "evaluate"),
        pytest.param("cpu", "probe", marks=pytest.mark.slow),
        pytest.param("emulated:gfx1151", "probe", marks=pytest.mark.slow),
    ],
)
def test_a_loss_over_documents_is_that_of_each_by_itself(target: str, entry: str, tmp_path: Path) -> None:
    """The gradients of all weights too; the second sequence begins within a document."""
    rng = seeded.rng()
    (tmp_path / "model.lisp").write_text(MODEL)
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}
    tokens = rng.integers(1, 11, (2, 13)).astype(np.int32)
    tokens[0, [0, 3, 6]], tokens[1, [6, 9]] = BEGINS, BEGINS

    def probed(settings: dict[str, int], texts: np.ndarray) -> dict[str, np.ndarray]:
        given = {"weights": weights, "settings": settings, "target": target}
        with lispgpt.load(tmp_path / "model.lisp", **given, cache=tmp_path / "cache") as model:
            return model.run(entry, tokens=texts[:, :-1], targets=texts[:, 1:])

    found = probed({"document-token": BEGINS}, tokens)
    short = probed(
        {}, np.stack([text[at : at + 4] for text, at in zip(tokens[[0, 0, 1, 1]], (0, 3, 6, 9), strict=True)])
    )
    long = probed({}, np.stack([tokens[0, 6:13], tokens[1, :7]]))
    for name in found.keys() - {"correct"}:
        wanted = (short[name].astype(np.float64) + long[name]) / 2
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=1e-4, err_msg=name)


RECURRENT = """(require scan nn training)
(config vocab 300 context 8)
(weights (wte [300 8]) (mix-w [8 1 3]) (mix-b [8]))
(state (before [batch 2 8]))
(entry logits [tokens positions] (linear (last (convolved (rows wte tokens) mix-w mix-b before)) wte))
(generate logits)
(training logits)
"""


def test_what_goes_on_from_row_to_row_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "model.lisp").write_text(RECURRENT)
    with pytest.raises(UserError) as caught:
        lispgpt.compile(tmp_path / "model.lisp", settings={"document-token": 0}, entries=["train"], shapes=[SIZES])
    assert "the state before goes on from one document of a text to the next" in str(caught.value)


def test_a_run_goes_by_the_token_ahead_of_documents(tmp_path: Path) -> None:
    data = tmp_path / "lines.jsonl"
    data.write_text(
        "".join(json.dumps({"text": f"My dear number {number}, it is late."}) + "\n" for number in range(60))
    )
    examples = Path(__file__).parents[2] / "examples"
    given = {"settings": {"layers": 1, "heads": 2, "width": 16}, "length": 16, "batch": 2, "steps": 2, "eval_every": 0}
    program = examples / "gpt2_train.lisp"
    lispgpt.train(program, run=tmp_path / "run", data=data, vocab_size=300, mask_documents=True, **given)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    tokenizer = json.loads((tmp_path / "run" / "tokenizer.json").read_text())
    named = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert settings["document-token"] == named["<|endoftext|>"]
    shards = tmp_path / "run" / "tokens"
    with pytest.raises(UserError, match="--mask-documents needs a tokenizer"):
        lispgpt.train(program, run=tmp_path / "other", data=shards, mask_documents=True, **given)
    with pytest.raises(UserError, match="--mask-documents is for texts"):
        lispgpt.train(program, run=tmp_path / "third", data={"x": np.zeros((3, 2))}, mask_documents=True, **given)
