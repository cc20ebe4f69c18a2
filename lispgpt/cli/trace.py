"""`lispgpt trace`: the time lines of one or several processes as one file of Chrome's trace format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.base.files import write_text
from lispgpt.base.json_files import is_number, parse_json
from lispgpt.base.reading import read_text
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo, say
from lispgpt.runtime.timeline import HOST, TRACKS

TIMELINE = "timeline.json"

TIMELINE_OPTION = click.option(
    "--timeline",
    type=PATH,
    metavar="FILE",
    help="Write when each launch, copy and exchange ran, one at a time; see `lispgpt trace`.",
)


@click.command("trace")
@click.argument("timelines", nargs=-1, required=True, type=PATH)
@click.option("-o", "output", type=PATH, default=Path("trace.json"), show_default=True, help="The file to write.")
def trace(timelines: tuple[Path, ...], output: Path) -> None:
    """Put TIMELINES, which --timeline of run, train and serve has written, side by side in one file.

    A folder stands for all time lines in it, such as a run's.  ui.perfetto.dev and chrome://tracing show the file: for
    each process when its launches, copies and exchanges ran, and what the host did with them.
    """
    files = [
        file for path in timelines for file in ([path] if not path.is_dir() else sorted(path.glob("timeline*.json")))
    ]
    if not files:
        raise UserError(f"{timelines[0]} has no timeline*.json: --timeline {timelines[0] / TIMELINE} writes one")
    found = [_read(file) for file in files]
    began = min(each["otherData"]["began"] for each in found)
    events: list[dict[str, Any]] = []
    for number, each in enumerate(found):
        shift = each["otherData"]["began"] - began
        own = [_moved(event, number, shift) for event in each["traceEvents"]]
        events += own
        echo(f"{files[number]}: {_summary(own)}")
    write_text(
        output, json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"made by": "lispgpt"}})
    )
    say(f"{output}: {len(events):,} events; ui.perfetto.dev shows it")


def _read(file: Path) -> dict[str, Any]:
    """UserError where it is none of ours."""
    data = parse_json(file, read_text(file).encode())
    about, events = data.get("otherData"), data.get("traceEvents")
    known = isinstance(about, dict) and isinstance(about.get("began"), int | float) and isinstance(events, list)
    if not known or not all(map(_is_event, events)):  # type: ignore[arg-type]
        raise UserError(f"{file} is no time line that --timeline has written")
    return data


def _is_event(event: Any) -> bool:
    if not isinstance(event, dict) or event.get("ph") not in ("X", "M"):
        return False
    return event["ph"] == "M" or (event.get("cat") in TRACKS and all(is_number(event.get(t)) for t in ("ts", "dur")))


def _moved(event: Mapping[str, Any], process: int, shift: float) -> dict[str, Any]:
    moved = dict(event) | {"pid": process}
    return moved | {"ts": event["ts"] + shift} if "ts" in event else moved


def _summary(events: Iterable[Mapping[str, Any]]) -> str:
    """How long what took: the host's part is what is left of the whole."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    first, last = float("inf"), 0.0
    for event in events:
        if event["ph"] == "X":
            first, last = min(first, event["ts"]), max(last, event["ts"] + event["dur"])
            sums[event["cat"]] += event["dur"]
            counts[event["cat"]] += 1
    whole = max(last - first, 1e-9)
    parts = [f"{counts[name]:,} {name} {sums[name] / 1e3:,.1f} ms" for name in TRACKS if name != HOST and counts[name]]
    rest = whole - sum(total for name, total in sums.items() if name != HOST)
    return f"{whole / 1e3:,.1f} ms: {', '.join(parts)}, the rest {rest / 1e3:,.1f} ms"
