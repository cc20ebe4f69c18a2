"""Machine code for a lowered program, and the call of its main."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base import scratch
from lispgpt.base.child import Reporter
from lispgpt.base.dtypes import DTYPES
from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import execution_engine, ir, passmanager
from lispgpt.passes.targets import Gpu, Target
from lispgpt.programs import device_memrefs
from lispgpt.programs.crash_site import CrashSite
from lispgpt.programs.externals import Externals, flush_output, write_output
from lispgpt.programs.mgpu import GpuRuntime


@dataclass(frozen=True)
class Main:
    """What a program's main takes and gives: takes is "" or the type of argc; gives is "" or the result's type."""

    takes: str
    gives: str


def run_lowered(
    module: ir.Module, main: Main, target: Target, externals: Externals, arguments: Sequence[str], reporter: Reporter
) -> None:
    """Make code of a module in the LLVM dialect, call its main and print what it returns; for the child process."""
    reporter.step("code generation")
    if isinstance(target, Gpu):
        runtime = GpuRuntime(target.kind, reporter.give_up)
        for name, function in runtime.functions().items():
            externals.add(name, function)
        add_launching_code(module, runtime.code())
    device_memrefs.define(module)
    program = Program(module, externals)
    program.watch(lambda file, line: reporter.give((file, line)))
    reporter.step("run")
    program.call_main(main, arguments)


def describe_main(module: ir.Module) -> Main:
    """main's signature; UserError where there is no main or it is of a type that cannot be called."""
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "func.func" and ir.StringAttr(operation.attributes["sym_name"]).value == "main":
            type_ = ir.FunctionType(ir.TypeAttr(operation.attributes["function_type"]).value)
            inputs, results = [str(t) for t in type_.inputs], [str(t) for t in type_.results]
            if inputs not in ([], ["i32", "!llvm.ptr"], ["i64", "!llvm.ptr"]):
                wants = "nothing, or argc and argv: (i32, !llvm.ptr) or (i64, !llvm.ptr)"
                raise UserError(f"main takes {wants}; here it takes ({', '.join(inputs)})", span_of(operation.location))
            if len(results) > 1 or (results and results[0] not in RESULTS):
                message = f"main returns nothing, an integer or a float; here it returns {', '.join(results)}"
                raise UserError(message, span_of(operation.location))
            return Main(inputs[0] if inputs else "", results[0] if results else "")
    raise UserError("the program has no function main")


RESULTS = {dtype.mlir: dtype for dtype in DTYPES.values()} | {"index": DTYPES["i64"], "i8": DTYPES["i8"]}
"""The types that main may return."""


LINES = "builtin.module(ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly})"

LAUNCHING = ["mgpuModuleLoad", "mgpuModuleLoadJIT", "mgpuModuleUnload", "mgpuModuleGetFunction"]
"""What gpu.launch_func calls once it is machine code, beside what is compiled in; no declaration says so before."""


class Program:
    """The code of a lowered module, in this process."""

    def __init__(self, module: ir.Module, externals: Externals) -> None:
        addresses = externals.resolve(_declared(module))
        self._externals = externals
        _make_all_visible(module)
        passmanager.PassManager.parse(LINES).run(module.operation)
        try:
            self._engine = execution_engine.ExecutionEngine(module, opt_level=3)
        except RuntimeError:  # without the places of its ops, should LLVM not take them
            passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
            self._engine = execution_engine.ExecutionEngine(module, opt_level=3)
        for name, address in addresses.items():
            self._engine.raw_register_runtime(name, ctypes.c_void_p(address))
        self._engine.initialize()
        self._main = self._engine.raw_lookup("main")
        if not self._main:
            raise UserError("the program's code could not be linked")

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Have report told the file and line of the Lisp at which the program crashes, if it does."""
        self._site = CrashSite(_object_file(self._engine), "_mlir_main", self._main, report)
        self._site.watch()

    def call_main(self, main: Main, arguments: Sequence[str]) -> None:
        """Call main and print its result."""
        texts = [os.fsencode(a) for a in arguments]
        argv = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
        result = (ctypes.c_char * 16)()
        slots: list[Any] = [argv, result]
        values: list[Any] = []
        if main.takes:
            argc = (ctypes.c_int32 if main.takes == "i32" else ctypes.c_int64)(len(texts))
            pointer = ctypes.c_void_p(ctypes.addressof(argv))
            values = [argc, pointer]
        if main.gives:
            values.append(result)
        slots += values
        packed = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(v) for v in values])
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._main)(ctypes.addressof(packed))
        if main.gives:
            write_output(_show(main.gives, bytes(result)) + "\n")
        flush_output()


def object_code(module: ir.Module) -> bytes:
    """A lowered module's relocatable object, with what it calls left open.  The context is the active one."""
    _make_all_visible(module)
    engine = execution_engine.ExecutionEngine(module, opt_level=3, enable_pic=True)
    harmless = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    for name in _declared(module):  # the engine links the code before it gives it away
        engine.raw_register_runtime(name, harmless)
    return _object_file(engine)


def _make_all_visible(module: ir.Module) -> None:
    """The engine looks every function up before it gives its object file."""
    for op in module.body.operations:
        if op.operation.name == "llvm.func":
            op.operation.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
            if ir.StringAttr(op.operation.attributes["sym_name"]).value == "main":
                op.operation.attributes["no_inline"] = ir.UnitAttr.get()  # its caller has no lines


def _object_file(engine: execution_engine.ExecutionEngine) -> bytes:
    with scratch.kept_to(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.o"
        engine.dump_to_object_file(str(path))
        return path.read_bytes()


def add_launching_code(module: ir.Module, text: str) -> None:
    """The functions that launches call, into a module that has GPU code."""
    if any(op.operation.name == "gpu.binary" for op in module.body.operations):
        parsed = ir.Module.parse(text, module.context)
        for op in parsed.body.operations:
            module.body.append(op.operation.clone())


def _show(type_: str, raw: bytes) -> str:
    """A result as text: integers in decimal, floats as short as reads back the same."""
    value = np.frombuffer(raw, RESULTS[type_].numpy, 1)[0]
    if type_ == "bf16":
        return str((np.uint32(value) << np.uint32(16)).view(np.float32))
    return str(int(value)) if RESULTS[type_].smallest_nonfinite is None else str(value)


def _declared(module: ir.Module) -> list[str]:
    """The functions that the module leaves to others, those that launches will call included.

    LLVM's own intrinsics are not among them.
    """
    names, launches = [], False
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "llvm.func" and not list(operation.regions[0].blocks):
            name = ir.StringAttr(operation.attributes["sym_name"]).value
            if not name.startswith("llvm."):
                names.append(name)
        launches |= operation.name == "gpu.binary"
    return names + (LAUNCHING if launches else [])
