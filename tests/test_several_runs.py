"""Several steps by one launch, on devices that gain by it: the same texts as step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, random_weights
from late_gpu import late_gpu

from lispgpt.passes.targets import Cpu
from lispgpt.runtime import near_ties
from lispgpt.runtime.batch import Batch
from lispgpt.runtime.decoding import DRAWN, GREEDY, VERIFY
from lispgpt.runtime.devices.base import READ_LATER_BYTES
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.executables import LONG_STEP, ROW_ALIGNMENT, Executables
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.near_ties import NearTies
from lispgpt.runtime.options import Options
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Buffer, Entry, Repeats
from lispgpt.runtime.plan.steps import Argument, Launch
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Continuation, Text

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
VOCAB, CONTEXT, TOGETHER, DRAFTED = 67, 40, 3, 4
SIZES = {"vocab": VOCAB, "padded_vocab": 128, "context": CONTEXT, "layers": 2, "heads": 2, "width": 32}


class Several(CpuDevice):
    """A CPU that runs some steps by one launch.  launches: how many steps each was, of entries that are repeated."""

    def __init__(self, most_runs: int) -> None:
        super().__init__(2)
        self.most_runs = most_runs
        self.runs: dict[int, int] = {}
        self.made: list[Any] = []
        self.launches: list[int] = []

    def prepare_runs(self, entries: Sequence[Entry], buffers: Mapping[str, np.ndarray]) -> Any:
        self.made.append(super().prepare_runs(entries, buffers))
        self.runs[id(self.made[-1])] = len(entries)
        return self.made[-1]

    def launch(self, executable: Any) -> None:
        self.launches.append(self.runs.get(id(executable), 1))
        super().launch(executable)


@pytest.fixture(scope="module")
def artifacts() -> list[Artifact]:
    """Steps that go on and choose by themselves, as on GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        sizes = [{"batch": 1, "length": DRAFTED + 1}]
        more = compile_model(PROGRAM, entries=(VERIFY,), sizes=sizes, **SIZES)
        return [compile_model(PROGRAM, TOGETHER, **SIZES), more]


def opened(artifacts: list[Artifact], seed: int, most_runs: int) -> tuple[Session, Several]:
    device = Several(most_runs)
    session = Session(artifacts[0], device, random_weights(artifacts[0], 0.5, seed))  # type: ignore[arg-type]
    session.add(artifacts[1])
    return session, device


def test_texts_are_the_same_and_launches_fewer(artifacts: list[Artifact]) -> None:
    rng, seed = seeded.named_rng()
    weights = int(rng.integers(1 << 30))
    asked = [(rng.integers(0, VOCAB, int(n)).tolist(), int(m)) for n, m in rng.integers((1, 2), (CONTEXT, 60), (2, 2))]
    asked += [([5], 2), ([5, 6], 3), ([7], CONTEXT + 9)]
    settings: list[dict[str, Any]] = [{"greedy": True}, {"temperature": 1.3, "top_k": 40, "seed": 5}]
    found: dict[tuple[int, int], list[list[int]]] = {}
    for most in (1, 4):
        session, device = opened(artifacts, weights, most)
        with session:
            for number, given in enumerate(settings):
                texts = [
                    list(Generator(session, "logits", Options.of(given, {}).sampler(0)).generate(*a)) for a in asked
                ]
                found[most, number] = texts
            assert (4 in device.launches) == (most == 4) and max(device.launches) == most
    assert [found[4, n] for n in (0, 1)] == [found[1, n] for n in (0, 1)], seed


