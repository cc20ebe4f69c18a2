"""What a request hears of its texts: from the scheduler's thread to the loop that answers, choice by choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lispgpt.api import UserError
from lispgpt.chat.reasoning import Answer
from lispgpt.chat.tool_calls import Call, ToolAnswer
from lispgpt.serve.requests import Asked, BadRequest
from lispgpt.serve.scheduler import Busy, Job, Scheduler


@dataclass
class Heard:
    """A step of one choice: the piece of text, its tokens with their log-probabilities and the most probable ones
    instead, why it ended, what failed."""

    index: int
    piece: str
    tokens: Sequence[int]
    logprobs: Sequence[float]
    tops: Sequence[list[tuple[int, float]]]
    ended: str | None
    error: Exception | None


@dataclass
class Choice:
    """One text of a request.  answer, tools: what tells reasoning and calls apart, in a conversation."""

    index: int
    job: Job
    answer: Answer | None = None
    tools: ToolAnswer | None = None
    sent: int = 0
    parts: list[Heard] = field(default_factory=list)
    called: list[Call] = field(default_factory=list)


class Streams:
    """The choices of a request under way."""

    def __init__(self, scheduler: Scheduler, choices: Sequence[Choice]) -> None:
        self.choices, self._scheduler = choices, scheduler
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()

    def submit(self) -> None:
        """Have them run; BadRequest (429) where too many wait."""
        loop = asyncio.get_running_loop()
        for choice in self.choices:
            choice.job.hear = self._hearing(loop, choice)
        try:
            self._scheduler.submit([choice.job for choice in self.choices])
        except Busy as busy:
            raise TooBusy(busy) from None

    def _hearing(self, loop: asyncio.AbstractEventLoop, choice: Choice) -> Any:
        def hear(piece: str, ended: str | None, error: Exception | None) -> None:
            text, job, start = choice.job.text, choice.job, choice.sent
            tokens = [] if text is None else text.tokens[start:]
            logprobs = [] if text is None or not job.options.logprobs else text.logprobs[start:]
            tops = [] if job.steering is None else job.steering.tops[start : start + len(tokens)]
            choice.sent += len(tokens)
            heard = Heard(choice.index, piece, tokens, logprobs, tops, ended, error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._heard.put_nowait, heard)

        return hear

    async def __aiter__(self) -> AsyncIterator[tuple[Choice, Heard]]:
        """Each step as it comes, until all have ended; BadRequest for what failed."""
        left = len(self.choices)
        while left:
            heard = await self._heard.get()
            if heard.error is not None:
                raise failure(heard.error)
            if heard.ended == "cancelled":
                raise BadRequest("the server is ending, or the request took too long", status=503)
            left -= heard.ended is not None
            choice = self.choices[heard.index]
            choice.parts.append(heard)
            yield choice, heard

    async def all(self) -> None:
        """Hear them to their ends."""
        async for _ in self:
            continue

    def cancel(self) -> None:
        for choice in self.choices:
            self._scheduler.cancel(choice.job)


class TooBusy(BadRequest):
    def __init__(self, busy: Busy) -> None:
        super().__init__(str(busy), status=429, code="rate_limit_exceeded")
        self.seconds = busy.seconds


def failure(error: Exception) -> BadRequest:
    """What a client is told of an error: only what it can mend in words, and nothing of this machine."""
    if isinstance(error, BadRequest):
        return error
    if isinstance(error, UserError) and "/" not in error.message:
        return BadRequest(error.message)
    return BadRequest("the model failed at this request", status=500)


def priced(asked: Asked, choices: Sequence[Choice]) -> dict[str, Any]:
    """How many tokens a request took."""
    prompts = {id(choice.job.prompt): choice.job for choice in choices}
    prompt = sum(len(job.prompt) for job in prompts.values())
    completion = sum(choice.sent for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(job.cached for job in prompts.values())},
    }
