"""Requests of OpenAI's and LangChain's clients, as tools/record_client_requests.py wrote them down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serve.conftest import Running

REQUESTS = json.loads((Path(__file__).parent / "client_requests.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_requests_of_clients_are_answered(server: Running, number: int) -> None:
    asked: dict[str, Any] = REQUESTS[number]
    body = asked["body"]
    if body and body.get("stream"):
        parts = list(server.client.stream(asked["path"], body))
        assert {part["object"] for part in parts} == {"chat.completion.chunk"}
        assert any(choice["finish_reason"] for part in parts for choice in part["choices"])
        return
    found = server.client.ask(asked["path"], body, asked["headers"])
    right = body is None or (body["model"] == "austen" and body.get("temperature", 1) >= 0)
    assert found.status == (200 if right else 404 if body["model"] == "nobody" else 400)
    if right and asked["path"] == "/v1/embeddings":
        kind = list if body.get("encoding_format") == "float" else str
        assert all(type(each["embedding"]) is kind for each in found.json["data"])
    elif right and body:
        assert all(choice["finish_reason"] for choice in found.json["choices"])
    elif not right:
        assert found.json["error"]["param"] in ("model", "temperature")
