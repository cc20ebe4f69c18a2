"""Tokens drawn by the library's kernels: run on the CPU beside the host's sampler, and in entries made for GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_model, open_poisoned, random_weights, step

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.language.forms.kernels import CAPABILITIES
from lispgpt.passes.targets import Cpu, find_target
from lispgpt.runtime.checkpoints.base import TensorInfo
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.near_ties import report_of
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "gpt2_generate.lisp"
ROWS = 16
SETTINGS = 8
ROUNDING = 2.0**-20
"""How far sums in F32 may move a cut from where the host's F64 has it: two of four tied tokens are half of their sum in
F32, and less than half of it with what far smaller ones add."""
OPTIONS: list[tuple[int | None, float | None, float]] = [
    *[(None, None, 0.0), (1, None, 0.0), (5, None, 0.0), (140, None, 0.0), (None, 0.95, 0.0), (None, 0.3, 0.0)],
    *[(None, 1e-6, 0.0), (5, 0.7, 0.0), (40, 0.9, 0.0), (140, 0.4, 0.0)],
    *[(None, None, 0.1), (None, None, 1.0), (40, None, 0.02), (None, 0.9, 0.05), (140, 0.5, 0.3)],
]
TINY = {"vocab": 67, "padded-vocab": 128, "context": 32, "layers": 1, "heads": 2, "width": 32}


class Given(Weights):
    """Logits for rows of tokens, and the settings of each row, in place of a checkpoint."""

    def info(self, name: str) -> TensorInfo:
        return replace(super().info(name), dtype="i32" if name == "settings" else "f32")

    def view(self, name: str) -> np.ndarray:
        return self.values[name]


class Drawing:
    """A compiled program that draws from given logits: [ROWS, columns], of which `vocab` count."""

    def __init__(self, folder: Path, vocab: int, columns: int, most_threads: int) -> None:
        self.vocab, self.columns = vocab, columns
        program = folder / "draw.lisp"
        program.write_text(
            f"(require nn sampling) (config context {ROWS})"
            f"(weights (table [{ROWS} {columns}]) (settings [{ROWS} settings-words] i32))"
            f"(entry drawn [tokens positions] (draw-token (rows table tokens) settings positions {vocab}))"
            f"(entry best [tokens positions] (best-token (rows table tokens) {vocab}))"
            f"(entry said [tokens positions] (best-report (rows table tokens) {vocab}))"
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(CAPABILITIES, "max-threads", most_threads)
            patch.setattr(type(find_target("cpu")), "prefill_chunks", (ROWS,))
            self.artifact = compile_model(program)

    def draw(self, logits: np.ndarray, samplers: list[Weighted], positions: np.ndarray) -> list[int]:
        """One token for each row by its own settings."""
        settings = np.stack([s.settings(int(p)) for s, p in zip(samplers, positions, strict=True)])
        return self._run("drawn", logits, settings, positions)

    def best(self, logits: np.ndarray) -> list[int]:
        return self._run("best", logits, np.zeros((ROWS, SETTINGS), np.int32), np.arange(ROWS))

    def said(self, logits: np.ndarray) -> np.ndarray:
        """The reports on the best tokens, i32 [ROWS 3]."""
        return np.array(self._run("said", logits, np.zeros((ROWS, SETTINGS), np.int32), np.arange(ROWS)), np.int32)

    def _run(self, entry: str, logits: np.ndarray, settings: np.ndarray, positions: np.ndarray) -> list[int]:
        table = np.full((ROWS, self.columns), 1e30, np.float32)
        table[:, : self.vocab] = logits
        with open_poisoned(self.artifact, Given({"table": table, "settings": settings})) as session:
            return np.asarray(step(session, np.arange(ROWS), positions, entry)[entry]).tolist()


@pytest.fixture(scope="module", params=[(16601, 16700, 128), (150, 150, 1024)], ids=["chunks-to-a-thread", "odd"])
def drawing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drawing:
    return Drawing(tmp_path_factory.mktemp("draw"), *request.param)


def awkward_rows(vocab: int) -> np.ndarray:
    """Fresh logits: spread, peaked, far from zero, tied, all equal, in order, and mostly -infinity."""
    rng = seeded.rng()
    rows = rng.normal(0, 1, (ROWS, vocab)).astype(np.float32)
    rows[1] *= 6
    rows[2] -= 150
    rows[3] = np.round(rows[3])
    rows[4] = -0.0
    rows[5] = np.sort(rows[5])[::-1]
    rows[6, rng.random(vocab) < 0.9] = -np.inf
    rows[6, 9] = 1.0
    rows[7] *= 1e30
    rows[8, : vocab // 2] = 0.0
    rows[8, 3:7] = -0.0
    return rows


@pytest.mark.parametrize("temperature", [0.05, 0.8, 3.0, 1e-300, 1e30])
def test_the_kernels_choose_as_the_hosts_sampler_does(drawing: Drawing, temperature: float) -> None:
    rng = seeded.rng()
    for top_k, top_p, min_p in OPTIONS:
        logits, seed = awkward_rows(drawing.vocab), int(rng.integers(1 << 63))
        draws = rng.integers(1 << 20, size=ROWS)

        def sampler(i: int, by: float = 0.0) -> Weighted:
            """That of a row, cutting so much elsewhere as a share of where it does."""
            p = None if top_p is None else top_p * (1 + by)  # noqa: B023
            made = Weighted(temperature, top_k, p, seed, stream=i, min_p=min(1.0, min_p * (1 + by)))  # noqa: B023
            made.drawn = int(draws[i])  # noqa: B023
            return made

        found = drawing.draw(logits, [sampler(i) for i in range(ROWS)], rng.integers(0, 1000, ROWS))
        for i, (token, row) in enumerate(zip(found, logits, strict=True)):
            if token != (wanted := sampler(i)(row)):
                near = [sampler(i, by)(row) for by in (-ROUNDING, ROUNDING)]
                says = f"top_k {top_k}, top_p {top_p}, min_p {min_p}, seed {seed}, row {i}: {token}, not {wanted}"
                assert token in near, says


def test_the_best_token_is_the_first_of_the_largest(drawing: Drawing) -> None:
    logits = awkward_rows(drawing.vocab)
    assert drawing.best(logits) == logits.argmax(-1).tolist()


def test_reports_say_how_clearly_the_best_token_is_that(drawing: Drawing) -> None:
    """Leads are in sizes of the logits, which are those of the best of each chunk here."""
    logits = awkward_rows(drawing.vocab)
    wanted, found = np.array([report_of(row) for row in logits], np.int32), drawing.said(logits)
    assert found[:, :2].tolist() == wanted[:, :2].tolist()
    chunk = 4 * CAPABILITIES["subgroup-size"]
    tops = np.stack([logits[:, n : n + chunk].max(-1) for n in range(0, drawing.vocab, chunk)], -1)
    sizes = (
        np.abs(np.where(np.isfinite(tops), tops, 0)).max(-1),
        np.abs(np.where(np.isfinite(logits), logits, 0)).max(-1),
    )
    some = sizes[0] > 0
    leads = (
        found[some, 2].copy().view(np.float32) * sizes[0][some],
        wanted[some, 2].copy().view(np.float32) * sizes[1][some],
    )
    np.testing.assert_allclose(*leads, rtol=1e-6)
    assert np.isinf(found[4, 2:].copy().view(np.float32)).all() and found[4, 1] == drawing.vocab


def test_draws_follow_the_distribution(drawing: Drawing) -> None:
    logits = np.full(drawing.vocab, -np.inf, np.float32)
    some = seeded.rng().choice(drawing.vocab, 20, replace=False)
    logits[some] = seeded.rng().normal(0, 1, 20)
    weights = np.exp(logits.astype(np.float64) / 1.5)
    order = np.argsort(-weights)
    kept = order[: 1 + np.searchsorted(np.cumsum(weights[order[:12]]), 0.9 * weights[order[:12]].sum())]
    samplers = [Weighted(1.5, 12, 0.9, None, stream=i) for i in range(ROWS)]
    rounds, tokens = 150 if drawing.vocab < 1000 else 20, []
    for _ in range(rounds):
        tokens += drawing.draw(logits, samplers, np.zeros(ROWS, np.int32))
        for sampler in samplers:
            sampler.drawn += 1
    counts, expected = np.bincount(tokens, minlength=drawing.vocab), np.zeros(drawing.vocab)
    expected[kept] = weights[kept] / weights[kept].sum() * rounds * ROWS
    assert not counts[expected == 0].any()
    statistic = ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    freedom = len(kept) - 1
    assert statistic < freedom + 7 * np.sqrt(2 * freedom) + 15


def test_damaged_logits_are_no_token(drawing: Drawing) -> None:
    logits = awkward_rows(drawing.vocab)
    logits[0, 5], logits[1, -1], logits[2] = np.nan, np.inf, -np.inf
    logits[3, 2] = -np.float32(np.nan)
    for found in (
        drawing.draw(logits, [Weighted(1.0, 5, 0.9, 1)] * ROWS, np.zeros(ROWS, np.int32)),
        drawing.best(logits),
    ):
        assert found[:4] == [-1] * 4
        assert min(found[4:]) >= 0


@pytest.fixture(scope="module")
def on_the_cpu() -> Artifact:
    """A model whose steps draw, made for the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        patch.setattr(type(find_target("cpu")), "prefill_chunks", (1,))
        return compile_model(EXAMPLE, batch=3, **{k.replace("-", "_"): v for k, v in TINY.items()})


