"""Where numbers of a product's other side lie in a block's memory: three bf16 parts of each, in steps of 16.

One text's parts, and a zero, are neighbours: they are columns of one instruction.  Of several texts each part has an
instruction, whose columns are the texts: a step has the first parts of all texts, then the second, then the third.
"""

from __future__ import annotations

from lispgpt.passes.kernels.words import Word

QUAD = 32
"""Bytes of four numbers of a step, those that a lane has the parts of: of one text all parts, else a part of one."""
PARTS = 3


def part_bytes(texts: int) -> int:
    """From a part of a number to its next."""
    return 8 if texts == 1 else QUAD * texts


def step_bytes(texts: int) -> int:
    """Of 16 numbers of all texts."""
    return 4 * QUAD if texts == 1 else PARTS * QUAD * texts


def place_of_pair(number: Word, texts: int, text: Word | int) -> Word:
    """Where two neighbouring numbers' first parts lie in an operand."""
    if texts == 1:
        return ((number // 8) * 4 + number % 4) * QUAD + ((number // 4) & 1) * 4
    return (number // 8) * step_bytes(texts) + text * QUAD + (number % 4) * 8 + ((number // 4) & 1) * 4
