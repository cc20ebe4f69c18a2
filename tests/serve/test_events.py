"""Streams end, whatever their clients do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from lispgpt.serve import events
from lispgpt.serve.events import Events, event

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def parts(count: int) -> AsyncIterator[str]:
    for number in range(count):
        yield event({"number": number})
        await asyncio.sleep(0)


def ended(receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]], count: int = 3) -> list[str]:
    """How often a stream's end is told, of a client."""
    told: list[str] = []
    asyncio.run(Events(parts(count), lambda: told.append("ended"))(SCOPE, receive, send))
    return told


async def gone() -> dict[str, str]:
    return {"type": "http.disconnect"}


async def stays() -> dict[str, str]:
    await asyncio.sleep(60)
    return await gone()


def test_a_client_that_has_gone_before_the_first_line_ends_it() -> None:
    async def send(_: Any) -> None:
        await asyncio.sleep(0)

    assert ended(gone, send) == ["ended"]


def test_a_client_that_reads_gets_all() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    assert ended(stays, send) == ["ended"]
    body = b"".join(message.get("body", b"") for message in sent).decode()
    assert body == 'data: {"number": 0}\n\ndata: {"number": 1}\n\ndata: {"number": 2}\n\ndata: [DONE]\n\n'


def test_a_client_that_does_not_read_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SECONDS_TO_WRITE", 0.05)

    async def send(_: Any) -> None:
        await asyncio.sleep(60)

    assert ended(stays, send) == ["ended"]
