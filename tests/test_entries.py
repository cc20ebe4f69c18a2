"""Typed entries: inputs of several kinds, named results, updates, states with a batch or without, sizes to compile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_model, random_weights

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

CLASSIFIER = """(require nn)
(config classes 5  width 12)
(weights (w [classes width]) (b [classes]))
(state (steps [1] i32))
(entry classify [(x [batch width] f32)] {:shapes [{batch 4} {batch 1}]}
  (linear x w b))
(entry evaluate [(x [batch width]) (labels [batch] i32)] {:shapes [{batch 3}]}
  (let [y (linear x w b)
        chosen (tensor [i batch] (log (at (softmax y) i (at labels i))))]
    {:loss (elementwise (fn [v] (/ (- v) batch)) (sum chosen)) :logits y}))
(entry train [(x [batch width]) (labels [batch] i32) (rate [] f32)] {:shapes [{batch 3}]}
  (let [p (softmax (linear x w b))
        d (tensor [i batch c classes] (/ (- (at p i c) (select (= (cast c i32) (at labels i)) 1.0 0.0)) batch))
        dw (contract [c k] d [i c] x [i k])
        db (reduce + 0.0 (tensor [c classes i batch] (at d i c)))]
    (update! w (tensor [c classes k width] (- (at w c k) (* (at rate) (at dw c k)))))
    (update! b (tensor [c classes] (- (at b c) (* (at rate) (at db c)))))
    (update! steps (+ (read-state steps) 1))
    {:after (linear x w b) :steps (+ (read-state steps) 0)}))
