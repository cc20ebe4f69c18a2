"""States other than key-value caches: destination-passing and outline-kernels keep them in place, in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, open_poisoned, random_weights, step

import lispgpt

RECURRENT = """
(require nn)
(config vocab 13 context 9 width 5 layers 3)
(weights (table [vocab width] f32) (per layers (u [width width] f32) (v [width width] f32)))
(state (hidden [layers width] f32))
(defn cell [x l]
  (let [old (read-state (hidden l))
        new (elementwise (fn [a] (tanh a)) (+ (linear x (u l)) (linear old (v l))))]
    (write-state (hidden l) new)
    new))
(entry logits [tokens positions]
  (matmul-transposed (fold cell (last (rows table tokens)) (range layers)) table))
"""


@pytest.mark.parametrize("batch", [1, 3])
def test_a_recurrent_model_keeps_its_state(batch: int, tmp_path: Path) -> None:
    (tmp_path / "rnn.lisp").write_text(RECURRENT)
    artifact = compile_model(tmp_path / "rnn.lisp", batch=batch, width=7, layers=2, vocab=11, context=5)
    weights = random_weights(artifact)
    w = weights.exact()
    hidden = np.zeros((2, batch, 7))
    with open_poisoned(artifact, weights) as session:
        for position in range(4):
            tokens = seeded.rng().integers(0, 11, (batch, 1))
            x = w["table"][tokens[:, 0]]
            for layer in range(2):
                x = hidden[layer] = np.tanh(x @ w["u"][layer].T + hidden[layer] @ w["v"][layer].T)
            found = step(session, tokens, np.full_like(tokens, position))["logits"]
            np.testing.assert_allclose(found, x @ w["table"].T, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_states_are_swapped_and_shifted_whole(dtype: str, tmp_path: Path) -> None:
    text = f"""
    (require nn)
    (config vocab 13 context 1 width 5)
    (weights (table [vocab width] f32))
    (state (a [width] {dtype}) (b [width] {dtype}))
    (entry logits [tokens positions]
      (let [old-a (cast (read-state a) f32) old-b (cast (read-state b) f32)]
        (write-state a (cast (last (rows table tokens)) {dtype}))
        (write-state b (cast old-a {dtype}))
        old-b))
    """
    (tmp_path / "shift.lisp").write_text(text)
    artifact = compile_model(tmp_path / "shift.lisp")
    weights = random_weights(artifact)
    tokens = seeded.rng().integers(0, 13, 6)
    with open_poisoned(artifact, weights) as session:
        found = [step(session, [[t]], [[0]])["logits"][0] for t in tokens]
    wanted = [np.zeros(5), np.zeros(5), *weights.exact()["table"][tokens[:-2]]]
    np.testing.assert_allclose(found, wanted, atol=0.02 if dtype == "bf16" else 0)


def test_a_part_is_replaced_before_the_next_part_is_read(tmp_path: Path) -> None:
    text = """
    (require nn)
    (config vocab 13 context 1 width 5)
    (weights (table [vocab width] f32))
    (state (a [2 width] f32))
    (entry logits [tokens positions]
      (do
        (write-state (a 0) (last (rows table tokens)))
        (write-state (a 1) (+ (read-state (a 0)) (read-state (a 1))))
        (+ (read-state (a 1)) 0.0)))
    """
    (tmp_path / "sum.lisp").write_text(text)
    artifact = compile_model(tmp_path / "sum.lisp")
    weights = random_weights(artifact)
    tokens = seeded.rng().integers(0, 13, 5)
    with open_poisoned(artifact, weights) as session:
        found = [step(session, [[t]], [[0]])["logits"][0] for t in tokens]
        np.testing.assert_allclose(session.read("a")[0, 0], weights.values["table"][tokens[-1]])
    np.testing.assert_allclose(found, np.cumsum(weights.exact()["table"][tokens], 0), atol=1e-5)


def test_an_old_value_may_be_read_late(tmp_path: Path) -> None:
    text = """
    (require nn)
    (config vocab 13 context 1 width 5)
    (weights (table [vocab width] f32) (w [width width] f32))
    (state (a [2 width] f32))
    (entry logits [tokens positions]
      (let [old (read-state (a 0))]
        (write-state (a 0) (last (rows table tokens)))
        (linear old (linear (linear (read-state (a 0)) w) w))))
    """
    (tmp_path / "late.lisp").write_text(text)
    artifact = compile_model(tmp_path / "late.lisp")
    weights = random_weights(artifact)
    w = weights.exact()
    with open_poisoned(artifact, weights) as session:
        step(session, [[3]], [[0]])
        found = step(session, [[5]], [[0]])["logits"]
    np.testing.assert_allclose(found, w["table"][[3]] @ (w["table"][[5]] @ w["w"].T @ w["w"].T).T, atol=1e-5)


def test_columns_of_a_state_are_replaced_where_they_are(tmp_path: Path) -> None:
    """A part whose elements lie apart in the state."""
    text = """
    (require nn)
    (config context 1)
    (weights (w [6 1 3]))
    (state (s [6 5]))
    (entry logits [tokens positions] (write-state s (insert w (read-state s) [0 0 2] [6 1 3])))
    """
    (tmp_path / "columns.lisp").write_text(text)
    artifact = compile_model(tmp_path / "columns.lisp")
    weights = random_weights(artifact)
    with open_poisoned(artifact, weights) as session:
        found = step(session, [[0]], [[0]])["logits"]
        wanted = np.concatenate([np.zeros((6, 1, 2)), weights.exact()["w"]], 2)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(session.read("s"), wanted)


@pytest.mark.parametrize("seed", [1, 2])
def test_columns_of_a_state_move_while_others_are_replaced(seed: int, tmp_path: Path) -> None:
    """Columns move to the front, and those they come from are overwritten."""
    text = """
    (require nn)
    (config context 1)
    (weights (w [4 1 16]))
    (state (s [4 16]))
    (entry logits [tokens positions]
      (write-state s (insert (slice w [0 0 3] [4 1 10])
                             (insert (slice (read-state s) [0 0 9] [4 1 3]) (read-state s) [0 0 0] [4 1 3])
                             [0 0 6] [4 1 10])))
    """
    (tmp_path / "columns.lisp").write_text(text)
    artifact = compile_model(tmp_path / "columns.lisp")
    weights = random_weights(artifact, seed=seed)
    w, s = weights.exact()["w"], np.zeros((4, 1, 16))
    with open_poisoned(artifact, weights) as session:
        for _ in range(2):
            wanted = np.concatenate([s[..., 9:12], s[..., 3:6], w[..., 3:13]], 2)
            found = step(session, [[0]], [[0]])["logits"]
            np.testing.assert_array_equal(found, wanted, err_msg=f"seed {seed}")
            np.testing.assert_array_equal(session.read("s"), wanted, err_msg=f"seed {seed}")
            s = wanted


OLD_AND_NEW = """
(state (a [4 3]) (b [4 3]) (s [4 4]))
(entry swap [(x [4 3] f32)]
  (let [p (read-state a) q (read-state b)]
    (write-state a q)
    (write-state b (+ p x))
    {:was p :sum (+ p q)}))
