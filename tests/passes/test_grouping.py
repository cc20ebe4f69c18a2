"""What becomes a kernel and what does not: values that nothing reads, tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, open_poisoned, random_weights, shapes_of, step

from lispgpt.pipelines.pipeline_file import pipeline_path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Arrays = dict[str, np.ndarray]

PRELUDE = """
(require nn)
(require-dialect arith linalg)
(config vocab 7 context 5 width 3)
(weights (table [vocab width] f32) (w [width width] f32) (b [width] f32))
(state (memory [width width] f32))
"""


PROGRAMS: dict[str, tuple[str, Callable[[np.ndarray, Arrays], np.ndarray]]] = {
    "one row of weights": (
        "(let [p (softmax (- b 1.0))] (* x (elementwise (fn [v] (* v v)) p)))",
        lambda x, w: x * (np.exp(w["b"]) / np.exp(w["b"]).sum()) ** 2,
    ),
    "values that nothing reads": (
        "(let [y (linear (softmax (+ x x)) w) z (linear (+ y 1.0) w)] (* x 2.0))",
        lambda x, w: 2 * x,
    ),
    "a weight with a row replaced, and the weight": (
        "(let [other (insert (* b 2.0) w [1 0] [nil width])] (linear (linear x other) w))",
        lambda x, w: x @ np.concatenate([w["w"][:1], 2 * w["b"][None], w["w"][2:]]).T @ w["w"].T,
    ),
    "a product with a row replaced, and the product": (
        "(let [y (linear x w)] (+ (linear (insert b y [0 0] [nil width]) w) y))",
        lambda x, w: np.concatenate([w["b"][None], (x @ w["w"].T)[1:]]) @ w["w"].T + x @ w["w"].T,
    ),
    "a state with a row replaced that is not written": (
        "(linear x (insert b (slice (read-state memory) [0 0 0] [width nil width]) [0 0] [nil width]))",
        lambda x, w: x @ np.concatenate([w["b"][None], np.zeros_like(w["w"])[1:]]).T,
    ),
    "a number from a row of a state, for all": (
        "(+ x (slice (read-state memory) [(- width 1) 0 0] [1 1 nil]))",
        lambda x, w: x,
    ),
    "a number of a product, for all": (
        "(let [y (linear x w)] (* x (at y 0 1)))",
        lambda x, w: x * (x @ w["w"].T)[0, 1],
    ),
    "rows from the other end of a lone row": (
        "(let [y (last x)] (tensor [i 1 j width] (- (at y (- 0 i) j) (* 2.0 (at y i j)))))",
        lambda x, w: -x[-1:],
    ),
}


MAPS = '["affine_map<(n, o, k) -> (n, k)>" "affine_map<(n, o, k) -> (o, k)>" "affine_map<(n, o, k) -> (n, o)>"]'

PROGRAMS |= {
    "a contraction with its own start": (
        f"(linalg.contract {{:indexing_maps {MAPS} :result (type x)}} x w x)",
        lambda x, w: x @ w["w"].T + x,
    ),
    "sums with their own starts": (
        "(let [start (contract [n] x [n k] b [k])]"
        " (linalg.reduce {:dimensions array<i64: 1> :result (type start)} x start"
        "  (region (block [(: a f32) (: so-far f32)] (linalg.yield (arith.addf a so-far))))))",
        lambda x, w: x.sum(1) + x @ w["b"],
    ),
}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


WEIGHING: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "with the other head's scores": (
        "(tensor [b 1 s n h 2 t n] (+ (at scores b s h t) (at scores b s (- 1 h) t)))",
        lambda scores: scores + scores[:, ::-1],
    ),
    "with scores the other way round": (
        "(tensor [b 1 s n h 2 t n] (+ (at scores b s h t) (at scores b t h s)))",
        lambda scores: scores + scores.transpose(2, 1, 0),
    ),
    "below their maximum": ("(- scores (reshape (maximum scores) [1 n 2 1]))", lambda scores: scores),
    "twice": ("(* scores (* 0.5 (+ scores 1.0)))", lambda scores: scores * 0.5 * (scores + 1)),
}


@pytest.mark.parametrize("name", WEIGHING)
def test_scores_are_weighed(name: str, tmp_path: Path) -> None:
    text, reference = WEIGHING[name]
    (tmp_path / "weighing.lisp").write_text(f"""
    (require nn)
    (config vocab 7 context 20 width 6)
    (weights (table [vocab width] f32) (w [width width] f32))
    (entry logits [tokens positions]
      (let [x (rows table tokens)
            n (dim tokens 0)
            q (reshape x [1 n 2 (/ width 2)])
            k (reshape (linear x w) [1 n 2 (/ width 2)])
            scores (contract [b s h t] q [b s h d] k [b t h d])
            weighed {text}]
        (reshape (contract [b s h d] (softmax weighed) [b s h t] k [b t h d]) [n width])))""")
    artifact = compile_model(tmp_path / "weighing.lisp", width=10)
    weights = random_weights(artifact)
    exact = weights.exact()
    with open_poisoned(artifact, weights) as session:
        for _, positions in shapes_of(session):
            tokens = seeded.rng().integers(0, 7, positions)
            found = step(session, tokens, np.arange(positions))["logits"]
            x = exact["table"][tokens]
            q, k = (a.reshape(positions, 2, 5) for a in (x, x @ exact["w"].T))
            shares = softmax(reference(np.einsum("shd,thd->sht", q, k)))
            np.testing.assert_allclose(found, np.einsum("sht,thd->shd", shares, k).reshape(-1, 10), atol=1e-4)


def test_tiles_larger_than_blocks_of_outputs(tmp_path: Path) -> None:
    text = pipeline_path("cpu").read_text()
    mine = tmp_path / "mine.lisp"
    mine.write_text(text.replace(":outputs 48 :rows 16 :rows-tile 4", ":outputs 4 :rows 5 :rows-tile 4"))
    assert mine.read_text() != text
    (tmp_path / "model.lisp").write_text(
        f"{PRELUDE}(entry logits [tokens positions] (linear (rows table tokens) table))"
    )
    artifact = compile_model(tmp_path / "model.lisp", batch=3, width=5, pipeline=mine)
    weights = random_weights(artifact)
    table = weights.exact()["table"]
    with open_poisoned(artifact, weights) as session:
        for batch, positions in shapes_of(session):
            tokens = seeded.rng().integers(0, 7, (batch, positions))
            found = step(session, tokens, np.zeros_like(tokens))["logits"]
            np.testing.assert_allclose(found, table[tokens.reshape(-1)] @ table.T, atol=1e-5)


def test_attention_without_its_unit_dimensions(tmp_path: Path) -> None:
    mine = tmp_path / "mine.lisp"
    mine.write_text(
        pipeline_path("cpu")
        .read_text()
        .replace("(pass cse)", "(pass canonicalize) (pass linalg-fold-unit-extent-dims) (pass cse)", 1)
    )
    (tmp_path / "attention.lisp").write_text("""
    (require nn)
    (config vocab 7 context 5 width 3)
    (weights (table [vocab width] f32) (w [(* 3 width) width] f32))
    (state (kv [1 2 width context 1] f32))
    (entry logits [tokens positions] (attention (linear (rows table tokens) w) (kv 0) width))""")
    found = []
    weights = None
    for pipeline in (None, mine):
        artifact = compile_model(tmp_path / "attention.lisp", pipeline=pipeline)
        weights = weights or random_weights(artifact)
        with open_poisoned(artifact, weights) as session:
            found.append([step(session, [[token]], [[at]])["logits"] for at, token in enumerate([3, 1, 6])])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_agrees_with_numpy(name: str, tmp_path: Path) -> None:
    text, reference = PROGRAMS[name]
    (tmp_path / "odd.lisp").write_text(
        f"{PRELUDE}(entry logits [tokens positions] (let [x (rows table tokens)] {text}))"
    )
    rng = seeded.rng()
    artifact = compile_model(tmp_path / "odd.lisp", width=int(rng.choice([2, 3, 17])), vocab=11)
    weights = random_weights(artifact)
    exact = weights.exact()
    with open_poisoned(artifact, weights) as session:
        for batch, positions in shapes_of(session) * 2:
            tokens = rng.integers(0, 11, (batch, positions))
            found = step(session, tokens, np.zeros_like(tokens))["logits"]
            wanted = reference(exact["table"][tokens.reshape(-1)], exact)
            np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)


def test_keys_are_turned_where_they_are_rounded(tmp_path: Path) -> None:
    """A cache of 16 bits has the kernels of one of 32: what is rounded on its way there is no kernel of its own."""
    sizes = {"layers": 1, "heads": 2, "kv-heads": 1, "width": 64, "hidden": 64, "vocab": 40, "context": 16}
    made = [
        compile_model(EXAMPLES / "llama_tiny.lisp", entries=("decode-greedy",), cache_type=cache, **sizes)
        for cache in ("f32", "bf16", "f16")
    ]
    names = [[launch.kernel for entry in one.plan.entries for launch in entry.launches] for one in made]
    assert names[0] == names[1] == names[2]
    assert sum(name.startswith("rows") for name in names[0]) == 4