@pytest.mark.parametrize("batch", [1, 3])
def test_a_models_steps_draw_what_their_logits_say(on_the_cpu: Artifact, batch: int) -> None:
    rng = seeded.rng()
    samplers = [Weighted(1.2, 30, 0.95, 5, stream=i) for i in range(batch)]
    with open_poisoned(on_the_cpu, random_weights(on_the_cpu)) as session:
        for position in range(6):
            tokens = rng.integers(0, TINY["vocab"], (batch, 1)).astype(np.int32)
            settings = np.stack([sampler.settings(position) for sampler in samplers])
            results = session.run("decode-drawn", tokens, np.full((batch, 1), position, np.int32), settings)
            wanted = [s(row[: TINY["vocab"]]) for s, row in zip(samplers, results["logits"], strict=True)]
            assert results["next"].tolist() == wanted


@pytest.fixture(scope="module")
def for_a_gpu() -> Artifact:
    return compile_request(Request(EXAMPLE, "cuda:sm_90", overrides=TINY), Observer())[0]


def test_a_generator_draws_on_the_device(for_a_gpu: Artifact) -> None:
    device, sampler = NullDevice(), Weighted(0.9, 5, 0.5, seed=1 << 40)
    with Session(for_a_gpu, device, random_weights(for_a_gpu)) as session:  # type: ignore[arg-type]
        sampler.drawn = 3
        told = sampler.settings(position=7)
        generator = Generator(session, "logits", sampler)
        generator.position, generator.tokens, session.holder = 7, [4], generator
        assert list(generator.next_tokens(10)) == [0] * 10
        assert device.launched["choose_token"] == device.launched["race_chunks"] == 10
        assert (sampler.drawn, generator.position) == (13, 17)
        (given,) = session.read(session.entry("decode-drawn").inputs["sampling"])
        assert given.tolist() == told.tolist() == [*given[:6].tolist(), 3 - 7, 0]
        assert given[1:6].tolist() == [5, int(np.float32(0.5).view(np.int32)), 0, 1 << 8, 0]
        assert device.check_guards()


