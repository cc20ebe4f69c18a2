"""Cache writes whose rows are columns of a product, and which columns of it other readers take.

%y = linalg.contract … -> tensor<8x2304xf32>   from column 768 on, 12 times 64 neighbours, every 64 columns:
%k = tensor.extract_slice %y[0, 768] …         first = 768, extents = (12, 64), strides = (64, 1)
scf.for %row = … { insert %k[%row] … }
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    RESHAPES,
    VIEWS,
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    is_elementwise,
    kept_dimensions,
    reshape_groups,
    shape_of,
)
from lispgpt.passes.model.kernel_group import top_level
from lispgpt.passes.model.row_moments import MOMENT
from lispgpt.passes.recognise.cache_writes import CacheWrite
from lispgpt.passes.recognise.find_gradients import is_product
from lispgpt.passes.recognise.product_layout import ProductLayout, has_plain_dimensions

DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class RowColumns:
    """Row n of what a cache write puts is row n of a product, of which it has some columns.

    product: the op.  tensor: of the product's shape, made of it element by element; the rows are views of that, and
    perhaps made of them by elementwise ops, which are `after`.  source: what the write takes rows of.  first: the
    column of a row's first element; extents, strides: of a row's dimensions, strides counted in columns, each more than
    what the next ones cover.
    """

    product: ir.Operation
    tensor: ir.Value
    source: ir.Value
    first: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    after: tuple[ir.Operation, ...]

    @property
    def layout(self) -> ProductLayout:
        return ProductLayout.of_contraction(self.product)

    @property
    def columns(self) -> int:
        """Of the whole product."""
        return self.layout.extent(self.layout.columns)

    @property
    def short(self) -> bool:
        """Whether the operand whose rows are the product's columns is in BF16."""
        right = self.product.operands[self.layout.operands[1]]
        return bool(right.type.element_type == ir.BF16Type.get())

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.first + 1 + sum((n - 1) * stride for n, stride in zip(self.extents, self.strides, strict=True))

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Neighbouring columns: (first, end) of each run."""
        if not self.extents or self.strides[-1] != 1:
            return tuple((c, c + 1) for c in self._columns(len(self.extents)))
        width, outer = self.extents[-1], len(self.extents) - 1
        while outer and self.strides[outer - 1] == width:
            outer -= 1
            width *= self.extents[outer]
        return tuple((c, c + width) for c in self._columns(outer))

    def _columns(self, dimensions: int) -> list[int]:
        """Where the elements of the first dimensions start."""
        found = [self.first]
        for extent, stride in list(zip(self.extents, self.strides, strict=True))[:dimensions]:
            found = [column + i * stride for column in found for i in range(extent)]
        return found


def row_columns(write: CacheWrite) -> RowColumns | None:
    """None where rows are made of anything else beside a product than what is there before a kernel runs."""
    path: list[ir.Operation] = []
    value = write.source
    while (op := defining_op(value)) is not None and not is_product(op):
        through = op.operands[0] if op.name in VIEWS else _computed_operand(op)
        if through is None:
            return None
        path.insert(0, op)
        value = through
    if op is None or not has_plain_dimensions(op):
        return None
    first = next((number for number, made in enumerate(path) if made.name in VIEWS), len(path))
    layout = ProductLayout.of_contraction(op)
    result, rows, columns = (
        [loop for loop in loops if layout.extents[loop] > 1] for loops in (layout.result, layout.rows, layout.columns)
    )
    if result != rows + columns or layout.extent(layout.batch) > 1 or write.rows != layout.extent(layout.rows):
        return None
    tensor = path[first - 1].results[0] if first else op.results[0]
    view = _View(layout.extent(layout.columns), write.counter, shape_of(tensor))
    for made in path[first:]:
        if made.name in VIEWS and not view.follow(made):
            return None
    if not view.is_row():
        return None
    beside = [made for made in path if made.block == op.block]
    after = tuple(made for made in beside if made.name not in VIEWS and made in path[first:])
    source = beside[-1].results[0] if beside else op.results[0]
    return RowColumns(op, tensor, source, view.offset, tuple(view.extents), tuple(view.strides), after)


def _computed_operand(op: ir.Operation) -> ir.Value | None:
    """The operand that an elementwise op reads at its own points, where all others are there before kernels run."""
    if not is_elementwise(op) or not all(map(_is_given, captured_values(op))):
        return None
    operands = list(zip(list(op.operands)[:-1], indexing_maps(op), strict=False))
    computed = [(value, map_) for value, map_ in operands if not _is_given(value)]
    if len(computed) != 1:
        return None
    ((value, map_),) = computed
    in_place = dim_positions(map_) == list(range(map_.n_dims)) and shape_of(value) == shape_of(op.results[0])
    return value if in_place else None


def _is_given(value: ir.Value) -> bool:
    """Whether a value is a constant, a part of an argument of an entry or a kernel, or made of such and of moments of
    rows, which the kernel that makes these has made before."""
    op = defining_op(value)
    if op is None:
        return "sym_name" in value.owner.owner.attributes
    if op.name in ("arith.constant", "tensor.empty", "bufferization.to_tensor") or MOMENT in op.attributes:
        return True
    if "inline" in op.attributes:
        return all(map(_is_given, op.operands))
    return op.name in (*VIEWS, "linalg.fill") and _is_given(op.operands[0])


class _View:
    """Where the elements of a view of a product lie, row after row.  row: the stride of rows, once the view has left
    its dimensions of rows and is one row, whose number is `counter`."""

    def __init__(self, columns: int, counter: ir.Value | None, shape: tuple[int, ...]) -> None:
        self.columns, self.counter, self.row = columns, counter, 0
        self.offset, self.extents = 0, list(shape)
        self.strides = [prod(shape[i + 1 :]) for i in range(len(shape))]

    def follow(self, op: ir.Operation) -> bool:
        """Go on to a view of the view; False where its elements lie in no such order."""
        if op.name == "tensor.extract_slice":
            return self._slice(op)
        if op.name not in RESHAPES:
            return False
        extents, shape = list(zip(self.extents, self.strides, strict=True)), shape_of(op.results[0])
        if op.name == "tensor.expand_shape":
            groups = zip(reshape_groups(op), self.strides, strict=True)
            self.strides = [s * prod(shape[j] for j in group if j > i) for group, s in groups for i in group]
        else:
            joined = [[extents[i] for i in group if extents[i][0] > 1] for group in reshape_groups(op)]
            if any(a[1] != c[0] * c[1] for parts in joined for a, c in pairwise(parts)):
                return False
            self.strides = [parts[-1][1] if parts else 1 for parts in joined]
        self.extents = list(shape)
        return True

    def _slice(self, op: ir.Operation) -> bool:
        offsets, sizes, steps = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
        dynamic = iter(list(op.operands)[1:])
        if DYNAMIC in (*sizes, *steps):
            return False
        for offset, size, stride in zip(offsets, sizes, self.strides, strict=True):
            if offset != DYNAMIC:
                self.offset += offset * stride
            elif self.counter is None or next(dynamic) != self.counter or size != 1 or self.row:
                return False
            else:
                self.row = stride
        kept = kept_dimensions(sizes, shape_of(op.results[0]))
        self.strides = [n * s for n, s, keep in zip(steps, self.strides, kept, strict=True) if keep]
        self.extents = list(shape_of(op.results[0]))
        return True

    def is_row(self) -> bool:
        """Whether it is some columns of the counter's row, each once, in their order."""
        wide = [(n, stride) for n, stride in zip(self.extents, self.strides, strict=True) if n > 1]
        ends = [(n - 1) * stride for n, stride in wide]
        apart = all(stride > sum(ends[i + 1 :]) for i, (_, stride) in enumerate(wide))
        return self.row == self.columns and apart and self.offset >= 0 and self.offset + sum(ends) < self.columns

    def columns_of_rows(self) -> set[int]:
        """The columns that it has of any rows."""
        found = {self.offset % self.columns}
        for extent, stride in zip(self.extents, self.strides, strict=True):
            if stride % self.columns and extent > 1:
                found = {column + i * stride for column in found for i in range(extent)}
        return found if max(found) < self.columns else set(range(self.columns))


def columns_read(tensor: ir.Value, columns: int, passed_over: set[ir.Operation]) -> set[int]:
    """Which columns of a tensor that has so many are read, through views, by others than these ops."""
    return _read(tensor, _View(columns, None, shape_of(tensor)), passed_over)


def _read(value: ir.Value, view: _View, passed_over: set[ir.Operation]) -> set[int]:
    found: set[int] = set()
    for use in value.uses:
        user, inner = top_level(use.owner, defining_op(value)), copy(view)
        if user.name in VIEWS and inner.follow(user):
            found |= _read(user.results[0], inner, passed_over)
        elif user not in passed_over:
            found |= view.columns_of_rows()
    return found
