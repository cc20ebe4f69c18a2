"""HTTP as plain as it gets: what goes over the wire is what tests say."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    port: int

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """POST of a body, or GET without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("GET" if body is None else "POST", path, data, headers or {})
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def chat(self, text: str | list[dict[str, Any]], **more: Any) -> Any:
        messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
        found = self.ask("/v1/chat/completions", {"model": "austen", "messages": messages, **more})
        assert found.status == 200, found.body
        return found.json

    def complete(self, prompt: Any, **more: Any) -> Any:
        found = self.ask("/v1/completions", {"model": "austen", "prompt": prompt, **more})
        assert found.status == 200, found.body
        return found.json

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The parts of a stream, which has to end as such do."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps({"model": "austen", "stream": True, **body}).encode())
            found = connection.getresponse()
            assert found.status == 200 and found.headers["content-type"].startswith("text/event-stream")
            lines = found.read().decode().split("\n\n")
            assert lines[-2:] == ["data: [DONE]", ""]
            for line in lines[:-2]:
                *named, data = line.split("\n")
                part = json.loads(data.removeprefix("data: "))
                assert named == ([f"event: {part['type']}"] if "type" in part else [])
                yield part
        finally:
            connection.close()
