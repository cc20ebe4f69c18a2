"""Whether a product's pipeline brings all of k once, and of the rows and columns of its block what it stores.

What a schedule says of places is Lisp, of numbers that are known while compiling and of a block's own: the former are
looked at here, and the latter only told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.tile.boxes import Box

Boxes = Callable[[Index], Sequence[Box]]


@dataclass
class Task:
    """A block's tile of a product: (batch, row, column) where it begins, its sizes, and how many pipelines it has."""

    place: tuple[Index, Index, Index] | None = None
    sizes: tuple[int, int] = (0, 0)
    pipelines: int = 0

    def check_boxes(self, boxes: Sequence[Box], left: Operand, right: Operand) -> None:
        """UserError for boxes of other rows or columns than the task's."""
        if self.place is None or left.tensor == right.tensor:
            return
        outer = {"left": (0, "row", left), "right": (1, "column", right)}
        for box in boxes:
            for side, (number, what, operand) in outer.items():
                if box.operand.tensor != operand.tensor:
                    continue
                if _same(box.at[1], self.place[2 - number]):
                    raise UserError(f"a box of the {side} operand begins at a {what}, and this one at the other's")
                if _same(box.at[1], self.place[1 + number]) and box.rows != self.sizes[number]:
                    raise UserError(f"the block's task has {self.sizes[number]} {what}s, and a box {box.rows} of them")

    def check_stored(self, at: Sequence[Index], sizes: Sequence[int]) -> None:
        """UserError for a store of anything but the task."""
        if self.place is None or self.pipelines != 1:
            return
        if _same(at[1], self.place[2]) or _same(at[2], self.place[1]):
            raise UserError("a store is at [batch row column], and this one at the column for a row")
        if all(map(_same, at[1:], self.place[1:])) and tuple(sizes) != self.sizes:
            raise UserError(f"the block's task is {_shape(self.sizes)}, and {_shape(sizes)} of it are stored")


def check_steps(steps: int, boxes: Boxes, inner: int) -> None:
    """UserError where steps leave out some of k, sum some of it twice, or multiply different parts of it."""
    last = sorted({0, 1, 2, steps // 2, steps - 1} & set(range(steps)))
    spans = [_span(boxes(number), number) for number in last]
    if None in spans:
        return  # places that a block finds out
    width = spans[0][1]  # type: ignore[index]
    if steps * width >= inner and spans == [(number * width, width) for number in last]:
        return
    end = 0
    for start, count in sorted(span for n in range(steps) if (span := _span(boxes(n), n)) is not None):
        if start != end and end < inner:
            raise UserError(_apart(start, end))
        end = start + count
    if end < inner:
        counted = "1 step brings" if steps == 1 else f"{steps} steps bring"
        raise UserError(f"{counted} {end} of the {inner} elements of k, along which the product sums")


def _apart(start: int, end: int) -> str:
    if start > end:
        return f"no step brings elements {end} to {start - 1} of k"
    return f"a step begins at element {start} of k, and another ends at {end}: what is between is summed twice"


def _span(boxes: Sequence[Box], number: int) -> tuple[int, int] | None:
    """(first element of k, how many) of a step's boxes; None where they are not known."""
    found = []
    for box in boxes:
        start = box.at[2]
        if not isinstance(start, int):
            return None
        found.append((start if not box.blocks else _elements(box, start), box.numbers))
    if len(set(found)) != 1:
        said = " and ".join(f"{start} to {start + count - 1}" for start, count in found)
        raise UserError(f"the boxes of step {number} are of elements {said} of k: they are multiplied one by one")
    return found[0]


def _elements(box: Box, nbytes: int) -> int:
    dtype = find_dtype(box.blocks)
    return nbytes // dtype.item_bytes * dtype.block


def _same(a: Index, b: Index) -> bool:
    return isinstance(a, ir.Value) and isinstance(b, ir.Value) and a == b


def _shape(sizes: Sequence[int]) -> str:
    return f"[{' '.join(map(str, sizes))}]"
