"""OpenAI's endpoints: what they answer, how they stream, and what they refuse."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
import seeded
from serve.conftest import Running, running, served

import lispgpt
from lispgpt.serve.requests import LONGEST_STOP

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAID = [{"role": "user", "content": "It is a truth"}]


def test_streams_say_what_whole_answers_say(server: Running) -> None:
    options: dict[str, Any] = {"max_tokens": 30, "seed": 7, "n": 3, "temperature": 0.8}
    whole = server.client.chat("It is a truth", **options)
    said = ["", "", ""]
    why: list[str | None] = [None, None, None]
    usage = None
    for part in server.client.stream(CHAT, {"messages": SAID, **options, "stream_options": {"include_usage": True}}):
        assert part["object"] == "chat.completion.chunk"
        usage = part.get("usage", usage)
        for choice in part["choices"]:
            said[choice["index"]] += choice["delta"].get("content", "")
            why[choice["index"]] = choice["finish_reason"] or why[choice["index"]]
    assert said == [choice["message"]["content"] for choice in whole["choices"]] and len(set(said)) == 3
    assert why == [choice["finish_reason"] for choice in whole["choices"]] == ["length"] * 3
    assert whole["usage"]["completion_tokens"] == 90 == usage["completion_tokens"]
    assert whole["usage"]["prompt_tokens"] == 4 and whole["object"] == "chat.completion"


def test_completions_are_those_of_the_model(server: Running, model: lispgpt.Model) -> None:
    text = model.generate("It is a truth", greedy=True, max_new_tokens=16, logprobs=True)
    "".join(text)
    found = server.client.complete("It is a truth", temperature=0, logprobs=2)["choices"][0]
    assert found["text"] == text.text and found["finish_reason"] == "length"
    told = found["logprobs"]
    assert "".join(told["tokens"]) == text.text
    assert told["token_logprobs"] == pytest.approx(text.logprobs, abs=1e-4)
    assert all(
        len(top) == 2 and max(top.values()) == value
        for top, value in zip(told["top_logprobs"], told["token_logprobs"], strict=True)
    )
    several = server.client.complete(["It is a truth", model.prompt("She was")], temperature=0, echo=True)["choices"]
    assert several[0]["text"] == "It is a truth" + text.text and several[1]["text"].startswith("She was")
    streamed = server.client.stream(TEXT, {"prompt": "It is a truth", "temperature": 0, "logprobs": 0})
    parts = [part["choices"][0] for part in streamed]
    assert "".join(part["text"] for part in parts) == text.text
    assert [t for part in parts if part["logprobs"] for t in part["logprobs"]["tokens"]] == told["tokens"]


def test_logprobs_of_a_conversation(server: Running) -> None:
    found = server.client.chat("She", logprobs=True, top_logprobs=3, max_tokens=5, temperature=0)["choices"][0]
    content = found["logprobs"]["content"]
    assert "".join(each["token"] for each in content) == found["message"]["content"]
    for each in content:
        assert bytes(each["bytes"]).decode() == each["token"] and len(each["top_logprobs"]) == 3
        assert each["top_logprobs"][0]["token"] == each["token"]


def test_stops_are_held_across_pieces_and_characters_across_tokens(server: Running) -> None:
    whole = server.client.complete("It is a truth", temperature=0, max_tokens=40)["choices"][0]["text"]
    stop = whole[20:29]
    parts = list(
        server.client.stream(
            TEXT, {"prompt": "It is a truth", "temperature": 0, "max_tokens": 40, "stop": [stop, "zzz"]}
        )
    )
    assert "".join(part["choices"][0]["text"] for part in parts) == whole[: whole.index(stop)]
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    form = {"type": "regex", "pattern": "(\u00e9|\U0001f600|\u4e16){12}"}
    pieces = [
        part["choices"][0]["delta"].get("content", "")
        for part in server.client.stream(CHAT, {"messages": SAID, "response_format": form, "seed": 3})
    ]
    assert "\ufffd" not in "".join(pieces) and len("".join(pieces)) == 12


def test_biases_and_seeds(server: Running, model: lispgpt.Model) -> None:
    token = model.prompt(" the")[-1]
    only = server.client.complete("It", logit_bias={str(token): 100}, max_tokens=4)["choices"][0]["text"]
    assert only == " the" * 4
    first, again, other = (server.client.complete("It", seed=seed)["choices"][0]["text"] for seed in (1, 1, 2))
    assert first == again != other


def test_a_prefix_is_taken_in_once(server: Running) -> None:
    prompt = seeded.rng().integers(0, 4095, 100).tolist()
    first = server.client.complete(prompt, temperature=0)
    again = server.client.complete(prompt, temperature=0)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 96
    assert first["choices"] == again["choices"]


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["town", "days"],
            "additionalProperties": False,
        },
    },
}


def test_a_tool_that_has_to_be_called_is(server: Running) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        found = server.client.chat(SAID, tools=[WEATHER], tool_choice=choice, seed=1)["choices"][0]
        (call,) = found["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        assert found["finish_reason"] == "tool_calls" and call["function"]["name"] == "weather"
        assert 1 <= arguments["days"] <= 9 and len(arguments["town"]) <= 12
    parts = list(
        server.client.stream(CHAT, {"messages": SAID, "tools": [WEATHER], "tool_choice": "required", "seed": 1})
    )
    (call,) = parts[-2]["choices"][0]["delta"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == arguments
    assert parts[-1]["choices"][0]["finish_reason"] == "tool_calls"
    after = [
        *SAID,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "21"},
    ]
    assert server.client.chat(after, tools=[WEATHER], max_tokens=3)["choices"][0]["message"]["content"]


def test_embeddings_are_the_models(server: Running, model: lispgpt.Model) -> None:
    texts = ["It is a truth", "She was"]
    found = server.client.ask("/v1/embeddings", {"model": "austen", "input": texts}).json
    vectors = np.array([each["embedding"] for each in found["data"]], np.float32)
    assert [each["index"] for each in found["data"]] == [0, 1] and found["usage"]["prompt_tokens"] == 6
    assert np.array_equal(vectors, [model.embedding(text) for text in texts])
    coded = server.client.ask(
        "/v1/embeddings", {"input": texts[1], "encoding_format": "base64", "pooling": "mean"}
    ).json
    (each,) = coded["data"]
    assert (
        np.frombuffer(base64.b64decode(each["embedding"]), "<f4").tolist() == model.embedding(texts[1], "mean").tolist()
    )


def test_tokens_models_health_and_metrics(server: Running, model: lispgpt.Model) -> None:
    client = server.client
    assert client.ask("/v1/models").json["data"][0]["id"] == "austen" == client.ask("/v1/models/austen").json["id"]
    tokens = client.ask("/tokenize", {"model": "austen", "prompt": "It is a truth"}).json
    assert tokens == {"tokens": model.prompt("It is a truth"), "count": 4, "max_model_len": 256}
    assert client.ask("/detokenize", {"tokens": tokens["tokens"]}).json == {"prompt": "It is a truth"}
    assert client.ask("/tokenize", {"messages": SAID}).json["count"] == 4
    assert client.ask("/health").json["status"] == "ok"
    told = client.ask("/metrics").body.decode()
    assert 'lispgpt_tokens_total{model="austen"}' in told and "# TYPE lispgpt_running gauge" in told
    page = client.ask("/")
    assert b"<script" in page.body and "default-src 'none'" in page.headers["content-security-policy"]
    assert client.ask("/page/page.js").status == 200 and client.ask("/page/../app.py").status == 404


@pytest.mark.parametrize(
    "path, body, word",
    [
        (CHAT, b"", "not JSON"),
        (CHAT, b"[1]", "not a JSON object"),
        (CHAT, b"[" * 100_000, "not JSON"),
        (CHAT, b'{"messages": NaN}', "not JSON"),
        (CHAT, {"messages": []}, "1 to 4096 messages"),
        (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "role is one of"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "parts of the type text"),
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "content is a text"),
        (CHAT, {"messages": [{"role": ["user"], "content": "x"}]}, "role is one of"),
        (CHAT, {"messages": SAID, "chat_template_kwargs": {"messages": 1}}, "other values"),
        (TEXT, {"prompt": "x", "logit_bias": {"5": 10**400}}, "logit_bias has up to"),
        (CHAT, {"messages": SAID, "top_logprobs": 3}, "wants logprobs"),
        (CHAT, {"messages": SAID, "tools": [{}]}, "tools are up to"),
        (CHAT, {"messages": SAID, "tools": [WEATHER], "tool_choice": "rain"}, "tool_choice is"),
        (CHAT, {"messages": SAID, "response_format": {"type": "poem"}}, "response_format is of the type"),
        (CHAT, {"messages": SAID, "response_format": {"type": "regex", "pattern": "(("}}, "cannot be followed"),
        (
            CHAT,
            {"messages": SAID, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
            "schema",
        ),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 5000}]}, "context is 256"),
        (TEXT, {"prompt": []}, "prompt is a text"),
        (TEXT, {"prompt": [[]]}, "prompt is a text"),
        (TEXT, {"prompt": [4096]}, "from 0 to 4095"),
        (TEXT, {"prompt": [-1]}, "prompt is a text"),
        (TEXT, {"prompt": "x", "n": 17}, "n is a whole number from 1 to 16"),
        (TEXT, {"prompt": ["x"] * 64, "n": 2}, "up to 64 texts"),
        (TEXT, {"prompt": "x", "temperature": -1}, "temperature is a number from 0"),
        (TEXT, {"prompt": "x", "temperature": True}, "temperature is a number from 0"),
        (TEXT, {"prompt": "x", "max_tokens": 1.5}, "max_tokens is a whole number"),
        (TEXT, {"prompt": "x", "stop": [""]}, f"1 to {LONGEST_STOP} characters"),
        (TEXT, {"prompt": "x", "logit_bias": {"x": 1}}, "logit_bias has up to"),
        (TEXT, {"prompt": "x", "logit_bias": {"5000": 1}}, "no token 5000"),
        (TEXT, {"prompt": "x", "model": "nobody"}, "no such model"),
        (TEXT, {"prompt": "x", "suffix": "y"}, "suffix"),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "give the whole conversation"),
        ("/v1/responses", {"input": [{"type": "web_search_call"}]}, "an input item is a message, a function_call"),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "content is a text"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}]}, "tools are functions here"),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "yaml"}}}, "response_format is of the type"),
        ("/v1/responses", {"input": "x", "max_output_tokens": 0.5}, "max_completion_tokens is a whole number"),
        ("/v1/responses", {}, "input is a text or a list of items"),
        ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}, "encoding_format is one of float, base64"),
        ("/v1/embeddings", {"input": "x", "pooling": ["last"]}, "pooling is one of last, mean"),
        ("/v1/embeddings", {"input": "x", "dimensions": 7}, "as it is wide"),
        ("/v1/embeddings", {"input": "word " * 5000}, "1 to 256 tokens"),
        ("/v1/nothing", {}, "nothing here"),
    ],
)
def test_what_is_wrong_is_said_and_of_this_machine_nothing(server: Running, path: str, body: Any, word: str) -> None:
    found = server.client.ask(path, body)
    error = found.json["error"]
    assert 400 <= found.status < 500 and word in error["message"] and error["type"] == "invalid_request_error"
    assert not any(told in found.body.decode() for told in ("Traceback", "/work", "lispgpt/", ".py", "0x"))


def test_large_bodies_and_other_sites_are_refused(server: Running) -> None:
    assert server.client.ask(CHAT, b" " * 9_000_000).status == 413
    assert server.client.ask("/v1/models", headers={"Origin": "http://elsewhere.example"}).status == 403
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert server.client.ask("/v1/models", headers=own).status == 200


def test_a_client_that_goes_leaves_its_place(server: Running) -> None:
    ended = server.scheduler.counts.ended
    before = ended.get("cancelled", 0)
    for stream in (True, False):
        body = json.dumps(
            {
                "model": "austen",
                "messages": SAID,
                "n": 3,
                "stream": stream,
                "temperature": 0,
                "logit_bias": {"4095": -100},
            }
        )
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body.encode())
            until = time.monotonic() + 20
            while server.scheduler.running < 3 and time.monotonic() < until:
                time.sleep(0.001)
        while server.scheduler.running and time.monotonic() < until:
            time.sleep(0.001)
        assert not server.scheduler.running
    assert ended.get("cancelled", 0) > before


def test_a_full_queue_a_key_a_name_and_a_limit_of_time(model: lispgpt.Model) -> None:
    with running(lambda: served(model, 2), key="secret", hosts=("127.0.0.1",), seconds=0.3) as server:
        key = {"Authorization": "Bearer secret"}
        assert (
            server.client.ask("/v1/models").status
            == 401
            == server.client.ask("/v1/models", headers={"Authorization": "Bearer no"}).status
        )
        assert server.client.ask("/health").status == 200 == server.client.ask("/v1/models", headers=key).status
        assert server.client.ask("/v1/models", headers={**key, "Host": "rebound.example"}).status == 421
        statuses: list[tuple[int, str | None]] = []

        def ask() -> None:
            found = server.client.ask(
                TEXT, {"prompt": "x", "max_tokens": 250, "n": 2, "logit_bias": {"4095": -100}}, key
            )
            statuses.append((found.status, found.headers.get("retry-after")))

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert {status for status, _ in statuses} <= {200, 429, 504}
        refused = [after for status, after in statuses if status == 429]
        assert refused and all(after is not None and int(after) >= 1 for after in refused)
        assert not server.scheduler.running or time.sleep(1) or not server.scheduler.running
