"""A text's tokens are those of its request alone: whatever runs beside it, was there before, or is cancelled."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from recorded_adapters import small_adapter, wide_adapter
from serve.conftest import AUSTEN, PLACES

import lispgpt
from lispgpt.runtime import batch, near_ties
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.serve.jobs import Job
from lispgpt.serve.scheduler import Busy, Scheduler

Request = tuple[list[int], dict[str, Any], int, int]


def random_requests(random: np.random.Generator, count: int, adapters: int = 0) -> list[Request]:
    """Prompts that share starts or do not, how they are continued, how many alternatives are wanted, and by which of
    so many adapters."""
    starts = [random.integers(0, 4095, 120).tolist() for _ in range(3)]
    found = []
    for _ in range(count):
        start = starts[random.integers(3)][: random.integers(0, 120)]
        prompt = start + random.integers(0, 4095, random.integers(1, 100)).tolist()
        options: dict[str, Any] = {"max_new_tokens": int(random.integers(1, min(60, 256 - len(prompt))))}
        if random.random() < 0.4:
            options["greedy"] = True
        else:
            options |= {"temperature": float(random.uniform(0.3, 1.5)), "seed": int(random.integers(1 << 40))}
            options |= {"top_p": 0.9} if random.random() < 0.3 else {}
        if random.random() < 0.3:
            options |= {"frequency_penalty": 0.5, "logit_bias": {int(random.integers(4096)): 3.0}}
        found.append((prompt, options, 4 if random.random() < 0.3 else 0, int(random.integers(adapters + 1))))
    return found


class Heard:
    """What a scheduler said of jobs."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._done = scheduler, queue.Queue[int]()
        self.jobs: list[Job] = []
        self.said: dict[int, Any] = {}
        self.pieces: dict[int, str] = {}

    def submit(self, requests: list[Request]) -> None:
        for number, (prompt, options, top, adapter) in enumerate(requests):
            options = self._scheduler.model.options(**options)
            self.jobs.append(Job(prompt, options, self._hearing(number), top=top, adapter=adapter))
        self._scheduler.submit(self.jobs)

    def _hearing(self, number: int) -> Any:
        def hear(piece: str, ended: str | None, error: Exception | None) -> None:
            self.pieces[number] = self.pieces.get(number, "") + piece
            job = self.jobs[number]
            if ended or error:
                tokens = None if job.text is None else list(job.text.tokens)
                self.said[number] = (tokens, ended, error, job.steering and job.steering.tops)
                self._done.put(number)

        return hear

    def wait(self, count: int) -> None:
        for _ in range(count):
            self._done.get(timeout=120)


