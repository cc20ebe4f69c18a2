"""How much a kernel has to do, from its tensor body: the fewest bytes it can move, and its floating-point operations.

Operations are those of the model, whatever instructions a schedule makes of them.  Every arithmetic op and function on
floating-point numbers counts 1 for each point of the loops around it: an addition, a maximum, a comparison, a
reciprocal square root, a tanh.  So a product of n rows, k columns and m outputs is 2·n·k·m, a reduction one an element,
and an element of a softmax 5 (maximum, difference, exponential, sum, quotient).  Conversions and selections are free.

Bytes are what is read of the kernel's arguments and written to them, each part once (`kernel_traffic`).

Attention that sees the positions up to its row's own has work that grows with them: for row r at position p, p + 1
times `position_operations`, and for each sequence, the largest p + 1 times `position_bytes`, of keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import prod

from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import (
    captured_values,
    defining_op,
    dim_positions,
    element_type,
    indexing_maps,
    operations,
    shape_of,
    trip_count,
)
from lispgpt.passes.model.kernel_traffic import FROM_TENSOR, memory_of, moved_bytes, tensor_bytes
from lispgpt.passes.model.product_rows import CACHED_ONLY, cached_columns
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.recognise.cache_writes import stored_rows

SOFTMAX_OPERATIONS = 5
FREE = ("constant", "extf", "truncf", "select", "bitcast", "sitofp", "uitofp", "fptosi", "fptoui")


@dataclass(frozen=True)
class KernelWork:
    """Of one launch.  bytes, operations: whatever the positions are.  position_bytes, position_operations: for each
    position that is looked at (see this module's docstring), of `context` at most; 0 where there are none."""

    bytes: int
    operations: int
    position_bytes: int = 0
    position_operations: int = 0
    context: int = 0


def record_work(kernel: ir.Operation, work: KernelWork) -> None:
    """Keep a kernel's work on its function, as the attribute `work`."""
    kernel.attributes["work"] = attribute(asdict(work))


def recorded_work(kernel: ir.Operation) -> dict[str, int] | None:
    """A kernel's `work`, by the names of KernelWork's fields."""
    if "work" not in kernel.attributes:
        return None
    return {a.name: ir.IntegerAttr(a.attr).value for a in ir.DictAttr(kernel.attributes["work"])}


def divide_work(kernel: ir.Operation, writer: ir.Operation) -> None:
    """Divide an attention kernel's recorded work between it and `writer`, its copy that is to write the cache."""
    if "work" not in kernel.attributes:
        return
    for func, writes in ((kernel, False), (writer, True)):
        attention = attention_of(func)
        assert attention is not None
        roots = [write.loop for write in attention.writes] if writes else [attention.weighted]
        record_work(func, kernel_work(func, _made_for(roots)))


def kernel_work(kernel: ir.Operation, counted: set[ir.Operation] | None = None) -> KernelWork:
    """The work of a kernel whose arguments are memrefs and whose body is on tensors, as destination-passing leaves it.

    counted: those of the body's ops that count (None: all), with what they read and write of the arguments.
    """
    block = kernel.regions[0].blocks[0]
    every = operations(block)
    ops = [op for op in every if counted is None or op in counted]
    attention = attention_of(kernel)
    looked = _positions(attention) if attention is not None and attention.weighted in ops else None
    if looked is None:
        nbytes = moved_bytes(block, set(ops), set()) - _unread_bytes(kernel)
        return KernelWork(nbytes, sum(map(_operations, ops)))
    attention, context = looked.attention, attention.context
    along = [op for op in ops if _is_along(op, attention)]
    return KernelWork(
        moved_bytes(block, set(ops), looked.uses),
        sum(_operations(op) for op in ops if op not in along),
        sum(map(tensor_bytes, looked.cached)) // (looked.sequences * context),
        sum(map(_operations, along)) // (looked.rows * context),
        context,
    )


def _made_for(roots: Iterable[ir.Operation]) -> set[ir.Operation]:
    """The roots and what they are computed from beside them, but for loops that write the cache."""
    found, waiting = set(roots), list(roots)
    while waiting:
        op = waiting.pop()
        for value in (*op.operands, *captured_values(op)):
            made = defining_op(value)
            if made is not None and made not in found and made.name != "scf.for":
                found.add(made)
                waiting.append(made)
    return found


def _unread_bytes(kernel: ir.Operation) -> int:
    """Bytes of a product's results that need not be written, because they are read from caches."""
    ops = operations(kernel.regions[0].blocks[0])
    columns = cached_columns(ops) if CACHED_ONLY in kernel.attributes else []
    each = sum(prod(one.extents) for one in columns)
    made = [op.operands[0] for op in ops if op.name == FROM_TENSOR and memory_of(op.operands[0]) is None]
    return sum(tensor_bytes(value) * each // columns[0].columns for value in made) if columns else 0


# ---- attention


@dataclass(frozen=True)
class _Looked:
    """Attention over positions up to each row's own.  cached: keys and values that come from memory, as they are kept.
    uses: the products' operands that keys and values are."""

    attention: Attention
    cached: tuple[ir.Value, ...]
    uses: set[tuple[ir.Operation, int]]
    rows: int
    sequences: int


def _positions(attention: Attention) -> _Looked | None:
    """None where every row looks at the whole context, or where the bound is not an argument of the kernel."""
    upper = attention.upper
    number = upper.operand() if upper is not None else None
    if upper is None or number is None:
        return None
    position, dims = upper.op.operands[number], dim_positions(indexing_maps(upper.op)[number])
    if str(element_type(position)) != "i32" or memory_of(position) is None:
        return None
    sides = {attention.scores: attention.keys.tensor, attention.weighted: attention.values.tensor}
    return _Looked(
        attention,
        tuple(rows for rows in map(stored_rows, sides.values()) if memory_of(rows) is not None),
        {(op, list(op.operands).index(value)) for op, value in sides.items()},
        prod(shape_of(position)),
        prod(attention.extents[d] for d in dims if d in attention.shared),
    )


def _is_along(op: ir.Operation, attention: Attention) -> bool:
    """Whether an op computes something for each row and position: scores, what is made of them, softmax, their sum."""
    per_score = op.name.startswith("linalg.") and shape_of(op.results[0]) == (*attention.extents, attention.context)
    return per_score or op == attention.weighted


# ---- operations


def _operations(op: ir.Operation) -> int:
    """Floating-point operations of an op and what is nested in it; what every reader computes anew converts numbers."""
    if "inline" in op.attributes:
        return 0
    if op.name == "linalg.softmax":
        return SOFTMAX_OPERATIONS * prod(shape_of(op.operands[0]))
    dialect, _, name = op.name.partition(".")
    if dialect in ("arith", "math"):
        real = any(isinstance(element_type(v), ir.FloatType) for v in (*op.operands, *op.results))
        return (2 if name == "fma" else 1) if real and name not in FREE else 0
    inner = sum(_operations(child) for region in op.regions for block in region.blocks for child in operations(block))
    return inner and inner * trip_count(op)
