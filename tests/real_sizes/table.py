"""What came of kernels at real sizes, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Class = tuple[str, ...]
"""A target, an entry, weights and a precision."""
BAD = ("wrong", "fault", "failed", "not modelled")
HEAD = ("target", "classes", "models", "kernels", "float64", "CPU", "wrong", "faults", "no reference", "too slow",
        "spills")  # fmt: skip
OF_CLASSES = ("target", "entry", "weights", "models", "right, exact", "right, fast", "not compared")


def table(known: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: of each target, how many classes (an entry, a type of weights, a precision) have a kernel that is right
    of how many that were begun, how many models have had kernels compiled, how many different ones that were, how many
    are right beside float64 and beside the CPU's, and how many are not; then what is wrong, and which kernels spill.

    A kernel that several files have counts once, by the worst that came of it.
    """
    kernels = _once([each for each in known if each["key"]])
    lines = [_row(HEAD), _row(["---"] * len(HEAD))]
    for target in sorted({_target(each) for each in known}):
        begun, mine = ([each for each in some if _target(each) == target] for some in (known, kernels))
        models = {each["case"].split()[0] for each in begun}
        right = f"{len(classes(begun))} of {len({_class(each) for each in begun})}"
        counts = [sum(each["how"] == "right" and each["by"] == by for each in mine) for by in ("float64", "cpu")]
        counts += [sum(each["how"] in how for each in mine)
                   for how in (("wrong",), ("fault", "not modelled"), ("no reference",), ("too slow",))]  # fmt: skip
        spilled: Any = sum(bool(each["spills"]) for each in mine)
        if not target.startswith("rocm"):  # ptxas, which is not here, gives PTX its registers
            spilled = "unknown"
        lines.append(_row([target, right, len(models), len(mine), *counts, spilled]))
    return "\n".join([*lines, "", *_said([*kernels, *(each for each in known if not each["key"])])])


def by_class(known: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: of each target, entry and weights how many different kernels are right, exact and fast, of how many
    models, and how many have only been executed, as comparing them takes too long."""
    lines = [_row(OF_CLASSES), _row(["---"] * len(OF_CLASSES))]
    for kind in sorted({_class(each)[:3] for each in known if each["key"]}):
        mine = _once([each for each in known if each["key"] and _class(each)[:3] == kind])
        right = [each for each in mine if each["how"] == "right"]
        models = len({each["case"].split()[0] for each in right})
        counts = [sum(_class(each)[3] == precision for each in right) for precision in ("exact", "fast")]
        lines.append(_row([*kind, models, *counts, len(mine) - len(right)]))
    return "\n".join(lines)


def _target(found: Mapping[str, Any]) -> str:
    return str(found["case"].split()[1])


def classes(known: Sequence[Mapping[str, Any]]) -> set[Class]:
    """Those of which a kernel is right."""
    return {_class(each) for each in known if each["how"] == "right"}


def _class(found: Mapping[str, Any]) -> Class:
    return tuple(found["case"].split()[1:])


def _once(kernels: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each kernel once: as it is bad, or else as it has been compared."""
    order = (*BAD, "right")
    rank = {how: number for number, how in enumerate(order)}
    found: dict[str, Mapping[str, Any]] = {}
    for each in sorted(kernels, key=lambda each: rank.get(each["how"], len(order))):
        found.setdefault(each["key"], each)
    return list(found.values())


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _said(known: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong, and which kernels have how much memory of a thread's for registers that do not fit."""
    lines = [f"- {each['case']}: {each['kernel']}: {each['how']}: {each['detail']}" for each in known
             if each["how"] in (*BAD, "no reference", "too slow")]  # fmt: skip
    lines += [f"- {each['case']}: {each['kernel']}: {each['spills']} bytes of a thread are in memory"
              for each in known if each["spills"]]  # fmt: skip
    return lines or ["Nothing is wrong, and nothing spills."]
