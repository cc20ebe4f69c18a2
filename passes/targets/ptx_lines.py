"""The lines of a program in PTX: of what LLVM writes of debug information only what leads to them.

A place holds from where it stands to the next one.  LLVM says it again wherever it was somewhere else meanwhile, has
labels at each, and names of functions that the bodies of others were part of.
"""

from __future__ import annotations

import re

SECTIONS = re.compile(r"^\t\.section\t\.debug_\w+\s*\{.*?\}\n?", re.MULTILINE | re.DOTALL)
LABELS = re.compile(r"^\$L__(?:tmp|func_begin|func_end)\d+:\n", re.MULTILINE)
PLACES = re.compile(r"^\t\.loc\t(\d+) (\d+) \d+.*\n|^\{\n", re.MULTILINE)
PARSED = re.compile(r'^\t\.file\t(\d+) "(-)"\n', re.MULTILINE)
"""What MLIR calls the file of what a pass has parsed."""


def lines_alone(text: str) -> str:
    """PTX with one `.loc` wherever the line is another, and none for what is of no line."""
    last, parsed = "", dict(PARSED.findall(text))

    def kept(found: re.Match[str]) -> str:
        nonlocal last
        if found[0] == "{\n":
            last = ""
            return found[0]
        place = found[0].partition(",")[0].rstrip()
        file, line = found.groups()
        if line == "0" or file in parsed or f"{file} {line}" == last:
            return ""
        last = f"{file} {line}"
        return f"{place}\n"

    return PLACES.sub(kept, LABELS.sub("", SECTIONS.sub("", PARSED.sub("", text))))
