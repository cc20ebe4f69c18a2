"""What a request hears of its texts: from the scheduler's thread to the loop that answers, choice by choice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lispgpt.api import UserError
from lispgpt.base.bell import Bell
from lispgpt.chat.reasoning import Answer
from lispgpt.chat.tool_calls import Call, ToolAnswer
from lispgpt.serve.requests import Asked, BadRequest
from lispgpt.serve.scheduler import Busy, Job, Scheduler


@dataclass
class Heard:
    """What one choice said since it was asked: the text, its tokens with their log-probabilities and the most probable
    ones instead, why it ended, what failed."""

    piece: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tops: list[list[tuple[int, float]]] = field(default_factory=list)
    ended: str | None = None
    error: Exception | None = None

    def add(self, more: Heard) -> None:
        """Say what came next, too."""
        self.piece, self.ended, self.error = self.piece + more.piece, more.ended, more.error
        self.tokens += more.tokens
        self.logprobs += more.logprobs
        self.tops += more.tops


@dataclass
class Choice:
    """One text of a request.  answer, tools: what tells reasoning and calls apart, in a conversation."""

    index: int
    job: Job
    answer: Answer | None = None
    tools: ToolAnswer | None = None
    sent: int = 0
    said: Heard = field(default_factory=Heard)
    called: list[Call] = field(default_factory=list)


class Streams:
    """The choices of a request under way.  keeps: whether each choice's `said` is to have all that it said."""

    def __init__(self, scheduler: Scheduler, choices: Sequence[Choice], bell: Bell, keeps: bool) -> None:
        self.choices, self._scheduler, self._bell, self._keeps = choices, scheduler, bell, keeps
        self._heard, self._some = deque[tuple[Choice, Heard]](), asyncio.Event()

    def submit(self) -> None:
        """Have them run; BadRequest (429) where too many wait."""
        loop = asyncio.get_running_loop()
        for choice in self.choices:
            choice.job.hear = partial(self._hear, loop, choice)
        try:
            self._scheduler.submit([choice.job for choice in self.choices])
        except Busy as busy:
            raise TooBusy(busy) from None

    def _hear(
        self,
        loop: asyncio.AbstractEventLoop,
        choice: Choice,
        piece: str,
        ended: str | None,
        error: Exception | None,
    ) -> None:
        """Keep what a choice said, on the scheduler's thread, and have it read."""
        heard, text, start = Heard(piece, ended=ended, error=error), choice.job.text, choice.sent
        if text is not None:
            choice.sent = len(text.tokens)
            if choice.job.options.logprobs:
                heard.tokens, heard.logprobs = text.tokens[start:], text.logprobs[start:]
                heard.tops = choice.job.steering.tops[start : choice.sent] if choice.job.steering else []
        self._heard.append((choice, heard))
        self._bell.ring(loop, self._some.set)

    async def __aiter__(self) -> AsyncIterator[list[tuple[Choice, Heard]]]:
        """What choices say as it comes, until all have ended: what came of one meanwhile is one.  BadRequest for what
        failed."""
        left = len(self.choices)
        while left:
            await self._some.wait()
            self._some.clear()
            found = dict[int, tuple[Choice, Heard]]()
            while self._heard:
                choice, heard = self._heard.popleft()
                if heard.error is not None:
                    raise failure(heard.error)
                if heard.ended == "cancelled":
                    raise BadRequest("the server is ending, or the request took too long", status=503)
                left -= heard.ended is not None
                if self._keeps:
                    choice.said.add(heard)
                found.setdefault(choice.index, (choice, Heard()))[1].add(heard)
            yield [*found.values()]

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
