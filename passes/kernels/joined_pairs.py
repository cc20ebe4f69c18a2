"""Pairs of columns that lanes hold of a warpgroup instruction's results, exchanged so that each lane has four in a row.

Of two blocks of eight columns, lanes 0 to 3 of a row have columns 0 and 1, 2 and 3, …  Then even lanes have columns 0
to 3 or 4 to 7 of the first block, odd lanes those of the second: a store takes twice as many neighbours of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.epilogue import ResultRun


def joined_pairs(
    pieces: Sequence[ResultRun], values: Sequence[ir.Value], lane: Index, subgroup: int
) -> tuple[list[ResultRun], list[ir.Value]]:
    """The same by fours where there are two blocks.  pieces: two neighbours by eight columns, and of those by row and
    row + 8; values: what is to be exchanged of each.  By all lanes of a subgroup."""
    odd = b.equal(b.mod(lane, 2), 1)
    found = []
    for start in range(0, len(pieces) // 4 * 4, 4):
        for half in (0, 1):
            first, second = pieces[start + half], pieces[start + 2 + half]
            value = _joined(values[start + half], values[start + 2 + half], odd, subgroup)
            column = b.select(odd, b.as_value(b.sub(second.output, 2)), b.as_value(first.output))
            found.append((ResultRun(first.row, column, first.value), value))
    found += list(zip(pieces, values, strict=True))[len(pieces) // 4 * 4 :]
    return [piece for piece, _ in found], [value for _, value in found]


def _joined(first: ir.Value, second: ir.Value, odd: ir.Value, subgroup: int) -> ir.Value:
    """Four neighbours of the first value in even lanes, of the second in odd ones."""
    element = b.element_of(first.type)
    count = 2 * b.item_bytes(first.type) // 4
    words = [_words(value, count) for value in (first, second)]
    sent = [b.select(odd, one, other) for one, other in zip(*words, strict=True)]
    got = [b.shuffle_xor(word, 1, subgroup) for word in sent]
    lower = [b.select(odd, word, own) for word, own in zip(got, words[0], strict=True)]
    upper = [b.select(odd, own, word) for word, own in zip(got, words[1], strict=True)]
    return b.emit("vector.bitcast", [b.vector_of([*lower, *upper])], [ir.VectorType.get([4], element)])


def _words(value: ir.Value, count: int) -> list[ir.Value]:
    whole = b.emit("vector.bitcast", [value], [ir.VectorType.get([count], b.i32())])
    return [b.lane_of(whole, number) for number in range(count)]
