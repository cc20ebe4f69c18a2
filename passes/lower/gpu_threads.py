"""One GPU thread as a function on the CPU: ids become arguments, and waiting becomes suspending a coroutine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import operations, retype
from lispgpt.passes.lower.gpu_exchanges import Exchanges, integer
from lispgpt.passes.lower.gpu_launchers import AT_BARRIER, DONE, Launcher

WAITING_OPS = {
    "gpu.barrier",
    "gpu.shuffle",
    "gpu.rotate",
    "gpu.subgroup_broadcast",
    "gpu.subgroup_reduce",
    "gpu.all_reduce",
    "gpu.ballot",
}

DIMENSIONS = {"thread_id": "t", "block_id": "id", "grid_dim": "g", "block_dim": "b"}
"""Ops that name one, and what the arguments that say it are called, ahead of its letter."""

PRINTING_OPS = {"gpu.printf", "func.call", "llvm.call", "vector.print"}
"""What may print: a call could."""


def make_thread_function(module: ir.Module, kernel: ir.Operation, name: str, subgroup_size: int) -> Launcher:
    """Turn a gpu.func kernel into func.func @name_thread at the end of the module, and describe its launcher."""
    inner = _ops(kernel)
    waits = any(op.name in WAITING_OPS for op in inner)
    prints = any(op.name in PRINTING_OPS for op in inner)
    shared_count = integer(kernel, "workgroup_attributions")
    kernel_type = ir.TypeAttr(kernel.attributes["function_type"]).value
    count = len(kernel_type.inputs)
    entry = kernel.regions[0].blocks[0]
    shared = [str(a.type) for a in list(entry.arguments)[count : count + shared_count]]
    launcher = Launcher(name, tuple(str(t) for t in kernel_type.inputs), tuple(shared), waits, prints, subgroup_size)
    with kernel.location, ir.InsertionPoint(module.body):
        function = create_op("func.func", regions=1)
        _give_private_memory(entry, count + shared_count)
        for _, text in launcher.thread_arguments()[len(entry.arguments) :]:
            entry.add_argument(ir.Type.parse(text), kernel.location)
        for block in list(kernel.regions[0].blocks):
            block.append_to(function.regions[0])
        results = [ir.Type.parse("!llvm.ptr")] if waits else []
        function.attributes["sym_name"] = ir.StringAttr.get(f"{name}_thread")
        retype(function, results)
        function.attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    _Thread(function, launcher).convert()
    return launcher


def _give_private_memory(entry: ir.Block, first: int) -> None:
    """Private attributions (the last arguments) become allocations on the thread's stack."""
    for index in reversed(range(first, len(entry.arguments))):
        argument = entry.arguments[index]
        with ir.InsertionPoint.at_block_begin(entry):
            argument.replace_all_uses_with(b.allocated(argument.type, "memref.alloca"))
        entry.erase_argument(index)


