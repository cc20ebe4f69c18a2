"""Entries that devices share, run by threads: what one device makes of the same batch, and no less exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import together
from compiled_models import Weights

from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.plan import flow
from lispgpt.runtime.plan.steps import Collective
from lispgpt.runtime.training.wholes import Wholes

PROGRAM = """; Two layers, dropped and summed by the library: head-loss in parts of 8 rows on each device.
(require nn)
(require training)

(config vocab 20  context 8  width 8)

(weights (table [vocab width]) (w [width width]) (b [width]) (odd [3]))

(defn hidden [tokens random]
  (let [[batch length] (shape tokens)
        x (rows table (reshape tokens [(* batch length)]))]
    (dropout (relu (linear x w b)) 0.3 random 1)))

(defn loss-of [tokens targets random]
  (let [[batch length] (shape tokens)
        n (* batch length)
        x (hidden tokens random)
        found (head-loss x table (reshape targets [n]) vocab)
        kept (/ (sum (sum (square x))) (* n width))]
    [(+ (first found) (+ (* 0.1 kept) (sum (square odd)))) (nth found 1)]))

(training loss-of)
"""
NUMBERS = {"seed": 5, "lr": 0.05, "warmup": 0.0, "steps": 9.0, "min-lr": 0.01, "clip": 0.02, "weight-decay": 0.1}
NUMBERS |= {"beta1": 0.9, "beta2": 0.95}
SIZES = {"batch": 4, "length": 8}
WEIGHTS = {"table": (20, 8), "w": (8, 8), "b": (8,), "odd": (3,)}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("divided") / "divided.lisp"
    path.write_text(PROGRAM)
    return path


def steps_taken(model: Model, batches: list[tuple[np.ndarray, np.ndarray]], rows: slice) -> list[dict[str, Any]]:
    """What the steps of `train` say, and how well the model does after each."""
    said = []
    for number, (tokens, targets) in enumerate(batches, 1):
        own = {"tokens": tokens[rows], "targets": targets[rows]}
        found = model.session.run("train", **own, step=number, **NUMBERS)
        said.append(found | {f"after-{k}": v for k, v in model.session.run("evaluate", **own).items()})
    return said


def steps_of_two(model: Model, batches: list[tuple[np.ndarray, np.ndarray]], rows: slice) -> list[dict[str, Any]]:
    """The same of steps of two micro-batches each, between which what has been added up goes through the host."""
    size = 4 // len(range(4)[rows])
    wholes = Wholes(model.session, rows.start * size // 4, size)
    said: list[dict[str, Any]] = []
    numbers = {name: value for name, value in NUMBERS.items() if name != "seed"}
    for number, (tokens, targets) in enumerate(batches):
        own = {"tokens": tokens[rows], "targets": targets[rows]}
        given = {"step": 1 + number // 2, "seed": 5 + number, "accumulate": 2.0}
        found = model.session.run("accumulate", **own, **given)
        if number % 2:
            found |= model.session.run("apply", step=1 + number // 2, **numbers)
        gradient = wholes.read("w.gradient")
        wholes.write("w.gradient", gradient)
        found["added-up"] = np.square(gradient).sum()
        said.append(found)
    return said


def run(
    program: Path,
    weights: Weights,
    batches: list[tuple[np.ndarray, np.ndarray]],
    devices: int,
    shares: bool = False,
    entries: tuple[str, ...] = ("train", "evaluate"),
    take: Any = steps_taken,
) -> list[tuple[list[dict[str, float]], dict[str, np.ndarray]]]:
    """For each device what the steps say, and the weights afterwards."""
    with Model(Request(program, overrides={"head-rows": 8}), weights) as model:
        artifacts = model.compiled(entries, SIZES, devices=devices, shares_states=shares)

    for artifact in artifacts:
        for entry in artifact.plan.entries:
            flow.check(entry, {buffer.name: buffer for buffer in artifact.plan.buffers})
            assert entry.name not in ("train", "apply") or (devices > 1) == (len(entry.launches) < len(entry.steps))

    def work(peers: Peers | None) -> tuple[list[dict[str, float]], dict[str, np.ndarray]]:
        rank = 0 if peers is None else peers.place.rank
        given = {"device": "cpu", "threads": 1, "peers": peers}
        with Model(Request(program, overrides={"head-rows": 8}), weights, **given) as model:
            model.add(artifacts)
            said = take(model, batches, slice(rank * 4 // devices, (rank + 1) * 4 // devices))
            weights_now = {name: model.session.read(name) for name in WEIGHTS}
            return [{name: float(value) for name, value in found.items()} for found in said], weights_now

    return [work(None)] if devices == 1 else together(devices, work)


def test_devices_make_of_their_parts_what_one_makes_of_all(program: Path) -> None:
    """Sums over sequences, over targets that are ignored on one device more than on the other, over sizes that the
    program reckons with, rows that are dropped by their numbers, clipping, and states in parts."""
    rng = seeded.rng()
    weights = Weights({n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in WEIGHTS.items()}, frozenset())
    batches = batches_of(rng, [[(2, 0), (2, 1)], [(0, 0), (2, 0), (3, 0)], []])
    ((alone, expected),) = run(program, weights, batches, 1)
    assert all(record["grad-norm"] > NUMBERS["clip"] for record in alone)
    for shares in (False, True):
        shared: list[Any] = run(program, weights, batches, 2, shares)
        for said, found in shared:
            for record, wanted in zip(said, alone, strict=True):
                assert record == pytest.approx(wanted, rel=1e-5, abs=1e-6), f"shares {shares}"
            for name, array in expected.items():
                np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5, err_msg=f"{name} {shares}")
                np.testing.assert_array_equal(found[name], shared[0][1][name])


def batches_of(rng: np.random.Generator, ignored: list[list[tuple[int, int]]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tokens and targets, of which those of these sequences, from a place on, do not count."""
    batches = []
    for places in ignored:
        tokens, targets = rng.integers(0, 20, (2, 4, 8)).astype(np.int32)
        for sequence, first in places:
            targets[sequence, first:] = -1
        batches.append((tokens, targets))
    return batches


