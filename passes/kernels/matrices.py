"""What lanes hold of matrix instructions' operands and results, and f32 numbers as sums of bf16 ones; and squares of
vectors transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.targets.matrix import MatrixUnit


@dataclass(frozen=True)
class Lanes:
    """A lane's share of a unit's tiles.  row, group: of operands.  result_row, result_column: its first result's."""

    unit: MatrixUnit
    lane: Index
    row: Index
    group: Index
    result_row: Index
    result_column: Index

    @property
    def sharing(self) -> int:
        """Lanes that hold results of one row."""
        return self.unit.result_lane()[1][1]


def lanes_of(unit: MatrixUnit, lane: Index) -> Lanes:
    rules = (unit.lane_row(), unit.lane_group(), *unit.result_lane())
    return Lanes(unit, lane, *(_share(lane, rule) for rule in rules))


def _share(lane: Index, rule: tuple[int, ...]) -> Index:
    divisor, modulus, *factor = rule
    return b.mul(b.mod(b.div(lane, divisor), modulus), factor[0] if factor else 1)


def split(value: ir.Value, parts: int = 2, widened: Callable[[ir.Value], ir.Value] | None = None) -> list[ir.Value]:
    """f32 numbers as so many bf16 ones each that add up to them: three have all of their bits."""
    type_ = b.with_width(ir.BF16Type.get(), b.width_of(value))
    found = [b.emit("arith.truncf", [value], [type_])]
    while len(found) < parts:
        value = b.binary("arith.subf", value, (widened or _widened)(found[-1]))
        found.append(b.emit("arith.truncf", [value], [type_]))
    return found


def _widened(vector: ir.Value) -> ir.Value:
    """bf16 to f32, two at a time: taken one by one they would also be rounded one by one."""
    width = b.width_of(vector)
    if width % 2:
        return b.extend(vector)
    words, halves = (ir.VectorType.get([width // 2], t) for t in (b.i32(), b.f32()))
    pairs = b.emit("vector.bitcast", [vector], [words])
    low = b.binary("arith.shli", pairs, b.constant(16, words))
    high = b.binary("arith.andi", pairs, b.constant(-65536, words))
    low, high = (b.emit("vector.bitcast", [v], [halves]) for v in (low, high))
    return b.emit("vector.interleave", [low, high], [b.with_width(b.f32(), width)])


def flat(total: ir.Value) -> ir.Value:
    """A lane's accumulator as a plain vector."""
    type_ = ir.VectorType.get([prod(total.type.shape)], b.f32())
    return total if total.type == type_ else create_op("vector.shape_cast", [total], [type_]).results[0]


def shaped(vector: ir.Value, type_: ir.Type) -> ir.Value:
    """The reverse of flat."""
    return vector if vector.type == type_ else create_op("vector.shape_cast", [vector], [type_]).results[0]


def transposed(lines: Sequence[ir.Value]) -> list[ir.Value]:
    """Vectors as the rows of a square of words: its columns.  Halves, quarters and so on change places."""
    lines, size = list(lines), len(lines)
    distance = size // 2
    while distance:
        for i in range(size):
            if not i & distance:
                lines[i], lines[i + distance] = _exchanged(lines[i], lines[i + distance], distance)
        distance //= 2
    return lines


def sums_of_lines(lines: Sequence[ir.Value]) -> ir.Value:
    """A vector of what each line's numbers add up to, in place of a sum for each: halves of a line are added, as of one
    alone, but those of two lines at once.  There are a power of two of them, at most as many as numbers in a line."""
    lines, count = list(lines), len(lines)
    width = b.width_of(lines[0])
    while width > count:
        width //= 2
        halves = [[b.shuffled(line, line, range(start, start + width)) for line in lines] for start in (0, width)]
        lines = [b.binary("arith.addf", *pair) for pair in zip(*halves, strict=True)]
    distance = count // 2
    while distance:
        pairs = [_exchanged(lines[i], lines[i + distance], distance) for i in range(distance)]
        lines = [b.binary("arith.addf", *pair) for pair in pairs]
        distance //= 2
    return lines[0]


def _exchanged(upper: ir.Value, lower: ir.Value, distance: int) -> tuple[ir.Value, ir.Value]:
    """Two lines of a square with the upper one's odd groups of so many words in place of the lower one's even ones."""
    size = b.width_of(upper)
    even = [i if not i & distance else size + i - distance for i in range(size)]
    odd = [i + distance if not i & distance else size + i for i in range(size)]
    found = [b.emit("vector.shuffle", [upper, lower], [upper.type], mask=m) for m in (even, odd)]
    return found[0], found[1]
