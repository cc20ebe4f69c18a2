"""What came of kernels at real sizes, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BAD = ("wrong", "fault", "failed", "not modelled")
HEAD = ("target", "models", "kernels", "float64", "CPU", "wrong", "faults", "no reference", "too slow", "spills")


def table(known: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: of each target, how many models have had kernels compiled, how many different ones that were, how many
    are right beside float64 and beside the CPU's, and how many are not; then what is wrong, and which kernels spill."""
    kernels = [each for each in known if each["key"]]
    lines = [_row(HEAD), _row(["---"] * len(HEAD))]
    for target in dict.fromkeys(each["case"].split()[1] for each in known):
        mine = [each for each in kernels if each["case"].split()[1] == target]
        models = {each["case"].split()[0] for each in known if each["case"].split()[1] == target}
        counts = [sum(each["how"] == "right" and each["by"] == by for each in mine) for by in ("float64", "cpu")]
        counts += [sum(each["how"] in how for each in mine)
                   for how in (("wrong",), ("fault", "not modelled"), ("no reference",), ("too slow",))]  # fmt: skip
        spilled: Any = sum(bool(each["spills"]) for each in mine)
        if not target.startswith("rocm"):  # ptxas, which is not here, gives PTX its registers
            spilled = "unknown"
        lines.append(_row([target, len(models), len(mine), *counts, spilled]))
    return "\n".join([*lines, "", *_said(known)])


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _said(known: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong, and which kernels have how much memory of a thread's for registers that do not fit."""
    lines = [f"- {each['case']}: {each['kernel']}: {each['how']}: {each['detail']}" for each in known
             if each["how"] in (*BAD, "no reference", "too slow")]  # fmt: skip
    lines += [f"- {each['case']}: {each['kernel']}: {each['spills']} bytes of a thread are in memory"
              for each in known if each["spills"]]  # fmt: skip
    return lines or ["Nothing is wrong, and nothing spills."]
