"""`print` and `assert` in entries, and the form that the first NaN comes from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, open_checked, random_weights
from safetensors.numpy import save_file

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.execution.model import Model
from lispgpt.runtime.plan.artifact import Artifact, load_artifact
from lispgpt.runtime.session import Session

TARGETS = ["cpu", "emulated:gfx1151"]

REPORTS = """(require gradients)
(entry y [(x [2 3] f32) (s [1] f32)]
  (let [h (print "h is" (+ x 1.0) "here")
        f (fn [h] (scan (fn [s r] (do (print s "of" r) (assert (< s 50.0) "too large:" s) [(+ s r) (* s r)]))
                        s (reshape (sum h) [2 1])))
        [last all] (f h)
        [g] (gradients (* last (sum (reshape all [2]))) [h])]
    (assert (> h -9.0))
    {:all all :g g}))
(entry plain [(x [2 3] f32)] (+ x 1.0))"""

NANS = """(require nn)
(config vocab 4 context 4)
(weights (w [3]))
(defn centred [z] (- z (log z)))
(entry y [(x [2 3] f32)]
  (let [h (* w (softmax x))
        z (centred (- x 1.0))
        v (exp (+ h 1.0))]
    (+ v (sqrt z))))"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reports")
    (made / "said.lisp").write_text(REPORTS)
    return made


@pytest.fixture(params=TARGETS)
def model(request: Any, folder: Path) -> Any:
    with lispgpt.load(folder / "said.lisp", target=request.param, cache=folder / "cache") as found:
        yield found


def test_prints_show_what_a_run_has_and_change_nothing(model: Any, capfd: Any) -> None:
    x = seeded.rng().integers(-2, 3, (2, 3)).astype(np.float32)
    h = x.astype(np.float64) + 1
    sums, states = h.sum(-1), [1.0, 1 + h[0].sum()]
    last = states[1] + sums[1]
    found = model.run("y", x=x, s=[1])
    said = capfd.readouterr().err.splitlines()
    np.testing.assert_allclose(found["all"][:, 0], np.array(states) * sums, rtol=1e-6)
    total = (np.array(states) * sums).sum()
    by_sums = np.array([total + last * (1 + sums[1]), total + last * states[1]])
    np.testing.assert_allclose(found["g"], np.repeat(by_sums[:, None], 3, 1), rtol=1e-5)
    assert said[0].startswith("said.lisp:3:11: h is [2 3] [[") and said[1].endswith("here")
    numbers = said[0].partition(" [[")[2] + said[1].partition("here")[0]
    np.testing.assert_allclose([float(word) for word in numbers.replace("]", " ").replace("[", " ").split()], h.ravel())
    rest = " ".join(said[2:])
    assert rest.startswith("said.lisp:4:39: [2 1] [[") and " of [2 1] [[" in rest
    shown = rest.partition("] [[")[2].replace("of [2 1]", "")
    np.testing.assert_allclose(np.array(shown.replace("[", " ").replace("]", " ").split(), float), [*states, *sums])


def test_an_assertion_ends_a_run_at_its_form(model: Any) -> None:
    with pytest.raises(UserError) as error:
        model.run("y", x=np.full((2, 3), [[99.0], [1.0]]), s=[1])
    lines = error.value.render().splitlines()
    assert "said.lisp:4:56: error: too large: [2 1] [[  1.]" in lines[0]
    assert lines[1].endswith("[301.]] (this does not hold for 1 of 2, first for element [0] of step 1)")
    assert lines[3].strip() == "^" * len('(assert (< s 50.0) "too large:" s)')
    for bad in (-11.0, np.nan):
        with pytest.raises(
            UserError, match=r"said.lisp:8:5: error: \(this does not hold for 1 of 6, first for element \[1, 2\]"
        ):
            model.run("y", x=[[0, 0, 0], [0, 0, bad]], s=[1])


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compile_text(REPORTS, tmp_path_factory.mktemp("artifact"))


