"""The promise that a server makes: a request's tokens are those of the same request alone on a fresh process."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from recorded_folders import Folder

import lispgpt
from lispgpt.serve.scheduler import Job, Scheduler

PLACES = 4
GROUPS = 1, 1, 2, 3, 8, 24
"""How many requests come at once: drafts are of texts by themselves."""
LAYERS, WIDTH, VOCAB, CONTEXT = 2, 48, 512, 128
"""Sizes of `small_folder`'s model: so small that hundreds of requests take seconds, with prompts of several pages."""


@dataclass
class Request:
    """prompt, options: of `Model.options`.  top: how many of the most probable tokens are told.  adapter: 0 for none.
    number: among the texts of one request.  cancelled: after how many pieces, or None.  grammar: as a `Job` has it."""

    prompt: list[int]
    options: dict[str, Any]
    top: int = 0
    adapter: int = 0
    number: int = 0
    cancelled: int | None = None
    grammar: Any = None


def small_folder(path: Path, seed: int, layers: int = LAYERS, vocab: int = VOCAB, context: int = CONTEXT) -> Path:
    """The folder of a small GPT-2 of random weights."""
    config = {"model_type": "gpt2", "n_positions": context, "n_embd": WIDTH, "n_layer": layers, "n_head": 3}
    tensors: dict[str, tuple[int, ...]] = {"wte.weight": (vocab, WIDTH), "wpe.weight": (context, WIDTH)}
    norms = ["ln_f", *(f"h.{layer}.ln_{number}" for layer in range(layers) for number in (1, 2))]
    tensors |= {f"{norm}.{part}": (WIDTH,) for norm in norms for part in ("weight", "bias")}
    for layer in range(layers):
        sizes = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
        for kind, (into, out) in sizes.items():
            tensors[f"h.{layer}.{kind}.weight"] = (into * WIDTH, out * WIDTH)
            tensors[f"h.{layer}.{kind}.bias"] = (out * WIDTH,)
    return Folder("small", {**config, "vocab_size": vocab}, tensors, "f32", seed, []).write(path)


