"""Programs of research as examples have them: losses and gradients beside those that PyTorch gave in float64."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_research import PROGRAMS, drawn_weights, path_of, recorded

import lispgpt
from lispgpt.compiler.driver import load_pipeline
from lispgpt.compiler.request import Request
from lispgpt.passes.targets import find_target

MADE_QUICKLY = ("bert", "lstm", "resnet", "mixture", "ssd")
"""Programs that have all kinds of kernels."""


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "quick"), [*((name, False) for name in PROGRAMS), *((name, True) for name in MADE_QUICKLY)]
)
def test_losses_and_gradients_are_pytorchs(name: str, quick: bool, target: str = "cpu") -> None:
    size, wanted = PROGRAMS[name][0], recorded()[name]
    how: dict[str, Any] = {"settings": size.settings, "quick": quick, "target": target, "cache": None}
    with lispgpt.load(path_of(name), weights={}, **how) as model:
        shapes = {key: tuple(facts["shape"]) for key, facts in model.artifact.weights.items()}
        model.set(drawn_weights(name, shapes))
        found = model.run("accumulate", **size.given(name), step=1, seed=0, accumulate=1.0)
        assert float(found["loss"]) == pytest.approx(wanted["loss"], rel=1e-4)
        learned = {key.removesuffix(".gradient") for key in model.session.held("state") if key.endswith(".gradient")}
        assert learned == set(wanted["gradients"])
        for key, (length, along) in wanted["gradients"].items():
            gradient = model.session.read(f"{key}.gradient").astype(np.float64).ravel()
            assert np.linalg.norm(gradient) == pytest.approx(length, rel=2e-3, abs=1e-6), key
            off = abs((gradient * np.cos(np.arange(gradient.size))).sum() - along)
            assert off <= 2e-3 * max(length, 1e-4), f"{key}: off by {off} of {length}"


def with_weights(name: str, entry: str, given: dict[str, Any], **settings: int) -> tuple[Any, dict[str, np.ndarray]]:
    """A program's results on weights of its own, and these in float64."""
    with lispgpt.load(path_of(name), weights={}, settings=settings, quick=True, cache=None) as model:
        shapes = {key: tuple(facts["shape"]) for key, facts in model.artifact.weights.items()}
        weights = drawn_weights(name, shapes)
        model.set({key: 2 * value for key, value in weights.items()})
        return model.run(entry, **given), {key: 2 * value.astype(np.float64) for key, value in weights.items()}


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_beams_are_the_most_probable_texts() -> None:
    """Beside lists of texts in numpy, each with its chance and its state."""
    beams, steps, firsts = 3, 6, np.array([1, 2, 3], np.int32)
    found, w = with_weights("beam", "search", {"first-word": firsts}, beams=beams, steps=steps)
    for first, texts, chances in zip(firsts, found["texts"], found["chances"], strict=True):
        kept = [(0.0, [first], np.zeros(len(w["h-w"])))]
        for step in range(steps):
            longer = []
            for chance, text, h in kept:
                h = np.tanh(w["table"][text[-1]] + w["h-w"] @ h)
                over = step > 0 and text[-1] == 0
                logs = log_softmax(w["head-w"] @ h)
                longer += [
                    (chance + (0.0 if over else logs[v]), [*text, v], h) for v in ([0] if over else range(len(logs)))
                ]
            kept = sorted(longer, key=lambda one: -one[0])[:beams]
        assert [list(text) for text in texts] == [text for _, text, _ in kept]
        assert chances == pytest.approx([chance for chance, _, _ in kept], rel=1e-5)


def test_guidance_leads_away_from_no_class() -> None:
    steps, strength, rng = 8, 1.5, np.random.default_rng(3)
    noise, classes = rng.standard_normal((5, 2)).astype(np.float32), rng.integers(0, 4, 5).astype(np.int32)
    found, w = with_weights("guidance", "sample", {"noise": noise, "class": classes}, steps=steps)

    def silu(x: np.ndarray) -> np.ndarray:
        return x * (0.5 + 0.5 * np.tanh(x / 2))

    def noise_of(x: np.ndarray, t: float, kind: np.ndarray) -> np.ndarray:
        h = silu(x @ w["in-w"].T + w["time-w"] @ np.sin(t * np.arange(1, 9)) + w["class-w"][kind])
        return silu(h @ w["mid-w"].T + w["mid-b"]) @ w["out-w"].T

    x = noise.astype(np.float64)
    for step in range(steps):
        t, after = 1.5 / steps * (steps - step), 1.5 / steps * (steps - step - 1)
        asked, none = noise_of(x, t, classes), noise_of(x, t, np.full(5, 4))
        said = asked + strength * (asked - none)
        x = np.cos(after) * (x - np.sin(t) * said) / np.cos(t) + np.sin(after) * said
    assert np.abs(found["points"] - x).max() <= 2e-4 * np.abs(x).max()


