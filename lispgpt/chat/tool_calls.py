"""Tool calls in what a model says, as the families of models write them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lispgpt.base.overlap import overlap

Call = tuple[str, dict[str, Any]]
"""A function's name and its arguments."""
MOST_BROKEN = 64
"""How often a text may look like a value and be none, before what is left of it is taken for text."""


@dataclass(frozen=True)
class Family:
    """opens: what a call begins with, which stands in the templates.  read: the calls in a text from there on."""

    opens: str
    read: Callable[[str], Iterator[Call]]


def _objects(text: str) -> Iterator[Call]:
    """The calls among JSON values that stand in a text, whatever stands between them."""
    decoder, place, broken = json.JSONDecoder(), 0, 0
    while broken < MOST_BROKEN and (found := re.compile(r"[\[{]").search(text, place)):
        try:
            value, place = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            place, broken = found.end(), broken + 1
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict) and (call := _of_object(each)):
                yield call


def _of_object(value: dict[str, Any]) -> Call | None:
    function = value.get("function")
    inner = function if isinstance(function, dict) else value
    name, given = inner.get("name"), inner.get("arguments", inner.get("parameters", {}))
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return (name, given) if isinstance(name, str) and isinstance(given, dict) else None


def _tagged(text: str) -> Iterator[Call]:
    """<function=NAME><parameter=KEY>VALUE</parameter>…</function>, or JSON within the tags."""
    if "<function=" not in text:
        yield from _objects(text)
        return
    for part in text.split("<function=")[1:]:
        name, opened, body = part.partition(">")
        if opened and name and not re.search(r"\s", name):
            yield name, dict(_parameters(body.partition("</function>")[0]))


def _parameters(body: str) -> Iterator[tuple[str, Any]]:
    """<parameter=KEY>VALUE</parameter>…"""
    while "<parameter=" in body:
        key, _, rest = body.partition("<parameter=")[2].partition(">")
        value, closed, body = rest.partition("</parameter>")
        if not closed:
            return
        yield key, _value(value.removeprefix("\n").removesuffix("\n"))


def _named(pattern: str) -> Callable[[str], Iterator[Call]]:
    """Calls whose name stands before a JSON object; pattern: finds the name, and ends where the object begins."""
    finder = re.compile(pattern)

    def read(text: str) -> Iterator[Call]:
        for found in finder.finditer(text):
            try:
                value, _ = json.JSONDecoder().raw_decode(text, found.end())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield found[1], value

    return read


def _mistral(text: str) -> Iterator[Call]:
    yield from (_named(r"\[TOOL_CALLS\]([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?(?=\{)")(text))
    if text.startswith("[TOOL_CALLS]") and "[ARGS]" not in text:
        yield from _objects(text.removeprefix("[TOOL_CALLS]"))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


FAMILIES = (
    Family("<|channel|>commentary", _named(r"to=functions\.([\w.-]+)[^{]{0,64}?<\|message\|>(?=\{)")),
    Family(
        "<\uff5ctool\u2581calls\u2581begin\uff5c>",
        _named(r"<\uff5ctool\u2581sep\uff5c>([\w.-]+)\s*(?:```json\s*)?(?=\{)"),
    ),
    Family("[TOOL_CALLS]", _mistral),
    Family("<tool_call>", _tagged),
    Family("<|tool_call|>", _objects),
    Family("<function_call>", _objects),
    Family("<|python_tag|>", _objects),
)
PLAIN = Family('{"name"', _objects)
"""Llama 3's: an answer that is a JSON object."""


def family_of(template: str) -> Family:
    """How a model with this chat template calls tools."""
    return next((family for family in FAMILIES if family.opens in template), PLAIN)


class ToolAnswer:
    """An answer that may call tools, as it comes: text up to the first call goes on, the calls come at the end."""

    def __init__(self, family: Family) -> None:
        self._family, self._held, self._calls = family, "", False

    def push(self, piece: str) -> str:
        """What of the answer is text for certain."""
        self._held += piece
        if self._calls:
            return ""
        place = self._held.find(self._family.opens)
        self._calls = place >= 0 and (self._family is not PLAIN or not self._held[:place].strip())
        keep = len(self._held) - overlap(self._held, self._family.opens) if place < 0 else place
        if not self._calls and place >= 0:
            keep = len(self._held)
        ready, self._held = self._held[:keep], self._held[keep:]
        return ready

    def finish(self) -> tuple[str, list[Call]]:
        """The rest: the calls, or the text that looked like some and is none."""
        calls = list(self._family.read(self._held)) if self._calls else []
        return ("", calls) if calls else (self._held, [])