def random_requests(random: np.random.Generator, count: int, model: lispgpt.Model, adapters: int = 0) -> list[Request]:
    """Prompts that share starts or do not, how they are continued, what is told beside, by which of so many adapters,
    and which of them are cancelled; behind them one without any of that for the model and each adapter."""
    context, vocab = (int(model.session.config[name]) for name in ("context", "vocab"))
    starts = [random.integers(0, vocab - 1, context // 2).tolist() for _ in range(3)]
    found = []
    for _ in range(count):
        start = starts[random.integers(3)][: random.integers(0, context // 2)]
        prompt = start + random.integers(0, vocab - 1, random.integers(1, context * 2 // 5)).tolist()
        options: dict[str, Any] = {"max_new_tokens": int(random.integers(1, min(60, context - len(prompt))))}
        if random.random() < 0.4:
            options["greedy"] = True
        else:
            options |= {"temperature": float(random.uniform(0.3, 1.5)), "seed": int(random.integers(1 << 40))}
            options |= {"top_p": 0.9} if random.random() < 0.3 else {}
            options |= {"top_k": int(random.integers(1, 60))} if random.random() < 0.3 else {}
            options |= {"min_p": 0.05} if random.random() < 0.2 else {}
        if random.random() < 0.3:
            options |= {"frequency_penalty": 0.5, "logit_bias": {int(random.integers(vocab)): 3.0}}
        if random.random() < 0.1:
            options |= {"repeat_penalty": 1.3, "logprobs": True}
        top, cancelled = 4 if random.random() < 0.2 else 0, int(random.integers(12)) if random.random() < 0.1 else None
        found.append(
            Request(prompt, options, top, int(random.integers(adapters + 1)), int(random.integers(3)), cancelled)
        )
    plain = {"greedy": True, "max_new_tokens": 40}
    return found + [Request([*starts[0][:20], number], plain, adapter=number) for number in range(adapters + 1)]


class Following:
    """A grammar of so many tokens, each of which has another rest by 3 than the one before it."""

    def __init__(self, vocab: int, count: int) -> None:
        self._vocab, self._left, self._rest = vocab, count, 0

    def allowed(self) -> np.ndarray:
        return np.arange(self._vocab) % 3 == (self._rest + 1) % 3

    def words(self) -> np.ndarray:
        bits = np.zeros(-(-self._vocab // 32) * 32, bool)
        bits[: self._vocab] = self.allowed()
        return np.packbits(bits, bitorder="little").view(np.int32)

    def wrote(self, token: int) -> None:
        assert token % 3 == (self._rest + 1) % 3
        self._left, self._rest = self._left - 1, token % 3

    def done(self) -> bool:
        return not self._left


@dataclass
class Said:
    """What a scheduler said of one request: its pieces, tokens, the most probable ones, why it ended or what failed."""

    pieces: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: Any = None
    ended: str | None = None
    error: Exception | None = None

    def beginning(self, count: int) -> tuple[Any, ...]:
        """What it said with its first tokens."""
        return self.tokens[:count], self.logprobs[:count], (self.tops or [])[:count]

    @property
    def whole(self) -> tuple[Any, ...]:
        return "".join(self.pieces), *self.beginning(len(self.tokens)), self.ended, self.error


class Heard:
    """What a scheduler says of requests that are submitted together."""

    def __init__(self, scheduler: Scheduler, requests: list[Request]) -> None:
        self._ended, self._left = queue.Queue[int](), {n for n, asked in enumerate(requests) if asked.cancelled != 0}
        self.said = [Said() for _ in requests]
        self.jobs: list[Job] = []
        for place, asked in enumerate(requests):
            more: Any = {name: getattr(asked, name) for name in ("number", "top", "adapter", "grammar")}
            hear = partial(self._hear, scheduler, place, asked.cancelled)
            self.jobs.append(Job(asked.prompt, scheduler.model.options(**asked.options), hear, **more))
        scheduler.submit(self.jobs)
        for job, asked in zip(self.jobs, requests, strict=True):
            if asked.cancelled == 0:
                scheduler.cancel(job)

    def _hear(
        self,
        scheduler: Scheduler,
        place: int,
        cancelled: int | None,
        piece: str,
        ended: str | None,
        error: Exception | None,
    ) -> None:
        said, job = self.said[place], self.jobs[place]
        said.pieces.append(piece)
        if job.text is not None:
            said.tokens, said.logprobs = list(job.text.tokens), list(job.text.logprobs)
        said.tops = job.steering and list(job.steering.tops)
        said.ended, said.error = ended, error
        if ended or error:
            self._ended.put(place)
        elif cancelled is not None and len(said.pieces) >= cancelled > 0:
            scheduler.cancel(job)
            self._ended.put(place)

    def wait(self, share: float = 1.0) -> None:
        """Until such a share of those that are left have ended, or were cancelled."""
        left = round(len(self._left) * (1 - share))
        while len(self._left) > left:
            self._left.discard(self._ended.get(timeout=120))


def asked_alone(scheduler: Scheduler, asked: Request) -> Said:
    """What is said of a request alone, where nothing was said before: states are what they are at the start."""
    scheduler.prefixes.forget()
    with scheduler.model.session.alone():
        scheduler.model.session.forget()
    heard = Heard(scheduler, [replace(asked, cancelled=None)])
    heard.wait()
    return heard.said[0]


def check_promise(
    model: lispgpt.Model,
    alone: lispgpt.Model,
    random: np.random.Generator,
    count: int,
    adapters: int = 0,
    places: int = PLACES,
) -> Scheduler:
    """Random requests, in groups, the last ones by themselves; and each of them alone: the same, to the last bit, and
    of one that was cancelled what had been said.

    alone: the model that has them alone.
    """
    requests = random_requests(random, count, model, adapters)
    scheduler, single = Scheduler(model, places, len(requests)), Scheduler(alone, places, 1)
    single.decides = scheduler.decides
    rest, groups = requests, list[Heard]()
    try:
        while rest:
            others = len(rest) - adapters - 1
            for heard in groups if others <= 0 else ():
                heard.wait()
            size = min(int(random.choice(GROUPS)), max(others, 1))
            groups.append(Heard(scheduler, rest[:size]))
            groups[-1].wait(float(random.choice([0.5, 1])))  # others come meanwhile, at times
            rest = rest[size:]
        for heard in groups:
            heard.wait()
        said = [each for heard in groups for each in heard.said]
        for asked, found in zip(requests, said, strict=True):
            wanted = asked_alone(single, asked)
            assert wanted.tokens and wanted.error is None, asked
            if asked.cancelled is None:
                assert found.whole == wanted.whole, asked
            else:
                length = len(found.tokens)
                assert found.error is None and found.beginning(length) == wanted.beginning(length), asked
    finally:
        scheduler.close()
        single.close()
    return scheduler
