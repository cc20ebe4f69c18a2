"""A smaller model's drafts change no token, whatever they are worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import seeded
from compiled_models import compile_model, random_weights
from recorded_folders import Folder, folders
from test_cli import Call, call, made

import lispgpt
from lispgpt.passes.targets import Cpu
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.drafting import DRAFTED, DraftModel
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

__all__ = ["call", "made"]

FOLDERS: dict[str, Folder] = {each.name: each for each in folders()}
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LARGE = FOLDERS["gpt2-untied-f32"]
CHOICES: list[dict[str, Any]] = [
    {"greedy": True},
    {"greedy": True, "logprobs": True},
    {"seed": 5, "temperature": 0.5},
    {"seed": 6, "top_k": 5, "repeat_penalty": 1.3, "logprobs": True},
    {"greedy": True, "frequency_penalty": 0.5, "logit_bias": {7: 2.0}},
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, lispgpt.Model]]:
    """A model alone, with a draft model that is itself, and with one that says other things."""
    place = tmp_path_factory.mktemp("drafts")
    large, other = LARGE.write(place / "large"), replace(LARGE, seed=LARGE.seed + 1).write(place / "other")
    loaded = {
        "alone": lispgpt.load(large, cache=place),
        "itself": lispgpt.load(large, draft=large, cache=place),
        "other": lispgpt.load(large, draft=other, cache=place),
    }
    yield loaded
    for model in loaded.values():
        model.close()


@pytest.mark.drawn
@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_drafts_change_no_token(number: int, models: dict[str, lispgpt.Model]) -> None:
    prompt, options = seeded.rng().integers(3, 131, 7).tolist(), CHOICES[number]
    texts = {name: model.generate(prompt, max_new_tokens=30, **options) for name, model in models.items()}
    for text in texts.values():
        str(text)
    assert texts["alone"].tokens == texts["itself"].tokens == texts["other"].tokens
    for name in ("itself", "other"):
        assert texts[name].logprobs == pytest.approx(texts["alone"].logprobs, abs=1e-3)
        drafts = texts[name].generator.drafts
        assert drafts is not None and drafts.checked > 0
        if options == {"greedy": True}:
            assert drafts.share == 1 if name == "itself" else drafts.share < 0.5


def test_a_draft_is_one_run_of_steps_where_they_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "runs_ahead", True)
    sizes = {"vocab": 90, "context": 40, "layers": 1, "heads": 1, "width": 64, "weight_type": "f32"}
    artifact = compile_model(EXAMPLES / "gpt2_generate.lisp", **sizes)
    with Session(artifact, CpuDevice(2), random_weights(artifact)) as session:  # type: ignore[arg-type]
        prompt, counts = seeded.rng().integers(0, 90, 5).tolist(), list[int]()
        wanted = list(Generator(session, "logits").generate(prompt, 9))

        def repeat(entry: Entry, result: str, count: int, *more: Any) -> Iterator[Any]:
            counts.append(count)
            return Session.repeat(session, entry, result, count, *more)

        monkeypatch.setattr(session, "repeat", repeat)
        drafts = DraftModel(Generator(session, "logits"), 90)
        assert drafts(prompt, 4) == wanted[:4]
        assert drafts([*prompt, *wanted[:2]], 4) == wanted[2:6]
        assert drafts([*prompt, *wanted[:5]], 4) == wanted[5:]
        assert counts == [3, 4, 4]


def test_drafts_go_on_where_the_context_is_full(models: dict[str, lispgpt.Model]) -> None:
    context = int(models["alone"].session.config["context"])
    prompt = seeded.rng().integers(3, 131, context - 6).tolist()
    texts = [model.generate(prompt, max_new_tokens=20, greedy=True) for model in models.values()]
    for text in texts:
        str(text)
    assert texts[0].tokens == texts[1].tokens == texts[2].tokens and len(texts[0].tokens) == 20


def test_texts_take_turns(models: dict[str, lispgpt.Model]) -> None:
    """One draft model serves both, whose states it takes in again."""
    prompts = [seeded.rng().integers(3, 131, length).tolist() for length in (5, 9)]
    alone = [models["alone"].generate(prompt, max_new_tokens=16, greedy=True) for prompt in prompts]
    drafted = [models["itself"].generate(prompt, max_new_tokens=16, greedy=True) for prompt in prompts]
    for text in alone:
        str(text)
    while not all(text.ended for text in drafted):
        for text in drafted:
            next(text, None)
    assert [text.tokens for text in drafted] == [text.tokens for text in alone]
    several = models["itself"].generate_batch(prompts, max_new_tokens=16, greedy=True)
    assert [text.tokens for text in several] == [text.tokens for text in alone]


def test_a_draft_model_has_to_fit(models: dict[str, lispgpt.Model]) -> None:
    vocab = int(models["alone"].session.config["vocab"])
    for stand_in, word in (
        (SimpleNamespace(vocab=vocab, repeatable=False), "states add up"),
        (SimpleNamespace(vocab=vocab + 1, repeatable=True), "they differ"),
    ):
        with pytest.raises(lispgpt.UserError, match=word):
            DraftModel(stand_in, vocab)  # type: ignore[arg-type]
    with pytest.raises(lispgpt.UserError, match="take one of them"):
        models["itself"].generate([1, 2], greedy=True, lookup=3)
    with pytest.raises(lispgpt.UserError, match="one text at a time"):
        models["itself"].generate_batch([[1, 2], [3]], greedy=True, batch=2)


@pytest.mark.slow
def test_the_command_drafts(tmp_path: Path, call: Call) -> None:
    """Run it after a change of lispgpt/cli/run.py."""
    large = LARGE.write(tmp_path / "large")
    given = ["run", large, "--prompt-tokens", "5,9,20", "--greedy", "--max-new-tokens", 3 * DRAFTED]
    plain, drafted = call(*given), call(*given, "--draft", large, "--stats")
    assert plain.code == drafted.code == 0, drafted.err
    assert plain.out == drafted.out and "tokens were right" in drafted.err