"""


def made(text: str, folder: Path, **options: Any) -> Artifact:
    path = folder / "program.lisp"
    path.write_text(text)
    return compile_request(Request(path, **options), Observer())[0]


def opened(artifact: Artifact, weights: Weights | None = None) -> Session:
    """A session that holds every launch to what it says it reads and writes."""
    return Session(artifact, CheckedCpuDevice(2), weights or random_weights(artifact))  # type: ignore[arg-type]


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def fresh() -> tuple[np.random.Generator, str]:
    seed = int(seeded.rng().integers(1 << 32))
    return np.random.default_rng(seed), f"seed {seed}"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return made(CLASSIFIER, tmp_path_factory.mktemp("classifier"))


def test_a_classifier_on_f32_rows(classifier: Artifact) -> None:
    rng, seed = fresh()
    weights = random_weights(classifier)
    exact = weights.exact()
    with opened(classifier, weights) as session:
        for batch in (4, 1, 4):
            x = rng.normal(size=(batch, 12))
            found = session.run("classify", x=x)
            assert list(found) == ["classify"]
            np.testing.assert_allclose(found["classify"], x @ exact["w"].T + exact["b"], atol=1e-5, err_msg=seed)


def test_named_results_and_a_scalar(classifier: Artifact) -> None:
    rng, seed = fresh()
    weights = random_weights(classifier)
    exact = weights.exact()
    x, labels = rng.normal(size=(3, 12)), rng.integers(0, 5, 3)
    with opened(classifier, weights) as session:
        found = session.run("evaluate", labels=labels, x=x)
        in_order = session.run("evaluate", x, labels)
    logits = x @ exact["w"].T + exact["b"]
    assert list(found) == ["loss", "logits"] and found["loss"].shape == ()
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5, err_msg=seed)
    np.testing.assert_allclose(
        found["loss"], -np.log(softmax(logits)[range(3), labels]).mean(), rtol=1e-5, err_msg=seed
    )
    assert all((found[name] == in_order[name]).all() for name in found)


def test_steps_of_gradient_descent_written_by_hand(classifier: Artifact) -> None:
    rng, seed = fresh()
    weights = random_weights(classifier)
    w, b = (weights.exact()[name] for name in "wb")
    with opened(classifier, weights) as session:
        for step in range(1, 5):
            x, labels, rate = rng.normal(size=(3, 12)), rng.integers(0, 5, 3), 0.3 / step
            found = session.run("train", x=x, labels=labels, rate=rate)
            d = (softmax(x @ w.T + b) - np.eye(5)[labels]) / 3
            w, b = w - rate * d.T @ x, b - rate * d.sum(0)
            np.testing.assert_allclose(found["after"], x @ w.T + b, atol=1e-4, err_msg=f"{seed}: read after update!")
            assert found["steps"] == [step]
        np.testing.assert_allclose(session.read("w"), w, atol=1e-4, err_msg=seed)
        classified = session.run("classify", x=x[:1])["classify"]
        np.testing.assert_allclose(classified, x[:1] @ w.T + b, atol=1e-4, err_msg="other entries see the update")
        session.forget()
        assert session.read("steps") == [0]
    assert (weights.values["w"] != w.astype(np.float32)).any(), "the checkpoint's own bytes stay as they are"


def test_inputs_that_do_not_fit_are_refused(classifier: Artifact) -> None:
    x, labels = np.zeros((3, 12)), np.zeros(3, np.int64)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"x": np.zeros((2, 12)), "labels": labels}, r"compiled for x \[3 12\], labels \[3\], and not x \[2 12\]"),
        ({"x": x}, "takes x, labels, and not x"),
        ({"x": x, "labels": labels, "z": 1}, "takes x, labels, and not x, labels, z"),
        ({"x": x, "labels": labels + 0.5}, "labels is i32, and not all"),
        ({"x": x, "labels": labels + (1 << 40)}, "labels is i32, and not all"),
        ({"x": x.astype("U"), "labels": labels}, "x is f32"),
    ]
    with opened(classifier) as session:
        for inputs, words in cases:
            with pytest.raises(UserError, match=words):
                session.run("evaluate", **inputs)
        with pytest.raises(UserError, match="no entry 'nothing'; there are classify, evaluate, train"):
            session.run("nothing")


def test_entries_without_inputs_and_without_free_dimensions(tmp_path: Path) -> None:
    artifact = made(
        """(weights (w [3]))
        (state (ticks [1] i32))
        (entry tick [] (update! ticks (+ (read-state ticks) 1)))
        (entry scaled [(by [] f32)] (tensor [i 3] (* (at w i) (at by))))""",
        tmp_path,
    )
    weights = random_weights(artifact)
    with opened(artifact, weights) as session:
        assert [session.run("tick")["tick"].tolist() for _ in range(3)] == [[1], [2], [3]]
        assert [array.tolist() for array in session.repeat(session.entry("tick"), "tick", 4)] == [[4], [5], [6], [7]]
        np.testing.assert_allclose(session.run("scaled", by=2.5)["scaled"], weights.values["w"] * 2.5, rtol=1e-6)


def test_bf16_inputs_and_layers_of_weights_that_change(tmp_path: Path) -> None:
    artifact = made(
        """(config layers 3)
        (weights (per layers (w [4] bf16)))
        (entry shift [(x [n] bf16)] {:shapes [{n 4}]}
          (update! (w 1) (cast (+ (cast x f32) (cast (w 1) f32)) bf16))
          {:sum (+ (cast (w 1) f32) (cast (w 2) f32)) :same x})""",
        tmp_path,
    )
    weights, x = random_weights(artifact), np.array([1.5, -2.0, 1e-3, 300.0])
    before = weights.values["w"].astype(np.float64)
    with opened(artifact, weights) as session:
        found = session.run("shift", x=x)
        after = session.read("w").astype(np.uint32) << 16
    wanted = before.copy()
    wanted[1] += x
    np.testing.assert_allclose(after.view(np.float32), wanted, rtol=2**-7)
    assert (after.view(np.float32)[[0, 2]] == weights.values["w"][[0, 2]]).all()
    np.testing.assert_allclose(found["sum"], after.view(np.float32)[1] + before[2], rtol=1e-6)
    np.testing.assert_allclose(found["same"], x, rtol=2**-8)


def test_values_that_take_each_others_places(tmp_path: Path) -> None:
    artifact = made(
        """(state (a [4]) (b [4]))
        (entry exchange [(x [4])]
          (let [old (read-state a)]
            (update! a (read-state b))
            (update! b (+ old x))
            {:a (read-state a) :old (+ old 0.0)}))""",
        tmp_path,
    )
    a = b = np.zeros(4)
    rng, seed = fresh()
    with opened(artifact) as session:
        for _ in range(4):
            x = rng.normal(size=4)
            found = session.run("exchange", x=x)
            np.testing.assert_allclose(found["old"], a, atol=1e-6, err_msg=seed)
            a, b = b, a + x
            np.testing.assert_allclose(found["a"], a, atol=1e-6, err_msg=seed)
            np.testing.assert_allclose(session.read("b"), b, atol=1e-6, err_msg=seed)


def test_a_state_has_a_batch_where_it_says_so(tmp_path: Path) -> None:
    artifact = made(
        """(state (sums [2 batch 3]) (calls [1] i32))
        (entry add [(x [batch 3])] {:shapes [{batch 2} {batch 5}]}
          (update! (sums 1) (+ (read-state (sums 1)) x))
          (update! calls (+ (read-state calls) 1))
          {:total (read-state (sums 1)) :calls (+ (read-state calls) 0)})""",
        tmp_path,
    )
    rng, seed = fresh()
    totals = {2: np.zeros((2, 3)), 5: np.zeros((5, 3))}
    with opened(artifact) as session:
        for call, batch in enumerate([2, 5, 2, 5, 5], 1):
            x = rng.normal(size=(batch, 3))
            totals[batch] = totals[batch] + x
            found = session.run("add", x=x)
            np.testing.assert_allclose(found["total"], totals[batch], atol=1e-5, err_msg=seed)
            assert found["calls"] == [call], "what has no batch is one for all"


def test_one_entry_calls_another_on_other_values(tmp_path: Path) -> None:
    artifact = made(
        """(require nn)
        (weights (w [4 4]))
        (entry through [(x [rows 4])] {:shapes [{rows 2}]} (linear x w))
        (entry twice [(x [n 4]) (y [(* 2 n) 4])] {:shapes [{n 3}]}
          {:x (through (through x)) :y (through y)})""",
        tmp_path,
    )
    weights = random_weights(artifact)
    w = weights.exact()["w"]
    x, y = seeded.rng().normal(size=(3, 4)), seeded.rng().normal(size=(6, 4))
    with opened(artifact, weights) as session:
        found = session.run("twice", x=x, y=y)
    np.testing.assert_allclose(found["x"], x @ w.T @ w.T, atol=1e-5)
    np.testing.assert_allclose(found["y"], y @ w.T, atol=1e-5)


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
    artifact = made(RECURRENT, tmp_path)
    assert {entry.repeatable for entry in artifact.plan.entries} == {False}
    rng, seed = fresh()
    weights = random_weights(artifact)
    exact = weights.exact()
    prompt = [int(t) for t in rng.integers(0, 11, length)]
    with opened(artifact, weights) as session:
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
    masked, plain = made(MASKED, tmp_path), made(RECURRENT, tmp_path)
    assert {entry.repeatable for entry in masked.plan.entries} == {True}
    weights = random_weights(plain)
    prompt = [int(t) for t in seeded.rng().integers(0, 11, length)]
    found = []
    for artifact in (masked, plain):
        with opened(artifact, weights) as session:
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
        artifact = made(program, tmp_path, overrides=sizes, batch=3)
        weights = Weights({n: np.random.default_rng(3).normal(0, 0.4, f["shape"]) for n, f in artifact.weights.items()})
        with opened(artifact, weights) as session:
            tokens = list(Generator(session, "logits").generate([1, 2, 3, 4, 5, 6, 7], 6))
            for position in range(3):
                rows = [[1 + position], [4], [7 - position]]
                batched = session.run("decode-greedy", rows, [[position]] * 3)["logits"]
            found.append((tokens, batched))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


PRELUDE = "(require nn) (weights (w [4 3]))\n"
MISTAKES = {
    "no sizes": ("(entry e [(x [batch 3])] (linear x w))", {}, r"2:1: .*for which batch to compile e: give \{:shapes"),
    "a size too few": (
        "(entry e [(x [n m])] {:shapes [{n 2}]} (+ x 1.0))",
        {},
        "2:1: error: a shape of e does not say its m",
    ),
    "an unknown dimension": (
        "(entry e [(x [batch 3])] {:shapes [{bach 2}]} (linear x w))",
        {},
        "2:37: error: e has no free dimension `bach`; did you mean `batch`",
    ),
    "a size that is none": (
        "(entry e [(x [batch 3])] {:shapes [{batch 0}]} (linear x w))",
        {},
        "2:43: error: a size is a whole number above 0",
    ),
    "an option of no entry": (
        "(entry e [(x [batch 3])] {:shapes [{batch 2}]} (linear x w))",
        {"sizes": [{"lenght": 3}]},
        "--shape lenght=3: no entry has a free dimension of this name; there are batch",
    ),
    "inputs that contradict each other": (
        "(entry e [(x [n 3]) (y [n 3])] (+ x y))",
        {"entries": ["e"], "inputs": {"e": {"x": (2, 3), "y": (4, 3)}}},
        r"y of e is \[n 3\] with `n` = 2, and 4 is given there",
    ),
    "an input of another rank": (
        "(entry e [(x [n 3])] (linear x w))",
        {"entries": ["e"], "inputs": {"e": {"x": (2, 3, 1)}}},
        r"x of e is \[n 3\], and \[2, 3, 1\] is given",
    ),
    "an entry that is none": ("(entry e [(x [2 3])] (linear x w))", {"entries": ["f"]}, "the program has no entry 'f'"),
    "an update of another type": (
        "(entry e [(x [2 3])] (update! w x))",
        {},
        r"2:22: error: `update!` gives tensor<2x3xf32> to what is tensor<4x3xf32>",
    ),
    "an update of nothing": ("(entry e [(x [2 3])] (update! y x))", {}, "2:31: error: `update!` wants a weight"),
    "a state of an unknown batch": (
        "(state (s [batch 3])) (entry e [(x [2 3])] (update! s x))",
        {},
        "the state s has a dimension batch, which no input of e has",
    ),
    "two inputs of one name": ("(entry e [(x [2 3]) (x [2 3])] x)", {}, "2:12: error: two inputs of e are called x"),
    "an input of no shape": ("(entry e [(x 3)] x)", {}, r"2:11: error: `\(x 3\)` is no input"),
    "an unknown type": ("(entry e [(x [2 3] f23)] x)", {}, "f23"),
    "a result that is none": ("(entry e [(x [2 3])] {:y 3})", {}, "y of `e` gives the number 3"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_at_the_form(name: str, tmp_path: Path) -> None:
    text, options, words = MISTAKES[name]
    with pytest.raises(UserError) as caught:
        made(PRELUDE + text, tmp_path, **options)
    told = caught.value.render()
    assert re.search(words, told), told


def test_sizes_come_from_the_form_from_options_or_from_inputs(tmp_path: Path) -> None:
    text = (
        PRELUDE + "(entry e [(x [n 3]) (y [m (+ m 1)])] {:shapes [{n 2 m 1} {n 3 m 5}]} {:x (linear x w) :y (+ y 1.0)})"
    )
    assert [e.sizes for e in made(text, tmp_path).plan.entries] == [{"n": 2, "m": 1}, {"n": 3, "m": 5}]
    given = made(text, tmp_path, sizes=[{"n": 7, "m": 2}])
    assert [e.sizes for e in given.plan.entries] == [{"n": 7, "m": 2}]
    told = made(text, tmp_path, entries=["e"], inputs={"e": {"x": (9, 3), "y": (4, 5)}})
    assert [e.sizes for e in told.plan.entries] == [{"n": 9, "m": 4}]


@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx942"])
def test_typed_entries_compile_for_gpus(target: str, tmp_path: Path) -> None:
    artifact = made(CLASSIFIER, tmp_path, target=target)
    with Session(artifact, NullDevice(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        found = session.run("train", np.zeros((3, 12)), np.zeros(3, np.int32), 0.5)
    assert found["after"].shape == (3, 5) and found["steps"].shape == (1,)


def test_what_generates_is_entries_like_any_other() -> None:
    example = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
    sizes = {"layers": 1, "heads": 2, "width": 8, "vocab": 13, "padded-vocab": 16, "context": 20}
    artifact = compile_request(Request(example, "cuda:sm_90", overrides=sizes, batch=3), Observer())[0]
    found = {(e.name, tuple(e.sizes.values())): e for e in artifact.plan.entries}
    assert {("decode-greedy", (3, 1)), ("decode-drawn", (1, 1)), ("prefill", (1, 16))} <= set(found)
    for (name, _), entry in found.items():
        assert [entry.leaves(i) for i in list(entry.inputs)[:2]] == [name != "prefill"] * 2
        assert list(entry.results) == ["logits", "next"]
    drawn = found["decode-drawn", (1, 1)]
    assert list(drawn.inputs) == ["tokens", "positions", "sampling"] and not drawn.leaves("sampling")


def test_the_cpu_example_still_compiles_for_the_shapes_of_its_target() -> None:
    example = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
    artifact = compile_model(example, layers=1, heads=2, width=8, vocab=13, padded_vocab=16, context=20)
    assert [e.label for e in artifact.plan.entries] == [
        "prefill (batch 1, positions 16)",
        "decode-greedy (batch 1, positions 1)",
    ]
