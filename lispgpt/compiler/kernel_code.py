"""From kernels whose plan is written down to machine code, by several processes.

Processes because MLIR's bindings hold Python's lock, and because half of the passes are Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.base.child import Reporter, in_children
from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions, nested_operations, operations, symbol_of
from lispgpt.passes.base import find_pass
from lispgpt.passes.pipeline import Pipeline, Runner
from lispgpt.passes.targets import Gpu, Target

MOST_PROCESSES = 16
SMALLEST_SHARE = 400
"""Ops that are worth a process."""


def split_at_plan(pipeline: Pipeline) -> tuple[Pipeline, Pipeline]:
    """The passes up to the one after which kernels have nothing to do with each other, and the rest."""
    calls = pipeline.calls
    ends = [i + 1 for i, call in enumerate(calls) if (cls := find_pass(call.name)) is not None and cls.parts_kernels]
    return pipeline.before(ends[-1] if ends else len(calls)), pipeline.after(ends[-1] if ends else len(calls))


@dataclass(frozen=True)
class KernelCode:
    """code: what runs on any machine with the target's driver.  objects: the same, for the chip itself; may be none.

    problem: why there are none though the vendor's tool is here.
    """

    code: bytes
    objects: tuple[bytes, ...] = ()
    problem: str = ""


def make_code(module: ir.Module, rest: Pipeline, target: Target, processes: int | None = None) -> KernelCode:
    """Run the rest of a pipeline and make machine code.  processes: at most; None for as many as there are cores."""
    if isinstance(target, Gpu) and not _has_kernels(module):
        return KernelCode(b"")  # nothing that the entries give has elements
    cores = len(os.sched_getaffinity(0)) if processes is None else processes
    shares = kernel_shares(module, min(cores, MOST_PROCESSES))
    if len(shares) < 2:
        return _joined([_lowered(module, rest, target)], target)

    def lower(share: frozenset[str]) -> KernelCode:
        for kernel in kernel_functions(module):
            if symbol_of(kernel) not in share:
                kernel.erase()
        return _lowered(module, rest, target)

    def work_of(share: frozenset[str]) -> Callable[[Reporter], int]:
        def work(reporter: Reporter) -> int:
            reporter.give(lower(share))
            return 0

        return work

    return _joined([outcome.value for outcome in in_children([work_of(share) for share in shares])], target)


def _has_kernels(module: ir.Module) -> bool:
    """Whether a module has kernels, as functions or lowered."""
    return bool(kernel_functions(module)) or any(op.name == "gpu.module" for op in operations(module.body))


def _joined(parts: Sequence[KernelCode], target: Target) -> KernelCode:
    """The code of all kernels from that of some each."""
    whole = all(part.objects for part in parts)
    objects = tuple(each for part in parts for each in part.objects) if whole else ()
    problem = next((part.problem for part in parts if part.problem), "")
    return KernelCode(target.join_code([part.code for part in parts]), objects, problem)


def _lowered(module: ir.Module, rest: Pipeline, target: Target) -> KernelCode:
    with module.context, ir.Location.unknown():
        Runner(target).run(module, rest)
        code = target.serialize(module)
    try:
        made = target.assembled(code)
    except UserError as error:
        return KernelCode(code, problem=error.message)
    return KernelCode(code, () if made is None else (made,))


def kernel_shares(module: ir.Module, most: int) -> Sequence[frozenset[str]]:
    """The kernels' names in at most that many shares of about the same number of ops, the largest kernels first.

    Kernels with the same ops and constants, which may have one body in machine code, stay together.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for kernel in kernel_functions(module):
        ops = tuple(_told(op) for op in nested_operations(kernel))
        alike.setdefault(ops, []).append(symbol_of(kernel))
    groups = sorted(((len(ops) * len(names), names) for ops, names in alike.items()), key=lambda group: -group[0])
    count = max(1, min(most, sum(size for size, _ in groups) // SMALLEST_SHARE, len(groups)))
    loads = [0] * count
    shares: list[set[str]] = [set() for _ in range(count)]
    for size, names in groups:
        least = loads.index(min(loads))
        loads[least] += size
        shares[least].update(names)
    return [frozenset(share) for share in shares]


def _told(op: ir.Operation) -> str:
    """An op's name, and a constant's value."""
    name: str = op.name
    return str(op.attributes["value"]) if name == "arith.constant" else name
