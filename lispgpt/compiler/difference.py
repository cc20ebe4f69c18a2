"""What is different between two dumps, two folders of them, or two artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_text
from lispgpt.passes.text_changes import changes, summary
from lispgpt.passes.value_names import Names
from lispgpt.runtime.plan.artifact import MANIFEST, Artifact, load_artifact
from lispgpt.runtime.plan.artifact_changes import artifact_changes

DUMP = ".mlir"
SHOWN = 400
"""Lines that a notebook shows."""
COLOURS = {"+": "#16653420", "-": "#9f2a1e20"}


@dataclass(frozen=True)
class Difference:
    """before, after: what was compared.  lines: what is different, none where nothing is; of texts a line begins with
    `-` or `+` where one of them alone has it."""

    before: str
    after: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines) or "no difference"

    def __bool__(self) -> bool:
        return bool(self.lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the lines, those of one side alone coloured."""
        more = [f"and {len(self.lines) - SHOWN:,} lines more"] if len(self.lines) > SHOWN else []
        shown = "".join(map(_line, [*self.lines[:SHOWN], *more])) or "no difference"
        title = f"from {self.before} to {self.after}"
        return f'<div><b>{escape(title)}</b><pre style="overflow:auto;max-height:30em">{shown}</pre></div>'


def _line(line: str) -> str:
    colour = COLOURS.get(line[:1])
    style = f"background:{colour}" if colour else "font-weight:bold" if line.startswith("@@") else ""
    return f'<div style="{style}">{escape(line) or " "}</div>'


def diff(before: str | Path | Artifact, after: str | Path | Artifact) -> Difference:
    """What is different from one dump (.mlir), folder of --dump-dir or artifact to another; UserError where they are
    not two of a kind, or cannot be read.

    Of dumps: each function's lines, where values that stand for the same have the same name and depth is no difference.
    Of folders: after which passes the IR differs, and how much.  Of artifacts: kernels, plans and their cost.
    """
    if isinstance(before, Artifact) and isinstance(after, Artifact):
        return Difference("one artifact", "the other", tuple(artifact_changes(before, after)))
    if isinstance(before, Artifact) or isinstance(after, Artifact):
        raise UserError("one is an artifact in memory, and the other a file: give two of a kind")
    before, after = Path(before), Path(after)
    for path in (before, after):
        if not path.exists():
            raise UserError(f"there is no file {path}")
    kinds = {_kind(before), _kind(after)}
    if len(kinds) > 1:
        raise UserError(f"{before} is {_kind(before)}, and {after} is {_kind(after)}: give two of a kind")
    compare = {"a dump": _dumps, "a folder of dumps": _folders, "an artifact": _artifacts}[kinds.pop()]
    return Difference(str(before), str(after), tuple(compare(before, after)))


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
