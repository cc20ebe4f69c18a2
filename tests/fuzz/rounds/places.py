"""The same elements at other places, and loops and branches inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.rounds.expressions import Compute, Draw, Term, dims, offers, spelled

# ---- places


@offers(1.5, lambda d, s: len(s) > 0 and math.prod(s) > 1)
def _reshaped(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    left, other = math.prod(shape), []
    while left > 1 and len(other) < 3:
        other.append(d.one_of([n for n in range(2, left + 1) if left % n == 0]))
        left //= other[-1]
    other += [left] if left > 1 or not other else []
    inner = d.draw(tuple(other), depth)
    text = f"(reshape {inner.text} [{spelled(shape)}])"
    return Term(text, shape, lambda values: inner.value(values).reshape(shape))


def _offset(d: Draw, room: int) -> tuple[str, Compute]:
    """A start within room, by the round where one is there."""
    if d.rounds is not None and room >= d.rounds - 1 and d.chance(0.6):
        counter = d.counter
        return counter, lambda values: values[counter]
    number = d.whole(0, room)
    return str(number), lambda values: number


def _windows(
    d: Draw, whole: tuple[int, ...], part: tuple[int, ...], sizes: list[Any]
) -> tuple[str, Callable[..., Any]]:
    starts = [_offset(d, n - (1 if size is None else size)) for n, size in zip(whole, sizes, strict=True)]
    spelled = " ".join("nil" if size is None else str(size) for size in sizes)

    def places(values: dict[str, Any]) -> Any:
        found = []
        for (_, start), size in zip(starts, sizes, strict=True):
            first = int(start(values))
            found.append(first if size is None else slice(first, first + size))
        return tuple(found)

    return f"[{' '.join(text for text, _ in starts)}] [{spelled}]", places


def _more(d: Draw, shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[Any]]:
    """A larger shape, and the sizes of a window of it that has the given one."""
    sizes: list[Any] = list(shape)
    if len(sizes) < 3 and d.chance(0.5):
        sizes.insert(d.whole(0, len(sizes)), None)
    room = [d.one_of([0, 0, 1, 3, (d.rounds or 3) - 1]) for _ in sizes]
    return tuple((1 if size is None else size) + more for size, more in zip(sizes, room, strict=True)), sizes


@offers(1.5, lambda d, s: len(s) > 0)
def _sliced(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    whole, sizes = _more(d, shape)
    inner = d.draw(whole, depth)
    text, places = _windows(d, whole, shape, sizes)
    return Term(f"(slice {inner.text} {text})", shape, lambda values: inner.value(values)[places(values)])


@offers(1.0, lambda d, s: len(s) > 0)
def _inserted(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    sizes: list[Any] = [None if d.chance(0.3) else d.whole(1, size) for size in shape]
    part, whole = d.draw(tuple(s for s in sizes if s is not None), depth), d.draw(shape, depth)
    text, places = _windows(d, shape, part.shape, sizes)

    def value(values: dict[str, Any]) -> Any:
        made = np.array(whole.value(values))
        made[places(values)] = part.value(values)
        return made

    return Term(f"(insert {part.text} {whole.text} {text})", shape, value)


@offers(1.0, lambda d, s: len(s) > 0)
def _moved(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    """The same elements in another order: transposed, flipped, rolled."""
    names = [d.fresh("r") for _ in shape]
    order = [int(n) for n in d.rng.permutation(len(shape))]
    inner = d.draw(tuple(shape[n] for n in order), depth)
    tensor, texts, moves = d.fresh("t"), [], []
    for n in order:
        kind, size = d.one_of(["same", "same", "flip", "roll"]), shape[n]
        texts.append(
            {"same": names[n], "flip": f"(- {size - 1} {names[n]})", "roll": f"(mod (+ {names[n]} 1) {size})"}[kind]
        )
        moves.append({"same": 0, "flip": 1, "roll": 2}[kind])

    def value(values: dict[str, Any]) -> Any:
        x = inner.value(values)
        for axis, move in enumerate(moves):
            x = [lambda a, _: a, np.flip, lambda a, k: np.roll(a, -1, k)][move](x, axis)
        return np.transpose(x, np.argsort(order))

    text = f"(let [{tensor} {inner.text}] (tensor [{dims(names, shape)}] (at {tensor} {' '.join(texts)})))"
    return Term(text, shape, value)


# ---- loops and branches


@offers(0.4, lambda d, s: len(s) == 2)
def _summed_in_a_tensor(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    """A product whose sum is a loop inside of a tensor."""
    count = d.whole(2, 4)
    x, y = d.draw((shape[0], count), depth), d.draw((count, shape[1]), depth)
    a, b, r, c, j, s = (d.fresh(stem) for stem in "abrcjs")
    loop = f"(over [{j} 0 {count} 1] [{s} (: 0.0 f32)] (+ {s} (* (at {a} {r} {j}) (at {b} {j} {c}))))"
    text = f"(let [{a} {x.text} {b} {y.text}] (tensor [{dims([r, c], shape)}] {loop}))"
    return Term(text, shape, lambda values: x.value(values) @ y.value(values))


@offers(0.3, lambda d, s: d.rounds is not None)
def _branch(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    first, other, limit, counter = d.draw(shape, depth), d.draw(shape, depth), d.whole(0, d.rounds or 0), d.counter
    text = f"(if (< (cast {counter} i32) (: {limit} i32)) {first.text} {other.text})"
    return Term(text, shape, lambda values: (first if values[counter] < limit else other).value(values))


@offers(0.3, lambda d, s: len(s) > 0)
def _loop(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    """Another loop inside."""
    start, rounds, name, counter = d.draw(shape, depth), d.whole(1, 3), d.fresh("y"), d.fresh("k")
    inside = Draw(d.rng, d.scope | {name: shape}, d.prefix, d.scalars, rounds, counter, d.weights, d.names)
    body = inside.draw(shape, depth)

    def value(values: dict[str, Any]) -> Any:
        x = start.value(values)
        for number in range(rounds):
            x = body.value(values | {name: x, counter: number})
        return x

    return Term(f"(over [{counter} 0 {rounds} 1] [{name} {start.text}] {body.text})", shape, value)
