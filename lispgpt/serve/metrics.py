"""What the server counts, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable

from lispgpt.serve.models import Served


def metrics(served: Iterable[Served]) -> str:
    there = list(served)
    rows: list[tuple[str, str, str, list[tuple[str, float]]]] = [
        ("running", "gauge", "Texts that run.", [(_of(s), s.scheduler.running) for s in there]),
        ("waiting", "gauge", "Texts that wait for a place.", [(_of(s), s.scheduler.waiting) for s in there]),
        (
            "prompt_tokens_total",
            "counter",
            "Tokens of prompts.",
            [(_of(s), s.scheduler.counts.prompt_tokens) for s in there],
        ),
        (
            "cached_tokens_total",
            "counter",
            "Those that were there.",
            [(_of(s), s.scheduler.counts.cached_tokens) for s in there],
        ),
        (
            "tokens_total",
            "counter",
            "Tokens that were generated.",
            [(_of(s), s.scheduler.counts.tokens) for s in there],
        ),
        ("steps_total", "counter", "Decode steps of the batch.", [(_of(s), s.scheduler.counts.steps) for s in there]),
        (
            "step_seconds_total",
            "counter",
            "Seconds in them.",
            [(_of(s), s.scheduler.counts.step_seconds) for s in there],
        ),
        (
            "ended_total",
            "counter",
            "Texts that ended, and why.",
            [(f'{_of(s)},why="{why}"', n) for s in there for why, n in sorted(s.scheduler.counts.ended.items())],
        ),
    ]
    lines = []
    for name, kind, what, values in rows:
        lines += [f"# HELP lispgpt_{name} {what}", f"# TYPE lispgpt_{name} {kind}"]
        lines += [f"lispgpt_{name}{{{labels}}} {value:g}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _of(served: Served) -> str:
    name = served.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'model="{name}"'
