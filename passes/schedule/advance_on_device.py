"""advance-on-device: let a decode step leave its own token and position ready for the next step.

Before: func.func @logits_b1_s1(…) { … call @rows_1(%logits, %next)  return }
After:  … call @rows_1(%logits, %next)  call @advance_1(%next, %tokens, %positions)  return
        with `advance` on the entry: running it again decodes the next token, without a word from the host.

Requires: what plan-arena ensures.  Entries with one position for each sequence, whose first two inputs are tokens and
positions and which have a result `next`, get the call; the others stay as they are.
Ensures: @advance_N is scheduled: one thread for each sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import entry_functions, operations, strings
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.model.kernel_work import KernelWork, record_work
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class AdvanceOnDevice(Pass):
    name: ClassVar[str] = "advance-on-device"

    def run(self, module: ir.Module, target: Gpu) -> None:
        kernels: dict[int, str] = {}
        for entry in entry_functions(module):
            names = strings(entry.attributes["arguments"])
            inputs = [i for i, name in enumerate(names) if name.startswith("input:")]
            sizes = {s.name: ir.IntegerAttr(s.attr).value for s in ir.DictAttr(entry.attributes["sizes"])}
            if sizes["positions"] != 1 or "result:next" not in names or len(inputs) < 2:
                continue
            batch = sizes["batch"]
            if batch not in kernels:
                kernels[batch] = _make_kernel(entry, batch, target)
            _call(entry, kernels[batch], batch, [names.index("result:next"), *inputs[:2]])


def _make_kernel(entry: ir.Operation, batch: int, target: Gpu) -> str:
    """Declare and schedule tokens[i] = next[i], positions[i] += 1.

    A `next` that is no token (-1 or the largest i32) is for the host to see; the steps after it take token 0."""
    name, type_ = f"advance_{batch}", ir.MemRefType.get([batch], b.i32())
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get([type_] * 3, [])),
        "kernel": ir.StringAttr.get("advance"),
        "tied": ir.ArrayAttr.get([]),
        "access": ir.ArrayAttr.get([ir.StringAttr.get(word) for word in ("read", "write", "read_write")]),
    }
    kernel = create_op("func.func", [], [], attributes, regions=1, loc=entry.location, ip=ir.InsertionPoint(entry))
    record_work(kernel, KernelWork(bytes=4 * batch * 4, operations=0))
    body = kernel.regions[0].blocks.append(*[type_] * 3, arg_locs=[entry.location] * 3)
    with ir.InsertionPoint(body):
        create_op("func.return")
    following, tokens, positions = body.arguments

    def emit() -> None:
        target.dependency_release()
        target.dependency_wait()
        where = [b.add(b.mul(b.block_id(), target.subgroup), b.thread_id())]

        def advance() -> None:
            found = b.load(following, where, 1)
            is_token = b.less(found, b.constant(2**31 - 1, b.i32()))
            b.store(b.select(is_token, found, b.constant(0, b.i32())), tokens, where)
            one = b.constant(1, b.i32())
            b.store(b.binary("arith.addi", b.load(positions, where, 1), one), positions, where)

        b.if_then(b.less(where[0], batch), advance)

    reschedule(kernel, [-(-batch // target.subgroup)], [target.subgroup], target, emit)
    return name


def _call(entry: ir.Operation, kernel: str, batch: int, arguments: list[int]) -> None:
    block = entry.regions[0].blocks[0]
    with ir.InsertionPoint(operations(block)[-1]), entry.location:
        zero = b.as_value(0)
        type_ = ir.MemRefType.get([batch], b.i32())
        views = [b.emit("memref.view", [block.arguments[i], zero], [type_]) for i in arguments]
        create_op("func.call", views, [], {"callee": ir.FlatSymbolRefAttr.get(kernel)})
