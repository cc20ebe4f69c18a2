"""Programs that take parts of the batch by themselves, shared by devices: either what one device makes of it, where all
parts are treated alike, or one error at the slice; and random ones of both kinds, which are never something else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import together
from compiled_models import Weights

from lispgpt.base.errors import UserError
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model

ROWS, WIDTH = 16, 4
HEADER = """(require nn)
(require gradients)
(require-dialect scf tensor)
(weights (w [4 4]) (b [4]) (table [9 4]))
(defn total [x] (fold (fn [x dimension] (sum x)) x (shape x)))
(defn part-of [x start rows] (slice x (cons start (map (fn [n] 0) (rest (shape x)))) (cons rows (rest (shape x)))))
"""
SHAPES = {"w": (4, 4), "b": (4,), "table": (9, 4)}


def program(folder: Path, losses: list[str]) -> Path:
    """One entry, which gives each loss and its gradients by the matrices that it names."""
    results = [
        " ".join([f":loss{n} loss{n}", *(f":{name}{n} (first (gradients loss{n} [{name}]))" for name in named)])
        for n, loss in enumerate(losses)
        for named in [[name for name in ("w", "table") if re.search(rf"[ (]{name}[ )]", loss)]]
    ]
    bound = "\n".join(f"loss{number} {loss}" for number, loss in enumerate(losses))
    path = folder / f"parts{len(list(folder.iterdir()))}.lisp"
    entry = f"(entry f [(x [batch 4] f32) (ids [batch] i32)] (let [\n{bound}\n] {{{' '.join(results)}}}))"
    path.write_text(HEADER + entry)
    return path


ALIKE = [
    "(fold + 0.0 (map (fn [s] (total (square (linear (part-of x s 4) w b)))) [0 4 8 12]))",
    "(fold + 0.0 (map (fn [s] (total (exp (linear (rows table (part-of ids s 8)) w b)))) [0 8]))",
    "(+ (* 0.5 (total (tanh (linear (part-of x 0 8) w b)))) (* 0.5 (total (tanh (linear (part-of x 8 8) w b)))))",
    "(total (sin (fold (fn [y s] (insert (linear (part-of x s 8) w b) y [s 0] [8 4])) (* 0.0 x) [8 0])))",
    "(/ (fold + 0.0 (map (fn [s n] (total (sigmoid (linear (part-of x s n) w b)))) [0 8] [8 8])) 16.0)",
    "(let [y (linear x w b)] (fold + 0.0 (map (fn [s] (total (* (part-of y s 4) (part-of x s 4)))) [0 4 8 12])))",
    "(fold + 0.0 (map (fn [s] (recompute (fn [x] (total (gelu (linear x w b)))) (part-of x s 8))) [0 8]))",
    "(total (* (linear x w b) (tensor [r 16 c 4] (cast r f32))))",
]
UNLIKE = [
    "(total (square (linear (part-of x 0 8) w b)))",
    "(total (square (linear (part-of x 8 4) w b)))",
    "(+ (total (tanh (linear (part-of x 0 8) w b))) (* 2.0 (total (tanh (linear (part-of x 8 8) w b)))))",
    "(fold + 0.0 (map (fn [s] (square (total (linear (part-of x s 4) w b)))) [0 4 8 12]))",
    "(fold + 0.0 (map (fn [s] (total (linear (part-of x s 8) w b))) [0 0]))",
    "(fold + 0.0 (map (fn [s n] (/ (total (linear (part-of x s n) w b)) n)) [0 12] [12 4]))",
    "(+ (total (linear (part-of x 0 8) w b)) (total (linear (square (part-of x 8 8)) w b)))",
    "(total (* (linear (part-of x 0 8) w b) (part-of x 8 8)))",
    "(total (sin (insert (linear (part-of x 0 8) w b) (linear x w b) [0 0] [8 4])))",
    "(fold + 0.0 (map (fn [s] (total (* (linear (part-of x s 8) w b) (tensor [r 8 c 4] (cast r f32))))) [0 8]))",
    "(total (square (tensor [r 8 c 4] (* (at b c) (at x r (- 3 c))))))",
    "(total (scf.for {:result tensor<2x4xf32>} (: 0 index) (: 8 index) (: 1 index)"
    " (tensor.empty {:result tensor<2x4xf32>}) (region (block [(: r index) (: y tensor<2x4xf32>)]"
    " (scf.yield (insert (+ (slice y [1 0] [nil 4]) (slice x [r 0] [nil 4])) y [1 0] [nil 4]))))))",
    "(total (exp (contract [i j] (linear x w b) [i k] x [j k])))",
]


def differences(folder: Path, losses: list[str], devices: int) -> None:
    """Fails where several devices give something else than one; UserError where they refuse."""
    rng = seeded.rng()
    weights = Weights({n: rng.normal(0, 0.4, s).astype(np.float32) for n, s in SHAPES.items()}, frozenset())
    given = {"x": rng.normal(0, 1, (ROWS, WIDTH)).astype(np.float32), "ids": rng.integers(0, 9, ROWS).astype(np.int32)}
    path, own = program(folder, losses), ROWS // devices
    with Model(Request(path), weights, device="cpu", threads=1) as model:
        artifacts = model.compiled(["f"], {"batch": ROWS}, devices=devices)
        wanted = model.run("f", **given)

    def work(peers: Any) -> dict[str, np.ndarray]:
        rank = peers.place.rank
        with Model(Request(path), weights, device="cpu", threads=1, peers=peers) as model:
            model.add(artifacts)
            return model.session.run("f", **{n: a[rank * own : (rank + 1) * own] for n, a in given.items()})

    for found in together(devices, work):
        assert not isinstance(found, UserError), found.render()
        for name, array in wanted.items():
            loss = losses[int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))]
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4, err_msg=f"{name} of {loss}")


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_parts_that_are_treated_alike_may_be_those_of_each_device(tmp_path: Path, devices: int) -> None:
    differences(tmp_path, ALIKE, devices)


@pytest.mark.drawn
@pytest.mark.parametrize("loss", UNLIKE)
def test_parts_that_are_not_treated_alike_are_refused_at_their_form(tmp_path: Path, loss: str) -> None:
    zeros = Weights({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()})
    with pytest.raises(UserError) as caught, Model(Request(program(tmp_path, [loss])), zeros) as model:
        model.compiled(["f"], {"batch": ROWS}, devices=2)
    assert "cannot be divided among devices" in caught.value.message
    assert "parts0.lisp:" in caught.value.render() and "^" in caught.value.render()


def random_loss(rng: np.random.Generator) -> str:
    """A sum, over parts of the batch, of what a few steps make of each; often with something that is not alike."""

    def pick(*choices: str) -> str:
        return choices[int(rng.integers(len(choices)))]

    size = int(pick("4", "8", "12"))
    starts = list(range(0, ROWS, size))
    sizes = [min(size, ROWS - start) for start in starts]
    if rng.random() < 0.2:
        number = int(rng.integers(len(starts)))
        starts[number] = int(pick("0", "4", "8"))
        sizes[number] = min(sizes[number], ROWS - starts[number])
    source = pick("(part-of x s n)", "(rows table (part-of ids s n))", "(part-of (tanh (linear x w b)) s n)")
    steps = [
        "(linear {} w b)", "(square {})", "(softmax {})", "(tensor [r n c 4] (* (at {} r c) (at b c)))",
        "(* {} (part-of x s n))",
        "(tensor [r n c 4] (* (at {} r c) (cast r f32)))", "(* {} (part-of x (first starts) n))", "(- {} (/ s 8.0))",
    ]  # fmt: skip
    made = source
    for _ in range(int(rng.integers(1, 4))):
        made = pick(*steps[:5], *steps[:5], *steps).format(made)
    ending = pick(
        "(total {})", "(total {})", "(total {})", "(square (total {}))", "(/ (total {}) n)", "(* s (total {}))"
    )
    each = f"(map (fn [s n] {ending.format(made)}) starts [{' '.join(map(str, sizes))}])"
    if rng.random() < 0.3:
        put = f"(insert {made} y [s 0] [n 4])"
        pairs = " ".join(f"[{start} {rows}]" for start, rows in zip(starts, sizes, strict=True))
        each = f"[(total (sin (fold (fn [y place] (let [[s n] place] {put})) {pick('(* 0.0 x)', 'x')} [{pairs}])))]"
    return f"(let [starts [{' '.join(map(str, starts))}]] (fold + 0.0 {each}))"


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_random_parts_are_right_or_refused(tmp_path: Path, devices: int) -> None:
    rng, refused = seeded.rng(), 0
    for _ in range(40):
        loss = random_loss(rng)
        try:
            differences(tmp_path, [loss], devices)
        except UserError as error:
            refused += 1
            assert "cannot be divided among devices" in error.message, loss
    assert 5 < refused < 35
