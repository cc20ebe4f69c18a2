"""schedule-rows: run rows kernels (norms, softmax, embeddings, argmax, elementwise chains) row by row in vectors.

Before (inside a kernel = "rows"):                After:
  %s = linalg.reduce {addf} ins(%x) …               %row = gpu.block_id x …
  %y = linalg.generic ins(%x, %s) …                 %s = scf.for … { vector.load, arith.addf }, vector.reduction
                                                    scf.for … { vector.load, …, vector.store %y }

Requires: what outline-kernels and destination-passing ensure.
Ensures: the kernel's `grid` holds one block for every `rows_per_block` rows; reductions run along the last dimension,
in lanes of the target's vectors, and a remainder of single lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import element_type, kernel_functions, operations, shape_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.emit import Emitter, Index
from lispgpt.passes.kernels.kernel import refusable
from lispgpt.passes.kernels.kernel_body import KernelBody
from lispgpt.passes.model.kernel_groups import row_shape
from lispgpt.passes.states import PLACED, State

if TYPE_CHECKING:
    from lispgpt.passes.targets import Target

COMBINERS = {
    "arith.addf": ("add", 0.0),
    "arith.mulf": ("mul", 1.0),
    "arith.maximumf": ("maximumf", -math.inf),
    "arith.minimumf": ("minimumf", math.inf),
    "arith.addi": ("add", 0),
    "arith.maxsi": ("maxsi", -(2**31)),
    "arith.minsi": ("minsi", 2**31 - 1),
}


@dataclass(frozen=True)
class ScheduleRows(Pass):
    """rows_per_block: rows that one block computes, one after another."""

    name: ClassVar[str] = "schedule-rows"
    starts_from: ClassVar[tuple[State, ...]] = (PLACED,)
    rows_per_block: int = 4

    def run(self, module: ir.Module, target: Target) -> None:
        lanes = target.vector_bytes // 4
        for kernel in kernel_functions(module, "rows"):
            if "grid" in kernel.attributes or not all(map(_supported, operations(kernel.regions[0].blocks[0]))):
                continue
            with refusable(kernel):
                _schedule(kernel, lanes, self.rows_per_block)


def combiner(op: ir.Operation) -> str | None:
    """The one op that a linalg.reduce combines with, where this pass knows it."""
    inner = operations(op.regions[0].blocks[0])
    known = (
        len(inner) == 2
        and inner[0].name in COMBINERS
        and set(inner[0].operands) == set(op.regions[0].blocks[0].arguments)
    )
    return inner[0].name if known else None


def _supported(op: ir.Operation) -> bool:
    if op.name == "linalg.softmax":
        return bool(ir.IntegerAttr(op.attributes["dimension"]).value == len(shape_of(op.operands[0])) - 1)
    if op.name != "linalg.reduce":
        return True
    dims = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    return len(op.results) == 1 and dims == [len(shape_of(op.operands[0])) - 1] and combiner(op) is not None


def _schedule(kernel: ir.Operation, lanes: int, rows_per_block: int) -> None:
    emitter = Emitter(kernel)
    body = KernelBody(kernel, emitter)
    ops = body.compute_ops()
    extents = row_shape(ops[0])
    rows = math.prod(extents)
    terminator = body.ops[-1]
    with ir.InsertionPoint(terminator), kernel.location:
        first = emitter.mul(emitter.block_id("x"), rows_per_block)
        last = emitter.add(first, rows_per_block)
        last = last if rows % rows_per_block == 0 else emitter.min(last, rows)
        with emitter.loop(first, last) as loop, body.scope():
            emit_row(body, ops, emitter.delinearize(loop.index, extents), lanes)
    body.finish([-(-rows // rows_per_block), 1, 1])


def emit_row(body: KernelBody, ops: list[ir.Operation], row: list[Index], lanes: int) -> None:
    """Compute every op of a rows kernel at one row: reductions into scalars, outputs into their buffers."""
    for op in ops:
        result = op.results[0]
        if op.name == "linalg.reduce":
            value = reduce_row(body, op.operands[0], row, combiner(op) or "", lanes, body.read(op.operands[1], row))
            body.readings[result] = _uniform(body, value)
        elif op.name == "linalg.softmax":
            body.readings[result] = _softmax_row(body, op, row, lanes)
        destination = body.destinations.get(result)
        if destination is not None:
            _store_row(body, result, destination, row, lanes)


def _uniform(body: KernelBody, value: ir.Value) -> Callable[[list[Index], int], ir.Value]:
    return lambda indices, lanes: body.emitter.broadcast(value, lanes)


def reduce_row(
    body: KernelBody, tensor: ir.Value, row: list[Index], kind: str, lanes: int, start: ir.Value | None
) -> ir.Value:
    """Combine a tensor's last dimension at one row, starting from `start`."""
    return reduce_lanes(
        body,
        shape_of(tensor)[-1],
        kind,
        element_type(tensor),
        lanes,
        start,
        lambda i, n: body.read(tensor, [*row, i], n),
    )