def test_ops_on_sequences_are_numpys() -> None:
    """All 57 of them, of numbers that no float is near: where rows are cut and what is the greatest is certain."""
    rng = np.random.default_rng(5)
    x = rng.permutation(2 * 9).reshape(2, 9) / 5 - 1.63
    ids = rng.integers(0, 8, (2, 9)).astype(np.int32)
    with lispgpt.load(path_of("sequences"), weights={}, quick=True, cache=None) as model:
        found = model.run("ops", x=x.astype(np.float32), ids=ids)
    x = x.astype(np.float32).astype(np.float64)
    p, n, m = x * x + 0.5, *x.shape
    elements = np.floor(x) + np.ceil(x) + np.round(x) + p**1.5 + np.log2(p) + np.log1p(p) + np.log(p)
    elements += np.expm1(np.sin(x)) + np.exp(np.cos(x)) + np.sqrt(p) + 1 / np.sqrt(p) + np.tanh(x)
    elements += np.vectorize(math.erf)(x) + np.where(x > 0.5, np.minimum(x, 2), np.maximum(abs(x), 0.1))
    put = np.concatenate([x[:, : m - m // 2], x[:, : m // 2]], 1)
    along = np.cumsum(x, 1) + np.cumprod(1 + 0.01 * x, 1) + np.sort(x, 1) + x[:, ::-1] + np.roll(x, 2, 1)
    along += np.concatenate([x[:, m // 2 :], x[:, : m // 2]], 1) + np.pad(
        x[:, 1:], ((0, 0), (1, 0)), constant_values=0.25
    )
    along += x + put + x[:, ids[0]] + log_softmax(x) + np.exp(log_softmax(x))
    measured = x.mean(1) + x.var(1) + x.max(1) + x.min(1) + x.sum(1) + (1 + 0.01 * x).prod(1)
    whole = ids // 3 + ids % 3 + ids * ids + (ids & 3) + (ids | 1) + (ids ^ 3) + (ids << 1) + (ids >> 1)
    sums = np.bincount(ids.ravel(), x.ravel(), minlength=8)
    wanted = {
        "elements": elements,
        "along": along,
        "measured": measured,
        "whole": whole + np.where(ids >= 3, np.minimum(ids, 5), np.maximum(ids, 1)),
        "order": np.argsort(x, 1),
        "best": -np.sort(-x, 1)[:, :3],
        "places": np.argsort(-x, 1)[:, :3],
        "first": x.argmax(1),
        "counts": np.bincount(ids.ravel(), minlength=8),
        "sums": sums[:, None],
        "added": 1 + sums[:, None],
        "hot": np.bincount(ids[0], minlength=8),
        "products": np.outer(x[:, 0], x[0]),
        "picked": x[range(n), ids[:, 0]],
    }
    assert found.keys() == wanted.keys()
    for key, right in wanted.items():
        np.testing.assert_allclose(found[key], right, rtol=1e-5, atol=2e-5, err_msg=key)


def drawn_for(model: Any, name: str, **given: np.ndarray) -> dict[str, np.ndarray]:
    """Give a model weights, twice what is usual; these in float64.  given: others by their names."""
    shapes = {key: tuple(facts["shape"]) for key, facts in model.artifact.weights.items()}
    made = {key: 2 * value for key, value in drawn_weights(name, shapes).items()} | given
    model.set(made)
    return {key: value.astype(np.float64) for key, value in made.items()}


def test_contrasted_words_go_on_where_a_call_ended() -> None:
    words = np.array([1, 5, 7], np.int32)
    with lispgpt.load(path_of("contrastive"), weights={}, settings={"steps": 5}, quick=True, cache=None) as model:
        model.run("write", words=words)
        w = drawn_for(model, "contrastive")
        model.session.write("h", np.zeros((3, 8), np.float32))
        model.session.write("small-h", np.zeros((3, 4), np.float32))
        first = model.run("write", words=words)["words"]
        written = np.concatenate([first, model.run("write", words=first[:, -1])["words"]], 1)
    for word, found in zip(words, written, strict=True):
        h, small = np.zeros(8), np.zeros(4)
        for next_ in found:
            h = np.tanh(w["table"][word] + w["h-w"] @ h)
            small = np.tanh(w["small-table"][word] + w["small-h-w"] @ small)
            large, other = log_softmax(w["head-w"] @ h), log_softmax(w["small-head-w"] @ small)
            word = np.argmax(np.where(large >= large.max() + math.log(0.1), large - other, -1e9))
            assert next_ == word
    assert len(set(written.ravel())) > 3


def test_words_that_were_drafted_are_those_that_would_be_chosen_alone() -> None:
    length, drafts = 20, 3
    with lispgpt.load(path_of("speculative"), weights={}, settings={"length": length}, quick=True, cache=None) as model:
        model.run("write", **{"first-word": [1]})
        w = drawn_for(model, "speculative")

        def logits(words: list[int]) -> np.ndarray:
            x = w["table"][words] + w["places"][: len(words)]
            q, k, v = np.split(x @ w["qkv-w"].T, 3, axis=1)
            power = np.exp(q[-1] @ k.T / np.sqrt(8))
            y = x[-1] + w["out-w"] @ (power / power.sum() @ v)
            return w["table"] @ (y + w["down-w"] @ np.maximum(w["up-w"] @ y, 0))

        words = [1]
        while len(words) < length:
            words.append(int(logits(words).argmax()))
        rounds = []
        for right in (0, len(words)):  # drafts that are never what the layer would choose, and that mostly are
            draft = np.zeros((12, 12), np.float32)
            for one, other in pairwise(words):
                draft[one] = np.eye(12)[other if right else (other + 1) % 12]
            model.set({"draft-w": draft})
            found = model.run("write", **{"first-word": [1]})
            assert list(found["words"]) == words
            rounds.append(int(found["rounds"]))
    assert rounds[1] < rounds[0] <= length - 1 and rounds[1] >= (length - 1) / (drafts + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "lstm", "resnet"])
def test_code_that_is_made_quickly_for_a_gpu_has_the_same_results(name: str) -> None:
    """Run it after a change of which passes are only faster, or of schedule-generic."""
    test_losses_and_gradients_are_pytorchs(name, True, "emulated:gfx1151")


def test_quick_code_has_no_passes_that_are_only_faster(tmp_path: Path) -> None:
    """And what was compiled well before is taken instead."""
    of_all, quick = (
        {
            target: load_pipeline(Request(tmp_path, target, quick=quick), find_target(target))
            for target in ("cpu", "cuda")
        }
        for quick in (False, True)
    )
    for target, pipeline in quick.items():
        left = [call.name for call in pipeline.calls]
        assert "schedule-generic" in left and "plan-arena" in left
        gone = {call.name for call in of_all[target].calls} - set(left)
        known = ("schedule-", "choose", "split-", "join-")
        assert len(gone) >= 4 and all(name.startswith(known) for name in gone), gone
    assert find_target("cpu").quick() != find_target("cpu") and str(find_target("cpu").quick()) == "cpu"
    asked = Request(tmp_path, longest=16, quick=True)
    assert [each.quick for each in asked.wider()] == [True] * 4 + [False] * 4
    with pytest.raises(lispgpt.UserError, match="no schedules of your own"):
        load_pipeline(Request(tmp_path, "cuda", quick=True, schedules=[tmp_path]), find_target("cuda"))


def test_attention_says_which_options_it_has(tmp_path: Path) -> None:
    (tmp_path / "p.lisp").write_text(
        "(require nn)\n(entry e [(q [1 2 1 4] f32)]\n  (attention-to q q q {:casual true}))\n"
    )
    with pytest.raises(lispgpt.UserError, match="`attention-to` has no option :casual; it has :causal, :mask"):
        lispgpt.load(tmp_path / "p.lisp", cache=None)
