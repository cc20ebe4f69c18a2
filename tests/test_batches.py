"""Several texts at once: each is what it is alone, whatever its length and that of the others.

The slow ones are for changes of runtime/batch.py, runtime/generate.py and the library's generation and sampling.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, random_weights

from lispgpt.base.errors import UserError
from lispgpt.passes.targets import Cpu
from lispgpt.runtime.batch import Batch
from lispgpt.runtime.batch_states import pieces_of
from lispgpt.runtime.decoding import ADJUSTED, DRAWN, GREEDY, PREFILL
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.near_ties import NearTies
from lispgpt.runtime.options import Options
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Buffer
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Continuation, Text

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
VOCAB, CONTEXT, TOGETHER = 67, 32, 3
GPT2 = {"vocab": VOCAB, "padded_vocab": 128, "context": CONTEXT, "layers": 2, "heads": 2, "width": 32}
DRAWN_BY: dict[str, Any] = {"temperature": 1.3, "top_k": 40, "top_p": 0.95, "seed": 5}
PENALISED: dict[str, Any] = {**DRAWN_BY, "repeat_penalty": 1.4, "frequency_penalty": 0.3, "logprobs": True}
INTAKE = {"batch": 2, "positions": 16}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (GREEDY, {"greedy": True}),
    "drawn": (DRAWN, DRAWN_BY),
    "penalised": (ADJUSTED, PENALISED),
}


@pytest.fixture(scope="module")
def by_host() -> Artifact:
    return compile_model(EXAMPLES / "gpt2_generate.lisp", TOGETHER, **GPT2)


@pytest.fixture(scope="module")
def taken_in() -> Artifact:
    return compile_model(EXAMPLES / "gpt2_generate.lisp", entries=(PREFILL,), sizes=[INTAKE], **GPT2)


@pytest.fixture(scope="module")
def by_device() -> list[Artifact]:
    """Steps that go on and choose by themselves, as on GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        sizes = [{"batch": batch, "positions": 1} for batch in (1, TOGETHER)]
        more = compile_model(EXAMPLES / "gpt2_generate.lisp", entries=(ADJUSTED,), sizes=sizes, **GPT2)
        return [compile_model(EXAMPLES / "gpt2_generate.lisp", TOGETHER, **GPT2), more]


def prompts_and_limits(count: int) -> list[tuple[list[int], int]]:
    """Ragged ones; some prompts and texts go past the context, one is empty and one a token long."""
    rng = seeded.rng()
    lengths, limits = rng.integers(1, CONTEXT + 4, count), rng.integers(2, 14, count)
    lengths[3:5], limits[:5] = (CONTEXT, CONTEXT - 1), (1, 0, CONTEXT + 9, 4, 4)
    return [([int(t) for t in rng.integers(0, VOCAB, n)], int(m)) for n, m in zip(lengths, limits, strict=True)]


def texts_of(session: Session, given: list[tuple[list[int], int]], options: Options) -> list[Text]:
    made = []
    for number, (prompt, limit) in enumerate(given):
        chosen = options.sampler(number), options.adjustment(VOCAB), options.logprobs
        made.append(Text(Generator(session, "logits", *chosen), prompt, Continuation(limit, None)))
    return made


def check(artifacts: list[Artifact], name: str, on_device: bool, device: Any = None, intake: bool = False) -> None:
    """Texts of a batch beside the same one by one.  intake: whether prompts are taken in together."""
    (entry, given), asked = OPTIONS[name], prompts_and_limits(8)
    weights = random_weights(artifacts[0], 0.5)
    with Session(artifacts[0], device or CpuDevice(2), weights) as session:  # type: ignore[arg-type]
        for more in artifacts[1:]:
            session.add(more)
        options = Options.of(given, {})
        alone = texts_of(session, asked, options)
        for text in alone:
            list(text)
        together = texts_of(session, asked, options)
        step = session.entry(entry if on_device else GREEDY, batch=TOGETHER, positions=1)
        pieces: dict[int, str] = {}
        several = session.entry(PREFILL, **INTAKE) if intake else None
        for text, piece in Batch(session, step, on_device or entry == GREEDY, several).run(together):
            pieces[id(text)] = pieces.get(id(text), "") + piece
        about = f"{asked} {[text.tokens for text in alone]} {[text.tokens for text in together]}"
        assert [text.tokens for text in together] == [text.tokens for text in alone], about
        assert [len(text.tokens) for text in together] == [limit for _, limit in asked]
        assert [pieces[id(text)].split() for text in together] == [list(map(str, text.tokens)) for text in alone]
        for one, other in zip(together, alone, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3), about
            assert len(one.logprobs) == (len(one.tokens) if options.logprobs else 0)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_hosts_choices_are_those_of_single_texts(name: str, by_host: Artifact) -> None:
    check([by_host], name, on_device=False)


@pytest.mark.parametrize("name", OPTIONS)
def test_prompts_that_are_taken_in_together_are_those_of_single_texts(
    name: str, by_host: Artifact, taken_in: Artifact
) -> None:
    check([by_host, taken_in], name, on_device=False, intake=True)


