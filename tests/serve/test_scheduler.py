"""A text's tokens are those of its request alone: whatever runs beside it, was there before, or is cancelled."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import seeded
from recorded_adapters import small_adapter, wide_adapter
from serve.conftest import AUSTEN
from serve.promise import (
    LAYERS,
    PLACES,
    VOCAB,
    WIDTH,
    Following,
    Heard,
    Request,
    asked_alone,
    check_promise,
    random_requests,
    small_folder,
)

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime import batch, near_ties
from lispgpt.runtime.decoding import DRAWN, GROUPS, SHORT_PROMPT, STEERED
from lispgpt.runtime.intake import Intake
from lispgpt.runtime.places import Places
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text
from lispgpt.serve.scheduler import Busy, Job, Scheduler


@dataclass
class Small:
    """A model with adapters and a draft model, and the same one without a draft for requests alone."""

    model: lispgpt.Model
    alone: lispgpt.Model
    adapters: int


LEAD = int(np.float32(0.002).view(np.int32))
"""The bits of a lead that some steps of any model have: where no larger one is clear, near ties come in hundreds."""


@pytest.fixture(scope="module")
def near() -> Iterator[None]:
    """Near ties in some of the steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_ties, "CLEAR_BITS", LEAD)
        patch.setattr(near_ties, "CLEAR_BLOCKS_BITS", LEAD)
        yield


