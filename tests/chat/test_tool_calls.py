"""Tool calls as each family of models writes them, whole and cut into pieces anywhere."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import seeded

from lispgpt.chat.tool_calls import FAMILIES, PLAIN, Call, Family, ToolAnswer, family_of

ARGUMENTS: dict[str, Any] = {"town": 'Bath, "the\u00a0city" {1}', "days": 3, "who": ["Anne", {"a": None}]}
OTHER: dict[str, Any] = {"id": -1.5}
BAR, DASH = "\uff5c", "\u2581"


def spelled(name: str, given: dict[str, Any], key: str = "arguments") -> str:
    return json.dumps({"name": name, key: given})


def deepseek(name: str, given: dict[str, Any]) -> str:
    start, sep, end = (f"<{BAR}tool{DASH}{word}{BAR}>" for word in (f"call{DASH}begin", "sep", f"call{DASH}end"))
    return f"{start}function{sep}{name}\n```json\n{json.dumps(given)}\n```{end}"


WRITTEN = {
    "<|channel|>commentary": (
        f"<|channel|>commentary to=functions.visit <|constrain|>json<|message|>{json.dumps(ARGUMENTS)}<|call|>",
        [("visit", ARGUMENTS)],
    ),
    f"<{BAR}tool{DASH}calls{DASH}begin{BAR}>": (
        f"<{BAR}tool{DASH}calls{DASH}begin{BAR}>{deepseek('visit', ARGUMENTS)}\n{deepseek('leave', OTHER)}"
        f"<{BAR}tool{DASH}calls{DASH}end{BAR}>",
        [("visit", ARGUMENTS), ("leave", OTHER)],
    ),
    "[TOOL_CALLS]": (
        f"[TOOL_CALLS][{spelled('visit', ARGUMENTS)}, {spelled('leave', OTHER)}]",
        [("visit", ARGUMENTS), ("leave", OTHER)],
    ),
    "<tool_call>": (
        f"<tool_call>\n{spelled('visit', ARGUMENTS)}\n</tool_call>\n"
        f"<tool_call>\n{spelled('leave', OTHER)}\n</tool_call>",
        [("visit", ARGUMENTS), ("leave", OTHER)],
    ),
    "<|tool_call|>": (f"<|tool_call|>[{spelled('visit', ARGUMENTS)}]", [("visit", ARGUMENTS)]),
    "<function_call>": (f"<function_call> {spelled('visit', ARGUMENTS)}", [("visit", ARGUMENTS)]),
    "<|python_tag|>": (f"<|python_tag|>{spelled('visit', ARGUMENTS, 'parameters')}", [("visit", ARGUMENTS)]),
    PLAIN.opens: (spelled("visit", ARGUMENTS, "parameters"), [("visit", ARGUMENTS)]),
}
"""Of each family what a model writes, and the calls in it."""

MORE = [
    (
        "[TOOL_CALLS]",
        f"[TOOL_CALLS]visit[CALL_ID]x1y2z3[ARGS]{json.dumps(ARGUMENTS)}[TOOL_CALLS]leave[ARGS]{json.dumps(OTHER)}",
        [("visit", ARGUMENTS), ("leave", OTHER)],
    ),
    ("[TOOL_CALLS]", f"[TOOL_CALLS]visit{json.dumps(ARGUMENTS)}", [("visit", ARGUMENTS)]),
    (
        "<tool_call>",
        "<tool_call>\n<function=visit>\n<parameter=town>\nBath\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        [("visit", {"town": "Bath", "days": 3})],
    ),
    (
        "<tool_call>",
        f'<tool_call>{{"name": "visit", "arguments": {json.dumps(json.dumps(OTHER))}}}</tool_call>',
        [("visit", OTHER)],
    ),
]
"""Other ways of some."""

NO_CALLS = [
    "<tool_call>{not JSON}</tool_call>",
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "visit", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "visit", "arguments": "{"}</tool_call>',
    "<tool_call>" + '{"a":' * 100_000,
    "<tool_call>" + "[" * 100_000,
    "<tool_call>" + json.dumps({"name": "visit", "arguments": "[" * 100_000}),
    "<tool_call>" + "<function=" * 20_000,
]


def families() -> dict[str, Family]:
    return {family.opens: family for family in (*FAMILIES, PLAIN)}


def heard(family: Family, answer: str, cuts: list[int]) -> tuple[str, list[Call]]:
    """The text and the calls of an answer that comes in pieces."""
    parts, told = ToolAnswer(family), ""
    for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True):
        told += parts.push(answer[start:end])
    rest, calls = parts.finish()
    return told + rest, calls


def test_each_family_is_here() -> None:
    assert families().keys() == WRITTEN.keys()


@pytest.mark.parametrize(
    "opens, answer, calls", [*((opens, *rest) for opens, rest in WRITTEN.items()), *MORE], ids=lambda given: None
)
def test_calls_are_read_however_they_come(opens: str, answer: str, calls: list[Call]) -> None:
    family, random = family_of(f"{{% if tools %}}{opens}{{% endif %}}"), seeded.rng()
    assert family is families()[opens]
    said = "" if family is PLAIN else "I shall see. "
    for count in (0, 1, 3, 10, len(answer)):
        cuts = sorted(random.integers(0, len(said + answer) + 1, count).tolist())
        assert heard(family, said + answer, cuts) == (said, calls), cuts
    one_by_one = list(range(1, len(said + answer)))
    assert heard(family, said + answer, one_by_one) == (said, calls)


@pytest.mark.parametrize("opens", WRITTEN)
def test_what_is_no_call_is_text(opens: str) -> None:
    family, random = families()[opens], seeded.rng()
    for text in ("It is a truth.", f"A {opens[:-1]}", f"{opens} and no more", f"{opens}{{", "", "[1, 2] {} \u00e9"):
        cuts = sorted(random.integers(0, len(text) + 1, 4).tolist())
        assert heard(family, text, cuts) == (text, [])


@pytest.mark.parametrize("number", range(len(NO_CALLS)))
def test_broken_calls_are_text(number: int) -> None:
    answer = NO_CALLS[number]
    assert heard(families()["<tool_call>"], answer, []) == (answer, [])


@pytest.mark.parametrize("opens", WRITTEN)
def test_what_repeats_itself_is_read_in_time(opens: str) -> None:
    """A model that goes on and on with what begins calls: a text is looked through a few times, and no more."""
    whole, _ = WRITTEN[opens]
    for part in (opens, whole[:-2], "to=functions.a ", whole[: len(whole) // 2], "<function=", "<function=a>"):
        answer, started = opens + part * (200_000 // len(part)), time.process_time()
        heard(families()[opens], answer, [])
        assert time.process_time() - started < 2, part
