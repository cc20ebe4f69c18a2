"""Conversations that prompts are recorded of, and what a template is told beside them."""

from __future__ import annotations

from typing import Any

NOW = "2026-07-26T12:34:56"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

_WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather \u2013 <now> & here",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town's name"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["place"],
        },
    },
}
_CALL = {
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"place": "K\u00f6ln", "unit": "celsius"}},
}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "question": {"messages": [{"role": "user", "content": "Who wrote \u201cEmma\u201d?"}]},
    "turns": {
        "messages": [
            {"role": "system", "content": "  Answer in one word.\n"},
            {"role": "user", "content": "Is <b>1 & 1</b> two?\n\nSay \U0001f600 or 'no'."},
            {"role": "assistant", "content": "\U0001f600"},
            {"role": "user", "content": " And 2 + 2?  "},
        ]
    },
    "whole": {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
        "add_generation_prompt": False,
    },
    "reasoning": {
        "messages": [
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "4", "reasoning_content": "Two and two\nmake four."},
            {"role": "user", "content": "Sure?"},
        ],
        "enable_thinking": True,
    },
    "no thinking": {"messages": [{"role": "user", "content": "2 + 2?"}], "enable_thinking": False},
    "tools": {
        "messages": [
            {"role": "system", "content": "Use tools."},
            {"role": "user", "content": "Weather in K\u00f6ln?"},
        ],
        "tools": [_WEATHER],
    },
    "tool's answer": {
        "messages": [
            {"role": "user", "content": "Weather in K\u00f6ln?"},
            {"role": "assistant", "content": "", "tool_calls": [{**_CALL, "id": "abcdef123"}]},
            {"role": "tool", "name": "get_weather", "content": '{"degrees": 21}', "tool_call_id": "abcdef123"},
        ],
        "tools": [_WEATHER],
    },
    "wrong": {"messages": [{"role": "assistant", "content": "I begin."}, {"role": "assistant", "content": "Twice."}]},
}
