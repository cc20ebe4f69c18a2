"""Whatever a body says, the server answers or refuses, and goes on."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import seeded
from serve.conftest import Running

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/v1/embeddings", "/v1/responses")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}
ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "It is"}]},
    {"type": "reasoning", "summary": []},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "2"},
]
GOOD: dict[str, Any] = {
    "model": "austen",
    "messages": [
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "It is"}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "2"},
    ],
    "prompt": ["It is", [1, 2, 3]],
    "input": "It is",
    "instructions": "x",
    "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
    "max_output_tokens": 3,
    "tokens": [1, 2, 3],
    "max_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 4,
    "min_p": 0.1,
    "n": 2,
    "seed": 5,
    "stop": ["zz"],
    "logit_bias": {"5": 1},
    "presence_penalty": 0.1,
    "repetition_penalty": 1.1,
    "priority": 1,
    "echo": True,
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    "tools": [TOOL],
    "tool_choice": "auto",
    "chat_template_kwargs": {"enable_thinking": True, "messages_too": 1},
}
ODD = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e-308, "", "x", "\0", "\ud800"),
    *("\ufdd0<|endoftext|>", "{{ messages }}", "it " * 3000, [], {}, [[]], [None], [[1]], [2**40], {"": None}),
    *(
        {"type": "object"},
        {"role": "user"},
        {"$ref": "#"},
        {"pattern": "(", "type": "regex"},
        "required",
        "none",
        [1] * 999,
    ),
)


def mutated(random: np.random.Generator, value: Any) -> Any:
    """A value of which a part is another one, is missing, or is there twice."""
    if random.random() < 0.25 or not isinstance(value, list | dict) or not value:
        return ODD[random.integers(len(ODD))]
    found = copy.copy(value)
    if isinstance(found, list):
        place = int(random.integers(len(found)))
        found[place] = mutated(random, found[place])
        return found * 2 if random.random() < 0.1 else found
    name = list(found)[random.integers(len(found))]
    if random.random() < 0.15:
        del found[name]
    else:
        found[name] = mutated(random, found[name])
    return found


def fuzz(server: Running, count: int) -> None:
    random, statuses = seeded.rng(), dict[int, int]()
    for _ in range(count):
        names = [
            name for name in GOOD if random.random() < 0.3 or name in ("messages", "prompt", "max_tokens", "tokens")
        ]
        body: Any = {name: GOOD[name] for name in names} | {"stream": bool(random.random() < 0.2)}
        for _ in range(random.integers(0, 3)):
            body = mutated(random, body)
        if isinstance(body, dict):
            body = {"max_tokens": 2, "max_output_tokens": 2, **body}
        path = PATHS[random.integers(len(PATHS))]
        if path == "/v1/responses" and isinstance(body, dict) and random.random() < 0.8:
            body |= {
                "input": mutated(random, ITEMS),
                "tools": mutated(random, [{"type": "function", **TOOL["function"]}]),
            }
        found = server.client.ask(path, json.dumps(body).encode())
        assert found.status in (200, 400, 404), (found.status, found.body, body)
        if found.status != 200:
            assert set(found.json["error"]) == {"message", "type", "param", "code"}
        statuses[found.status] = statuses.get(found.status, 0) + 1
    assert {200, 400} <= set(statuses)
    assert server.client.ask("/health").status == 200 and not server.scheduler.running


def test_random_bodies_are_answered_or_refused(server: Running) -> None:
    fuzz(server, 150)


@pytest.mark.slow
def test_ten_thousand_random_bodies_are_answered_or_refused(server: Running) -> None:
    fuzz(server, 10_000)
