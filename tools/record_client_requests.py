"""Write down what OpenAI's and LangChain's clients send, and hold a server's answers to what they make of them.

    python tools/record_client_requests.py http://127.0.0.1:8000 FILE.json

Wants openai, langchain-openai and httpx, in an environment of their own, and a server of examples/models/austen.  The
tests send these requests again as they are (tests/serve/test_clients.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Town(BaseModel):
    """A town in a novel."""

    name: str = Field(max_length=12)
    houses: int = Field(ge=1, le=9)


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "visit",
        "description": "Visit a town.",
        "parameters": {
            "type": "object",
            "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["days"],
            "additionalProperties": False,
        },
    },
}
SAID: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "It is a truth"}]


class Recorder(httpx.BaseTransport):
    """Sends requests on, and keeps what they say."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {k: v for k, v in request.headers.items() if k in ("accept", "content-type", "user-agent")}
        body = json.loads(request.content) if request.content else None
        self.kept.append({"method": request.method, "path": request.url.path, "headers": headers, "body": body})
        return self._inner.handle_request(request)


def use_openai(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["austen"]
    whole = client.chat.completions.create(model="austen", messages=SAID, max_tokens=12, temperature=0)
    stream = client.chat.completions.create(
        model="austen",
        messages=SAID,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    parts = list(stream)
    said = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert said == whole.choices[0].message.content and parts[-1].usage == whole.usage
    told = client.chat.completions.create(
        model="austen", messages=SAID, max_tokens=3, logprobs=True, top_logprobs=2, seed=1, n=2, stop=["zzz"]
    )
    assert len(told.choices) == 2 and len(told.choices[0].logprobs.content[0].top_logprobs) == 2  # type: ignore[union-attr]
    called = client.chat.completions.create(
        model="austen",
        messages=SAID,
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "visit"}},
        seed=1,
    )
    call = called.choices[0].message.tool_calls[0]  # type: ignore[index]
    assert called.choices[0].finish_reason == "tool_calls" and 1 <= json.loads(call.function.arguments)["days"] <= 9
    after = [*SAID, called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert client.chat.completions.create(model="austen", messages=after, tools=[TOOL], max_tokens=4).choices
    parsed = client.chat.completions.parse(model="austen", messages=SAID, response_format=Town, seed=1)
    assert isinstance(parsed.choices[0].message.parsed, Town)
    done = client.completions.create(
        model="austen", prompt="It is a truth", max_tokens=5, logprobs=1, echo=True, seed=1
    )
    assert done.choices[0].text.startswith("It is a truth") and len(done.choices[0].logprobs.tokens) == 5  # type: ignore[union-attr, arg-type]
    found = client.embeddings.create(model="austen", input=["It is a truth", "Emma"])  # which asks for base64
    plain = client.embeddings.create(model="austen", input="Emma", encoding_format="float")
    vectors = [each.embedding for each in (*found.data, *plain.data)]
    assert len(vectors) == 3 and all(abs(sum(x * x for x in vector) - 1) < 1e-3 for vector in vectors)
    assert all(abs(x - y) < 1e-6 for x, y in zip(vectors[1], vectors[2], strict=True)) and found.usage.total_tokens > 3
    for wrong in ({"model": "nobody"}, {"model": "austen", "temperature": -1}):
        try:
            client.chat.completions.create(messages=SAID, **wrong)  # type: ignore[call-overload]
        except (openai.NotFoundError, openai.BadRequestError) as error:
            assert error.param in ("model", "temperature")
        else:
            raise AssertionError(wrong)


def use_responses(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "austen", "instructions": "Be brief.", "input": "It is a truth"}
    given |= {"max_output_tokens": 12, "temperature": 0}
    whole = client.responses.create(**given)
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"  # type: ignore[union-attr]
    events = list(client.responses.create(**given, stream=True))
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == whole.output_text and [event.sequence_number for event in events] == [*range(len(events))]
    assert events[-1].type == "response.incomplete" and events[-1].response.usage == whole.usage
    flat = {"type": "function", **TOOL["function"], "strict": True}
    asked: dict[str, Any] = {"model": "austen", "tools": [flat], "tool_choice": {"type": "function", "name": "visit"}}
    with client.responses.stream(**asked, input=SAID) as stream:
        called = stream.until_done().get_final_response()
    call = called.output[-1]
    assert call.type == "function_call" and 1 <= json.loads(call.arguments)["days"] <= 9
    after = [*SAID, call, {"type": "function_call_output", "call_id": call.call_id, "output": "done"}]
    assert client.responses.create(model="austen", input=after, tools=[flat], max_output_tokens=4).output_text
    parsed = client.responses.parse(model="austen", input=SAID, text_format=Town)
    assert isinstance(parsed.output_parsed, Town) and parsed.status == "completed"
    with client.responses.stream(model="austen", input=SAID, text_format=Town) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Town)
    try:
        client.responses.create(model="austen", input="and then?", previous_response_id=whole.id)
    except openai.BadRequestError as error:
        assert error.param == "previous_response_id"
    else:
        raise AssertionError("nothing is kept")


def use_langchain(model: ChatOpenAI) -> None:
    assert model.invoke("It is a truth").content
    assert len(list(model.stream("It is a truth"))) > 3
    found = model.with_structured_output(Town, method="json_schema").invoke("It is a truth")
    assert isinstance(found, Town)
    called = model.bind_tools([TOOL], tool_choice="required").invoke("It is a truth")
    assert called.tool_calls[0]["name"] == "visit"


def main() -> None:
    address, recorder = sys.argv[1], Recorder()
    http = httpx.Client(transport=recorder, timeout=60)
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", http_client=http, max_retries=0)
    use_openai(client)
    use_responses(client)
    use_langchain(
        ChatOpenAI(base_url=f"{address}/v1", api_key="none", http_client=http, model="austen", max_tokens=60, seed=1)  # type: ignore[call-arg, arg-type]
    )
    Path(sys.argv[2]).write_text(json.dumps(recorder.kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(recorder.kept)} requests")


if __name__ == "__main__":
    main()
