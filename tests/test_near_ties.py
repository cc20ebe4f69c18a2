"""Greedy tokens are the same in every way of running, where many tokens are nearly as probable as the best one, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_model

import lispgpt
from lispgpt.passes.targets import Cpu
from lispgpt.runtime import near_ties
from lispgpt.runtime.batch import Batch
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.seeded import RandomCheckpoint
from lispgpt.runtime.decoding import ADJUSTED, GREEDY, PREFILL, VERIFY
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.near_ties import NearTies
from lispgpt.runtime.options import Options
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Continuation, Text

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
VOCAB, CONTEXT, DRAFTED = 202, 48, 4
SIZES = {"vocab": VOCAB, "padded_vocab": 256, "context": CONTEXT, "layers": 2, "heads": 2, "width": 96}
SIZES |= {"weight_type": "f32"}
LIMIT, ATTEMPTS = 20, 6
APART = 3e-7
"""How far a token's row of the embedding is from its neighbour's."""


def compiled(cache: str = "f32") -> list[Artifact]:
    """Steps of one sequence and of three and five, prompts alone and two at once, and drafts."""
    program, given = EXAMPLES / "gpt2_generate.lisp", SIZES | {"cache_type": cache}
    more = [(GREEDY, {"batch": 5, "positions": 1}), (PREFILL, {"batch": 2, "positions": 16})]
    more += [(VERIFY, {"batch": 1, "length": DRAFTED + 1})]
    made = [compile_model(program, entries=(name,), sizes=[sizes], **given) for name, sizes in more]
    return [compile_model(program, 3, **given), *made]


@pytest.fixture(scope="module")
def by_host() -> list[Artifact]:
    return compiled()


@pytest.fixture(scope="module")
def by_device() -> list[Artifact]:
    """Steps that go on by themselves, as on GPUs, and choose by penalties, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        sizes = [{"batch": batch, "positions": 1} for batch in (1, 3, 5)]
        more = compile_model(EXAMPLES / "gpt2_generate.lisp", entries=(ADJUSTED,), sizes=sizes, **SIZES)
        return [*compiled(), more]


