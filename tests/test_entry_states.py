"""Entries with states: where their batch is, recurrences behind a padded prompt, and what generates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_model, compile_text, open_checked, random_weights

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.generate import Generator

pytestmark = pytest.mark.drawn


def test_a_state_has_a_batch_where_it_says_so(tmp_path: Path) -> None:
    artifact = compile_text(
        """(state (sums [2 batch 3]) (calls [1] i32))
        (entry add [(x [batch 3])] {:shapes [{batch 2} {batch 5}]}
          (update! (sums 1) (+ (read-state (sums 1)) x))
          (update! calls (+ (read-state calls) 1))
          {:total (read-state (sums 1)) :calls (+ (read-state calls) 0)})""",
        tmp_path,
    )
    rng, seed = seeded.named_rng()
    totals = {2: np.zeros((2, 3)), 5: np.zeros((5, 3))}
    with open_checked(artifact) as session:
        for call, batch in enumerate([2, 5, 2, 5, 5], 1):
            x = rng.normal(size=(batch, 3))
            totals[batch] = totals[batch] + x
            found = session.run("add", x=x)
            np.testing.assert_allclose(found["total"], totals[batch], atol=1e-5, err_msg=seed)
            assert found["calls"] == [call], "what has no batch is one for all"


IN_LOOPS = """(require nn arrays gradients)
(state (sums [3]) (seen [2 6 3]) (calls [1] i32))
(defn step [h [k x]]
  (do (update! sums (+ (* 0.5 (read-state sums)) x))
      (write-state (seen 1) (insert (* h x) (read-state (seen 1)) [(cast (at k) index) 0] [nil 3]))
      (update! calls (+ (read-state calls) 1))
      [(tanh (+ h (read-state sums))) (sum-along (read-state (seen 1)) 0)]))
(entry run [(xs [6 3] f32) (h [3] f32)]
  (let [numbers (tensor [k 6] (cast k i32))
        [last all] (scan step h [numbers xs] OPTIONS)
        [g] (gradients (sum (* last last)) [h])]
    {:last last :all all :sums (read-state sums) :g g}))
(entry twice [(xs [2 3 3] f32)]
  (let [[_ all] (scan (fn [_ rows] [0 (nth (scan (fn [_ x] (do (update! sums (+ (* 0.5 (read-state sums)) x))
                                                           [0 (read-state sums)])) 0 rows) 1)]) 0 xs)]
    {:all all}))
(entry until [(xs [6 3] f32)]
  (let [[_ _ steps] (scan (fn [n x] (do (update! sums (+ (read-state sums) x)) [(+ n 1) nil])) 0 xs
                          {:while (fn [n] (< n 4))})]
    {:steps steps :sums (read-state sums)}))
"""


@pytest.mark.parametrize("options", ["{}", "{:chunk 2}", "{:reverse true}"])
def test_what_steps_of_a_scan_write_the_next_ones_read(options: str, tmp_path: Path) -> None:
    """In all of a call's steps, and on in the next call."""
    artifact, rng = compile_text(IN_LOOPS.replace("OPTIONS", options), tmp_path, quick=True), seeded.rng()
    sums, seen = np.zeros(3), np.zeros((6, 3))

    def steps(xs: np.ndarray, h: np.ndarray, sums: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, ...]:
        kept = np.zeros((6, 3))
        for k in reversed(range(6)) if "reverse" in options else range(6):
            sums = 0.5 * sums + xs[k]
            seen = seen.copy()
            seen[k] = h * xs[k]
            h, kept[k] = np.tanh(h + sums), seen.sum(0)
        return h, kept, sums, seen

    with open_checked(artifact) as session:
        for _ in range(2):
            xs, h, along = rng.normal(size=(6, 3)), rng.normal(size=3), rng.normal(size=3)
            found = session.run("run", xs=xs, h=h)
            ends = [(steps(xs, h + sign * 1e-6 * along, sums, seen)[0] ** 2).sum() for sign in (1, -1)]
            last, kept, sums, seen = steps(xs, h, sums, seen)
            for name, right in (("last", last), ("all", kept), ("sums", sums)):
                np.testing.assert_allclose(found[name], right, atol=1e-5, err_msg=name)
            assert (found["g"] * along).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-4)
        rows = rng.normal(size=(2, 3, 3))
        found = session.run("twice", xs=rows)["all"]
        for row, right in zip(rows.reshape(6, 3), found.reshape(6, 3), strict=True):
            sums = 0.5 * sums + row
            np.testing.assert_allclose(right, sums, atol=1e-5)
        found = session.run("until", xs=xs)
        assert found["steps"] == 4
        np.testing.assert_allclose(found["sums"], sums + xs[:4].sum(0), atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "(over [k 0 3 1] [y x] (do (update! s y) (+ y 1.0)))",
        "(nth (scan (fn [y _] [(if (> (at y 0) 0.0) (do (update! s y) y) y) nil]) x 3) 0)",
        "(nth (scan (fn [y _] (do (update! w y) [y nil])) x 3) 0)",
    ],
)
def test_what_lasts_changes_in_steps_of_a_scan_alone(body: str, tmp_path: Path) -> None:
    text = f"(require nn kernels)\n(state (s [2]))\n(weights (w [2]))\n(entry e [(x [2] f32)] {body})"
    with pytest.raises(UserError, match=r"(?s)inside a loop or a branch; carry .*`scan` carries the states"):
        compile_text(text, tmp_path)