def test_draws_are_counted_past_the_context(for_a_gpu: Artifact) -> None:
    device, sampler = NullDevice(), Weighted(1.0, None, None, seed=2)
    with Session(for_a_gpu, device, random_weights(for_a_gpu)) as session:  # type: ignore[arg-type]
        tokens = list(Generator(session, "logits", sampler).generate([1, 2, 3], 80))
    assert len(tokens) == sampler.drawn == 80
    by_host = 80 - device.launched["choose_token"]  # after each prefill; the null device draws 0
    assert 1 < by_host < 20
    assert sum(token > 0 for token in tokens) <= by_host


class Damaged(NullDevice):
    """Every result reads as -1."""

    def copy_out(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        array.reshape(-1).view(np.uint8)[:] = 0xFF


@pytest.mark.parametrize("sampler", [None, Weighted(1.0, None, None, 1)])
def test_no_token_from_the_device_is_an_error(for_a_gpu: Artifact, sampler: Weighted | None) -> None:
    with Session(for_a_gpu, Damaged(), random_weights(for_a_gpu)) as session:  # type: ignore[arg-type]
        generator = Generator(session, "logits", sampler)
        generator.position, generator.tokens, session.holder = 1, [4], generator
        with pytest.raises(UserError, match="the model's best logit is no finite number"):
            next(generator.next_tokens(5))
