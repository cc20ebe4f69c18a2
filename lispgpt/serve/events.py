"""Streams of answers, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

SECONDS_TO_WRITE = 60.0
"""How long a client may not read."""


async def left(request: Request) -> None:
    """Wait until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


class Events(StreamingResponse):
    """Server-sent events; a client that goes, or does not read for long, ends them.  end: is called then, or behind the
    last, whether the first was ever sent or not."""

    def __init__(self, parts: AsyncIterator[Mapping[str, Any]], end: Callable[[], None]) -> None:
        self._parts, self._end = parts, end
        super().__init__(self._lines(), headers={"cache-control": "no-store"}, media_type="text/event-stream")

    async def _lines(self) -> AsyncIterator[str]:
        async for part in self._parts:
            named = f"event: {part['type']}\n" if "type" in part else ""
            yield f"{named}data: {json.dumps(part, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_soon(message: Message) -> None:
            async with asyncio.timeout(SECONDS_TO_WRITE):
                await send(message)

        try:
            with suppress(TimeoutError, OSError):
                await super().__call__(scope, receive, send_soon)
        finally:
            self._end()
