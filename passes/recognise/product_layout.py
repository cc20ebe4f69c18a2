"""The layout of a product: what each dimension of its operands and of its result is to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, integers, loop_extents, operations

ATTRIBUTE = "product"


@dataclass(frozen=True)
class ProductLayout:
    """result[batch, row, column] = the sum over k of left[batch, row, k] · right[batch, column, k], by loops.

    extents: of the loops, by their numbers.  batch, rows, columns, sums: the loops of each kind, outermost first; each
    kind is seen as one index, which runs through its loops in that order.  left, right, result: the loop of each
    dimension.  operands: the numbers of left and right among the contraction's operands.
    """

    extents: tuple[int, ...]
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    sums: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]
    operands: tuple[int, ...] = (0, 1)

    def attribute(self) -> ir.Attribute:
        values = {name: ir.DenseI64ArrayAttr.get(list(value)) for name, value in vars(self).items()}
        return ir.DictAttr.get(values)

    @classmethod
    def of_kernel(cls, kernel: ir.Operation) -> ProductLayout | None:
        """What recognise-products has recorded on a kernel, if it is a product."""
        if ATTRIBUTE not in kernel.attributes:
            return None
        return cls(**{a.name: tuple(integers(a.attr)) for a in ir.DictAttr(kernel.attributes[ATTRIBUTE])})

    @classmethod
    def of_contraction(cls, op: ir.Operation) -> ProductLayout:
        """Columns are what the result's last dimension is one of, so that neighbouring sums are neighbours in memory;
        otherwise the first operand is on the left."""
        extents = loop_extents(op)
        left, right, result = (tuple(dim_positions(m)) for m in indexing_maps(op))
        inner = [loop for loop in result if extents[loop] > 1 and not (loop in left and loop in right)]
        operands = (0, 1)
        if inner and inner[-1] in left:
            left, right, operands = right, left, (1, 0)
        shared = set(left) & set(right)
        sums = [loop for loop in right if loop in shared and loop not in result]
        if _last(sums, right, extents) is None:
            sums = [loop for loop in left if loop in sums]
        return cls(
            tuple(extents[i] for i in range(len(extents))),
            batch=tuple(loop for loop in result if loop in shared),
            rows=tuple(loop for loop in left if loop not in shared),
            columns=tuple(loop for loop in right if loop not in shared),
            sums=tuple(sums),
            left=left,
            right=right,
            result=result,
            operands=operands,
        )

    def transposed(self) -> ProductLayout:
        """The same with rows for columns."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            left=self.right,
            right=self.left,
            operands=self.operands[::-1],
        )

    def extent(self, loops: tuple[int, ...]) -> int:
        return prod(self.extents[loop] for loop in loops)

    def neighbours(self, dimensions: tuple[int, ...], loops: tuple[int, ...]) -> int:
        """How many neighbours of one kind (by its loops) lie side by side in a tensor of these dimensions, from every
        multiple of that many on; 1 where its last dimension is of another kind."""
        last = _last(dimensions, loops, self.extents)
        return 1 if last is None else self.extents[last]


def has_plain_dimensions(op: ir.Operation) -> bool:
    """Whether each dimension of a linalg op's tensors is a loop of its own."""
    maps = [dim_positions(m) for m in indexing_maps(op)]
    return all(None not in loops and len(set(loops)) == len(loops) for loops in maps)


def factors_of(block: ir.Block) -> list[ir.Value] | None:
    """What a linalg op's body of three arguments multiplies and adds to the third; None where it does anything else."""
    total = defining_op(operations(block)[-1].operands[0]) if len(block.arguments) == 3 else None
    if total is None or total.name != "arith.addf":
        return None
    others = [value for value in total.operands if value != block.arguments[2]]
    product = defining_op(others[0]) if len(others) == 1 else None
    return list(product.operands) if product is not None and product.name == "arith.mulf" else None


def _last(
    dimensions: tuple[int, ...] | list[int], loops: tuple[int, ...] | list[int], extents: dict[int, int] | tuple
) -> int | None:
    """The innermost of the dimensions, those of one element apart, where it is also the innermost of the loops."""
    inner = [next((d for d in reversed(group) if extents[d] > 1), None) for group in (dimensions, loops)]
    return inner[0] if inner[0] == inner[1] else None
