"""Negated whole numbers in PTX, as ptxas understands them.

Where two minima, or two maxima, of signed words follow each other, ptxas (13.0, for sm_90 and later) makes one
instruction of both, VIMNMX3, and forgets the sign of an operand that is another one negated: min(min(a, -b), c) is
min(a, b, c).  The complement and one more, which is the same number, it leaves as they are.
"""

from __future__ import annotations

import re

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