def reduce_lanes(
    body: KernelBody,
    extent: int,
    kind: str,
    element: ir.Type,
    lanes: int,
    start: ir.Value | None,
    read: Callable[[Index, int], ir.Value],
) -> ir.Value:
    """Combine read(i, lanes) over 0 ≤ i < extent with an op of COMBINERS."""
    emitter = body.emitter
    name, identity = COMBINERS[kind]
    total = start
    for first, last, width in lane_ranges(extent, lanes):
        type_ = emitter.lanes_type(element, width)
        with emitter.loop(first, last, width, [emitter.constant(identity, type_)]) as loop, body.scope():
            loop.yielded = [emitter.op(kind, [loop.carried[0], read(loop.index, width)], [type_])]
        part = emitter.reduce_lanes(name, loop.results[0])
        total = part if total is None else emitter.op(kind, [total, part], [element])
    return total


def lane_ranges(extent: int, lanes: int) -> list[tuple[int, int, int]]:
    """(start, stop, lanes) of the loops that cover an extent: whole vectors, then single lanes."""
    whole = extent // lanes * lanes
    return [r for r in ((0, whole, lanes), (whole, extent, 1)) if r[0] < r[1]]


def _softmax_row(
    body: KernelBody, op: ir.Operation, row: list[Index], lanes: int
) -> Callable[[list[Index], int], ir.Value]:
    """Leave exp(x - max) / sum to be computed where it is read; the two reductions run here."""
    emitter, source = body.emitter, op.operands[0]
    peak = reduce_row(body, source, row, "arith.maximumf", lanes, None)

    def exponential(indices: list[Index], width: int) -> ir.Value:
        x = body.read(source, indices, width)
        shifted = emitter.op("arith.subf", [x, emitter.broadcast(peak, width)], [x.type])
        return emitter.op("math.exp", [shifted], [x.type])

    extent, element = shape_of(source)[-1], element_type(source)
    total = reduce_lanes(body, extent, "arith.addf", element, lanes, None, lambda i, n: exponential([*row, i], n))

    def reading(indices: list[Index], width: int) -> ir.Value:
        value = exponential(indices, width)
        return emitter.op("arith.divf", [value, emitter.broadcast(total, width)], [value.type])

    return reading


def _store_row(body: KernelBody, tensor: ir.Value, destination: ir.Value, row: list[Index], lanes: int) -> None:
    """Write one row of a result; later reads of it load what was written."""
    emitter = body.emitter
    if len(shape_of(tensor)) == len(row):
        emitter.store(body.read(tensor, row), destination, row)
        return
    for first, last, width in lane_ranges(shape_of(tensor)[-1], lanes):
        with emitter.loop(first, last, width) as loop, body.scope():
            emitter.store(body.read(tensor, [*row, loop.index], width), destination, [*row, loop.index])
    body.buffers[tensor] = destination
