"""A kernel's product as schedules see it: operands by (batch, row or column, k), whatever their dimensions are.

Where a kind has several dimensions, its index runs through them in the layout's order.  Dimensions of one element cost
nothing; a kind of one dimension has that dimension's index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import RESHAPES, defining_op, element_type, operations, shape_of, unscheduled_kernels, viewed
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import note_refusal
from lispgpt.passes.recognise.product_layout import ProductLayout

CHOSEN = "chosen"
"""A kernel's attribute: the name of the schedule that is to take it."""

CLOSEST = 3
"""The locality of what is read soon and often."""


@dataclass(frozen=True)
class Operand:
    """left or right: elements by batch, outer (a row of left, a column of right) and k.

    dimensions: the loop of each.  along_k, along_outer: how many neighbours along k, or along rows or columns, lie side
    by side in the tensor, from each multiple of that many on; one of the two is 1.
    """

    tensor: ir.Value
    layout: ProductLayout
    dimensions: tuple[int, ...]
    outer: tuple[int, ...]

    @property
    def along_k(self) -> int:
        return self.layout.neighbours(self.dimensions, self.layout.sums)

    @property
    def along_outer(self) -> int:
        return self.layout.neighbours(self.dimensions, self.outer)

    @property
    def extent(self) -> int:
        """Of the rows or columns."""
        return self.layout.extent(self.outer)

    @property
    def dtype(self) -> str:
        return str(self.tensor.type.element_type)

    def index(self, batch: Index, outer: Index, k: Index) -> list[Index]:
        """Where in the tensor an element lies."""
        kinds = ((self.layout.batch, batch), (self.outer, outer), (self.layout.sums, k))
        return tensor_index(self.layout, self.dimensions, kinds)

    def read(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int = 1) -> ir.Value:
        """`width` neighbours along k, from a multiple of it on; one by one where they are none in the tensor."""
        extent = self.layout.extent(self.layout.sums)
        if self.has_vectors(reader) and _side_by_side(reader, self.along_k, extent, width):
            with reader.stepping():
                return reader.read(self.tensor, self.index(batch, outer, k), width)
        return b.vector_of([reader.read(self.tensor, self.index(batch, outer, b.add(k, i))) for i in range(width)])

    def read_across(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int) -> ir.Value:
        """The same for neighbouring rows or columns."""
        if self.has_vectors(reader) and _side_by_side(reader, self.along_outer, self.extent, width):
            return reader.read(self.tensor, self.index(batch, outer, k), width)
        return b.vector_of([reader.read(self.tensor, self.index(batch, b.add(outer, i), k)) for i in range(width)])

    def has_vectors(self, reader: Reader) -> bool:
        """Whether a reader finds neighbours in the tensor: along its last dimension, or in memory as it is."""
        if shape_of(self.tensor)[-1:] != (1,) or self.tensor in reader.bound:
            return True
        op = defining_op(self.tensor)
        return op is not None and op.name == "bufferization.to_tensor"

    def bind_buffer(self, reader: Reader) -> None:
        """Let a reader take elements straight from the buffer that the tensor is a reshape of, if it is one."""
        buffer = self.buffer()
        if buffer is None or shape_of(buffer) == shape_of(self.tensor):
            return
        view = self._view(buffer)
        reader.bind(self.tensor, lambda index, width: b.load(view, index, width, reader.target.aligned_rows))

    def fetch(self, batch: Index, outer: Index, k: Index) -> None:
        """Have the cache line of an element brought closer, which is anything past the ends; nothing where arithmetic
        makes the operand."""
        buffer = self.buffer()
        if buffer is None:
            return
        memory = buffer if shape_of(buffer) == shape_of(self.tensor) else self._view(buffer)
        depth = self.layout.extent(self.layout.sums)
        at = self.index(batch, b.at_most(outer, self.extent - 1), b.at_most(k, depth - 1))
        flags = {"isWrite": ir.BoolAttr.get(False), "isDataCache": ir.BoolAttr.get(True)}
        hint = ir.IntegerAttr.get(b.i32(), CLOSEST)
        create_op("memref.prefetch", [memory, *map(b.as_value, at)], [], {**flags, "localityHint": hint})

    def _view(self, buffer: ir.Value) -> ir.Value:
        """A buffer in the tensor's shape."""
        shape = shape_of(self.tensor)
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        attributes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
            "static_offsets": [0],
            "static_sizes": list(shape),
            "static_strides": strides,
        }
        type_ = ir.MemRefType.get(list(shape), buffer.type.element_type)
        return create_op("memref.reinterpret_cast", [buffer], [type_], attributes).results[0]

    def buffer(self) -> ir.Value | None:
        """The buffer that holds the tensor as it is, but for reshapes."""
        op = defining_op(viewed(self.tensor, RESHAPES))
        return op.operands[0] if op is not None and op.name == "bufferization.to_tensor" else None

    def is_computed(self) -> bool:
        """Whether arithmetic makes the tensor: then computing it once for a block pays."""
        op = defining_op(viewed(self.tensor))
        return op is not None and op.name != "bufferization.to_tensor"

    def reduces(self) -> bool:
        """Whether a reduction, which a block's threads compute together, is in what makes the tensor."""
        return _reduces(self.tensor)