RECURRENT = """(require nn)
(config vocab 11  context 40  width 6)
(weights (table [vocab width]) (back [width width]) (out [vocab width]))
(state (hidden [batch width]))
(defn step [h x] (tanh (+ x (linear h back))))
(entry logits [tokens positions]
  (let [x (reshape (rows table tokens) [(batch) (/ (dim tokens 0) (batch)) width])
        at-time (fn [t] (slice x [0 t 0] [(batch) nil width]))
        h (fold (fn [h t] (step h (at-time t))) (read-state hidden) (range (dim x 1)))]
    (update! hidden h)
    (linear h out)))
(generate logits)
"""


@pytest.mark.parametrize("length", [1, 3, 7, 16, 19, 33])
def test_padding_leaves_a_recurrent_state_alone(length: int, tmp_path: Path) -> None:
    artifact = compile_text(RECURRENT, tmp_path)
    assert {entry.repeatable for entry in artifact.plan.entries} == {False}
    rng, seed = seeded.named_rng()
    weights = random_weights(artifact)
    exact = weights.exact()
    prompt = [int(t) for t in rng.integers(0, 11, length)]
    with open_checked(artifact, weights) as session:
        for _ in range(2):
            found = list(Generator(session, "logits").generate(prompt, 6))
            h, wanted = np.zeros(6), list(prompt)
            for position in range(length + 5):
                h = np.tanh(exact["table"][wanted[position]] + exact["back"] @ h)
                if position >= length - 1:
                    logits = np.sort(exact["out"] @ h)
                    assert logits[-1] - logits[-2] > 1e-5, f"{seed}: a tie"
                    wanted.append(int(np.argmax(exact["out"] @ h)))
            assert found == wanted[length:], seed


MASKED = RECURRENT.replace(
    "(defn step [h x] (tanh (+ x (linear h back))))",
    """(defn step [h x t]
      (let [next (tanh (+ x (linear h back)))
            positions (/ (dim (row-positions) 0) (batch))]
        (tensor [b (batch) c width]
          (select (row-real (+ (* b positions) t)) (at next b c) (at h b c)))))""",
).replace("(step h (at-time t))", "(step h (at-time t) t)")


@pytest.mark.parametrize("length", [3, 7, 16, 19])
def test_an_entry_may_mind_padding_itself(length: int, tmp_path: Path) -> None:
    masked, plain = compile_text(MASKED, tmp_path), compile_text(RECURRENT, tmp_path)
    assert {entry.repeatable for entry in masked.plan.entries} == {True}
    weights = random_weights(plain)
    prompt = [int(t) for t in seeded.rng().integers(0, 11, length)]
    found = []
    for artifact in (masked, plain):
        with open_checked(artifact, weights) as session:
            generator = Generator(session, "logits")
            generator.prefill(prompt)
            found.append(session.read("hidden"))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize("order", ["layers 2 heads", "layers batch 2 heads", "layers 2 batch heads"])
