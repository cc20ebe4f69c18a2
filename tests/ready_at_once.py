"""What a fork server is given that has nothing to import."""

from __future__ import annotations

from collections.abc import Iterator

from lispgpt.base import fork_server


def prepare() -> Iterator[None]:
    yield


def impatient() -> Iterator[None]:
    fork_server.IDLE = 0.2
    yield
