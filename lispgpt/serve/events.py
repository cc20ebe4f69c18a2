"""Streams of answers, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SECONDS_TO_WRITE = 60.0
"""How long a client may not read."""


async def left(request: Request) -> None:
    """Wait until the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


class Events(Response):
    """Server-sent events; a client that goes, or does not read for long, ends them."""

    def __init__(self, parts: AsyncIterator[Mapping[str, Any]]) -> None:
        super().__init__(headers={"cache-control": "no-store"}, media_type="text/event-stream")
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del self.raw_headers[:]
        self.init_headers({"cache-control": "no-store", "content-type": "text/event-stream; charset=utf-8"})
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        writing = asyncio.ensure_future(self._write(headers, send))
        leaving = asyncio.ensure_future(left(Request(scope, receive)))
        try:
            await asyncio.wait([writing, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            writing.cancel()
        with suppress(asyncio.CancelledError, TimeoutError, OSError):
            await writing

    async def _write(self, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for part in self._parts:
                data = f"data: {json.dumps(part, ensure_ascii=False)}\n\n".encode()
                async with asyncio.timeout(SECONDS_TO_WRITE):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        finally:
            await self._parts.aclose()  # type: ignore[attr-defined]
