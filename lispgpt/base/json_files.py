"""JSON of files and of parts of files, checked as it is read: everything that is JSON comes by here.

What is read has no key twice in an object, is nested no deeper than DEEPEST, and its numbers are those that 64 bits
hold (a float may be NaN or infinite where it is written so, as some models' config.json has it).  `Fields` then says
which keys an object has to have, and what their values may be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_ordinary

DEEPEST = 100
"""Objects and lists around a value."""

LEAST, MOST = -(1 << 63), (1 << 64) - 1


@dataclass(frozen=True)
class Kind:
    """what: what a value should be, in words.  holds: whether one is."""

    what: str
    holds: Callable[[Any], bool]

    def check(self, place: str, value: Any) -> None:
        """UserError, which begins with the place, where a value is not of the kind."""
        if not self.holds(value):
            raise UserError(f"{place} is {shown(value)}, and should be {self.what}")


@dataclass(frozen=True)
class Fields:
    """The keys of an object, each with its kind.  optional: those that may be missing."""

    kinds: Mapping[str, Kind]
    optional: frozenset[str] = field(default_factory=frozenset)

    def check(self, path: Path | str, data: Mapping[str, Any], within: str = "") -> None:
        """UserError for the first that is missing or of another kind; within: what leads to the object, as `plan.`."""
        for key, kind in self.kinds.items():
            if key in data:
                kind.check(f"{path} is damaged: {within}{key}", data[key])
            elif key not in self.optional:
                raise UserError(f"{path} is damaged: it has no {within}{key}")


def shown(value: Any) -> str:
    """A value in JSON, as far as a line has room for it."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"


def is_whole(value: Any, least: int = 0, most: int = (1 << 31) - 1) -> bool:
    """Whether a value is a whole number within bounds."""
    return type(value) is int and least <= value <= most


def is_number(value: Any) -> bool:
    """Whether a value is a number of a sensible size."""
    return type(value) in (int, float) and abs(value) < 1e30


def is_text(value: Any) -> bool:
    """Whether a value is a text that can be a name: of less than 64 KiB, without a zero, and UTF-8."""
    return isinstance(value, str) and len(value) < 1 << 16 and "\0" not in value and is_encodable(value)


def is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8: half of a pair of surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_scalar(value: Any) -> bool:
    """Whether a value is a flag, a number or a text."""
    return isinstance(value, bool) or is_number(value) or is_text(value)


COUNT = Kind("a whole number from 0 on", is_whole)
NAME = Kind("a name", is_text)
OBJECT = Kind("an object, as {…}", lambda value: isinstance(value, dict))
SCALARS = Kind(
    "an object of flags, numbers and names", lambda v: isinstance(v, dict) and all(map(is_scalar, v.values()))
)
NAME_OR_NULL = Kind("a name or null", lambda value: value is None or is_text(value))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; UserError for what is missing, damaged, or has a key twice."""
    return parse_json(path, read_ordinary(path))


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """The object in some of a file's bytes."""
    value = json_value(path, data)
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it should hold a JSON object")
    return value


def json_value(
    path: Path | str, data: bytes | str, make_object: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """What a file's bytes say in JSON; UserError with the line and column where they are damaged.

    make_object: of an object's keys and values in order; ValueError for those that are none.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=make_object or _once, parse_int=_whole, parse_float=_float)
        _check_depth(value)
        return value
    except json.JSONDecodeError as error:
        what = f"{path} is damaged at line {error.lineno}, column {error.colno}: {error.msg}"
    except UnicodeDecodeError as error:
        assert isinstance(data, bytes)
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        what = f"{path} is damaged at line {line}, column {column}: no UTF-8 text"
    except ValueError as error:
        what = f"{path} is damaged: {str(error)[:200]}"
    except RecursionError:
        what = f"{path} is damaged: it is nested deeper than {DEEPEST} levels"
    raise UserError(what)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise ValueError(f"the key {name!r:.80} is there twice")
            names.add(name)
    return found


def _whole(text: str) -> int:
    if len(text) > 20 or not LEAST <= (value := int(text)) <= MOST:
        raise ValueError(f"the number {text[:20]}{'…' * (len(text) > 20)} is larger than any that it may have")
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is larger than any that it may have")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list)))
        level = [part for parts in inside for part in parts if isinstance(part, (dict, list))]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")
