"""Machine code as its kernels' instructions, each with the line of the program that it was made for.

AMD's assembly and PTX say it by `.loc` directives, objdump by lines of its own.  What the back end made for no line, or
for line 0, is of none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.explore.places import Places

FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
DISASSEMBLED = re.compile(r"^([0-9a-f]+) <(.+)>:$")
SEEN = re.compile(r"^([0-9a-f]+) g +F \.text\s+[0-9a-f]+ (\w+)$", re.MULTILINE)
"""A function of a symbol table that is seen from outside; several may be one."""
SOURCE_LINE = re.compile(r"^(?:; )?(.+):(\d+)(?: \(discriminator \d+\))?$")
ADDRESS = re.compile(r"^\s*[0-9a-f]+:\s+")
ENTRY = re.compile(r"^(?:\.visible |\.weak )?\.(?:entry|func)(?: \([^)]*\))? ([\w$.]+)")
LABEL = re.compile(r"^([A-Za-z_][\w$.]*):")
SILENT = re.compile(r"^\s*(?:\.(?!param|reg|shared|local|LBB)|\$L__(?:tmp|func)|//|;)")
"""Directives and remarks that say nothing of what is done."""
TRAILING = re.compile(r"\s+(?:;|//)(?! imm).*$")


@dataclass(frozen=True, slots=True)
class Instruction:
    """text: one line, without what an assembler's reader does not need.  location: its number."""

    text: str
    location: int


def instructions_of(text: str, places: Places) -> dict[str, tuple[Instruction, ...]]:
    """The instructions and labels of each function in an assembly or a disassembly."""
    if "\nDisassembly of section" in text:
        return _gathered(_disassembled(text, places))
    return _gathered(_assembled(text, places))


def _gathered(lines: Iterator[tuple[str, Instruction]]) -> dict[str, tuple[Instruction, ...]]:
    found: dict[str, list[Instruction]] = {}
    for name, line in lines:
        found.setdefault(name, []).append(line)
    return {name: tuple(lines) for name, lines in found.items()}


def _disassembled(text: str, places: Places) -> Iterator[tuple[str, Instruction]]:
    seen: dict[int, list[str]] = {}
    for address, name in SEEN.findall(text):
        seen.setdefault(int(address, 16), []).append(name)
    names: list[str] = []
    location = 0
    for line in text.split("\n"):
        if starts := DISASSEMBLED.match(line):
            names, location = seen.get(int(starts[1], 16), [starts[2]]), 0
        elif ADDRESS.match(line):
            instruction = Instruction(ADDRESS.sub("", line).replace("\t", " ").strip(), location)
            yield from ((name, instruction) for name in names)
        elif said := SOURCE_LINE.match(line):
            location = _location(places, said[1], int(said[2]), 0)


def _assembled(text: str, places: Places) -> Iterator[tuple[str, Instruction]]:
    lines = text.split("\n")
    files = {found[1]: _path(found[2], found[3]) for line in lines if (found := FILE.match(line))}
    amd = ".amdgcn_target" in text
    name, location = "", 0
    for line in lines:
        if (said := LOC.match(line)) is not None:
            location = _location(places, files.get(said[1], ""), int(said[2]), int(said[3]))
            continue
        starts = LABEL.match(line) if amd else ENTRY.match(line)
        if starts is not None:
            name, location = starts[1], 0
            continue
        if line.startswith((".Lfunc_end", "}")) or line.startswith("\t.section") or ".rodata" in line:
            name = ""
        own = TRAILING.sub("", line).replace("\t", " ").rstrip()
        if name and own.strip(" {}()") and not SILENT.match(own):
            yield name, Instruction(own.strip() if own.startswith((" ", "$", ".L")) else own, location)


def _path(first: str, second: str | None) -> str:
    return first if second is None else second if second.startswith("/") or not first else f"{first}/{second}"


def _location(places: Places, file: str, line: int, column: int) -> int:
    """Column 0: somewhere in the line."""
    if not line or file in ("", "-", "<unknown>", "<stdin>"):
        return 0
    return places.of_place((file, line, column))
