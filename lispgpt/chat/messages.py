"""Messages of OpenAI's chat format as templates read them: their content a text, their calls' arguments objects."""

from __future__ import annotations

import json
from typing import Any

ROLES = ("assistant", "developer", "system", "tool", "user")


class NoMessage(ValueError):
    """What is no message, in words for whoever sent it."""


def is_text(given: Any) -> bool:
    """Whether something is a text that UTF-8 can say."""
    return isinstance(given, str) and (given.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in given))


def message_of(given: Any, most_calls: int) -> dict[str, Any]:
    """A message for templates, with at most so many calls; NoMessage for what is none."""
    if not isinstance(given, dict) or given.get("role") not in ROLES:
        raise NoMessage(f"a message's role is one of {', '.join(ROLES)}")
    content = given.get("content")
    if isinstance(content, list):
        texts: list[Any] = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        content = "".join(texts) if len(texts) == len(content) and all(map(is_text, texts)) else content
    if content is not None and not is_text(content):
        raise NoMessage("a message's content is a text, or a list of parts of the type text")
    role = "system" if given["role"] == "developer" else given["role"]
    names = ("name", "tool_call_id", "reasoning_content")
    found = {"role": role, "content": content or "", **{n: given[n] for n in names if isinstance(given.get(n), str)}}
    calls = given.get("tool_calls") or []
    if not isinstance(calls, list) or len(calls) > most_calls:
        raise NoMessage(f"tool_calls is a list of up to {most_calls} calls")
    return found | {"tool_calls": [_call(call) for call in calls]} if calls else found


def _call(given: Any) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise NoMessage('a tool call is {"id", "type": "function", "function": {"name", "arguments"}}')
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise NoMessage("a tool call's arguments are not JSON") from None
    named = {"name": function["name"], "arguments": arguments}
    return {"id": str(given.get("id", "")), "type": "function", "function": named}
