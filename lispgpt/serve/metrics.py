"""What the server counts, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable

from lispgpt.serve.models import Served

COUNTS = {
    "prompt_tokens": "Tokens of prompts.",
    "cached_tokens": "Those that were there.",
    "tokens": "Tokens that were generated.",
    "steps": "Decode steps of the batch.",
    "step_seconds": "Seconds in them.",
}


def metrics(served: Iterable[Served]) -> str:
    there = [(_of(each), each.scheduler) for each in served]
    lines = _rows("running", "gauge", "Texts that run.", [(of, s.running) for of, s in there])
    lines += _rows("waiting", "gauge", "Texts that wait for a place.", [(of, s.waiting) for of, s in there])
    for name, what in COUNTS.items():
        lines += _rows(f"{name}_total", "counter", what, [(of, getattr(s.counts, name)) for of, s in there])
    ended = [(f'{of},why="{why}"', n) for of, s in there for why, n in sorted(s.counts.ended.items())]
    return "\n".join([*lines, *_rows("ended_total", "counter", "Texts that ended, and why.", ended), ""])


def _rows(name: str, kind: str, what: str, values: Iterable[tuple[str, float]]) -> list[str]:
    head = [f"# HELP lispgpt_{name} {what}", f"# TYPE lispgpt_{name} {kind}"]
    return [*head, *(f"lispgpt_{name}{{{labels}}} {value:g}" for labels, value in values)]


def _of(served: Served) -> str:
    name = served.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'model="{name}"'
