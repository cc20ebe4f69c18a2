"""Changes of tile programs' texts, by what keeps them safe."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

Change = Callable[[str, np.random.Generator], str]


def without(pattern: str) -> Change:
    """A program that lacks one of the ops that match."""

    def change(text: str, rng: np.random.Generator) -> str:
        places = list(re.finditer(rf"^ *{pattern}.*\n", text, re.MULTILINE))
        gone = places[rng.integers(len(places))]
        return text[: gone.start()] + text[gone.end() :]

    return change


def moved(pattern: str, ahead_of: str) -> Change:
    """A program in which an op comes ahead of another."""

    def change(text: str, rng: np.random.Generator) -> str:
        (op,) = re.finditer(rf"^ *{pattern}.*\n", text, re.MULTILINE)
        (target,) = re.finditer(rf"^.*{ahead_of}.*\n", text, re.MULTILINE)
        assert target.start() < op.start()
        return text[: target.start()] + op[0] + text[target.start() : op.start()] + text[op.end() :]

    return change


def shifted(pattern: str) -> Change:
    """A program in which the number that an op names is another."""

    def change(text: str, rng: np.random.Generator) -> str:
        places = list(re.finditer(rf"^( *)(.*{pattern}\(.*)(%\w+)(\) .*)\n", text, re.MULTILINE))
        place = places[rng.integers(len(places))]
        indent, before, number, after = place.groups()
        by = int(rng.choice([1, 3]))
        lines = f"{indent}%by = arith.constant {by} : index\n{indent}%off = arith.addi {number}, %by : index\n"
        return text[: place.start()] + f"{lines}{indent}{before}%off{after}\n" + text[place.end() :]

    return change


def replaced(pattern: str, by: Callable[[re.Match[str], np.random.Generator], str]) -> Change:
    """A program in which one of the places that match is something else."""

    def change(text: str, rng: np.random.Generator) -> str:
        places = list(re.finditer(pattern, text))
        place = places[rng.integers(len(places))]
        return text[: place.start()] + by(place, rng) + text[place.end() :]

    return change


def other_number(place: re.Match[str], rng: np.random.Generator) -> str:
    before, number = place.groups()
    return f"{before}{int(number) + int(rng.choice([-1, 1, 2]))}"