@dataclass(frozen=True)
class Product:
    """result[batch, row, column] = the sum over k of left[batch, row, k] · right[batch, column, k].

    joined: all products of its kernel, this one among them, where it has several in the same layout.
    """

    op: ir.Operation
    layout: ProductLayout
    joined: tuple[ir.Operation, ...] = ()

    @property
    def all(self) -> list[Product]:
        """Those of its kernel."""
        return [replace(self, op=op) for op in self.joined or (self.op,)]

    @classmethod
    def of_kernel(cls, kernel: ir.Operation) -> Product | None:
        """What recognise-products has found in a kernel, or join-products has made it of."""
        layout = ProductLayout.of_kernel(kernel)
        if layout is None:
            return None
        ops = tuple(op for op in operations(kernel.regions[0].blocks[0]) if op.name == "linalg.contract")
        return cls(ops[0], layout, ops if len(ops) > 1 else ())

    @property
    def left(self) -> Operand:
        return Operand(self.op.operands[self.layout.operands[0]], self.layout, self.layout.left, self.layout.rows)

    @property
    def right(self) -> Operand:
        return Operand(self.op.operands[self.layout.operands[1]], self.layout, self.layout.right, self.layout.columns)

    @property
    def result(self) -> ir.Value:
        return self.op.results[0]

    def results_of(self, kernel: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
        """(tensor, its buffer) for each of a kernel's results that are computed from the product point by point."""
        return [(tensor, buffer) for tensor, buffer in outputs_of(kernel) if has_place_in(self.op, tensor)]

    @property
    def batches(self) -> int:
        return self.layout.extent(self.layout.batch)

    @property
    def rows(self) -> int:
        return self.layout.extent(self.layout.rows)

    @property
    def columns(self) -> int:
        return self.layout.extent(self.layout.columns)

    @property
    def inner(self) -> int:
        return self.layout.extent(self.layout.sums)

    @property
    def along_columns(self) -> int:
        """How many neighbouring columns lie along the result's last dimension, from each multiple of that many on."""
        if self.layout.result and self.layout.extents[self.layout.result[-1]] == 1:
            return 1  # side by side in memory, but what follows the product is read along the last dimension
        return self.layout.neighbours(self.layout.result, self.layout.columns)

    def place(self, batch: Index, row: Index, column: Index) -> list[Index]:
        """Where in the result a sum belongs."""
        kinds = ((self.layout.batch, batch), (self.layout.rows, row), (self.layout.columns, column))
        return tensor_index(self.layout, self.layout.result, kinds)

    def of_batch(self, number: Index, each: int) -> tuple[Index, Index]:
        """(batch, number in it) of something of which each batch has so many."""
        return (0, number) if self.batches == 1 else (b.div(number, each), b.mod(number, each))

    def transposed(self) -> Product:
        """The same with rows for columns."""
        return replace(self, layout=self.layout.transposed())


def unscheduled_products(
    module: ir.Module,
    is_known: Callable[[ir.Operation, ir.Value], bool] = lambda kernel, tensor: False,
    schedule: str = "",
    joined: bool = False,
) -> Iterator[tuple[ir.Operation, Product]]:
    """The kernels that are products, and that no schedule has taken yet, with what recognise-products has found.

    is_known: whether the schedule can make a kernel's result that is not computed from the product point by point.
    schedule: its name: kernels for which another one has been chosen are left out.  joined: whether it is told of
    kernels of several products, too.
    """
    for kernel in unscheduled_kernels(module, "contraction"):
        if "tile" in kernel.attributes or (schedule and not is_for(kernel, schedule)):
            continue
        product = product_in(kernel, is_known)
        if product is not None and (joined or not product.joined):
            yield kernel, product


def is_for(kernel: ir.Operation, schedule: str) -> bool:
    """Whether a kernel is one for a schedule: it, or none, has been chosen."""
    return CHOSEN not in kernel.attributes or ir.StringAttr(kernel.attributes[CHOSEN]).value == schedule


def has_place_in(product: ir.Operation, tensor: ir.Value) -> bool:
    """Whether a kernel's result is in the product's shape, and no memory that is changed."""
    return shape_of(tensor) == shape_of(product.results[0]) and defining_op(tensor).name != "scf.for"


def product_in(
    kernel: ir.Operation, is_known: Callable[[ir.Operation, ir.Value], bool] = lambda kernel, tensor: False
) -> Product | None:
    """A kernel's product, or the first of several; None where it is none, or has other results."""
    whole = Product.of_kernel(kernel)
    if whole is None:
        return None
    op = whole.op
    if not all(element_type(v) == b.f32() or b.is_short(v.type) for one in whole.all for v in one.op.operands):
        note_refusal(kernel, "a product of other numbers than f32, bf16 and f16")
        return None
    others = [tensor for tensor, _ in outputs_of(kernel) if not has_place_in(op, tensor)]
    if not all(is_known(kernel, tensor) for tensor in others):
        note_refusal(kernel, "a result has another shape than the product")
        return None
    return whole


def as_skinny(product: Product) -> Product:
    """The product, transposed where it has fewer columns than rows, or where a reduction makes its right operand."""
    if product.left.reduces():
        return product
    return product.transposed() if product.columns < product.rows or product.right.reduces() else product


def tensor_index(
    layout: ProductLayout, dimensions: Sequence[int], kinds: Sequence[tuple[tuple[int, ...], Index]]
) -> list[Index]:
    """An index into a tensor whose dimensions are these loops, from one index for each kind of loops."""
    where: dict[int, Index] = {}
    for loops, index in kinds:
        where.update(zip(loops, coordinates(index, [layout.extents[loop] for loop in loops]), strict=True))
    return [where[loop] for loop in dimensions]


def _side_by_side(reader: Reader, neighbours: int, extent: int, width: int) -> bool:
    """Whether a vector of `width` is one load, at a multiple of it, or where a chip wants no alignment anywhere."""
    return neighbours % width == 0 or (neighbours == extent >= width and not reader.target.aligned_rows)


def _reduces(tensor: ir.Value) -> bool:
    op = defining_op(tensor)
    if op is None or op.name == "bufferization.to_tensor":
        return False
    return op.name in ("linalg.reduce", "linalg.softmax") or any(_reduces(o) for o in op.operands)
