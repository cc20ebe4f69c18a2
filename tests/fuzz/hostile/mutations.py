"""Changes that make a good file a hostile one: of its bytes, of its JSON, of its text, and of what it is."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

ESCAPE = "\x1b]0;owned\x07\x1b[31m"
"""What a terminal takes for a command."""

SPARSE = 5 << 30
"""Bytes of a file that takes no room on the disk."""

WORDS = (
    "", "\0", "a\0b", ESCAPE, "../../../etc/passwd", "/dev/zero", "\ud83d\ude00", "\U0001d518" * 300, "é", "%s%n", "-1",
    "nan", "x" * 70_000, "\n", "\r\x1b[2K", "__class__",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 255, 65_536, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63,
           1 << 64, 10**40, 10**400, 0.0, -0.0, 0.5, 1e-320, 1e308, float("nan"), float("inf"), -1.5)  # fmt: skip


def any_value(rng: random.Random) -> Any:
    """Something that JSON has."""
    return rng.choice(
        [
            lambda: rng.choice(WORDS),
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice((None, True, False, [], {}, [[]], {"": None})),
            lambda: [rng.choice(NUMBERS) for _ in range(rng.choice((1, 3, 1000)))],
            lambda: {rng.choice(WORDS): rng.choice(NUMBERS) for _ in range(3)},
            lambda: nested(rng.choice((20, 150, 900))),
        ]
    )()


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


def changed_json(value: Any, rng: random.Random) -> Any:
    """A copy with one to three of its parts changed, missing, added, or of another type."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return any_value(rng)
        owner, key = rng.choice(places)
        rng.choice((_replaced, _replaced, _near, _removed, _added, _swapped))(owner, key, rng)
    return value


def _places(value: Any, deepest: int = 100) -> Any:
    """Owners and keys, the upper ones oftener; of long lists and objects a few, and of deep ones the upper levels."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, child in items[:40]:
        yield value, key
        if deepest:
            yield from _places(child, deepest - 1)


def _replaced(owner: Any, key: Any, rng: random.Random) -> None:
    owner[key] = any_value(rng)


def _near(owner: Any, key: Any, rng: random.Random) -> None:
    """A value of the same type, a little off."""
    old = owner[key]
    if isinstance(old, bool):
        owner[key] = not old
    elif isinstance(old, (int, float)):
        owner[key] = rng.choice((old + 1, old - 1, -old, old * 2, old * 1_000_000_007, old // 3, str(old)))
    elif isinstance(old, str):
        owner[key] = rng.choice((old[:-1], old + "x", old.upper(), old + ESCAPE, [old], old * 1000))
    elif isinstance(old, list):
        owner[key] = rng.choice((old[:-1], old + old[:1], old[::-1], old * 3, {str(n): v for n, v in enumerate(old)}))


def _removed(owner: Any, key: Any, rng: random.Random) -> None:
    del owner[key]


def _added(owner: Any, key: Any, rng: random.Random) -> None:
    if isinstance(owner, dict):
        owner[rng.choice((*WORDS, str(key) + "_"))] = any_value(rng)
    else:
        owner.insert(key, any_value(rng))


def _swapped(owner: Any, key: Any, rng: random.Random) -> None:
    other = rng.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
    owner[key], owner[other] = owner[other], owner[key]


def written_json(value: Any, rng: random.Random) -> bytes:
    """Its bytes, seldom such as no library writes: with a key twice, deep, cut short, or followed by more."""
    try:
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    except (ValueError, RecursionError):
        text = "[" * 5000 + "]" * 5000
    data = text.encode("utf-8", "surrogatepass")
    chance = rng.random()
    if chance < 0.03:
        return data.replace(b"{", b'{"twice": 1, "twice": 2, ', 1)
    if chance < 0.06:
        return b"[" * 100_000 + data
    if chance < 0.09:
        return data[: rng.randrange(len(data) + 1)]
    if chance < 0.11:
        return b"\xef\xbb\xbf" + data
    return data + b"}" * (chance < 0.13)


def changed_bytes(data: bytes, rng: random.Random, head: int = 4096) -> bytes:
    """A copy with some bytes changed, mostly in its head; cut short, or longer."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if not made:
            return bytes(made)
        most = min(len(made), head) if rng.random() < 0.8 else len(made)
        place, size = rng.randrange(most), rng.choice((1, 2, 4, 8))
        kind = rng.randrange(8)
        if kind == 0:
            made[place] ^= 1 << rng.randrange(8)
        elif kind <= 2:
            number = rng.choice([n for n in NUMBERS if isinstance(n, int)]) & ((1 << 8 * size) - 1)
            made[place : place + size] = number.to_bytes(size, "little")
        elif kind == 3:
            del made[place : place + rng.choice((1, 7, 300))]
        elif kind == 4:
            made[place:place] = rng.randbytes(rng.choice((1, 8, 500)))
        elif kind == 5:
            made[place : place + size] = rng.choice((b"\0", b"\xff", b"\x1b", b"["))[:1] * size
        elif kind == 6:
            start = rng.randrange(most)
            made[place:place] = made[start : start + rng.choice((4, 64, 1000))]
        elif rng.random() < 0.3:
            del made[rng.randrange(len(made)) :]
    return bytes(made)


def changed_text(text: str, rng: random.Random) -> str:
    """A copy with words, brackets and lines moved, repeated, missing or foreign."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 2, 4))):
        if not lines:
            break
        place, kind = rng.randrange(len(lines)), rng.randrange(7)
        line = lines[place]
        at = rng.randrange(len(line) + 1)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), line)
        elif kind == 2:
            lines[place] = (
                line[:at] + rng.choice(("(", ")", "[", "]", "{", "}", '"', "`", "~", ":", ";", "\0")) + line[at:]
            )
        elif kind == 3:
            lines[place] = line[:at] + line[at + rng.choice((1, 5)) :]
        elif kind == 4:
            words = line.split(" ")
            words[rng.randrange(len(words))] = str(rng.choice((*WORDS[:-3], *NUMBERS)))
            lines[place] = " ".join(words)
        elif kind == 5:
            other = rng.choice(lines).split(" ")
            lines[place] = line[:at] + rng.choice(other) + line[at:]
        else:
            lines[place] = (
                line[:at] + rng.choice(("(" * 3000, "9" * 500, "[" * 200 + "]" * 200, "a" * 100_000)) + line[at:]
            )
    return "".join(lines)


def replaced_file(path: Path, rng: random.Random) -> None:
    """Something else in a file's place: a pipe, a folder, a device, a link, much of nothing, or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    rng.choice(REPLACEMENTS)(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE)


REPLACEMENTS: tuple[Callable[[Path], Any], ...] = (
    os.mkfifo,
    Path.mkdir,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to(path),
    lambda path: path.symlink_to("nowhere"),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"\0" * 100_000),
    _sparse,
    lambda path: None,
)
