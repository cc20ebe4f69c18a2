"""When a session computes what is made of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from collective_steps import together
from compiled_models import Weights, random_weights
from made_weights import HEAD, OUT, compile_marked

from lispgpt.base.errors import UserError
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.runtime.collectives.host import HostEngine
from lispgpt.runtime.collectives.local import LocalTransport
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.plan.artifact import Artifact, load_artifact
from lispgpt.runtime.plan.beside import beside
from lispgpt.runtime.plan.plan import Entry, Plan
from lispgpt.runtime.session import Session

CHANGE = """
(entry change [(by [] f32)] 
  (do (map (fn [l] (update! (v l) (* (v l) by))) (range layers)) {:change (+ u 1.0)}))
(entry leave [(by [] f32)] (do (update! u (* u by)) {:leave (+ (reshape (v 0) [width]) 1.0)}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def patch() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def artifact(folder: Path, patch: pytest.MonkeyPatch) -> Artifact:
    return compile_marked(HEAD + OUT.replace("SHAPES", "{batch 2} {batch 5}"), folder, patch)


@pytest.fixture(scope="module")
def larger(folder: Path, patch: pytest.MonkeyPatch) -> Artifact:
    return compile_marked(HEAD + OUT.replace("SHAPES", "{batch 7}"), folder, patch)


@pytest.fixture(scope="module")
def changing(folder: Path, patch: pytest.MonkeyPatch) -> Artifact:
    return compile_marked(HEAD + CHANGE, folder, patch)


def making_of(artifact: Artifact) -> Entry:
    assert artifact.plan.making is not None
    return artifact.plan.making


def expected(x: np.ndarray, a: dict[str, np.ndarray]) -> np.ndarray:
    for w, v in zip(a["w"], a["v"], strict=True):
        x = np.sin(x + w @ v)
    return x


class Counting(CpuDevice):
    """A CPU that counts how often each entry is launched."""

    def __init__(self) -> None:
        super().__init__(1)
        self.runs: Counter[str] = Counter()
        self._names: list[tuple[Any, str]] = []

    def prepare(self, entry: Entry, buffers: Any) -> Any:
        executable = super().prepare(entry, buffers)
        self._names.append((executable, entry.name))
        return executable

    def launch(self, executable: Any) -> None:
        self.runs.update(name for known, name in self._names if known is executable)
        super().launch(executable)


def open_counting(artifact: Artifact, weights: Weights | None = None) -> tuple[Session, Counting]:
    device = Counting()
    return Session(artifact, device, weights or random_weights(artifact)), device  # type: ignore[arg-type]


def test_it_is_no_entry_of_the_program(artifact: Artifact) -> None:
    making = making_of(artifact)
    assert {entry.name for entry in artifact.plan.entries} == {"out", "other", "step"}
    assert making not in artifact.plan.entries and making in artifact.plan.every
    with open_counting(artifact)[0] as session:
        assert session.entries(making.name) == []
        with pytest.raises(UserError, match="there is no entry 'make-weights'; there are out, other, step"):
            session.run(making.name)
        assert sorted(session.held("weight")) == ["u", "v", "w"]
    table = kernel_table(artifact, "")
    assert "make-weights" not in table and "made once of weights: 2 launches" in table
    assert all(f"\n{launch.label} " in table for launch in making.launches)


def test_it_runs_once_before_what_reads_it(artifact: Artifact) -> None:
    session, device = open_counting(artifact)
    with session:
        session.run("other", np.zeros(10))
        assert device.runs["make-weights"] == 0
        for batch in (2, 5, 2, 5):
            session.run("out", np.zeros((batch, 10)))
        assert device.runs == {"other": 1, "make-weights": 1, "out": 4}


def test_the_null_device_launches_it_once(artifact: Artifact) -> None:
    device = NullDevice()
    with Session(artifact, device, random_weights(artifact)) as session:  # type: ignore[arg-type]
        for _ in range(3):
            session.run("out", np.zeros((2, 10)))
        made = {launch.kernel for launch in making_of(artifact).launches}
        assert sum(device.launched[kernel] for kernel in made) == len(making_of(artifact).launches)
        assert device.check_guards()


WAYS: dict[str, Callable[[Session], Any]] = {
    "start": lambda s: s.start(s.entry("step"), {"x": np.zeros((1, 10))}),
    "prepare": lambda s: s.device.launch(s.prepare(s.entry("step"))),
    "repeat": lambda s: list(s.repeat(s.entry("step"), "step", 5)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run_an_entry_has_it_made(way: str, artifact: Artifact) -> None:
    weights = random_weights(artifact)
    session, device = open_counting(artifact, weights)
    with session, session.alone():
        entry = session.entry("step")
        session.put(entry, {"x": np.zeros((1, 10))})
        for _ in range(2):
            WAYS[way](session)
        assert device.runs["make-weights"] == 1
        x = np.zeros((1, 10))
        for _ in range({"start": 1, "prepare": 2, "repeat": 10}[way]):
            x = expected(x, weights.exact())
        np.testing.assert_allclose(session.result(entry, "step"), x, atol=1e-5)


def test_it_is_made_anew_once_a_weight_is_another(artifact: Artifact, changing: Artifact) -> None:
    weights = random_weights(artifact)
    a, rng = weights.exact(), seeded.rng()
    session, device = open_counting(artifact, weights)
    with session:
        x = rng.normal(size=(5, 10))
        np.testing.assert_allclose(session.run("out", x)["out"], expected(x, a), atol=1e-5)
        session.add(changing)
        for factor, entry, runs in ((0.5, "change", 2), (3.0, "leave", 2), (-2.0, "change", 3)):
            session.run(entry, np.float32(factor))
            session.run(entry, np.float32(1))
            if entry == "change":
                a["v"] = a["v"] * factor
            for _ in range(2):
                np.testing.assert_allclose(session.run("out", x)["out"], expected(x, a), atol=1e-5)
            assert device.runs["make-weights"] == runs


def test_it_is_made_anew_once_the_host_writes_a_weight(artifact: Artifact) -> None:
    weights = random_weights(artifact)
    a = weights.exact()
    session, device = open_counting(artifact, weights)
    with session:
        x = np.zeros((2, 10))
        session.run("out", x)
        session.write("u", np.ones(10, np.float32))
        session.run("out", x)
        assert device.runs["make-weights"] == 1
        session.write("v", np.ones((2, 24), np.float32))
        found = session.run("out", x)["out"]
        assert device.runs["make-weights"] == 2
        np.testing.assert_allclose(found, expected(x, a | {"v": np.ones((2, 24))}), atol=1e-5)


def test_entries_that_join_share_what_is_made(artifact: Artifact, larger: Artifact) -> None:
    weights = random_weights(artifact)
    session, device = open_counting(artifact, weights)
    with session:
        session.run("out", np.zeros((2, 10)))
        session.add(larger)
        x = seeded.rng().normal(size=(7, 10))
        np.testing.assert_allclose(session.run("out", x)["out"], expected(x, weights.exact()), atol=1e-5)
        assert device.runs["make-weights"] == 1
        assert len(session.making.entries) == 1 and len(session.held("made")) == 1


def test_entries_that_join_may_bring_what_is_made(artifact: Artifact, changing: Artifact) -> None:
    weights = random_weights(artifact)
    with Session(changing, CheckedCpuDevice(1), weights) as session:  # type: ignore[arg-type]
        session.run("change", np.float32(2))
        session.add(artifact)
        x = seeded.rng().normal(size=(2, 10))
        wanted = expected(x, weights.exact() | {"v": 2 * weights.exact()["v"]})
        np.testing.assert_allclose(session.run("out", x)["out"], wanted, atol=1e-5)


def test_another_buffer_of_that_name_is_left_alone(artifact: Artifact) -> None:
    (made,) = (buffer for buffer in artifact.plan.buffers if buffer.kind == "made")
    there = {made.name: ((3,), "f32")}
    joined = beside(artifact.plan, there, "#1")
    assert [b.name for b in joined.buffers if b.kind == "made"] == [f"{made.name}#1"]
    assert joined.making is not None
    assert {a.buffer for step in joined.making.steps for a in step.arguments if a.writes} == {f"{made.name}#1"}


def test_what_devices_do_together_is_waited_for(artifact: Artifact) -> None:
    """A weight that they update may be on its way."""
    order: list[str] = []
    session, device = open_counting(artifact)
    with session:
        session.engine = SimpleNamespace(  # type: ignore[assignment]
            settle=lambda: order.append(f"settle {device.runs['make-weights']}"), close=lambda: None
        )
        session.start(session.entry("out", batch=2), {"x": np.zeros((2, 10))})
        session.start(session.entry("out", batch=2), {"x": np.zeros((2, 10))})
    assert order == ["settle 0"]


SUMMED = """
(entry summed [(x [batch outputs] f32)] {:shapes [{batch 4}]}
  (let [y (fold (fn [x l] (sin (+ x (contract [a] (w l) [a k] (v l) [k])))) x (range layers))]
    (reduce + 0.0 (tensor [c outputs i batch] (at y i c)))))
"""


def test_devices_that_share_entries_make_it_each(
    folder: Path, changing: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = compile_marked(HEAD + SUMMED, folder, monkeypatch, devices=2)
    assert any(len(entry.launches) < len(entry.steps) for entry in shared.plan.entries)
    weights, x = random_weights(shared), seeded.rng().normal(size=(4, 10))

    def work(peers: Peers) -> tuple[list[np.ndarray], int]:
        device = Counting()
        engine = HostEngine(device, peers, LocalTransport(peers))
        with Session(shared, device, weights, engine) as session:  # type: ignore[arg-type]
            session.add(changing)
            found = []
            for factor in (1, 2):
                session.run("change", np.float32(factor))
                own = x[2 * peers.place.rank :][:2]
                found += [session.run("summed", own)["summed"] for _ in range(2)]
            return found, device.runs["make-weights"]

    a = weights.exact()
    for found, made in together(2, work):
        assert made == 2
        for number, values in enumerate(found):
            wanted = expected(x, a | {"v": a["v"] * (1 + number // 2)}).sum(0)
            np.testing.assert_allclose(values, wanted, atol=1e-5)


def test_a_failure_to_make_it_is_no_success_later(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    session, device = open_counting(artifact)
    with session:
        with monkeypatch.context() as patch:
            patch.setattr(device, "launch", lambda _: (_ for _ in ()).throw(UserError("no launch")))
            with pytest.raises(UserError, match="no launch"):
                session.run("out", np.zeros((2, 10)))
        session.run("out", np.zeros((2, 10)))
        assert device.runs == {"make-weights": 1, "out": 1}


def test_artifacts_say_what_they_need_to_be_read(artifact: Artifact, changing: Artifact, tmp_path: Path) -> None:
    """What has nothing that is made is read by those that know nothing of it."""
    for each, version in ((artifact, b'"version": 3'), (changing, b'"version": 2')):
        assert version in each.manifest()
        each.save(tmp_path / "model.lgpt")
        assert load_artifact(tmp_path / "model.lgpt").plan == each.plan
    assert changing.plan.making is None
    old = {key: value for key, value in changing.plan.to_json().items() if key != "making"}
    assert Plan.from_json(old) == changing.plan