def test_micro_batches_are_added_up_on_each_device_and_by_all_once_a_step(program: Path) -> None:
    """The weight `odd` has the same gradient on all devices, which counts once."""
    rng = seeded.rng()
    weights = Weights({n: rng.normal(0, 0.3, s).astype(np.float32) for n, s in WEIGHTS.items()}, frozenset())
    batches = batches_of(rng, [[], [(2, 0), (3, 1)], [(0, 0)], []])
    entries = ("accumulate", "apply")
    ((alone, expected),) = run(program, weights, batches, 1, False, entries, steps_of_two)
    for shares in (False, True):
        for said, found in run(program, weights, batches, 2, shares, entries, steps_of_two):
            for record, wanted in zip(said, alone, strict=True):
                assert record == pytest.approx(wanted, rel=1e-5, abs=1e-6), f"shares {shares}"
            for name, array in expected.items():
                np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5, err_msg=f"{name} {shares}")


def test_a_micro_batch_has_no_more_in_common_than_its_loss(program: Path) -> None:
    """Collectives of the plan: in `accumulate` those of numbers alone, in `apply` one of all gradients."""
    weights = Weights({name: np.zeros(shape, np.float32) for name, shape in WEIGHTS.items()})
    with Model(Request(program, overrides={"head-rows": 8}), weights) as model:
        (artifact,) = model.compiled(["accumulate", "apply"], SIZES, devices=2)
    shared = {entry.name: [s for s in entry.steps if isinstance(s, Collective)] for entry in artifact.plan.entries}
    assert {argument.nbytes for step in shared["accumulate"] for argument in step.arguments} == {4}
    (step,) = shared["apply"]
    gradients = {f"{name}.gradient": 4 * int(np.prod(shape)) for name, shape in WEIGHTS.items()}
    assert {argument.buffer: argument.nbytes for argument in step.arguments} == gradients
    assert {buffer.name for buffer in artifact.plan.buffers if buffer.summed} == set(gradients)
