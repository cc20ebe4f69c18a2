"""Streams of answers, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

SECONDS_TO_WRITE = 60.0
"""How long a client may not read, at least; it is looked at that often."""
encoded = json.JSONEncoder(ensure_ascii=False).encode


def event(part: Mapping[str, Any]) -> str:
    """What a stream says, as a server-sent event."""
    named = f"event: {part['type']}\n" if "type" in part else ""
    return f"{named}data: {encoded(part)}\n\n"


async def left(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue


class Events(StreamingResponse):
    """Server-sent events; a client that goes, or does not read for long, ends them.

    parts: each is written at once, one event or several.  end: is called behind the last or where they end, whether the
    first was ever sent or not.
    """

    def __init__(self, parts: AsyncIterator[str], end: Callable[[], None]) -> None:
        self._parts, self._end, self._calls = parts, end, 0
        super().__init__(parts, headers={"cache-control": "no-store"}, media_type="text/event-stream")

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await self._send(send, start)
        async for part in self._parts:
            await self._send(send, {"type": "http.response.body", "body": part.encode(), "more_body": True})
        await self._send(send, {"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        self._calls += 1  # which is odd while one is under way
        await send(message)
        self._calls += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [asyncio.ensure_future(self._write(send)), asyncio.ensure_future(left(receive))]
        try:
            done, before = set[Any](), 0
            while not done and not (before % 2 and before == self._calls):
                before = self._calls
                done, _ = await asyncio.wait(tasks, timeout=SECONDS_TO_WRITE, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await tasks[0]
            self._end()
