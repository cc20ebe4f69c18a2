"""Entries that are compiled once for any size of a dimension up to one: equal to those of each size alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from recorded_research import PROGRAMS, drawn_weights, path_of

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import evaluate_request
from lispgpt.compiler.request import Request
from lispgpt.ir.mlir import new_context
from lispgpt.language.model.up_to import ladder

MOST = 7
PROGRAM = """(require nn arrays gradients)
(weights (w [6 5] {:init (normal 0.5)}) (b [6]) (seen [6]) (table [9 5] {:init (normal 0.5)}))
(defn net [x] (relu (linear x w b)))
(defn loss-of [x ids]
  (let [h (net (+ x (rows table ids)))
        m (mean h 0)]
    (+ (mean (sum (square (- h m))) 0) (* 0.1 (sum (variance (transpose h [1 0]) 1))))))
(entry ahead [(x [batch 5])] {:rows (net x) :along (cumsum (transpose (net x) [1 0]) 1) :each (* 2.0 (sum (net x)))
                              :largest (max-along (- (net x) 3.0) 0) :least (min-along (+ (net x) 3.0) 0)
                              :product (product-along (+ 1.0 (net x)) 0)})
(entry train [(x [batch 5]) (ids [batch] i32) (rate [] f32)]
  (let [l (loss-of x ids) [gw gb gt] (gradients l [w b table])]
    (update! seen (+ (* 0.9 seen) (* 0.1 (mean (net x) 0))))
    (update! w (- w (* rate gw))) (update! b (- b (* rate gb))) (update! table (- table (* rate gt)))
    {:loss l :rows (- (+ l (dim x 0)) l)}))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("up-to")
    (folder / "p.lisp").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module", params=["cpu", pytest.param("emulated:gfx1151", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, place: Path) -> Iterator[lispgpt.Model]:
    given: dict[str, Any] = {"up_to": {"batch": MOST}, "weights": {}, "target": request.param, "quick": True}
    with lispgpt.load(place / "p.lisp", cache=place / "cache", **given) as opened:
        yield opened


