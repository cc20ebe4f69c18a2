"""The left operands of attention's products, in two bf16 parts: queries from memory, softmax weights from scores."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import read_operand
from lispgpt.passes.kernels.matrices import Lanes, joined, split
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.targets.matrix import MatrixUnit
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

Parts = list[list[list[ir.Value]]]
"""[part][block of k]: a lane's runs, one for each row that it holds of a left operand."""


Words = list[list[list[ir.Value]]]
"""[block of k][part]: a lane's four words of a warpgroup's left operand."""


def queries(attention: Attention, reader: Reader, lanes: Lanes, places: list[list[Index]]) -> Parts:
    """The lane's share of the queries of its rows, whose places in the scores are given."""
    unit = lanes.unit
    parts: Parts = [[], []]
    for block in range(-(-attention.depth // unit.block)):
        d = b.add(block * unit.block, b.mul(lanes.group, unit.run))
        _append(parts, [_query(attention, reader, place, d, unit) for place in places])
    return parts


def _query(attention: Attention, reader: Reader, place: list[Index], d: Index, unit: MatrixUnit) -> ir.Value:
    """A run of a query; zero past its depth."""
    pieces, depth = [], attention.depth
    for i in range(0, unit.run, 4):
        at = b.add(d, i)
        inside = None if depth % unit.block == 0 else b.less(at, depth)
        where = at if inside is None else b.select(inside, b.as_value(at), b.as_value(0))
        value = b.extend(read_operand(reader, attention.queries, place, None, where, 4))
        pieces.append(value if inside is None else b.select(inside, value, b.constant(0.0, value.type)))
    return joined(pieces)


def _append(parts: Parts, runs: list[ir.Value]) -> None:
    """Add a block of k."""
    pairs = [split(run) for run in runs]
    for number, part in enumerate(parts):
        part.append([pair[number] for pair in pairs])


def weight_shape(unit: MatrixUnit, keys: int) -> list[int]:
    """What a subgroup's weights take of shared memory, in bf16: nothing where registers hold them as needed."""
    return [0] if unit.result_as_left else [2, 16, keys + unit.padding]


def weights_in_registers(unit: MatrixUnit, weights: list[list[ir.Value]], keys: int) -> Parts:
    """weights[i]: the lane's weights of its i-th row, tile by tile."""
    parts: Parts = [[], []]
    for block in range(keys // unit.block):
        _append(parts, [b.vector_of(row[block * unit.run : (block + 1) * unit.run]) for row in weights])
    return parts


def store_weights(memory: ir.Value, subgroup: Index, lanes: Lanes, weights: list[list[ir.Value]], keys: int) -> None:
    """To where the subgroup's lanes read them; every thread of the team waits before it does."""
    unit = lanes.unit
    for i, piece in enumerate(unit.pieces()):
        run = len(piece.elements)
        for n in range(keys // unit.columns):
            where = [b.add(lanes.result_row, piece.row), b.add(lanes.result_column, n * unit.columns)]
            for part, half in enumerate(split(b.vector_of(weights[i][n * run : (n + 1) * run]))):
                b.store(half, memory, [subgroup, part, *where])


def load_weights(memory: ir.Value, subgroup: Index, lanes: Lanes, keys: int) -> Parts:
    unit = lanes.unit

    def run(part: int, row: int, block: int) -> ir.Value:
        t = b.add(block * unit.block, b.mul(lanes.group, unit.run))
        where = [subgroup, part, b.add(lanes.row, row)]
        return joined([b.load(memory, [*where, b.add(t, i)], 8) for i in range(0, unit.run, 8)])

    return [
        [[run(part, row, block) for row in unit.left_rows] for block in range(keys // unit.block)] for part in range(2)
    ]


def query_words(
    attention: Attention, reader: Reader, lanes: Lanes, places: list[list[Index]], unit: WarpgroupUnit
) -> Words:
    """The lane's share of the queries of its two rows for warpgroup instructions."""
    words = []
    for block in range(attention.depth // unit.block):
        pairs = []
        for column in (0, 8):
            d = b.add(lanes.result_column, block * unit.block + column)
            pairs += [b.extend(read_operand(reader, attention.queries, place, None, d, 2)) for place in places]
        words.append(_parts_of([unit.split(pair) for pair in pairs]))
    return words


def weight_words(unit: WarpgroupUnit, weights: list[list[ir.Value]], keys: int) -> Words:
    """weights[i]: the lane's weights of its i-th row, tile by tile."""
    words = []
    for block in range(keys // unit.block):
        starts = [4 * block, 4 * block + 2]
        pairs = [b.vector_of(row[start : start + 2]) for start in starts for row in weights]
        words.append(_parts_of([unit.split(pair) for pair in pairs]))
    return words


def _parts_of(halves: list[tuple[ir.Value, ir.Value]]) -> list[list[ir.Value]]:
    return [[half[part] for half in halves] for part in range(2)]