def check_alone(
    model: lispgpt.Model,
    random: np.random.Generator,
    count: int,
    adapters: int = 0,
    by: lispgpt.Model | None = None,
) -> Scheduler:
    """Random requests together, some of them cancelled, and each of the others alone: the same, to the last bit.

    by: the model that has them alone, where that is another one.
    """
    requests = random_requests(random, count, adapters)
    scheduler = Scheduler(model, PLACES, count)
    single = scheduler if by is None else Scheduler(by, PLACES, 1)
    try:
        together = Heard(scheduler)
        together.submit(requests)
        cancelled = set(random.choice(count, count // 10, replace=False).tolist())
        for number in cancelled:
            scheduler.cancel(together.jobs[number])
        together.wait(count - len(cancelled - set(together.said)))
        for number, request in enumerate(requests):
            if number in together.said:
                single.prefixes.forget()
                alone = Heard(single)
                alone.submit([request])
                alone.wait(1)
                assert alone.said[0] == together.said[number], request
                assert alone.pieces[0] == together.pieces[number]
    finally:
        scheduler.close()
        single.close()
    return scheduler


def test_tokens_are_those_of_the_request_alone(model: lispgpt.Model) -> None:
    scheduler = check_alone(model, seeded.rng(), 40)
    assert scheduler.counts.cached_tokens > 200  # prefixes were shared


@pytest.mark.slow
def test_tokens_of_a_thousand_requests_are_those_of_each_alone(model: lispgpt.Model) -> None:
    check_alone(model, seeded.rng(), 1000)


@pytest.mark.slow
def test_tokens_of_roughly_computed_requests_are_those_of_each_alone(tmp_path: Path) -> None:
    """Where no near ties are decided: texts run by the same kernels whatever is beside them."""
    with lispgpt.load(AUSTEN, batch=PLACES, precision="fast", cache=tmp_path) as rough:
        check_alone(rough, seeded.rng(), 60)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path, seeds = tmp_path_factory.mktemp("adapters"), seeded.rng().integers(1 << 20, size=3).tolist()
    return [small_adapter(path / "small", seeds[0]), *(wide_adapter(path / f"wide-{s}", s) for s in seeds[1:])]


@pytest.fixture(scope="module")
def adapted(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[lispgpt.Model]:
    with lispgpt.load(AUSTEN, adapters=folders, batch=PLACES, cache=tmp_path_factory.mktemp("adapted")) as made:
        yield made


def test_tokens_with_adapters_are_those_of_the_request_alone(adapted: lispgpt.Model, folders: list[Path]) -> None:
    """Adapters of several ranks in one batch; prompts that begin alike share nothing beyond one adapter."""
    check_alone(adapted, seeded.rng(), 20, len(folders))


@pytest.mark.slow
def test_tokens_of_a_thousand_requests_with_adapters(adapted: lispgpt.Model, folders: list[Path]) -> None:
    """Run it after a change of lispgpt/serve/ or of adapters."""
    check_alone(adapted, seeded.rng(), 1000, len(folders))


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lispgpt.Model]:
    """The model with one that drafts: itself, with an adapter that makes it wrong now and then."""
    folder = tmp_path_factory.mktemp("drafted")
    with lispgpt.load(AUSTEN, batch=PLACES, cache=folder, draft=AUSTEN) as made:
        draft = lispgpt.load(AUSTEN, adapter=small_adapter(folder / "adapter"), cache=folder)
        assert made.draft is not None
        made.draft.close()
        made.draft = draft
        yield made


def check_drafted(drafted: lispgpt.Model, model: lispgpt.Model, count: int) -> None:
    """A text that is alone for a while is drafted, and the others are not: tokens are those without a draft model."""
    lookups: list[Any] = []
    text = drafted.text

    def noted(*given: Any, **more: Any) -> Any:
        made = text(*given, **more)
        lookups.append(made.generator.drafts)
        return made

    drafted.text = noted  # type: ignore[method-assign]
    random = seeded.rng()
    for _ in range(count):
        check_alone(drafted, random, int(random.integers(1, 8)), by=model)
    used = [each for each in lookups if each is not None and each.checked]
    assert used and 0 < sum(each.accepted for each in used) < sum(each.checked for each in used)


def test_tokens_with_a_draft_model_are_those_without(drafted: lispgpt.Model, model: lispgpt.Model) -> None:
    check_drafted(drafted, model, 6)


def test_nothing_is_drafted_where_near_ties_are_not_decided(
    drafted: lispgpt.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There (16 bits between kernels) a text by itself would have other tokens than among others."""
    options = drafted.options(greedy=True, max_new_tokens=30)
    ties = drafted.text([1], options).generator.near_ties
    scheduler = Scheduler(drafted, PLACES, 10)
    try:
        checked = []
        for watches in (True, False):
            monkeypatch.setattr(ties, "watches", watches)
            heard = Heard(scheduler)
            heard.submit([([1, 2, 3], {"max_new_tokens": 30, "greedy": True}, 0, 0)])
            heard.wait(1)
            assert heard.jobs[0].text is not None and heard.jobs[0].text.generator.drafts is not None
            checked.append(heard.jobs[0].text.generator.drafts.checked)
        assert checked[0] > 0 == checked[1]
    finally:
        scheduler.close()


@pytest.mark.slow
def test_tokens_of_a_thousand_requests_with_a_draft_model(drafted: lispgpt.Model, model: lispgpt.Model) -> None:
    """Run it after a change of lispgpt/serve/ or of drafts."""
    check_drafted(drafted, model, 250)


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
    for prompt, options, *_ in random_requests(random, 20):
        stop = {"stop": (" the", "and")} if random.random() < 0.3 else {}
        requests.append((prompt, {"max_new_tokens": options["max_new_tokens"], "greedy": True, **stop}, 0, 0))
    scheduler = Scheduler(model, PLACES, len(requests))
    try:
        together = Heard(scheduler)
        together.submit(requests)
        gone = set(random.choice(len(requests), 3, replace=False).tolist())
        for number in gone:
            scheduler.cancel(together.jobs[number])
        together.wait(len(requests) - len(gone - set(together.said)))
    finally:
        scheduler.close()
    assert not [said[2] for said in together.said.values() if said[2]]
    assert {said[1] for said in together.said.values()} & {"end", "stop"}
    for number, (prompt, options, *_) in enumerate(requests):
        if number in together.said and together.said[number][1] != "cancelled":
            text = model.generate(prompt, **options)
            pieces = "".join(text)
            assert together.said[number][:2] == (text.tokens, text.ended), number
            assert text.ended == "end" or together.pieces[number] == pieces


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


def test_tokens_are_those_of_the_model_by_itself(model: lispgpt.Model) -> None:
    """Greedy ones of another way of running, too: near ties are decided alike."""
    requests = [each for each in random_requests(seeded.rng(), 30) if each[1].get("greedy")]
    scheduler = Scheduler(model, PLACES, 100)
    try:
        heard = Heard(scheduler)
        heard.submit(requests)
        heard.wait(len(requests))
    finally:
        scheduler.close()
    for number, (prompt, options, *_) in enumerate(requests):
        text = model.generate(prompt, **options)
        "".join(text)
        assert heard.said[number][0] == text.tokens


def test_a_queue_is_full_at_some_point_and_what_is_left_hears_of_the_end(model: lispgpt.Model) -> None:
    scheduler = Scheduler(model, PLACES, 3)
    heard = Heard(scheduler)
    request: Request = ([1, 2, 3], {"max_new_tokens": 200, "greedy": True}, 0, 0)
    heard.submit([request] * 8)  # where nobody waits, one request may be larger than the queue
    with pytest.raises(Busy) as busy:
        Heard(scheduler).submit([request])
    assert busy.value.seconds >= 1
    scheduler.close()
    heard.wait(8)
    assert {said[1] for said in heard.said.values()} <= {"cancelled", "length"}
    with pytest.raises(Busy):
        scheduler.submit([])
    assert not any(thread.name == "scheduler" and thread is scheduler._thread for thread in threading.enumerate())


def test_what_cannot_run_fails_alone(model: lispgpt.Model) -> None:
    scheduler = Scheduler(model, PLACES, 10)
    try:
        heard = Heard(scheduler)
        good: Request = ([1, 2, 3], {"max_new_tokens": 30, "greedy": True}, 0, 0)
        heard.submit([good, ([4096], {"max_new_tokens": 3}, 0, 0), good])
        heard.wait(3)
        assert heard.said[1][2] is not None and heard.said[0] == heard.said[2]
    finally:
        scheduler.close()
