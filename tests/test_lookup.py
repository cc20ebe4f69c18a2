"""Look-up decoding: the same greedy tokens in fewer runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import seeded
from compiled_models import compile_model, random_weights

from lispgpt.base.errors import UserError
from lispgpt.passes.targets import Cpu
from lispgpt.runtime.decoding import VERIFY
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.lookup import CHECK_STEPS, LONGEST, SHORTEST, Lookup
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.session import Session

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SIZES = {"vocab": 67, "padded_vocab": 128, "context": 48, "layers": 2, "heads": 2, "width": 32}
DRAFTED = 5
NOTHING = Entry("verify-draft", {}, {}, {}, ())


def searched(tokens: list[int], room: int, most: int) -> list[int]:
    """A draft, the slow way: the newest earlier place of the longest end that has one."""
    for length in range(min(LONGEST, len(tokens) - 1), SHORTEST - 1, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[-length:]:
                text = list(tokens)
                while len(text) < len(tokens) + min(most, room):
                    text.append(text[start + length + len(text) - len(tokens)])
                return text[len(tokens) :]
    return []


def test_drafts_are_what_followed_the_texts_end_before() -> None:
    rng = seeded.rng()
    for _ in range(40):
        tokens, lookup = [int(t) for t in rng.integers(0, 4, 3)], Lookup(NOTHING, DRAFTED)
        for _ in range(30):
            room = int(rng.integers(0, 8))
            assert lookup.draft(tokens, room) == searched(tokens, room, DRAFTED), tokens
            tokens += [int(t) for t in rng.integers(0, 4, rng.integers(1, 3))]


@pytest.fixture(scope="module")
def artifacts() -> list[Artifact]:
    program, sizes = EXAMPLES / "gpt2_generate.lisp", [{"batch": 1, "length": DRAFTED + 1}]
    return [compile_model(program, **SIZES), compile_model(program, entries=(VERIFY,), sizes=sizes, **SIZES)]


class Counted(CpuDevice):
    runs = 0

    def launch(self, executable: object) -> None:
        self.runs += 1
        super().launch(executable)  # type: ignore[arg-type]


def test_tokens_are_the_greedy_ones_and_runs_are_fewer(artifacts: list[Artifact]) -> None:
    """Random weights soon repeat themselves; texts go past the context, too."""
    fewer = 0
    for _ in range(4):
        device, rng = Counted(2), seeded.rng()
        with Session(artifacts[0], device, random_weights(artifacts[0], 0.5)) as session:  # type: ignore[arg-type]
            session.add(artifacts[1])
            motif = [int(t) for t in rng.integers(0, SIZES["vocab"], rng.integers(1, 5))]
            prompt, limit = (motif * 9)[: int(rng.integers(1, 20))], int(rng.integers(30, 90))
            expected = list(Generator(session, "logits").generate(prompt, limit))
            plain, device.runs = device.runs, 0
            found = list(Generator(session, "logits", lookup=DRAFTED).generate(prompt, limit))
            assert found == expected, f"{prompt} {limit}"
            fewer += device.runs < plain * 0.7
    assert fewer >= 2


def test_drafts_that_are_mostly_wrong_are_not_checked_until_others_would_have_been_right() -> None:
    lookup = Lookup(NOTHING, DRAFTED, CHECK_STEPS)
    assert lookup.pays
    for _ in range(3):
        lookup.learn(0)
    assert not lookup.pays
    tokens = [1, 2, 3]
    while not lookup.pays:  # what repeats itself with a period of three
        lookup.came(tokens, token := tokens[-3])
        tokens.append(token)
    assert len(tokens) == 3 + 2 + DRAFTED  # one draft, of what follows 1 2


def test_where_steps_run_on_by_themselves_they_go_on_between_drafts(artifacts: list[Artifact]) -> None:
    """Of a text that does not repeat itself few drafts are checked, and then one that does is caught up with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        running = compile_model(EXAMPLES / "gpt2_generate.lisp", **SIZES | {"context": 96})
        more = compile_model(
            EXAMPLES / "gpt2_generate.lisp",
            entries=(VERIFY,), sizes=[{"batch": 1, "length": DRAFTED + 1}], **SIZES | {"context": 96},
        )  # fmt: skip
    with Session(running, CpuDevice(2), random_weights(running, 0.5)) as session:  # type: ignore[arg-type]
        session.add(more)
        checked, start = [], session.start

        def started(entry: Entry, named: Any) -> None:
            checked.append(entry.name == VERIFY)
            start(entry, named)

        session.start = started  # type: ignore[method-assign]
        for _ in range(3):
            prompt = [int(t) for t in seeded.rng().integers(0, SIZES["vocab"], 20)]
            expected = list(Generator(session, "logits").generate(prompt, 70))
            checked.clear()
            generator = Generator(session, "logits", lookup=DRAFTED)
            assert list(generator.generate(prompt, 70)) == expected, prompt
            assert generator.drafts is not None
            wrong = sum(checked) - 70 / (1 + DRAFTED)
            assert wrong < 12, f"{sum(checked)} drafts were checked for {expected}"


def test_an_end_inside_of_a_draft_ends_the_text(artifacts: list[Artifact]) -> None:
    with Session(artifacts[0], CpuDevice(2), random_weights(artifacts[0], 0.5)) as session:  # type: ignore[arg-type]
        session.add(artifacts[1])
        plain = list(Generator(session, "logits").generate([1, 2, 3], 40))
        for end in dict.fromkeys(plain):
            expected = plain[: plain.index(end) + 1]
            assert list(Generator(session, "logits", lookup=DRAFTED).generate([1, 2, 3], 40, {end})) == expected


def test_what_cannot_be_drafted_is_refused(artifacts: list[Artifact]) -> None:
    with Session(artifacts[0], NullDevice(), random_weights(artifacts[0])) as session:  # type: ignore[arg-type]
        with pytest.raises(UserError, match="drafts greedy tokens"):
            Generator(session, "logits", make_sampler(seed=1), lookup=3)
        with pytest.raises(UserError, match="no entry 'verify-draft' is compiled for batch 1, length 4"):
            Generator(session, "logits", lookup=3)
    adding = compile_model(EXAMPLES / "recurrence.lisp")
    with (
        Session(adding, NullDevice(), random_weights(adding)) as session,  # type: ignore[arg-type]
        pytest.raises(UserError, match="states add up"),
    ):
        Generator(session, "logits", lookup=3)
