"""What `lispgpt bench` measured as a page of Markdown, with all that another needs to measure it again."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lispgpt
from lispgpt.base.commit import with_commit
from lispgpt.base.dtypes import CACHE_TYPE
from lispgpt.base.host import cores, cpu_name, memory
from lispgpt.base.machine import MLIR
from lispgpt.bench.measures import Measure
from lispgpt.bench.peers import Peer

DRIVERS = {"cuda": Path("/proc/driver/nvidia/version"), "rocm": Path("/sys/module/amdgpu/version")}
"""Where Linux says the version of a GPU's kernel driver; NVIDIA's among other words."""

STATED = ("layers", "width", "heads", "kv-heads", "hidden", "vocab", "context", "weight-type", CACHE_TYPE)
"""What of a model's config is said, where it has it."""


NOTE = (
    "Each figure is the middle one of some rounds, and has the time of the host in it. The floor is the least time "
    "that a step's bytes and operations take at these rates. Nobody has checked the tokens: `lispgpt check` does."
)


def page(
    command: str,
    found: Mapping[str, Any],
    config: Mapping[str, Any],
    measures: Sequence[Measure],
    others: Sequence[Peer],
) -> str:
    """command: as it is typed.  found: what `--json` writes.  config: the model's.  The date is UTC's."""
    return "\n".join(
        [
            f"# {Path(str(found['model'])).name} on {found['device']}",
            *("", "```bash", command, "```", ""),
            *_facts(found, config),
            "",
            *_figures(measures, others),
            *_whole(found.get("whole")),
            "",
            NOTE,
            "",
        ]
    )


def _facts(found: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """The machine, versions, and what was run, a row each."""
    room = memory()
    rows = {
        "device": found["device"],
        "target": found["target"],
        "driver": driver(str(found["target"])),
        "processor": f"{cpu_name()}, {cores()} of its threads",
        "memory of the host": "" if room is None else f"{room / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "lispgpt": f"{with_commit(lispgpt.__version__)}, MLIR of {_mlir()}",
        "model": ", ".join(f"{name} {config[name]}" for name in STATED if name in config),
        "precision": found["precision"],
        "rates": found["rates"] or "",
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    return ["| | |", "|---|---|", *(_row(row) for row in rows.items() if row[1])]


def _figures(measures: Sequence[Measure], others: Sequence[Peer]) -> list[str]:
    heads = ["", "µs", "of a", "tokens/s", "floor, µs", "share"]
    heads += [cell for peer in others for cell in (f"{peer.name}, µs", "to it")]
    lines = [_row(heads), "|---" * len(heads) + "|"]
    for measure in measures:
        known = measure.floor is not None and measure.share is not None
        cells = [measure.what, f"{measure.seconds * 1e6:.1f}", measure.unit, f"{measure.rate:.1f}"]
        cells += [f"{measure.floor * 1e6:.1f}", f"{measure.share:.0%}"] if known else ["", ""]  # type: ignore[operator]
        for peer in others:
            theirs = peer.seconds.get(measure.what)
            cells += [f"{theirs * 1e6:.1f}", f"{measure.seconds / theirs:.2f}"] if theirs else [_why(peer, measure), ""]
        lines.append(_row(cells))
    return lines


def _why(peer: Peer, measure: Measure) -> str:
    return f"failed: {peer.failed[measure.what]}" if measure.what in peer.failed else ""


def _whole(whole: Mapping[str, Any] | None) -> list[str]:
    if whole is None:
        return []
    first = f"first token of a process, compiled before {whole['first_token_s']:.2f} s"
    memory_ = f"at most {whole['peak_bytes'] / 1e6:.0f} MB on the host"
    return ["", f"Compiled from nothing in {whole['compile_s']:.2f} s; {first}; {memory_}."]


def _row(cells: Sequence[object]) -> str:
    """A line of a table, each cell on it in one line and without what ends a cell."""
    words = (re.sub(r"\s+", " ", str(cell)).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(words)} |"


def driver(target: str) -> str:
    """The version of a GPU's kernel driver on this machine; empty where there is none or it does not say."""
    with suppress(KeyError, OSError):
        said = DRIVERS[target.partition(":")[0]].read_text()
        found = re.search(r"\d+(\.\d+)+", said)
        return found[0] if found else ""
    return ""


def _mlir() -> str:
    """The package that MLIR comes from, with its version: of those that it can come from, the first that is here."""
    for name in MLIR:
        with suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}"
    return "a package without a version"
