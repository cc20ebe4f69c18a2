"""OpenAI's Responses format: what it asks for as a chat request, and answers as its items and events."""

from __future__ import annotations

from typing import Any

from lispgpt.chat.responses import Output, chat_of

FUNCTION: dict[str, Any] = {"name": "visit", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "c", "name": "visit", "arguments": "{}"}
USAGE: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_a_request_is_the_chat_request_that_says_the_same() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "Go"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I go"}]},
        CALL,
        {**CALL, "call_id": "d"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        CALL,
    ]
    schema = {"type": "object"}
    found = chat_of(
        {
            **{"model": "m", "input": items, "instructions": "Be brief.", "temperature": 0.5, "n": 3},
            **{"max_output_tokens": 9, "tools": [{"type": "function", **FUNCTION}], "stop": "x", "store": True},
            **{"tool_choice": {"type": "function", "name": "visit"}},
            "text": {"format": {"type": "json_schema", "name": "s", "schema": schema}, "verbosity": "low"},
        }
    )
    calls = [{"id": of, "type": "function", "function": {"name": "visit", "arguments": "{}"}} for of in "cdc"]
    assert found["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I go"}], "tool_calls": calls[:2]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "assistant", "content": "", "tool_calls": calls[2:]},
    ]
    assert found["tools"] == [{"type": "function", "function": FUNCTION}]
    assert found["tool_choice"]["function"] == {"name": "visit"} and found["max_completion_tokens"] == 9
    assert found["response_format"]["json_schema"] == {"schema": schema}
    assert found["temperature"] == 0.5 and not {"n", "stop", "input", "text"} & set(found)
    assert chat_of({"input": "Go"})["messages"] == [{"role": "user", "content": "Go"}]


def test_items_are_said_piece_by_piece_and_as_a_whole() -> None:
    output = Output("m")
    events = [output.begun()]
    for reasons, text in ((True, "so "), (True, "be"), (False, "It "), (False, "is"), (True, "hm")):
        events += output.say(reasons, text)
    events += output.close()
    events += output.call({"id": "call_1", "function": {"name": "visit", "arguments": '{"days": 1}'}})
    events.append(output.ended(False, USAGE | {"prompt_tokens_details": {"cached_tokens": 2}}))
    response = events[-1]["response"]
    needed = {"error", "incomplete_details", "instructions", "metadata", "temperature", "top_p", "tools", "model", "id"}
    assert needed <= set(response) and needed <= set(events[0]["response"])
    said = [
        (item["type"], item["arguments"] if "arguments" in item else item["content"][0]["text"])
        for item in response["output"]
    ]
    assert said == [("reasoning", "so be"), ("message", "It is"), ("reasoning", "hm"), ("function_call", '{"days": 1}')]
    assert all(item["status"] == "completed" for item in response["output"])
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    assert [event["item"]["status"] for event in added] == ["in_progress"] * 4
    assert response["usage"]["input_tokens_details"] == {"cached_tokens": 2} and response["usage"]["output_tokens"] == 4
    assert output.whole(True, response_usage())["incomplete_details"] == {"reason": "max_output_tokens"}


def response_usage() -> dict[str, Any]:
    return USAGE | {"prompt_tokens_details": {"cached_tokens": 0}}