def test_artifacts_keep_what_their_runs_say(artifact: Artifact, tmp_path: Path, capfd: Any) -> None:
    artifact.save(tmp_path / "said.lgpt")
    read = load_artifact(tmp_path / "said.lgpt")
    assert read.plan == artifact.plan and b'"version": 4' in read.stored
    with open_checked(read) as session:
        session.run("plain", x=np.full((2, 3), -11.0))
        assert capfd.readouterr().err == ""
        session.run("y", x=np.zeros((2, 3)), s=[1])
        with pytest.raises(UserError, match="too large"):
            session.run("y", x=np.full((2, 3), 99.0), s=[1])
    assert "program.lisp:4:39: [2 1]" in capfd.readouterr().err


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_nan_comes_from_a_form(tmp_path: Path, target: str) -> None:
    path, weights = tmp_path / "nan.lisp", tmp_path / "w.safetensors"
    path.write_text(NANS)
    save_file({"w": np.ones(3, np.float32)}, weights)
    with lispgpt.load(path, weights, target=target, cache=None, first_nan=True) as model:
        x = 1.5 + seeded.rng().random((2, 3))
        wanted = model.run("y", x=x)["y"]
        assert np.isfinite(wanted).all()
        x[1, 0] = 0.25
        with pytest.raises(UserError) as error:
            model.run("y", x=x)
        assert "nan.lisp:4:24: error: the first NaN comes from this form: number 3 of 6" in error.value.render()
        assert error.value.render().splitlines()[2].strip() == "^" * len("(log z)")
        x[1, 0] = np.nan
        with pytest.raises(
            UserError, match=r"nan.lisp:6:16: error: the input x has a NaN where this reads it \(number 3"
        ):
            model.run("y", x=x)


def test_an_artifact_that_is_older_cannot_say_where_a_nan_comes_from(tmp_path: Path) -> None:
    artifact = compile_text("(entry y [(x [2] f32)] (log x))", tmp_path)
    for facts in artifact.kernels.values():
        facts.pop("elements")
    with open_checked(artifact) as session:
        session.first_nan = True
        with pytest.raises(UserError, match="compile it again"):
            session.run("y", x=[1.0, -1.0])


def test_texts_say_what_their_steps_print(tmp_path: Path, capfd: Any) -> None:
    """Where a device would go on by itself, it is asked after each step."""
    artifact = compile_text(
        """(require nn)
        (config vocab 16 context 8 width 32)
        (weights (table [vocab width]))
        (entry logits [tokens positions]
          (do (print "at" positions) (matmul-transposed (last (rows table tokens)) table)))
        (generate logits {:max-new-tokens 3})""",
        tmp_path,
    )
    with Model(artifact, random_weights(artifact)) as model:  # type: ignore[arg-type]
        model.generate_batch([[3, 5]], greedy=True)
    said = [line.partition(": ")[2] for line in capfd.readouterr().err.splitlines()]
    assert said[-2:] == ["at [1] [2]", "at [1] [3]"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("(if (< (at x 0) 0.0) (print x) x)", "stands in an entry or in a step of `scan`"),
        ("(over [i 0 2 1] [y x] (do (assert (< y 1.0)) y))", "stands in an entry or in a step of `scan`"),
        ("(tensor [i 2] (print (at x i)))", "stands in an entry or in a step of `scan`"),
        ("(do (assert x) x)", "`assert` wants a condition, an i1 or a tensor of them"),
        (
            '(do (assert (= (dim x 0) 3) "three, and not" (dim x 0)) x)',
            "this does not hold three, and not the number 2",
        ),
    ],
)
def test_what_cannot_be_said_is_an_error_at_its_form(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(UserError, match=r"program.lisp:1:\d+: error: .*" + said):
        compile_text(f"(require kernels) (require-dialect scf) (entry y [(x [2] f32)] {body})", tmp_path)


def test_plans_with_reports_of_nothing_are_refused(artifact: Artifact) -> None:
    entry = artifact.plan.entries[0]
    changes = ({"values": ("nowhere",)}, {"kind": "shout"}, {"text": "{} {} {}"}, {"text": "{0.x}"}, {"loops": 9})
    for change in changes:
        wrong = dataclasses.replace(entry, reports=(dataclasses.replace(entry.reports[0], **change),))
        plan = dataclasses.replace(artifact.plan, entries=(wrong,))
        with pytest.raises(UserError, match="the artifact's plan is damaged: a report"):
            plan.validate(artifact.kernels)


def test_a_session_can_be_told_where_to_say_it(artifact: Artifact) -> None:
    with open_checked(artifact) as session:
        assert isinstance(session, Session)
        heard: list[str] = []
        session.say = heard.append
        session.run("y", x=np.zeros((2, 3)), s=[1])
    assert [line.partition(": ")[0] for line in heard] == ["program.lisp:3:11", "program.lisp:4:39"]