@pytest.mark.parametrize("entry", [GREEDY, DRAWN])
def test_batches_and_drafts_are_the_same(entry: str, artifacts: list[Artifact]) -> None:
    rng, seed = seeded.named_rng()
    weights, options = int(rng.integers(1 << 30)), Options.of({"greedy": entry == GREEDY, "seed": 3}, {})
    asked = [(rng.integers(0, 4, int(n)).tolist(), int(m)) for n, m in rng.integers((1, 2), (12, 50), (8, 2))]
    found = []
    for most in (1, 4):
        session, device = opened(artifacts, weights, most)
        with session:
            made = [
                Text(Generator(session, "logits", options.sampler(i)), prompt, Continuation(limit, None))
                for i, (prompt, limit) in enumerate(asked)
            ]
            list(Batch(session, session.entry(entry, batch=TOGETHER, positions=1), True).run(made))
            texts = [text.tokens for text in made]
            assert (2 in device.launches) == (most == 4), "half of the steps that may be ahead"
            if entry == GREEDY:
                texts += [list(Generator(session, "logits", lookup=DRAFTED).generate(*a)) for a in asked]
            found.append(texts)
    assert found[0] == found[1], seed


@pytest.mark.parametrize("entry", [GREEDY, DRAWN])
def test_a_gpu_that_comes_late_gives_the_same_texts(
    entry: str, artifacts: list[Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, by drafts, in turns and in batches: nothing is read early, and no memory is used again before its time."""
    rng, seed = seeded.named_rng()
    weights, options = int(rng.integers(1 << 30)), Options.of({"greedy": entry == GREEDY, "seed": 3}, {})
    asked = [(rng.integers(0, 4, int(n)).tolist(), int(m)) for n, m in rng.integers((1, 2), (12, 50), (6, 2))]

    def texts(session: Session, lookup: int = 0) -> list[Text]:
        made = [Generator(session, "logits", options.sampler(i), lookup=lookup) for i in range(len(asked))]
        return [Text(one, prompt, Continuation(limit, None)) for one, (prompt, limit) in zip(made, asked, strict=True)]

    def every_way(session: Session) -> list[list[list[int]]]:
        found = [texts(session), texts(session), texts(session), texts(session, DRAFTED * (entry == GREEDY))]
        list(Batch(session, session.entry(entry, batch=TOGETHER, positions=1), True).run(found[0]))
        for text in (*found[1], *found[3]):
            list(text)
        left = list(found[2])
        while left:
            text = left[int(rng.integers(len(left)))]
            if [next(text, None) for _ in range(int(rng.integers(1, 9)))][-1] is None:
                left.remove(text)
        return [[text.tokens for text in way] for way in found]

    session, _ = opened(artifacts, weights, 1)
    with session:
        alone = every_way(session)[1]
    for hurry in (0.0, 0.5):
        device = late_gpu(monkeypatch, hurry, int(rng.integers(1 << 30)))
        with Session(artifacts[0], device, random_weights(artifacts[0], 0.5, weights)) as late:  # type: ignore[arg-type]
            late.add(artifacts[1])
            assert every_way(late) == [alone] * 4, seed


def test_steps_go_on_where_a_near_tie_was_decided_by_the_entry_that_decodes(
    artifacts: list[Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context without room for a chunk has ties decided position by position, by an entry that leaves its inputs."""
    monkeypatch.setattr(near_ties, "CHUNKS", (1,))
    rng = seeded.rng()
    for number in range(12):
        weights, found = random_weights(artifacts[0], 0.5, int(rng.integers(1 << 30))), []
        weights.values["wpe"] *= 9  # tokens are others at each position
        for share in (0.0, 0.3):
            monkeypatch.setattr(NearTies, "near", lambda *_, share=share: rng.random() < share)
            with Session(artifacts[0], Several(4), weights) as session:  # type: ignore[arg-type]
                found.append(list(Generator(session, "logits").generate([number], 11)))
        assert found[0] == found[1]


def test_the_host_chooses_for_a_batch_whose_entry_would_go_on_otherwise(artifacts: list[Artifact]) -> None:
    """Where no entry has been compiled that takes penalties, the host has them, by the logits of each step."""
    rng = seeded.rng()
    weights, prompts = int(rng.integers(1 << 30)), rng.integers(0, VOCAB, (4, 3)).tolist()
    options = Options.of({"greedy": True, "presence_penalty": 0.7, "logprobs": True}, {})
    found = []
    for batch in (False, True):
        session, _ = opened(artifacts, weights, 4)
        with session:
            made = [Generator(session, "logits", None, options.adjustment(VOCAB), True) for _ in prompts]
            texts = [Text(one, prompt, Continuation(12, None)) for one, prompt in zip(made, prompts, strict=True)]
            if batch:
                list(Batch(session, session.entry(GREEDY, batch=TOGETHER, positions=1), False).run(texts))
            for text in texts:
                list(text)
            found.append(texts)
    for one, other in zip(*found, strict=True):
        assert one.tokens == other.tokens and len(one.tokens) == 12
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


def entry_of(nbytes: int) -> tuple[Entry, dict[str, Buffer]]:
    """A launch that makes a result and one that reads it."""
    declared = {"r": Buffer("r", "result", (nbytes,), "i8"), "s": Buffer("s", "state", (nbytes,), "i8")}
    steps = (
        Launch("a", (1, 1, 1), (1, 1, 1), 0, (Argument("r", 0, nbytes, "write"),)),
        Launch("b", (1, 1, 1), (1, 1, 1), 0, (Argument("s", 0, nbytes, "write"), Argument("r", 1, nbytes - 1, "read"))),
    )
    return Entry("step", {}, {}, {"r": "r"}, steps), declared


class Taking(Several):
    """Keeps what it was to prepare."""

    def prepare_runs(self, entries: Sequence[Entry], buffers: Mapping[str, np.ndarray]) -> Any:
        self.made.append((list(entries), dict(buffers)))
        return self.made[-1]


@pytest.mark.parametrize("nbytes", [2, ROW_ALIGNMENT, ROW_ALIGNMENT + 1, READ_LATER_BYTES // 3])
def test_each_run_has_a_result_of_its_own(nbytes: int) -> None:
    entry, declared = entry_of(nbytes)
    device = Taking(4)
    buffers = {name: device.alloc(nbytes) for name in declared}
    executables = Executables(device, None, buffers, declared)  # type: ignore[arg-type]
    several = executables.several(entry, "r", 9)
    assert several is not None and executables.several(entry, "r", 9) is several
    assert several.runs == min(4, READ_LATER_BYTES // several.row) and several.row % ROW_ALIGNMENT == 0
    (entries, given), *_ = device.made
    kept = next(name for name in given if name not in declared)
    for number, run in enumerate(entries):
        first, second = run.launches
        place = number * several.row
        assert first.arguments == (Argument(kept, place, nbytes, "write"),)
        assert second.arguments == (entry.launches[1].arguments[0], Argument(kept, place + 1, nbytes - 1, "read"))
        assert first.arguments[0].end <= given[kept].size
    rows = several.room()
    rows[:] = np.arange(several.runs)[:, None]
    assert [result.tolist() for result in several.each(rows)] == [[i] * nbytes for i in range(several.runs)]
    executables.forget("s")
    assert executables.several(entry, "r", 9) is not several, "its buffers have changed"


def test_entries_that_gain_nothing_run_step_by_step() -> None:
    entry, declared = entry_of(READ_LATER_BYTES // 2 + 1)
    device = Taking(4)
    executables = Executables(device, None, {}, declared)  # type: ignore[arg-type]
    assert executables.several(entry, "r", 9) is None, "two of its results are more than one read takes"
    small, fewer = entry_of(8)
    executables = Executables(device, None, {}, fewer)  # type: ignore[arg-type]
    assert executables.several(small, "r", 1) is None
    assert executables.several(replace(small, repeats=Repeats(4, "more", {})), "r", 9) is None
    weight = Buffer("w", "weight", (2, LONG_STEP), "i8")
    reading = replace(
        small.launches[0], arguments=(*small.launches[0].arguments, Argument("w", 0, LONG_STEP + 1, "read"))
    )
    long = replace(small, steps=(reading, small.launches[1]))
    executables = Executables(device, None, {}, {**fewer, "w": weight})  # type: ignore[arg-type]
    assert executables.several(long, "r", 9) is None, "results of long steps come one by one"
    assert device.made == []