@pytest.mark.slow
@pytest.mark.parametrize("intake", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_devices_choices_are_those_of_single_texts(
    name: str, intake: bool, by_device: list[Artifact], taken_in: Artifact
) -> None:
    check([*by_device, taken_in], name, on_device=True, intake=intake)


def test_short_prompts_are_taken_in_together_where_places_are_free(by_host: Artifact, taken_in: Artifact) -> None:
    """The first two by one run, the third, which is too long, alone; the last two wait until two places are free."""
    asked = [([1] * n, limit) for n, limit in ((3, 3), (16, 9), (30, 5), (5, 4), (2, 4))]
    device = NullDevice()
    with Session(by_host, device, random_weights(by_host)) as session:  # type: ignore[arg-type]
        session.add(taken_in)
        step, several = session.entry(GREEDY, batch=TOGETHER, positions=1), session.entry(PREFILL, **INTAKE)
        texts, begun, start = texts_of(session, asked, Options.of({"greedy": True}, {})), [], session.start

        def started(entry: Any, named: Any) -> None:
            if entry is several:
                begun.append([len(text.tokens) for text in texts])
                assert named["tokens"].shape == named["positions"].shape == (2, 16)
            start(entry, named)

        session.start = started  # type: ignore[method-assign]
        list(Batch(session, step, True, several).run(texts))
        # The third has a token by its prompt and one where its context is full: it ends when the first does.
        assert begun == [[0, 0, 0, 0, 0], [3, 3, 5, 0, 0]]
        assert [len(text.tokens) for text in texts] == [limit for _, limit in asked]
        assert device.check_guards()


@pytest.mark.slow
def test_every_launch_of_a_batch_keeps_to_its_memory(by_host: Artifact) -> None:
    check([by_host], "greedy", on_device=False, device=CheckedCpuDevice(2))


def test_texts_that_add_up_states_are_those_of_single_ones(tmp_path: Path) -> None:
    artifact = compile_model(EXAMPLES / "recurrence.lisp", TOGETHER)
    vocab = artifact.config["vocab"]
    rng = seeded.rng()
    asked = [([int(t) for t in rng.integers(0, vocab, n)], m) for n, m in ((5, 4), (1, 9), (17, 3), (2, 6), (9, 5))]
    with Session(artifact, CpuDevice(2), random_weights(artifact)) as session:  # type: ignore[arg-type]
        alone, together = (texts_of(session, asked, Options.of({"greedy": True}, {})) for _ in range(2))
        for text in alone:
            list(text)
        step = session.entry(GREEDY, batch=TOGETHER, positions=1)
        assert not step.repeatable
        with pytest.MonkeyPatch.context() as patch:  # what decides a near tie leaves the others' states as they are
            patch.setattr(NearTies, "near", lambda *_: rng.random() < 0.3)
            list(Batch(session, step, True).run(together))
        assert [text.tokens for text in together] == [text.tokens for text in alone]


def test_a_sequence_that_ends_makes_room_for_the_next(by_host: Artifact) -> None:
    asked = [([1, 2], limit) for limit in (9, 3, 3, 3, 3)]
    device = NullDevice()
    with Session(by_host, device, random_weights(by_host)) as session:  # type: ignore[arg-type]
        step = session.entry(GREEDY, batch=TOGETHER, positions=1)
        before = device.launched.copy()
        list(Batch(session, step, True).run(texts_of(session, asked, Options.of({"greedy": True}, {}))))
        (last,) = [launch.kernel for launch in step.launches[-1:]]
        # Each prompt gives one token.  In 8 steps the long text ends, and beside it the four others in twos.
        assert (device.launched - before)[last] == 8
        assert device.check_guards()


def test_texts_may_be_read_in_turns(by_host: Artifact) -> None:
    asked = prompts_and_limits(8)[2:4]
    with Session(by_host, CpuDevice(2), random_weights(by_host, 0.5)) as session:  # type: ignore[arg-type]
        for given in ({"greedy": True}, DRAWN_BY):
            options = Options.of(given, {})
            alone = texts_of(session, asked, options)
            for text in alone:
                list(text)
            one, other = texts_of(session, asked, options)
            for turn in range(90):
                next(one if turn % 3 else other, None)
            assert [one.tokens, other.tokens] == [text.tokens for text in alone]


@pytest.mark.parametrize("several", [1, 4])
@pytest.mark.parametrize(("positions", "cost", "calls"), [(3, 0, 2), (3, 1 << 20, 1), (10, 0, 1)])
def test_the_part_of_a_state_that_is_in_use_is_copied(positions: int, cost: int, calls: int, several: int) -> None:
    single, number = Buffer("kv", "state", (2, several, 2, 3, 10, 4), "bf16"), several - 1
    batch = Buffer("kv@2x5x2x3x10x4", "state", (2, 5, 2, 3, 10, 4), "bf16")
    source = seeded.rng().integers(1, 1 << 16, single.shape).astype(np.uint16)
    target = np.zeros(batch.shape, np.uint16)
    found, device = list(pieces_of(single, batch, 3, positions, 10, cost, number)), NullDevice()
    for pieces in found:
        device.copy_pieces(source.reshape(-1).view(np.uint8), target.reshape(-1).view(np.uint8), pieces)
    assert len(found) == calls
    used = positions if calls > 1 else 10
    assert (target[:, 3, :, :, :used] == source[:, number, :, :, :used]).all()
    target[:, 3, :, :, :used] = 0
    assert not target.any()


def test_a_state_that_sequences_share_is_refused() -> None:
    shared = Buffer("seen", "state", (4,), "f32")
    with pytest.raises(UserError, match="share the state 'seen'"):
        list(pieces_of(shared, shared, 1, 3, 10, 0))
