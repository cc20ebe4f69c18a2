"""GGUF files in parts, to change them where they mean something: metadata of other types, tensors of other shapes."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from fuzz.hostile.mutations import NUMBERS, WORDS

STRING, ARRAY = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


@dataclass
class Parts:
    """metadata: [key, type, value], where an array's value is (type, values).  tensors: [name, dimensions, type,
    offset]."""

    metadata: list[list[Any]]
    tensors: list[list[Any]]
    rest: bytes


def parse(data: bytes) -> Parts:
    place = 4

    def take(form: str) -> Any:
        nonlocal place
        (found,) = struct.unpack_from(form, data, place)
        place += struct.calcsize(form)
        return found

    def text() -> bytes:
        nonlocal place
        count = take("<Q")
        place += count
        return data[place - count : place]

    def value(kind: int) -> Any:
        if kind == STRING:
            return text()
        if kind == ARRAY:
            inner, count = take("<I"), take("<Q")
            return inner, [value(inner) for _ in range(count)]
        return take(SCALARS[kind])

    take("<I")
    count, pairs = take("<Q"), take("<Q")
    metadata = []
    for _ in range(pairs):
        key, kind = text(), take("<I")
        metadata.append([key, kind, value(kind)])
    tensors = []
    for _ in range(count):
        name, rank = text(), take("<I")
        tensors.append([name, [take("<Q") for _ in range(rank)], take("<I"), take("<Q")])
    return Parts(metadata, tensors, data[-(-place // 32) * 32 :])


def written(parts: Parts) -> bytes:
    def text(given: bytes) -> bytes:
        return struct.pack("<Q", len(given)) + given

    def value(kind: int, given: Any) -> bytes:
        if kind == STRING:
            return text(given)
        if kind == ARRAY:
            inner, values = given
            return struct.pack("<IQ", inner, len(values)) + b"".join(value(inner, each) for each in values)
        return struct.pack(SCALARS[kind], given)

    made = [b"GGUF", struct.pack("<IQQ", 3, len(parts.tensors), len(parts.metadata))]
    made += [text(key) + struct.pack("<I", kind) + value(kind, given) for key, kind, given in parts.metadata]
    for name, dimensions, kind, offset in parts.tensors:
        made.append(text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset))
    head = b"".join(made)
    return head + bytes(-len(head) % 32) + parts.rest


def change(parts: Parts, rng: random.Random) -> None:
    """One to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((_metadata, _metadata, _metadata, _tensor))(parts, rng)


def _any_value(rng: random.Random, depth: int = 0) -> tuple[int, Any]:
    kind = rng.choice((*SCALARS, STRING, STRING, ARRAY, ARRAY))
    if kind == STRING:
        return kind, rng.choice(
            (*(word.encode("utf-8", "surrogatepass") for word in WORDS), b"\xff\xfe", b"a" * 200_000)
        )
    if kind == ARRAY:
        inner, value = _any_value(rng, depth + 1) if depth < 3 else (4, 1)
        return kind, (inner, [value] * rng.choice((0, 1, 5, 300)))
    form = SCALARS[kind]
    if kind in (6, 12):
        return kind, rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf"), 1e-30))
    most = 1 << 8 * struct.calcsize(form)
    number = int(rng.choice([n for n in NUMBERS if isinstance(n, int)])) % most
    return kind, bool(number) if kind == 7 else number - most if form[1].islower() and number >= most // 2 else number


def _metadata(parts: Parts, rng: random.Random) -> None:
    kind, place = rng.randrange(5), rng.randrange(len(parts.metadata))
    entry = parts.metadata[place]
    if kind <= 1:
        entry[1:] = _any_value(rng)
    elif kind == 2:
        del parts.metadata[place]
    elif kind == 3 and rng.random() < 0.3:
        parts.metadata.append([*rng.choice(parts.metadata)])
    elif entry[1] == ARRAY and entry[2][1]:
        inner, values = entry[2]
        at = rng.randrange(len(values))
        new = (
            rng.choice(values)
            if rng.random() < 0.5 or inner != STRING
            else rng.choice((b"", b"\x1b[31m", b"a" * 200_000))
        )
        entry[2] = inner, rng.choice(([*values[:at], new, *values[at + 1 :]], values[:at], values * 3))
    elif entry[1] == STRING:
        entry[2] = rng.choice((entry[2] + b"\x1b[2J", entry[2][:-1], b"llama", b"gpt2", b"t5", b"\xff"))
    else:
        entry[1:] = _any_value(rng)


def _tensor(parts: Parts, rng: random.Random) -> None:
    kind, tensor = rng.randrange(6), rng.choice(parts.tensors)
    if kind == 0:
        tensor[1] = [rng.choice((0, 1, 2, 1 << 31, 1 << 62, (1 << 64) - 1)) for _ in range(rng.choice((0, 1, 4, 72)))]
    elif kind == 1 and tensor[1]:
        tensor[1][rng.randrange(len(tensor[1]))] = rng.choice((0, 1, 3, 1 << 20, 1 << 40))
    elif kind == 2:
        tensor[2] = rng.choice((0, 1, 2, 8, 12, 30, 39, 99, (1 << 32) - 1))
    elif kind == 3:
        tensor[3] = rng.choice((1, 32, 1 << 40, (1 << 64) - 32))
    elif kind == 4:
        tensor[0] = rng.choice((b"", b"\x1b[31m", b"\xff", tensor[0] + b".x", parts.tensors[0][0]))
    else:
        parts.tensors.remove(tensor)