@pytest.fixture(scope="module")
def small(near: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """A small model with adapters of several ranks and with a draft model, which is itself without adapters: right
    where a text has none; and the same model without a draft, for requests alone."""
    path, seed = tmp_path_factory.mktemp("small"), int(seeded.rng().integers(1 << 20))
    folder = small_folder(path / "model", seed)
    adapters = [wide_adapter(path / f"adapter-{rank}", seed + rank, rank, LAYERS, WIDTH) for rank in (2, 5)]
    given: Any = {"adapters": adapters, "batch": PLACES, "cache": path / "cache", "threads": 1}
    with lispgpt.load(folder, draft=folder, **given) as model, lispgpt.load(folder, **given) as alone:
        yield Small(model, alone, len(adapters))


def test_tokens_are_those_of_the_request_alone(small: Small) -> None:
    """Of hundreds of requests with adapters and a draft model: a text that is alone for a while is drafted, and the
    others are not; prompts that begin alike share nothing beyond one adapter."""
    with drafts_of(small.model) as drafts:
        scheduler = check_promise(small.model, small.alone, seeded.rng(), 200, small.adapters)
    assert scheduler.counts.cached_tokens > 200  # prefixes were shared
    used = [each for each in drafts if each.checked]
    assert used and 0 < sum(each.accepted for each in used) < sum(each.checked for each in used)
    assert small.model.text([1], small.model.options(greedy=True)).generator.near_ties.decided > 10


def test_tokens_of_short_prompts_that_are_taken_in_together_are_those_alone(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on devices where reading the weights takes longer than some rows: by one run for some of the places."""
    together, take_in = list[int](), Places.begin_taking_in

    def noted(self: Places, texts: Sequence[Text]) -> None:
        together.append(len(texts))
        take_in(self, texts)

    monkeypatch.setattr(Places, "begin_taking_in", noted)
    for model in (small.model, small.alone):
        monkeypatch.setattr(model.session.device, "weight_rows", SHORT_PROMPT)
    check_promise(small.model, small.alone, seeded.rng(), 40, small.adapters, 2 * GROUPS)
    assert set(together) == {1, 2}


def test_tokens_of_one_place_are_those_alone(small: Small) -> None:
    """Whose states are those that prompts are taken in by."""
    check_promise(small.alone, small.alone, seeded.rng(), 20, small.adapters, 1)
    scheduler, asked = Scheduler(small.alone, 1, 1), Request([*range(60)], {"greedy": True, "max_new_tokens": 8})
    try:
        alone = asked_alone(scheduler, asked).whole
        heard = Heard(scheduler, [asked])
        heard.wait()
        assert heard.said[0].whole == alone and heard.jobs[0].cached
    finally:
        scheduler.close()


@contextmanager
def drafts_of(model: lispgpt.Model) -> Iterator[list[Any]]:
    """What drafts each text that a model begins meanwhile."""
    found: list[Any] = []
    text = model.text

    def noted(*given: Any, **more: Any) -> Any:
        made = text(*given, **more)
        found.extend([made.generator.drafts] if made.generator.drafts else [])
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "text", noted)
        yield found


@pytest.mark.slow
def test_tokens_of_thousands_of_requests_are_those_of_each_alone(small: Small) -> None:
    """Run it after a change of lispgpt/serve/, of adapters or of drafts."""
    check_promise(small.model, small.alone, seeded.rng(), 4000, small.adapters)


@pytest.mark.slow
def test_tokens_of_a_trained_model_are_those_of_each_request_alone(model: lispgpt.Model, tmp_path: Path) -> None:
    with lispgpt.load(AUSTEN, batch=PLACES, cache=tmp_path) as alone:
        check_promise(model, alone, seeded.rng(), 1000)


@pytest.mark.slow
def test_tokens_of_a_trained_model_with_adapters_and_drafts(tmp_path: Path) -> None:
    folders = [small_adapter(tmp_path / "small", 1), wide_adapter(tmp_path / "wide", 2)]
    given: Any = {"adapters": folders, "batch": PLACES, "cache": tmp_path / "cache"}
    with lispgpt.load(AUSTEN, draft=AUSTEN, **given) as model, lispgpt.load(AUSTEN, **given) as alone:
        check_promise(model, alone, seeded.rng(), 1000, len(folders))


@pytest.mark.slow
def test_tokens_of_roughly_computed_requests_are_those_of_each_alone(tmp_path: Path) -> None:
    """Where no near ties are decided: texts run by the same kernels whatever is beside them."""
    given: Any = {"batch": PLACES, "precision": "fast", "cache": tmp_path}
    with lispgpt.load(AUSTEN, **given) as rough, lispgpt.load(AUSTEN, **given) as alone:
        check_promise(rough, alone, seeded.rng(), 60)


def test_nothing_is_drafted_where_near_ties_are_not_decided(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """There (16 bits between kernels) a text by itself would have other tokens than among others."""
    ties = small.model.text([1], small.model.options(greedy=True)).generator.near_ties
    scheduler = Scheduler(small.model, PLACES, 10)
    try:
        checked = []
        for watches in (True, False):
            monkeypatch.setattr(ties, "watches", watches)
            heard = Heard(scheduler, [Request([1, 2, 3], {"max_new_tokens": 30, "greedy": True})])
            heard.wait()
            assert heard.jobs[0].text is not None and heard.jobs[0].text.generator.drafts is not None
            checked.append(heard.jobs[0].text.generator.drafts.checked)
        assert checked[0] > 0 == checked[1]
    finally:
        scheduler.close()


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have the batch's steps go on by themselves, as GPUs' do: four are launched ahead of what is read.  Seconds that
    each takes may be put in."""
    seconds = [0.0]

    def repeat(
        self: Session, entry: Entry, result: str, count: int, most: int = 4, more: Callable[[], bool] = lambda: True
    ) -> Iterator[np.ndarray]:
        inputs, waiting = {name: self.read(place) for name, place in entry.inputs.items()}, deque[np.ndarray]()
        for number in range(count):
            while len(waiting) < most and number + len(waiting) < count and more():
                self.start(entry, inputs)
                waiting.append(self.result(entry, result).copy())
                inputs |= {"tokens": waiting[-1][:, :1], "positions": inputs["positions"] + 1}
            if not waiting:
                return
            time.sleep(seconds[0])
            yield waiting.popleft()

    monkeypatch.setattr(batch, "runs_on", lambda entry: entry.sizes["batch"] > 1)
    monkeypatch.setattr(Session, "repeat", repeat)
    return seconds


def test_tokens_that_are_launched_ahead_are_those_of_the_request_alone(
    model: lispgpt.Model, ahead: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy texts, which devices run by themselves; some end at a word, by a token, or by one that is not clear."""
    assert model.tokenizer is not None
    random, ends = seeded.rng(), model.tokenizer.ends
    monkeypatch.setattr(type(model.tokenizer), "ends", ends | set(random.integers(0, 4095, 60).tolist()))
    monkeypatch.setattr(near_ties, "CLEAR_BLOCKS_BITS", int(np.float32(0.01).view(np.int32)))  # some of the steps
    requests: list[Request] = []
    for asked in random_requests(random, 20, model):
        stop = {"stop": (" the", "and")} if random.random() < 0.3 else {}
        options = {"max_new_tokens": asked.options["max_new_tokens"], "greedy": True, **stop}
        requests.append(Request(asked.prompt, options, cancelled=asked.cancelled))
    scheduler = Scheduler(model, PLACES, len(requests))
    scheduler.decides = True
    try:
        together = Heard(scheduler, requests)
        together.wait()
    finally:
        scheduler.close()
    assert not [said.error for said in together.said if said.error]
    assert {said.ended for said in together.said} & {"end", "stop"}
    for said, asked in zip(together.said, requests, strict=True):
        if asked.cancelled is None:
            text = model.generate(asked.prompt, **asked.options)
            pieces = "".join(text)
            assert (said.tokens, said.ended) == (text.tokens, text.ended), asked
            assert text.ended == "end" or "".join(said.pieces) == pieces


def test_a_text_is_told_as_it_is_made_and_ends_when_it_is_cancelled(model: lispgpt.Model, ahead: list[float]) -> None:
    ahead[0] = 0.004
    scheduler, heard, times = Scheduler(model, PLACES, 1), list[str](), list[float]()
    try:

        def hear(piece: str, ended: str | None, error: Exception | None) -> None:
            heard.append(piece)
            times.append(time.monotonic())

        job = Job([1, 2, 3], model.options(greedy=True, max_new_tokens=250, stop=()), hear)
        scheduler.submit([job])
        until = time.monotonic() + 30
        while len(heard) < 8 and time.monotonic() < until:
            time.sleep(0.001)
        scheduler.cancel(job)
        while scheduler.running and time.monotonic() < until:
            time.sleep(0.001)
        assert job.text is not None and job.text.ended is None and 8 <= len(job.text.tokens) < 200
        assert times[7] - times[0] > 0.02
    finally:
        scheduler.close()


@pytest.mark.parametrize(
    ("texts", "milliseconds", "steps"),
    [(64, 0.5, 8), (8, 0.5, 1), (64, 1.5, 3), (64, 0.1, 16), (1, 20.0, 1), (9, None, 4)],
)
def test_few_texts_have_few_steps_ahead_of_what_comes_next(texts: int, milliseconds: float | None, steps: int) -> None:
    """Whoever comes waits for all of them; making pieces of many texts takes as long as several steps do."""
    entry: Any = SimpleNamespace(sizes={"batch": 64}, repeats=None)
    places: Any = Places(cast(Session, None), entry, None, lambda: False, None)
    places.places[:texts] = [object()] * texts
    places._seconds = None if milliseconds is None else milliseconds / 1e3
    assert places._steps_ahead() == steps


def test_a_long_prompt_holds_up_no_other_text(
    model: lispgpt.Model, ahead: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between some chunks of it the others have a step, on devices whose steps go on by themselves, too."""
    scheduler, found, heard = Scheduler(model, PLACES, 9), list[int](), queue.Queue[Heard]()
    taken = list[int]()
    long = Request([*range(100, 220)], {"max_new_tokens": 2, "greedy": True})

    def hear(*_: object) -> None:
        if heard.empty() and not found:
            heard.put(Heard(scheduler, [long]))

    running = Job([1, 2, 3], model.options(greedy=True, max_new_tokens=240, stop=()), hear)
    chunk = Intake.chunk

    def noted(self: Intake) -> int | None:
        if running.text is not None and self.text is not running.text:
            found.append(len(running.text.tokens))
            taken.append(self._done)
        return chunk(self)

    monkeypatch.setattr(Intake, "chunk", noted)
    try:
        scheduler.submit([running])
        heard.get(timeout=30).wait()
        scheduler.cancel(running)
    finally:
        scheduler.close()
    assert len(found) > 3 and len({*found}) == len(found)
    rows = model.session.device.weight_rows
    chunks = {after - before for before, after in pairwise(taken)}
    assert chunks <= {rows, 2 * rows} and 2 * rows in chunks and rows == scheduler.page


def test_what_a_device_can_draw_it_draws_whatever_is_beside(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in of what draws that takes the most probable token: the host's draws would be others."""
    random, model = seeded.rng(), small.alone
    drawn = [
        Request(each.prompt, {"temperature": 1.5, "seed": n, "max_new_tokens": 12}, adapter=each.adapter)
        for n, each in enumerate(random_requests(random, 8, model, small.adapters))
    ]
    others = [
        Request([n], {"max_new_tokens": 20, "greedy": True, **more}, top=2 * n)
        for n, more in enumerate(({}, {"logit_bias": {7: 1.0}}, {"frequency_penalty": 0.3}))
    ]
    scheduler = Scheduler(model, PLACES, 100)
    try:
        alone = [asked_alone(scheduler, each).whole for each in others]
        places = scheduler._batch
        monkeypatch.setattr(places, "other", replace(places.entry, name=DRAWN))
        beside = []
        for asked in drawn:
            heard = Heard(scheduler, [asked, *others])
            heard.wait()
            assert [said.whole for said in heard.said[1:]] == alone
            beside.append(heard.said[0])
        for asked, said in zip(drawn, beside, strict=True):
            assert asked_alone(scheduler, asked).whole == said.whole
            first = said.tokens[:1]
            greedy = {"greedy": True, "max_new_tokens": 11}
            assert (
                asked_alone(scheduler, Request(asked.prompt + first, greedy, adapter=asked.adapter)).tokens
                == (said.tokens[1:])
            )
    finally:
        scheduler.close()


@pytest.mark.slow
def test_tokens_that_a_gpu_draws_are_those_of_the_request_alone(tmp_path: Path) -> None:
    """On an emulated chip: drawn texts beside greedy ones, with penalties and with the most probable tokens told, some
    by grammars, whose masks the device has; and the same where the host follows these."""
    ways: list[dict[str, Any]] = [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 2.0}]
    ways += [{"temperature": 1.0, "top_k": 9}, {"greedy": True}, {"temperature": 1.0, "frequency_penalty": 0.5}]
    random, folder = seeded.rng(), small_folder(tmp_path / "model", 5, layers=1, vocab=128, context=32)
    requests = [
        Request(
            random.integers(0, 127, random.integers(1, 20)).tolist(),
            {**ways[n % len(ways)], "max_new_tokens": int(random.integers(2, 7))}
            | ({} if "greedy" in ways[n % len(ways)] else {"seed": n}),
            top=2 if n == 7 else 0,
            grammar=partial(Following, 128, 3) if n in (1, 4, 5, 6) else None,
        )
        for n in range(11)
    ]
    with lispgpt.load(folder, batch=PLACES, target="emulated:gfx1151", cache=tmp_path / "cache") as model:
        scheduler = Scheduler(model, PLACES, 100)
        try:
            heard = Heard(scheduler, requests)
            heard.wait()
            assert scheduler._batch.other is not None and scheduler._batch.other.name == STEERED
            for asked, said in zip(requests, heard.said, strict=True):
                assert said.error is None and asked_alone(scheduler, asked).whole == said.whole, asked
            scheduler._batch.other = None
            for asked, said in zip(requests, heard.said, strict=True):
                if asked.grammar:
                    assert asked_alone(scheduler, asked).whole == said.whole, asked
        finally:
            scheduler.close()


def test_tokens_are_those_of_the_model_by_itself(model: lispgpt.Model) -> None:
    """Greedy ones of another way of running, too, where near ties are decided alike."""
    requests = [each for each in random_requests(seeded.rng(), 30, model) if each.options.get("greedy")]
    requests = [Request(each.prompt, {**each.options, "logprobs": False}) for each in requests]
    scheduler = Scheduler(model, PLACES, 100)
    scheduler.decides = True
    try:
        heard = Heard(scheduler, requests)
        heard.wait()
    finally:
        scheduler.close()
    for said, asked in zip(heard.said, requests, strict=True):
        text = model.generate(asked.prompt, **asked.options)
        "".join(text)
        assert said.tokens == text.tokens


def test_a_queue_is_full_at_some_point_and_what_is_left_hears_of_the_end(small: Small) -> None:
    scheduler = Scheduler(small.model, PLACES, 3)
    request = Request([1, 2, 3], {"max_new_tokens": 100, "greedy": True})
    heard = Heard(scheduler, [request] * 8)  # where nobody waits, one request may be larger than the queue
    with pytest.raises(Busy) as busy:
        Heard(scheduler, [request])
    assert busy.value.seconds >= 1
    scheduler.close()
    heard.wait()
    assert {said.ended for said in heard.said} <= {"cancelled", "length"}
    with pytest.raises(Busy):
        scheduler.submit([])
    assert not any(thread.name == "scheduler" and thread is scheduler._thread for thread in threading.enumerate())


class Lost(Following):
    """A grammar that cannot be followed for long."""

    def __init__(self) -> None:
        super().__init__(VOCAB, 9)

    def allowed(self) -> np.ndarray:
        if self._left < 8:
            raise UserError("it is lost")
        return super().allowed()

    def wrote(self, token: int) -> None:
        self._left -= 1


def test_what_cannot_run_fails_alone(small: Small) -> None:
    scheduler = Scheduler(small.model, PLACES, 10)
    try:
        good = Request([1, 2, 3], {"max_new_tokens": 30, "greedy": True})
        bad = [Request([VOCAB], {"max_new_tokens": 3}), Request([4], {"max_new_tokens": 9}, grammar=Lost)]
        heard = Heard(scheduler, [good, *bad, good])
        heard.wait()
        assert isinstance(heard.said[1].error, UserError) and str(heard.said[2].error) == "error: it is lost"
        assert heard.said[0].whole == heard.said[3].whole and heard.said[0].error is None
    finally:
        scheduler.close()
