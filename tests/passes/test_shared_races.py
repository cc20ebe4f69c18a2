"""A decode step that clusters share, watched for races: its warps go on in any order, its ring has few slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from emulated_cuda.device import EmulatedCuda
from shared_steps import by_cpu, clear_weights, compiled

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import when
from lispgpt.passes.decode_step import layout as sharded_layout
from lispgpt.passes.decode_step import residual as sharded_residual
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import Layout
from lispgpt.passes.targets import ptx as cluster
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

START = 6


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that copies wait for what is read, as those of a large model do."""
    monkeypatch.setattr(sharded_layout, "SHARED_BYTES", 43000)


def steps(artifact: Artifact, count: int, folder: Path, program: str = "gpt2.lisp", **config: int | str) -> None:
    """Tokens as the CPU makes them, without a race; AssertionError for others."""
    cpu = compiled(folder, "cpu", program=program, layers=1, **config)
    weights, seed = clear_weights(cpu, seeded.fresh_seed(), START, count)
    tokens, logits = by_cpu(cpu, weights, START, count)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    order = 1 + seed % 100000
    with Session(artifact, EmulatedCuda(order, watched=True), weights) as session:  # type: ignore[arg-type]
        session.put(entry, {"tokens": [[3]], "positions": [[START]]})
        found = [int(next_.item()) for next_ in session.repeat(entry, "next", count)]
        made = session.read(entry.results["logits"])[0]
    size = min(made.size, logits.size)
    np.testing.assert_allclose(made[:size], logits[:size], rtol=1e-3, atol=1e-3, err_msg=f"order {order}")
    assert found == tokens, f"order {order}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options"), [("gpt2.lisp", ""), ("gpt2.lisp", ":steps 0"), ("llama_tiny.lisp", ":steps 0 :numbers 8")]
)
def test_a_shared_step_has_no_race(program: str, options: str, tmp_path: Path) -> None:
    steps(compiled(tmp_path, "cuda:sm_90a", program=program, options=options, layers=1), 2, tmp_path, program)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "q8_0"])
def test_packed_weights_have_no_race(kind: str, tmp_path: Path) -> None:
    config: dict[str, int | str] = {"weight-type": kind}
    steps(compiled(tmp_path, "cuda:sm_90a", layers=1, **config), 2, tmp_path, **config)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "room"), [("bf16", 39000), ("int8", 30000)])
def test_chunks_of_the_head_that_warps_bring_have_no_race(
    kind: str, room: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A block has more of them than its ring has slots."""
    monkeypatch.setattr(sharded_layout, "SHARED_BYTES", room)
    made: list[Layout] = []
    monkeypatch.setattr(Layout, "__init__", _noting(made))
    config: dict[str, int | str] = {"weight-type": kind, "vocab": 2111}
    artifact = compiled(tmp_path, "cuda:sm_90a", layers=1, **config)
    assert made and all(layout.lm_head_share.most > layout.stages for layout in made)
    steps(artifact, 3, tmp_path, **config)


def _noting(made: list[Layout]) -> Callable[..., None]:
    """What makes a layout, and notes it."""
    right = Layout.__init__

    def init(self: Layout, *facts: Any) -> None:
        right(self, *facts)
        made.append(self)

    return init


def without_a_wait(patch: pytest.MonkeyPatch) -> None:
    def only_say(self: Launch, name: str, nbytes: int, parity: object) -> None:
        barrier, first = self.barrier(name), (self.subgroup == 0) & (self.lane == 0)
        when(first, lambda: cluster.expect(barrier, nbytes))
        if name != "own":
            cluster.wait(barrier, parity)

    patch.setattr(Launch, "await_ranks", only_say)


def with_a_wrong_phase(patch: pytest.MonkeyPatch) -> None:
    right = Launch.at_layer
    patch.setattr(Launch, "at_layer", lambda self, run, layer: right(self, run, layer) ^ 1)


def without_marks(patch: pytest.MonkeyPatch) -> None:
    right = cluster.await_halves
    patch.setattr(
        cluster, "await_halves", lambda pointers, _, *load: right(pointers, lambda _, halves: halves[0] & 0, *load)
    )


def with_marks_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """As if a place of words were not used by turns, but always with the mark that it has had."""
    right = cluster.await_lines

    def other(pointers: Sequence[ir.Value], wrong: Callable[[list[Number]], Number]) -> list[list[Number]]:
        return right(pointers, lambda found: (wrong(found) ^ 1) & 1)

    patch.setattr(cluster, "await_lines", other)


def without_a_part(patch: pytest.MonkeyPatch) -> None:
    right = sharded_residual.lacks
    patch.setattr(sharded_residual, "lacks", lambda now, before, parts: right(now, before, parts - 1))


def with_an_arrival_too_few(patch: pytest.MonkeyPatch) -> None:
    right = TensorCopies.make_barrier

    def one_more(self: TensorCopies, barrier: Index, arrivals: int) -> None:
        right(self, barrier, arrivals + (arrivals > 1))

    patch.setattr(TensorCopies, "make_barrier", one_more)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a missing wait": without_a_wait,
    "a wrong phase": with_a_wrong_phase,
    "words that nobody waits for": without_marks,
    "words with a mark off by one": with_marks_off_by_one,
    "a sum without a part": without_a_part,
    "an arrival too few": with_an_arrival_too_few,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_shared_step_is_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    artifact = compiled(tmp_path, "cuda:sm_90a", layers=1)
    monkeypatch.undo()
    with pytest.raises(AssertionError, match=r"races\n|deadlock|more arrivals|order \d"):
        steps(artifact, 2, tmp_path)


@pytest.mark.slow
def test_loads_that_copies_may_overtake_are_found(tmp_path: Path) -> None:
    """What an H200 showed past position 400: a block's queue was full of loads of the cache, weights' loads waited
    in it, and a barrier had already been told that they were over."""
    artifact = compiled(tmp_path, "cuda:sm_90a", layers=1)
    text = artifact.code.decode()
    fence = "\tfence.proxy.async.shared::cta;\n"
    assert text.count(fence) > 1
    with pytest.raises(AssertionError, match=r"(?s)races\n.*ldmatrix.*\n  before\n.*cp\.async\.bulk"):
        steps(replace(artifact, code=text.replace(fence, "").encode()), 2, tmp_path)