def in_pairs(apart: float) -> Weights:
    """Random weights in which two neighbouring tokens each are nearly one, or one, where apart is 0."""
    shape = Gpt2Shape.unpadded(VOCAB, CONTEXT, *(SIZES[name] for name in ("layers", "heads", "width")))
    drawn = RandomCheckpoint(shape, int(seeded.rng().integers(1 << 62)))
    values = {name: np.empty(drawn.info(name).shape, np.float32) for name in drawn.names()}
    for name, array in values.items():
        drawn.read_into(name, array, "f32")
    rows = values["wte"]
    noise = seeded.rng().normal(0, apart, rows[: VOCAB // 2].shape).astype(np.float32) if apart else 0
    rows[1:VOCAB:2] = rows[0:VOCAB:2] * (1 + noise)
    return Weights(values)


@contextmanager
def opened(artifacts: Sequence[Artifact], apart: float = APART) -> Iterator[Session]:
    with Session(artifacts[0], CpuDevice(2), in_pairs(apart)) as session:  # type: ignore[arg-type]
        for more in artifacts[1:]:
            session.add(more)
        yield session


def prompts() -> list[list[int]]:
    """Ragged ones; the text after the last goes past the context."""
    lengths = [*seeded.rng().integers(1, 30, 8), CONTEXT - 3]
    return [seeded.rng().integers(0, VOCAB, n).tolist() for n in lengths]


class Run:
    """Texts of one session in several ways; ties: what decides."""

    def __init__(self, session: Session, watched: bool = True, **options: Any) -> None:
        self.session, self.ties = session, NearTies(session, "logits")
        self.ties.watches &= watched
        self.options = Options.of({"greedy": True, **options}, {})

    def texts(self, given: Sequence[Sequence[int]], lookup: int = 0) -> list[Text]:
        made, options = [], self.options
        for number, prompt in enumerate(given):
            chosen = options.sampler(number), options.adjustment(VOCAB), options.logprobs, lookup, self.ties
            made.append(Text(Generator(self.session, "logits", *chosen), prompt, Continuation(LIMIT, None)))
        return made

    def alone(self, given: Sequence[Sequence[int]], lookup: int = 0) -> list[Text]:
        texts = self.texts(given, lookup)
        for text in texts:
            list(text)
        return texts

    def together(self, given: Sequence[Sequence[int]], batch: int, intake: bool = False) -> list[Text]:
        """intake: whether short prompts are taken in two at once."""
        texts, choice = self.texts(given), ADJUSTED if self.options.logprobs else GREEDY
        several = self.session.entry(PREFILL, batch=2, positions=16) if intake else None
        chooses = any(entry.sizes["batch"] == batch for entry in self.session.entries(choice))
        entry = self.session.entry(choice if chooses else GREEDY, batch=batch, positions=1)
        for _ in Batch(self.session, entry, chooses, several).run(texts):
            continue
        return texts

    def every_way(self, given: list[list[int]]) -> list[list[list[int]]]:
        """The tokens of drafted texts, of batches with others beside them, and of batches in another order."""
        found = [self.together(given, 3, True), self.together(given[::-1], 5, True)[::-1]]
        found.append([*found[0][:2], *self.together(given[2:7], 3), *found[0][7:]])
        if not self.options.logprobs:
            found.append(self.alone(given, DRAFTED))
        return [tokens(texts) for texts in found]


def tokens(texts: Sequence[Text]) -> list[list[int]]:
    return [text.tokens for text in texts]


@pytest.mark.parametrize("made", ["by_host", pytest.param("by_device", marks=pytest.mark.slow)])
def test_every_way_of_running_gives_the_same_tokens(made: str, request: pytest.FixtureRequest) -> None:
    for _ in range(ATTEMPTS):
        with opened(request.getfixturevalue(made)) as session:
            run, given = Run(session), prompts()
            alone = tokens(run.alone(given))
            assert run.ties.decided > len(given), "these weights give hardly any near tie"
            for found in run.every_way(given):
                assert found == alone
            if any(found != alone for found in Run(session, watched=False).every_way(given)):
                return
    pytest.fail("nothing was to be decided")


@pytest.mark.parametrize("made", ["by_host", pytest.param("by_device", marks=pytest.mark.slow)])
def test_so_do_penalties_which_report_on_the_tokens_that_were_decided(
    made: str, request: pytest.FixtureRequest
) -> None:
    with opened(request.getfixturevalue(made)) as session:
        run, given = Run(session, presence_penalty=0.4, logprobs=True), prompts()
        alone = run.alone(given)
        assert run.ties.decided > len(given)
        for found in run.every_way(given):
            assert found == tokens(alone)
        for one, other in zip(alone, run.together(given, 3), strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            assert len(one.logprobs) == len(one.tokens) == LIMIT


def test_tokens_that_are_one_are_told_from_those_that_are_nearly(by_host: list[Artifact]) -> None:
    """Every best token ties: the lower one is taken, and soon nothing has to be decided."""
    with opened(by_host, apart=0.0) as session:
        run, given = Run(session), prompts()
        alone = tokens(run.alone(given))
        assert 1 <= run.ties.decided <= 3
        assert all(token % 2 == 0 for text in alone for token in text)
        for found in run.every_way(given):
            assert found == alone
        assert run.ties.decided <= 5


def test_a_cache_of_16_bits_has_wider_near_ties() -> None:
    """Every way of running gives the same tokens, whose lead is what such caches change."""
    with opened(compiled("bf16"), apart=100 * APART) as session:
        run, given = Run(session), prompts()
        assert run.ties.watches and run.ties.clear == near_ties.CLEAR_NARROW_BITS > near_ties.CLEAR_BLOCKS_BITS
        alone = tokens(run.alone(given))
        assert run.ties.decided > len(given)
        assert all(found == alone for found in run.every_way(given))


def test_python_gives_the_same_tokens_and_compiles_what_decides(tmp_path: Path) -> None:
    """A context of 200 has near ties decided by chunks of 128, which prompts of at most 16 tokens do without."""
    shape = Gpt2Shape.unpadded(VOCAB, 200, 1, 2, 32)
    make(tmp_path / "model.bin", shape, "llmc", "bf16", int(seeded.rng().integers(1 << 62)))
    program = EXAMPLES / "gpt2_generate.lisp"
    with pytest.MonkeyPatch.context() as patch, lispgpt.load(program, tmp_path / "model.bin") as model:
        patch.setattr(near_ties, "CLEAR_BITS", int(np.float32(0.05).view(np.int32)))  # so that many are near
        patch.setattr(Cpu, "prefill_chunks", (1, 16))
        given, options = [prompt[:16] for prompt in prompts()], {"greedy": True, "max_new_tokens": LIMIT}
        alone = [model.generate(prompt, **options) for prompt in given]
        for text in alone:
            list(text)
        ties = alone[0].generator.near_ties
        assert ties is not None and ties.decided > 10
        assert any(entry.sizes == {"batch": 1, "positions": 128} for entry in model.session.entries(PREFILL))
        assert tokens(model.generate_batch(given, batch=4, **options)) == tokens(alone)
        assert tokens([*model.generate_batch(given, lookup=3, **options)]) == tokens(alone)


def test_leads_are_clear_by_how_rows_are_multiplied() -> None:
    """By activations of 16 bits, where weights are in blocks, on CPUs and on NVIDIA's GPUs."""
    leads = {
        (target, kind): near_ties.clear_lead({"w": {"dtype": kind}}, target)
        for target in ("cpu", "cuda:sm_90a", "rocm:gfx1151")
        for kind in ("bf16", "q4_k")
    }
    wide = {of for of, lead in leads.items() if lead == near_ties.CLEAR_BLOCKS_BITS}
    assert wide == {("cpu", "q4_k"), ("cuda:sm_90a", "q4_k")}
    assert near_ties.CLEAR_BLOCKS_BITS > near_ties.CLEAR_BITS
