"""The left operands of attention's products, in bf16 parts: vectors from memory, weights from scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, read_operand
from lispgpt.passes.kernels.matrices import Lanes, split
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.targets.matrix import MatrixUnit
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

WIDTH = 4
"""Numbers of a vector that are read at once."""

Block = list[list[ir.Value]]
"""[part]: a lane's runs in a block of k, one for each row that it holds of a left operand."""


Places = Sequence[tuple[Place, Index]]
"""The leading indices and the position of each of a lane's rows."""


Words = list[list[list[ir.Value]]]
"""[block of k][part]: a lane's four words of a warpgroup's left operand."""


def parts_of(operand: Operand) -> int:
    """In how many bf16 parts an operand's numbers are multiplied."""
    return 1 if operand.rounded or str(operand.element) == "bf16" else 2


def words_of(operand: Operand, unit: MatrixUnit) -> int:
    """Registers that a lane's share of an operand's vectors takes."""
    blocks = -(-operand.depth // unit.block)
    return blocks * len(unit.left_rows) * unit.run * parts_of(operand) // 2


def operand_block(operand: Operand, reader: Reader, lanes: Lanes, places: Places, block: int) -> Block:
    """The lane's share, in block `block` of the depth, of an operand's vectors that are its rows, whose places are
    given; zero past the depth."""
    d = b.add(block * lanes.unit.block, b.mul(lanes.group, lanes.unit.run))
    return in_parts([_run(operand, reader, place, d, lanes.unit) for place in places], parts_of(operand))


def operand_blocks(
    operand: Operand, reader: Reader, lanes: Lanes, places: Places, kept: bool
) -> Callable[[int], Block]:
    """Gives each block of the depth: kept in registers from here on, or read again each time."""
    read = partial(operand_block, operand, reader, lanes, places)
    return [read(n) for n in range(-(-operand.depth // lanes.unit.block))].__getitem__ if kept else read


def _run(operand: Operand, reader: Reader, place: tuple[Place, Index], d: Index, unit: MatrixUnit) -> ir.Value:
    pieces, depth = [], operand.depth
    for i in range(0, unit.run, WIDTH):
        at = b.add(d, i)
        inside = None if depth % unit.block == 0 else b.less(at, depth)
        value = read_operand(reader, operand, *place, b.or_zero(inside, at), WIDTH)
        pieces.append(b.masked(inside, value if parts_of(operand) == 1 else b.extend(value)))
    return b.joined(pieces)


def in_parts(runs: list[ir.Value], count: int) -> Block:
    """A lane's runs in so many parts, rounded where there is one."""
    pieces = [split(run) if count == 2 else [b.shortened(run, ir.BF16Type.get())] for run in runs]
    return [[piece[number] for piece in pieces] for number in range(count)]


def weight_shape(unit: MatrixUnit, keys: int) -> list[int]:
    """What a subgroup's weights take of shared memory, in bf16: nothing where registers hold them as needed."""
    return [0] if unit.result_as_left else [2, 16, keys + unit.padding]


def weights_in_registers(unit: MatrixUnit, weights: list[list[ir.Value]], keys: int, count: int) -> list[Block]:
    """weights[i]: the lane's weights of its i-th row, tile by tile.  count: of parts."""
    blocks = range(0, keys // unit.block * unit.run, unit.run)
    return [in_parts([b.vector_of(row[first : first + unit.run]) for row in weights], count) for first in blocks]


def store_weights(
    memory: ir.Value, subgroup: Index, lanes: Lanes, weights: list[list[ir.Value]], keys: int, count: int
) -> None:
    """To where the subgroup's lanes read them; every thread of the team waits before it does."""
    unit = lanes.unit
    for i, piece in enumerate(unit.pieces()):
        run = len(piece.elements)
        for n in range(keys // unit.columns):
            where = [b.add(lanes.result_row, piece.row), b.add(lanes.result_column, n * unit.columns)]
            values = b.vector_of(weights[i][n * run : (n + 1) * run])
            for part, half in enumerate(split(values) if count == 2 else [b.shortened(values, ir.BF16Type.get())]):
                b.store(half, memory, [subgroup, part, *where])


def load_weights(memory: ir.Value, subgroup: Index, lanes: Lanes, keys: int, count: int) -> list[Block]:
    unit = lanes.unit

    def run(part: int, row: int, block: int) -> ir.Value:
        t = b.add(block * unit.block, b.mul(lanes.group, unit.run))
        where = [subgroup, part, b.add(lanes.row, row)]
        return b.joined([b.load(memory, [*where, b.add(t, i)], 8) for i in range(0, unit.run, 8)])

    return [
        [[run(part, row, block) for row in unit.left_rows] for part in range(count)]
        for block in range(keys // unit.block)
    ]


def operand_words(operand: Operand, reader: Reader, lanes: Lanes, places: Places, unit: WarpgroupUnit) -> Words:
    """The lane's share of an operand's vectors that are its two rows, for warpgroup instructions."""
    words = []
    for block in range(operand.depth // unit.block):
        pairs = []
        for column in (0, 8):
            d = b.add(lanes.result_column, block * unit.block + column)
            pairs += [b.extend(read_operand(reader, operand, *place, d, 2)) for place in places]
        words.append(_words_of(unit, pairs, 1 if operand.rounded else 2))
    return words


def weight_words(unit: WarpgroupUnit, weights: list[list[ir.Value]], keys: int, count: int) -> Words:
    """weights[i]: the lane's weights of its i-th row, tile by tile.  count: of parts."""
    words = []
    for block in range(keys // unit.block):
        starts = [4 * block, 4 * block + 2]
        pairs = [b.vector_of(row[start : start + 2]) for start in starts for row in weights]
        words.append(_words_of(unit, pairs, count))
    return words


def _words_of(unit: WarpgroupUnit, pairs: list[ir.Value], count: int) -> list[list[ir.Value]]:
    """Pairs in so many parts, rounded where there is one."""
    if count == 1:
        return [[unit.rounded(pair) for pair in pairs]]
    return [list(words) for words in zip(*(unit.split(pair) for pair in pairs), strict=True)]