def net(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    return np.maximum(x @ w["w"].T + w["b"], 0)


def test_rows_are_those_of_a_run_of_their_own(model: lispgpt.Model) -> None:
    rng = seeded.rng()
    w = {name: array.astype(np.float64) for name, array in model.weights().items()}
    for count in (3, 1, MOST, 2, 5, 4, 6):
        x = rng.normal(size=(count, 5))
        found, h = model.run("ahead", x=x), net(x, w)
        wanted = {"rows": h, "along": h.T.cumsum(1), "each": 2 * h.sum(1), "largest": h.max(0) - 3}
        wanted |= {"least": h.min(0) + 3, "product": (1 + h).prod(0)}
        for name, array in wanted.items():
            assert found[name].shape == array.shape, name
            np.testing.assert_allclose(found[name], array, rtol=2e-3, atol=2e-3, err_msg=f"{name} of {count}")
    assert {entry.sizes["batch"] for entry in model.session.entries("ahead")} == {1, 4, MOST}


def slopes(x: np.ndarray, ids: np.ndarray, w: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """The loss and its gradients, f64."""
    u, n = x + w["table"][ids], len(x)
    h = net(u, w)
    loss = ((h - h.mean(0)) ** 2).sum() / n + 0.1 * h.var(0).sum()
    d = (2 / n + 0.2 / n) * (h - h.mean(0)) * (h > 0)
    table = np.zeros_like(w["table"])
    np.add.at(table, ids, d @ w["w"])
    return loss, {"w": d.T @ u, "b": d.sum(0), "table": table}


def test_gradients_and_updates_are_those_of_the_rows_that_are_there(model: lispgpt.Model) -> None:
    rng = seeded.rng()
    w = {name: array.astype(np.float64) for name, array in model.weights().items()}
    for count in (3, MOST, 1, 5, 2):
        x, ids = rng.normal(size=(count, 5)), rng.integers(0, 9, count)
        seen = 0.9 * w["seen"] + 0.1 * net(x, w).mean(0)
        loss, gradients = slopes(x, ids, w)
        found = model.run("train", x=x, ids=ids.astype(np.int32), rate=0.5)
        assert float(found["loss"]) == pytest.approx(loss, rel=2e-3, abs=1e-4) and round(float(found["rows"])) == count
        w |= {name: w[name] - 0.5 * gradient for name, gradient in gradients.items()} | {"seen": seen}
        for name, array in model.weights().items():
            np.testing.assert_allclose(array, w[name], rtol=2e-3, atol=2e-3, err_msg=f"{name} after {count}")


def test_more_rows_and_other_shapes_are_refused(model: lispgpt.Model) -> None:
    for x in (np.ones((MOST + 1, 5)), np.ones((2, 4)), np.ones(5)):
        with pytest.raises(UserError):
            model.run("ahead", x=x)
    with pytest.raises(UserError):
        model.run("train", x=np.ones((3, 5)), ids=np.zeros(2, np.int32), rate=0.5)
    with pytest.raises(UserError, match="train is compiled for a batch up to 7, and this is 8"):
        model.run("train", x=np.ones((8, 5)), ids=np.zeros(8, np.int32), rate=0.5)


def test_an_artifact_runs_all_sizes(place: Path) -> None:
    made = lispgpt.compile(place / "p.lisp", up_to={"batch": 5}, entries=["ahead"], quick=True)
    made.save(place / "p.lgpt")
    weights = {"w": np.eye(6, 5), "b": np.zeros(6)}
    given = weights | {"seen": np.zeros(6), "table": np.zeros((9, 5))}
    with lispgpt.load(place / "p.lgpt", weights=given, trust=True) as model:
        for count in (2, 5):
            x = np.arange(5.0 * count).reshape(count, 5)
            np.testing.assert_array_equal(model.run("ahead", x=x)["rows"], x @ weights["w"].T)
        with pytest.raises(UserError, match="is compiled for"):
            model.run("ahead", x=np.ones((6, 5)))


def test_rows_of_any_length_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "p.lisp").write_text(
        "(require nn arrays) (entry e [(x [batch 2] f32)] {:rows (sort (transpose x [1 0]))})"
    )
    with lispgpt.load(tmp_path / "p.lisp", cache=None, up_to={"batch": 5}, quick=True) as model:
        for count in (1, 3, 5):
            x = seeded.rng().standard_normal((count, 2)).astype(np.float32)
            np.testing.assert_array_equal(model.run("e", x=x)["rows"], np.sort(x.T, 1))


def test_a_loop_goes_back_the_same_way_for_all_sizes(tmp_path: Path) -> None:
    """Though at 5 rows a product that waits until after the loop keeps less of a round than it would at 7."""
    (tmp_path / "p.lisp").write_text(
        "(require nn arrays gradients) (entry e [(x [batch 3] f32) (w [3 3] f32)]"
        " (let [step (fn [h k] [(tanh (matmul-transposed h w)) nil])"
        "       [h _] (scan step x 3) [gw] (gradients (sum (sum-along (square h) 0)) [w])] {:gw gw}))"
    )
    with new_context():
        evaluate_request(Request(tmp_path / "p.lisp", up_to={"batch": 7}))


MISTAKES = {
    "sorting": ("(entry e [(x [batch 2])] (order-by-network (transpose x [1 0])))", "one (size )?at a time"),
    "joining": ("(entry e [(x [batch 2])] (join [x x] 0))", "depends on what batch is"),
    "states": ("(state (s [batch 2])) (entry e [(x [batch 2])] (update! s x) x)", "s has a part for each batch"),
    "choices": ("(entry e [(x [batch 2])] (if (= (mod (dim x 0) 2) 0) (* x 2.0) x))", "depends on what batch is"),
    "a row by its number": (
        "(entry e [(x [batch 2])] (slice x [(- (dim x 0) 1) 0] [1 2]))",
        "depends on what batch is",
    ),
    "places between": (
        "(entry e [(x [3 batch])] (tensor [i (* 3 (dim x 1))] (+ (cast i f32) (at (reshape x [(* 3 (dim x 1))]) i))))",
        "reckons with the numbers of rows",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_have_any_size_is_an_error_at_its_form(name: str, tmp_path: Path) -> None:
    text, said = MISTAKES[name]
    (tmp_path / "p.lisp").write_text("(require nn arrays)" + text)
    with pytest.raises(UserError, match=said) as caught:
        lispgpt.compile(tmp_path / "p.lisp", up_to={"batch": 6}, quick=True)
    assert "p.lisp:1:" in caught.value.render()


def test_what_is_asked_for_wrongly_is_said(place: Path) -> None:
    for up_to in ({"batch": 0}, {"batch": 1.5}, {"batch": 1 << 20}, 64, {1: 2}):
        with pytest.raises(UserError, match="up_to is sizes by dimensions' names"):
            lispgpt.load(place / "p.lisp", up_to=up_to)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"--up-to bach=4: .*did you mean `batch`"), new_context():
        evaluate_request(Request(place / "p.lisp", up_to={"bach": 4}))
    with pytest.raises(UserError, match="for one device"), new_context():
        evaluate_request(Request(place / "p.lisp", up_to={"batch": 4}, devices=2))


def test_a_run_does_at_most_about_twice_the_work_of_its_rows() -> None:
    for most in (1, 2, 3, 4, 5, 64, 100, 1000):
        sizes = ladder(most)
        assert sizes == sorted(set(sizes)) and sizes[0] == 1 and sizes[-1] == most
        for count in range(3, most + 1):
            assert min(size for size in sizes if size >= count) < 2 * count


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_research_has_the_results_of_its_own_size(name: str, target: str = "cpu") -> None:
    """Gradients of three rows, compiled for up to four and for three."""
    rng, found = seeded.rng(), []
    given = PROGRAMS[name][0].given(name)
    for key, array in given.items():
        axis = 1 if key == "x" and array.ndim == 3 else 0
        given[key] = np.take(array, rng.integers(0, array.shape[axis], 3), axis) if array.ndim else array
        if array.dtype.kind == "f":
            given[key] = (given[key] + 0.3 * rng.normal(size=given[key].shape)).astype(np.float32)
    for up_to in ({"batch": 4}, {}):
        how: dict[str, Any] = {"settings": PROGRAMS[name][0].settings, "quick": True, "target": target, "cache": None}
        with lispgpt.load(path_of(name), weights={}, up_to=up_to, **how) as model:
            shapes = {key: tuple(facts["shape"]) for key, facts in model.artifact.weights.items()}
            model.set(drawn_weights(name, shapes))
            loss = float(model.run("accumulate", **given, step=1, seed=0, accumulate=1.0)["loss"])
            held = [key for key in model.session.held("state") if key.endswith(".gradient")]
            found.append((loss, {key: model.session.read(key) for key in held}))
    (loss, gradients), (alone, wanted) = found
    assert loss == pytest.approx(alone, rel=1e-5)
    for key, array in wanted.items():
        np.testing.assert_allclose(
            gradients[key], array, rtol=1e-4, atol=1e-4 * np.abs(array).max() + 1e-7, err_msg=key
        )
