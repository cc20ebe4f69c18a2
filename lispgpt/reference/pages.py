"""Markdown with one heading for each name or several: what is said of names beside their docstrings, and examples."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Said:
    """names: those of the heading.  text: what stands below, without the example, which is indented."""

    names: tuple[str, ...]
    text: str
    example: str


@cache
def said_in(file: str) -> dict[str, Said]:
    """By each name, what a file of this folder says of it."""
    found: dict[str, Said] = {}
    for part in re.split(r"^## ", (FOLDER / file).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        names = tuple(name.strip() for name in head.split(", "))
        lines = body.splitlines()
        example = "\n".join(line[4:] for line in lines if line.startswith("    "))
        text = "\n".join(line for line in lines if not line.startswith("    ")).strip()
        found |= dict.fromkeys(names, Said(names, text, example))
    return found


def guide() -> dict[str, Path]:
    """The guide's pages by their names, in the order in which they are read."""
    return {path.stem.partition("-")[2]: path for path in sorted((FOLDER / "guide").glob("*.md"))}