(entry shift [(y [4] f32)]
  (let [old (read-state s)
        rest (slice old [1 0] [3 4])
        new (insert y (insert rest old [0 0] [3 4]) [3 0] [nil 4])]
    (write-state s new)
    {:both (contract [i j] rest [i k] new [j k]) :rest rest :old old :new (+ 0.0 new)}))
"""


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "emulated:gfx1151"])
def test_parts_of_old_states_are_read_and_given_after_they_change(target: str, tmp_path: Path) -> None:
    """Also where a state's part moves over itself, and where two states change places."""
    if target != "cpu":
        pytest.importorskip("tinygrad")
    (tmp_path / "states.lisp").write_text(OLD_AND_NEW)
    a, b, s = np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 4))
    with lispgpt.load(tmp_path / "states.lisp", target=target) as model:
        for _ in range(3):
            x, y = seeded.rng().normal(size=(4, 3)), seeded.rng().normal(size=4)
            found = model.run("swap", x=x)
            wanted = {"was": a, "sum": a + b}
            a, b = b, a + x
            new = np.concatenate([s[1:], y[None]])
            found |= model.run("shift", y=y)
            wanted |= {"both": s[1:] @ new.T, "rest": s[1:], "old": s, "new": new}
            s = new
            for name, values in wanted.items():
                np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)
