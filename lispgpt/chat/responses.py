"""OpenAI's Responses format: the chat request that says the same as one of it, and answers as its items and events."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

KEPT = ("previous_response_id", "conversation", "background", "prompt")
"""What asks for something that an earlier request left."""
OWN = (*KEPT, "input", "instructions", "text", "tools", "tool_choice", "max_output_tokens", "top_logprobs")
UNTOLD = ("error", "incomplete_details", "instructions", "metadata", "temperature", "top_p", "previous_response_id")
"""What a response has to have, and says nothing of here."""
OTHERS = ("n", "stop", "logprobs", "response_format", "messages", "stream_options", "max_tokens")
"""Fields of chat requests that this format has not."""


class NotKnown(ValueError):
    """What of a request has no chat request.  field: where it stands."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def chat_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the chat request that asks for the same; NotKnown where there is none."""
    for name in KEPT:
        if asked.get(name):
            raise NotKnown(f"{name} is of no use: nothing is kept here, so give the whole conversation as input", name)
    given = asked.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise NotKnown("input is a text or a list of items", "input")
    instructions = asked.get("instructions")
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for item in items:
        _add(messages, item)
    text, tools = asked.get("text") or {}, asked.get("tools") or []
    if not isinstance(text, dict) or not isinstance(text.get("format") or {}, dict):
        raise NotKnown('text is {"format": {"type", …}}', "text")
    made = {name: value for name, value in asked.items() if name not in (*OWN, *OTHERS)}
    made |= {"messages": messages, "tools": _tools(tools), "tool_choice": _choice(asked.get("tool_choice"))}
    made["response_format"] = _format(text.get("format") or {})
    return made | {"max_completion_tokens": asked.get("max_output_tokens")}


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Put an item of a conversation behind the messages so far; a call belongs to the message before it."""
    match item.get("type", "message"):
        case "message":
            messages.append({"role": item.get("role"), "content": _content(item.get("content"))})
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        case "function_call_output":
            content = _content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        case "reasoning":  # of answers before, which no template shows again
            pass
        case _:
            raise NotKnown(
                "an input item is a message, a function_call, its function_call_output or reasoning", "input"
            )


def _content(given: Any) -> Any:
    if not isinstance(given, list):
        return given
    texts = ("input_text", "output_text")
    return [
        {**part, "type": "text"} if isinstance(part, dict) and part.get("type") in texts else part for part in given
    ]


def _tools(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or any(not isinstance(t, dict) or t.get("type") != "function" for t in given):
        raise NotKnown('tools are functions here: {"type": "function", "name", "parameters"}', "tools")
    return [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in given]


def _choice(given: Any) -> Any:
    return {"function": {"name": given.get("name")}} if isinstance(given, dict) else given


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    return (
        {**given, "json_schema": {"schema": given.get("schema")}} if given.get("type") == "json_schema" else {**given}
    )


class Output:
    """An answer that is under way: the items that it has so far, and events that say how they come to be."""

    def __init__(self, model: str) -> None:
        self._head = {"id": _name("resp"), "object": "response", "created_at": int(time.time()), "model": model}
        self._items: list[dict[str, Any]] = []
        self._numbers, self._open = 0, False

    def begun(self) -> dict[str, Any]:
        return self._event("created", response=self._response("in_progress", None))

    def say(self, reasons: bool, text: str) -> Iterator[dict[str, Any]]:
        """More of what is said, or of the reasoning."""
        kind = "reasoning" if reasons else "message"
        if not self._open or self._items[-1]["type"] != kind:
            yield from self.close()
            yield from self._begin(kind)
        self._part["text"] += text
        more: dict[str, Any] = {} if reasons else {"logprobs": []}
        yield self._event(f"{self._part['type']}.delta", **self._place, content_index=0, delta=text, **more)

    def call(self, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """A function that is called.  call: as a chat answer has it."""
        yield from self.close()
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        item = {
            "id": _name("fc"),
            "type": "function_call",
            "call_id": call["id"],
            "name": name,
            "status": "in_progress",
        }
        self._items.append(item | {"arguments": ""})
        yield self._event("output_item.added", output_index=len(self._items) - 1, item=self._items[-1])
        yield self._event("function_call_arguments.delta", **self._place, delta=arguments)
        yield self._event("function_call_arguments.done", **self._place, name=name, arguments=arguments)
        self._items[-1] |= {"status": "completed", "arguments": arguments}
        yield self._event("output_item.done", output_index=len(self._items) - 1, item=self._items[-1])

    def close(self) -> Iterator[dict[str, Any]]:
        """No more of the item that is open, if one is."""
        if not self._open:
            return
        self._open, item, place = False, self._items[-1], {**self._place, "content_index": 0}
        item["status"] = "completed"
        more: dict[str, Any] = {} if item["type"] == "reasoning" else {"logprobs": []}
        yield self._event(f"{self._part['type']}.done", **place, text=self._part["text"], **more)
        yield self._event("content_part.done", **place, part=self._part)
        yield self._event("output_item.done", output_index=len(self._items) - 1, item=item)

    def whole(self, full: bool, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The response.  full: whether there was no room for more.  usage: as a chat answer has it."""
        told = {f"{name}_tokens": usage[f"{of}_tokens"] for name, of in (("input", "prompt"), ("output", "completion"))}
        told["input_tokens_details"] = usage["prompt_tokens_details"]
        told |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": usage["total_tokens"]}
        made = self._response("incomplete" if full else "completed", told)
        return made | {"incomplete_details": {"reason": "max_output_tokens"} if full else None}

    def ended(self, full: bool, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The last event."""
        return self._event("incomplete" if full else "completed", response=self.whole(full, usage))

    def _begin(self, kind: str) -> Iterator[dict[str, Any]]:
        more: dict[str, Any] = {"summary": []} if kind == "reasoning" else {"role": "assistant"}
        item = {"id": _name(kind), "type": kind, "status": "in_progress", "content": [], **more}
        self._items.append(item)
        self._open = True
        yield self._event("output_item.added", output_index=len(self._items) - 1, item=item)
        part = {"type": "reasoning_text"} if kind == "reasoning" else {"type": "output_text", "annotations": []}
        item["content"].append(part | {"text": ""})
        yield self._event("content_part.added", **self._place, content_index=0, part=self._part)

    @property
    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self._items[-1]["content"][0]
        return part

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _event(self, kind: str, **more: Any) -> dict[str, Any]:
        self._numbers += 1
        return {"type": f"response.{kind}", "sequence_number": self._numbers - 1, **copy.deepcopy(more)}

    def _response(self, status: str, usage: Mapping[str, Any] | None) -> dict[str, Any]:
        made = {**self._head, "status": status, "output": self._items, "usage": usage, **dict.fromkeys(UNTOLD)}
        return made | {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "store": False}


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