def test_a_cache_may_have_its_batch_in_several_places(order: str, tmp_path: Path) -> None:
    example = (Path(__file__).resolve().parent.parent / "examples" / "gpt2.lisp").read_text()
    assert "[layers batch 2 heads" in example
    text = example.replace("[layers batch 2 heads", f"[{order}") + "(generate logits)"
    sizes = {"layers": 2, "heads": 2, "width": 8, "vocab": 13, "padded-vocab": 16, "context": 40, "weight-type": "f32"}
    found = []
    for program in (text, example + "(generate logits)"):
        artifact = compile_text(program, tmp_path, overrides=sizes, batch=3)
        weights = Weights({n: np.random.default_rng(3).normal(0, 0.4, f["shape"]) for n, f in artifact.weights.items()})
        with open_checked(artifact, weights) as session:
            tokens = list(Generator(session, "logits").generate([1, 2, 3, 4, 5, 6, 7], 6))
            for position in range(3):
                rows = [[1 + position], [4], [7 - position]]
                batched = session.run("decode-greedy", rows, [[position]] * 3)["logits"]
            found.append((tokens, batched))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


def test_what_generates_is_entries_like_any_other() -> None:
    example = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
    sizes = {"layers": 1, "heads": 2, "width": 8, "vocab": 13, "padded-vocab": 16, "context": 20}
    artifact = compile_request(Request(example, "cuda:sm_90", overrides=sizes, batch=3), Observer())[0]
    found = {(e.name, tuple(e.sizes.values())): e for e in artifact.plan.entries}
    assert {("decode-greedy", (3, 1)), ("decode-drawn", (1, 1)), ("prefill", (1, 16))} <= set(found)
    for (name, _), entry in found.items():
        assert [entry.leaves(i) for i in list(entry.inputs)[:2]] == [name != "prefill"] * 2
        assert list(entry.results) == ["logits", "next", *["report"] * (name != "decode-drawn")]
    drawn = found["decode-drawn", (1, 1)]
    assert list(drawn.inputs) == ["tokens", "positions", "sampling"] and not drawn.leaves("sampling")


def test_the_cpu_example_still_compiles_for_the_shapes_of_its_target() -> None:
    example = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
    artifact = compile_model(example, layers=1, heads=2, width=8, vocab=13, padded_vocab=16, context=20)
    assert [e.label for e in artifact.plan.entries] == [
        "prefill (batch 1, positions 16)",
        "decode-greedy (batch 1, positions 1)",
    ]


CALLED = """(require nn)
(config vocab 11  context 16  width 8)
(weights (table [vocab width]) (qkv [(* 3 width) width]))
(state (kv [1 2 2 context 4]))
(entry logits [tokens positions]
  (let [x (+ (rows table tokens) (tensor [r (dim tokens 0) c width] (* 0.1 (cast (at (row-positions) r) f32))))]
    (matmul-transposed (+ x (attention (linear x qkv) (kv 0) 2)) table)))
(entry two-steps [tokens positions]
  (let [one (logits tokens positions)
        two (logits (best-token one vocab) (+ positions 1))]
    {:two two :stood (cast (row-positions) f32)}))
"""


def test_an_entry_that_is_called_stands_at_the_positions_that_it_is_given(tmp_path: Path) -> None:
    """Decode steps that are unrolled in one entry give what as many runs of the step give."""
    artifact = compile_text(CALLED, tmp_path, sizes=[{"batch": 1, "positions": 1}])
    rng, seed = seeded.named_rng()
    weights, first, steps = random_weights(artifact), int(rng.integers(0, 11)), [np.zeros(0)]
    with open_checked(artifact, weights) as session:
        token = first
        for position in range(6):
            steps.append(session.run("logits", [[token]], [[position]])["logits"])
            token = int(steps[-1].argmax())
    with open_checked(artifact, weights) as session:
        token = first
        for position in (0, 2, 4):
            found = session.run("two-steps", [[token]], [[position]])
            np.testing.assert_allclose(found["two"], steps[position + 2], atol=1e-4, err_msg=seed)
            assert found["stood"] == [position], "the caller's own rows stand where they stood"
            token = int(found["two"].argmax())
