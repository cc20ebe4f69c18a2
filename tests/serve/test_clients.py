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
    if asked["path"] == "/v1/responses":
        check_response(server, body, asked["headers"])
        return
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


def check_response(server: Running, body: dict[str, Any], headers: dict[str, str]) -> None:
    """Of the Responses format, whose stream says piece by piece what the last event says as a whole."""
    if "previous_response_id" in body:
        found = server.client.ask("/v1/responses", body, headers)
        assert found.status == 400 and found.json["error"]["param"] == "previous_response_id"
        return
    if not body.get("stream"):
        found = server.client.ask("/v1/responses", body, headers)
        assert found.status == 200, found.body
        check_output(found.json, body)
        return
    events = list(server.client.stream("/v1/responses", body))
    assert events[0]["type"] == "response.created" and not events[0]["response"]["output"]
    response, said = events[-1]["response"], dict[str, str]()
    for event in events:
        if event["type"].endswith(".delta"):
            said[event["item_id"]] = said.get(event["item_id"], "") + event["delta"]
    check_output(response, body)
    assert events[-1]["type"] == f"response.{response['status']}" and response["id"] == events[0]["response"]["id"]
    for item in response["output"]:
        assert said[item["id"]] == (item["arguments"] if "arguments" in item else item["content"][0]["text"])
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == response["output"]


def check_output(response: dict[str, Any], body: dict[str, Any]) -> None:
    most, usage = body.get("max_output_tokens"), response["usage"]
    assert response["status"] == ("incomplete" if usage["output_tokens"] == most else "completed")
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] and usage["input_tokens"] > 2
    last = response["output"][-1]
    if isinstance(body.get("tool_choice"), dict):
        assert last["type"] == "function_call" and 1 <= json.loads(last["arguments"])["days"] <= 9
    elif body.get("text"):
        assert set(json.loads(last["content"][0]["text"])) == {"name", "houses"}
    else:
        assert last["type"] == "message" and last["content"][0]["text"]
