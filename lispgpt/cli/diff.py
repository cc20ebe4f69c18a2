"""`lispgpt diff`: what is different between two dumps, two folders of them, or two artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_text
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo
from lispgpt.passes.text_changes import changes, summary
from lispgpt.passes.value_names import Names
from lispgpt.runtime.plan.artifact import MANIFEST, load_artifact
from lispgpt.runtime.plan.artifact_changes import artifact_changes

DUMP = ".mlir"


@click.command("diff")
@click.argument("before", type=PATH)
@click.argument("after", type=PATH)
def diff(before: Path, after: Path) -> None:
    """Show what is different from BEFORE to AFTER.

    Of two dumps (.mlir): each function's lines, where values that stand for the same have the same name and depth is no
    difference.  Of two folders of --dump-dir: after which passes the IR differs, and how much.  Of two artifacts:
    kernels, plans and their cost.
    """
    for path in (before, after):
        if not path.exists():
            raise UserError(f"there is no file {path}")
    kinds = {_kind(before), _kind(after)}
    if len(kinds) > 1:
        raise UserError(f"{before} is {_kind(before)}, and {after} is {_kind(after)}: give two of a kind")
    compare = {"a dump": _dumps, "a folder of dumps": _folders, "an artifact": _artifacts}[kinds.pop()]
    found = False
    for line in compare(before, after):
        echo(line)
        found = True
    if not found:
        echo("no difference")


def _kind(path: Path) -> str:
    if path.is_dir():
        return "an artifact" if (path / MANIFEST).is_file() else "a folder of dumps"
    return "a dump" if path.suffix == DUMP else "an artifact"


def _dumps(before: Path, after: Path) -> Iterator[str]:
    text = read_text(before)
    yield from _headed(changes(text, Names(text).name(read_text(after))))


def _artifacts(before: Path, after: Path) -> Iterator[str]:
    yield from artifact_changes(load_artifact(before), load_artifact(after))


def _headed(lines: Iterable[str]) -> Iterator[str]:
    """A difference's lines behind what they are together."""
    found = list(lines)
    if found:
        yield summary(found)
        yield from found


def _folders(before: Path, after: Path) -> Iterator[str]:
    """A line for each pass behind which the IR differs; where a pass changed nothing, the IR is the last one's."""
    steps = [_steps(folder) for folder in (before, after)]
    for folder, found in zip((before, after), steps, strict=True):
        if not found:
            raise UserError(f"{folder} has no dumps: --dump-dir {folder} writes them")
    for name in dict.fromkeys([*steps[0], *steps[1]]):
        a, b = (found.get(name) for found in steps)
        if a is None or b is None:
            yield f"{name}: in {before if b is None else after} alone"
        else:
            text = read_text(a)
            lines = list(changes(text, Names(text).name(read_text(b))))
            if lines:
                yield f"{name}: {summary(lines)} (lispgpt diff {a} {b})"


def _steps(folder: Path) -> dict[str, Path]:
    """By pass, and how often it has run by then, the dump of what it leaves."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob(f"[0-9][0-9]*-*{DUMP}"), key=lambda path: int(re.match(r"\d+", path.name)[0])):  # type: ignore[index]
        name = path.stem.partition("-")[2]
        count = sum(known.partition(" ")[0] == name for known in found)
        found[f"{name} ({count + 1})" if count else name] = path
    return found
