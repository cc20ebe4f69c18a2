"""What LLVM's text of PTX is changed in: its lines of programs, and its negated whole numbers.

Of debug information only what leads to a program's lines is kept.  A place holds from where it stands to the next one.
LLVM says it again wherever it was somewhere else meanwhile, has labels at each, and names of functions that the bodies
of others were part of.

Where two minima, or two maxima, of signed words follow each other, ptxas (13.0, for sm_90 and later) makes one
instruction of both, VIMNMX3, and forgets the sign of an operand that is another one negated: min(min(a, -b), c) is
min(a, b, c).  The complement and one more, which is the same number, it leaves as they are.
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


COMPARED = re.compile(r"\t(?:min|max)\.s32 \t%r\d+, (\S+), (\S+);")
NEGATION = re.compile(
    r"\t(?:neg\.s32 \t(%r\d+), (%r\d+)|sub\.s32 \t(%r\d+), 0, (%r\d+)|mul\.lo\.s32 \t(%r\d+), (%r\d+), -1);"
)


def negations_kept(text: str) -> str:
    """PTX whose negated words are the complement and one more, where a signed minimum or maximum reads them."""
    compared = {operand for pair in COMPARED.findall(text) for operand in pair}

    def kept(found: re.Match[str]) -> str:
        result, operand = (word for word in found.groups() if word is not None)
        if result not in compared:
            return found[0]
        return f"\tnot.b32 \t{result}, {operand};\n\tadd.s32 \t{result}, {result}, 1;"

    return NEGATION.sub(kept, text)