class _Thread(Exchanges):
    """The rewriting of one thread function: one method for each gpu op, named after it."""

    def __init__(self, function: ir.Operation, launcher: Launcher) -> None:
        entry = function.regions[0].blocks[0]
        names = [n for n, _ in launcher.thread_arguments()]
        super().__init__(launcher, dict(zip(names, entry.arguments, strict=True)))
        self.function, self.entry = function, entry
        self.formats: list[str] = []

    def convert(self) -> None:
        with self.function.location, ir.InsertionPoint.at_block_begin(self.entry):
            self._place()
            if self.launcher.waits:
                self._begin_coroutine()
        for op in _ops(self.function):
            if op.name.startswith("gpu."):
                with op.location, ir.InsertionPoint(op):
                    self._convert(op)

    def _convert(self, op: ir.Operation) -> None:
        name = op.name.removeprefix("gpu.")
        handler: Callable[[ir.Operation], Sequence[ir.Value]] | None = getattr(self, f"_{name}", None)
        if name in DIMENSIONS:
            handler = partial(self._dimension, name=name)
        if handler is None:
            raise UserError(f"{op.name} cannot run on the cpu target", span_of(op.location))
        replacements = handler(op)
        for result, value in zip(op.results, replacements, strict=True):
            result.replace_all_uses_with(value)
        op.erase()

    def _place(self) -> None:
        """Linear thread number, lane and subgroup, for the ops that ask for them."""
        x, y, z, width, height, depth = (Number(self.values[n]) for n in ("tx", "ty", "tz", "bx", "by", "bz"))
        line = y + z * height
        self.thread = x + width * line
        self.threads = width * height * depth
        self.size = Number(b.as_value(self.launcher.subgroup_size))
        self.lane = self.thread % self.size
        self.first = self.thread - self.lane
        self.padded = self.threads.emit("arith.ceildivui", self.size) * self.size

    def _dimension(self, op: ir.Operation, name: str) -> list[ir.Value]:
        axis = str(op.attributes["dimension"]).split("<dim ")[1][0]
        return [self.values[DIMENSIONS[name] + axis]]

    def _global_id(self, op: ir.Operation) -> list[ir.Value]:
        names = ("block_id", "block_dim", "thread_id")
        block, size, thread = (Number(self._dimension(op, name)[0]) for name in names)
        return [(block * size + thread).value]

    def _lane_id(self, _: ir.Operation) -> list[ir.Value]:
        return [self.lane.value]

    def _subgroup_id(self, _: ir.Operation) -> list[ir.Value]:
        return [(self.thread // self.size).value]

    def _num_subgroups(self, _: ir.Operation) -> list[ir.Value]:
        return [(self.padded // self.size).value]

    def _subgroup_size(self, _: ir.Operation) -> list[ir.Value]:
        return [self.size.value]

    def _dynamic_shared_memory(self, _: ir.Operation) -> list[ir.Value]:
        return [self.values["dynamic"]]

    def _printf(self, op: ir.Operation) -> list[ir.Value]:
        """A call of the C library's printf, with floats as double as C wants them."""
        text = ir.StringAttr(op.attributes["format"]).value + "\0"
        name = f"{self.launcher.name}_format_{len(self.formats)}"
        self.formats.append(name)
        i64 = b.i64()
        with ir.InsertionPoint(self.function):
            array = ir.Type.parse(f"!llvm.array<{len(text.encode())} x i8>")
            attributes = {
                "sym_name": name,
                "global_type": array,
                "linkage": ir.Attribute.parse("#llvm.linkage<internal>"),
                "constant": ir.UnitAttr.get(),
                "value": text,
                "addr_space": ir.IntegerAttr.get(self.i32, 0),
            }
            create_op("llvm.mlir.global", attributes=attributes, regions=1)
        address = b.emit("llvm.mlir.addressof", [], [self.pointer], global_name=ir.FlatSymbolRefAttr.get(name))
        values = [address]
        for value in op.operands:
            if isinstance(value.type, ir.FloatType) and value.type.width < 64:
                value = b.emit("arith.extf", [value], [ir.F64Type.get()])
            values.append(b.emit("arith.index_cast", [value], [i64]) if isinstance(value.type, ir.IndexType) else value)
        attributes = {
            "callee": ir.FlatSymbolRefAttr.get("gpu_printf"),
            "var_callee_type": ir.Type.parse("!llvm.func<i32 (ptr, ...)>"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(values), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        }
        create_op("llvm.call", values, [self.i32], attributes)
        return []

    def _begin_coroutine(self) -> None:
        """Allocate the frame in the entry block, free it in `cleanup`, leave through `suspended`."""
        token, i64 = ir.Type.parse("token"), b.i64()
        self.function.attributes["llvm.passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get("presplitcoroutine")])
        null = b.emit("llvm.mlir.zero", [], [self.pointer])
        self.no_token = b.emit("llvm.mlir.none", [], [token])
        self.not_final = b.constant(0, b.i1())
        identity = b.emit("llvm.intr.coro.id", [b.constant(0, self.i32), null, null, null], [token])
        align, bytes_ = (b.emit(f"llvm.intr.coro.{what}", [], [i64]) for what in ("align", "size"))
        memory = b.call("gpu_thread_alloc", [align, bytes_], [self.pointer]).results[0]
        handle = b.emit("llvm.intr.coro.begin", [identity, memory], [self.pointer])
        last = list(self.function.regions[0].blocks)[-1]
        self.cleanup = last.create_after()
        self.suspended = self.cleanup.create_after()
        with ir.InsertionPoint(self.cleanup):
            frame = b.emit("llvm.intr.coro.free", [identity, handle], [self.pointer])
            b.call("gpu_thread_free", [frame])
            create_op("cf.br", successors=[self.suspended])
        with ir.InsertionPoint(self.suspended):
            create_op("llvm.intr.coro.end", [handle, self.not_final, self.no_token], [b.i1()])
            create_op("func.return", [handle])

    def suspend(self, op: ir.Operation, status: int | None = None) -> None:
        """Suspend before op, then go on there; the insertion point of what follows is op's new block."""
        if status is not None:
            self._set_status(status)
        state = b.emit("llvm.intr.coro.suspend", [self.no_token, self.not_final], [self.i8])
        block, resumed = op.block, _split_before(op)
        attributes = {
            "case_values": ir.DenseElementsAttr.get([ir.IntegerAttr.get(self.i8, n) for n in (0, 1)]),
            "case_operand_segments": ir.DenseI32ArrayAttr.get([0, 0]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
        }
        with ir.InsertionPoint(block):
            create_op("cf.switch", [state], [], attributes, successors=[self.suspended, resumed, self.cleanup])

    def _set_status(self, status: int) -> None:
        create_op("memref.store", [b.constant(status, self.i8), self.values["status"], self.thread.value])

    def _return(self, _: ir.Operation) -> list[ir.Value]:
        if self.launcher.waits:
            self._set_status(DONE)
            create_op("cf.br", successors=[self.cleanup])
        else:
            create_op("func.return")
        return []

    def _barrier(self, op: ir.Operation) -> list[ir.Value]:
        self.suspend(op, AT_BARRIER)
        return []


def _split_before(op: ir.Operation) -> ir.Block:
    """Move op and what follows it into a new block right behind its block."""
    ops = operations(op.block)
    rest = op.block.create_after()
    for moved in ops[ops.index(op) :]:
        rest.append(moved)
    return rest


def _ops(root: ir.Operation) -> list[ir.Operation]:
    return [op for region in root.regions for block in region.blocks for op in operations(block)]
