"""Replacing a kernel's tensor body by a scheduled one, and what the calls of a kernel tell about its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod

from lispgpt.base.access import READ
from lispgpt.ir import build as b
from lispgpt.ir.access import access_of
from lispgpt.ir.build import Index
from lispgpt.ir.loops import functions_without_body
from lispgpt.ir.mlir import attribute, ir, numbers
from lispgpt.ir.structure import (
    callee_of,
    defining_op,
    entry_functions,
    kernel_functions,
    nested_operations,
    operations,
    strings,
    symbol_of,
    viewed,
)
from lispgpt.passes.kernels.refusal import Refused, note_refusal
from lispgpt.passes.targets import Target


@contextmanager
def refusable(kernel: ir.Operation) -> Iterator[list[str]]:
    """Within it a schedule may raise Refused: what it has emitted is dropped, and the kernel keeps the reason, which is
    behind it in the list, too."""
    body = kernel.regions[0].blocks[0]
    old, reasons = set(operations(body)), list[str]()
    try:
        yield reasons
    except Refused as refused:
        reasons.append(str(refused))
        for op in reversed(operations(body)):
            if op not in old:
                op.erase()
        note_refusal(kernel, str(refused))


def reschedule(
    kernel: ir.Operation,
    grid: Sequence[int],
    block: Sequence[int],
    target: Target,
    emit: Callable[[], None],
) -> bool:
    """Emit a new body before the old one's terminator, drop the old ops, and record the launch's facts.

    Where `emit` raises Refused the kernel stays as it was, with the reason noted, and the answer is False.
    """
    return not why_left(kernel, grid, block, emit)


def why_left(kernel: ir.Operation, grid: Sequence[int], block: Sequence[int], emit: Callable[[], None]) -> list[str]:
    """The same, with the reason for an answer; none where the kernel has its new body."""
    old = operations(kernel.regions[0].blocks[0])
    with refusable(kernel) as reasons:
        with ir.InsertionPoint(old[-1]), kernel.location:
            emit()
        for op in reversed(old[:-1]):
            op.erase()
        set_launch(kernel, grid, block)
    return reasons


def contract(kernel: ir.Operation) -> None:
    """Let products and the sums that they are part of be rounded once."""
    flag = ir.Attribute.parse("#arith.fastmath<contract>")
    for op in nested_operations(kernel):
        if op.name in ("arith.mulf", "arith.addf", "arith.subf"):
            op.attributes["fastmath"] = flag


def set_launch(kernel: ir.Operation, grid: Sequence[int], block: Sequence[int]) -> None:
    """Record how many blocks a kernel has and how many threads a block, up to three extents of each."""
    kernel.attributes["grid"] = _extents(grid)
    kernel.attributes["block"] = _extents(block)
    kernel.attributes["shared_bytes"] = attribute(0)


def _extents(values: Sequence[int]) -> ir.Attribute:
    return numbers([*values, 1, 1][:3])


GIVEN = ("weight", "made", "input")
"""Kinds of an entry's arguments that hold something before it runs, and change only where it writes them."""


def constant_arguments(module: ir.Module) -> Callable[[ir.Operation], set[ir.Value]]:
    """What gives a kernel's arguments that are weights, made of these, or inputs in every call, which no launch of the
    entry has written by then.

    The calls are looked at once, when it is first asked.
    """
    fixed = cache(lambda: _fixed_numbers(module))

    def of(kernel: ir.Operation) -> set[ir.Value]:
        arguments = list(kernel.regions[0].blocks[0].arguments)
        return {arguments[i] for i in fixed().get(symbol_of(kernel), range(len(arguments)))}

    return of


def _fixed_numbers(module: ir.Module) -> dict[str, set[int]]:
    """For each function that is called, which arguments are weights, made of these, or inputs, unwritten, in all calls:
    what makes something of weights has run before the entries that read it."""
    called = {symbol_of(k): k for k in kernel_functions(module)} | functions_without_body(module)
    access = {name: access_of(function) for name, function in called.items()}
    fixed: dict[str, set[int]] = {}
    for entry in entry_functions(module):
        kinds = [text.split(":")[0] for text in strings(entry.attributes["arguments"])]
        written: set[int] = set()
        for call in (op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"):
            name = callee_of(call)
            memory = [viewed(v, ("memref.view", "memref.subview")) for v in call.operands]
            roots = [ir.BlockArgument(v).arg_number if defining_op(v) is None else -1 for v in memory]
            written.update(root for root, how in zip(roots, access[name], strict=True) if how != READ)
            here = {i for i, r in enumerate(roots) if r >= 0 and kinds[r] in GIVEN and r not in written}
            fixed[name] = fixed.get(name, here) & here
    return fixed


def calls_of(module: ir.Module, kernel: ir.Operation) -> list[ir.Operation]:
    """Every call of a kernel in the module's entries."""
    name = symbol_of(kernel)
    ops = [op for entry in entry_functions(module) for op in operations(entry.regions[0].blocks[0])]
    return [op for op in ops if op.name == "func.call" and callee_of(op) == name]


def coordinates(linear: Index, shape: Sequence[int]) -> list[Index]:
    """The index into a shape of its linear-th element, row-major."""
    where: list[Index] = []
    inner = 1
    for extent in reversed(shape):
        value = b.div(linear, inner)
        outermost = inner * extent == prod(shape)
        where.insert(0, 0 if extent == 1 else value if outermost else b.mod(value, extent))
        inner *= extent
    return where
