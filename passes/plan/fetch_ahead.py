"""fetch-ahead: kernels bring the weights of later ones to the cache that all cores share, while memory has time.

Before:                                              After:
  call @attention_…(%q, %y)                            call @attention_…(%q, %y, %w1)
  call @contraction_…(%y, %w1, %z)                     call @contraction_…(%y, %w1, %z, %w2)
  call @rows_…(%z, %n)                                 call @rows_…(%z, %n)
  call @contraction_…(%n, %w2, %t)                     call @contraction_…(%n, %w2, %t, %w2)

A product that reads its weights from memory waits for them where all of its blocks start at once; most kernels ahead of
it read what others have just written, so that memory is idle.  Each block of such a kernel asks for its share of a
later product's weights with its first instruction.

Requires: what schedules ensure; no kernel gets more arguments afterwards, but what is one launch.
Ensures: where the target copies in bulk, a product's weights, of `least` bytes to `most` that the entry does not
write, are one more argument of the nearest product or attention ahead of it, which has no use for it but that.  A call
that no such product follows has the argument of another call of its kernel.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from lispgpt.base.access import READ
from lispgpt.ir import build as b
from lispgpt.ir.access import access_of, set_access
from lispgpt.ir.collectives import collective_functions
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    callee_of,
    clone_with,
    defining_op,
    entry_functions,
    integers,
    kernel_functions,
    operations,
    strings,
    symbol_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.memory.kernel_buffers import byte_size
from lispgpt.passes.targets import Gpu

LONG = ("contraction", "attention")
"""Kinds of kernels that take long enough for memory to bring something beside them."""

LINE = 128
"""Bytes that blocks' shares are multiples of."""


@dataclass(frozen=True)
class FetchAhead(Pass):
    """least, most: bytes of weights to bring."""

    least: int = 1 << 18
    most: int = 1 << 24

    def run(self, module: ir.Module, target: object) -> None:
        if not isinstance(target, Gpu) or target.copies is None:
            return
        kernels = {symbol_of(kernel): kernel for kernel in kernel_functions(module)}
        functions = kernels | collective_functions(module)
        wanted: dict[str, dict[ir.Operation, ir.Value | None]] = {}
        for entry in entry_functions(module):
            for call, weights in self._wanted(entry, kernels, functions).items():
                wanted.setdefault(callee_of(call), {})[call] = weights
        for name, calls in wanted.items():
            if any(value is not None for value in calls.values()):
                _fetch(kernels[name], calls, target)

    def _wanted(
        self, entry: ir.Operation, kernels: dict[str, ir.Operation], functions: dict[str, ir.Operation]
    ) -> dict[ir.Operation, ir.Value | None]:
        """An entry's calls that may bring something, in order, and what.  functions: all that are called."""
        found: dict[ir.Operation, ir.Value | None] = {}
        ahead: ir.Operation | None = None
        calls = [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]
        constant = _constant_weights(entry, calls, functions)
        for call in calls:
            kernel = kernels.get(callee_of(call))
            if kernel is None or ir.StringAttr(kernel.attributes["kernel"]).value not in LONG:
                continue
            weights = self._weights(call, constant)
            if ahead is not None and weights is not None:
                found[ahead] = weights
            found[call] = None
            ahead = call
        return found

    def _weights(self, call: ir.Operation, constant: set[int]) -> ir.Value | None:
        """The largest of a call's arguments that are constant weights, where it is neither small nor huge."""
        roots = [(value, _root(value)) for value in call.operands]
        weights = [value for value, root in roots if root is not None and root.arg_number in constant]
        largest = max(weights, key=lambda value: byte_size(value.type), default=None)
        nbytes = 0 if largest is None else byte_size(largest.type)
        return largest if nbytes % 16 == 0 and self.least <= nbytes <= self.most else None


def _constant_weights(entry: ir.Operation, calls: list[ir.Operation], functions: dict[str, ir.Operation]) -> set[int]:
    """The numbers of an entry's arguments that are weights and that nothing in it writes: what reads ahead of its time
    what somebody writes would have to wait for that."""
    kinds = [text.partition(":")[0] for text in strings(entry.attributes["arguments"])]
    written = set()
    for call in calls:
        for value, how in zip(call.operands, access_of(functions[callee_of(call)]), strict=True):
            root = _root(value)
            if root is not None and how != READ:
                written.add(root.arg_number)
    return {number for number, kind in enumerate(kinds) if kind == "weight"} - written


def _root(value: ir.Value) -> ir.BlockArgument | None:
    op = defining_op(value)
    while op is not None and op.name == "memref.view":
        value = op.operands[0]
        op = defining_op(value)
    return ir.BlockArgument(value) if op is None else None


def _fetch(kernel: ir.Operation, calls: dict[ir.Operation, ir.Value | None], target: Gpu) -> None:
    """Give a kernel and its calls one more argument, whose share each block brings."""
    types = Counter(str(value.type) for value in calls.values() if value is not None)
    chosen = types.most_common(1)[0][0]
    fitting = {call: value for call, value in calls.items() if value is not None and str(value.type) == chosen}
    last = next(iter(fitting.values()))
    body = kernel.regions[0].blocks[0]
    argument = body.add_argument(last.type, ir.Location.unknown())
    types_ = ir.FunctionType.get([a.type for a in body.arguments], [])
    kernel.attributes["function_type"] = ir.TypeAttr.get(types_)
    set_access(kernel, [*access_of(kernel), READ])
    with ir.InsertionPoint.at_block_begin(body), kernel.location:
        _emit(kernel, argument, target)
    for call in calls:
        last = fitting.get(call, last)
        with ir.InsertionPoint(call), call.location:
            create_op("func.call", [*call.operands, _cloned(last)], [], {"callee": call.attributes["callee"]})
        call.erase()


def _cloned(value: ir.Value) -> ir.Value:
    """The same view of an entry's argument, made here."""
    mapping: dict[ir.Value, ir.Value] = {}

    def made(value: ir.Value) -> None:
        op = defining_op(value)
        if op is None or value in mapping:
            return
        for operand in op.operands:
            made(operand)
        clone_with(op, mapping)

    made(value)
    return mapping.get(value, value)


def _emit(kernel: ir.Operation, argument: ir.Value, target: Gpu) -> None:
    """By the first thread of each block, whatever it does then."""
    assert target.copies is not None
    copies, grid = target.copies, integers(kernel.attributes["grid"])
    nbytes = byte_size(argument.type)
    share = -(-nbytes // prod(grid) // LINE) * LINE
    block: b.Index = b.block_id("x")
    for name, inner in (("y", grid[0]), ("z", grid[0] * grid[1])):
        if grid["xyz".index(name)] > 1:
            block = b.add(block, b.mul(b.block_id(name), inner))
    start = b.mul(block, share)
    count = b.at_most(b.sub(nbytes, start), share)
    first = b.binary("arith.andi", b.equal(b.thread_id(), 0), b.less(start, nbytes))
    base = b.emit("memref.extract_aligned_pointer_as_index", [argument], [ir.IndexType.get()])
    b.if_then(first, lambda: copies.fetch_bytes(b.add(base, start), count))
