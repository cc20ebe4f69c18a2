"""Machine code for a lowered program, and the call of its main."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.errors import UserError
from lispgpt.mlir import execution_engine, ir
from lispgpt.passes.targets import Target, find_target
from lispgpt.programs.child import Outcome, Reporter, run_in_child
from lispgpt.programs.externals import Externals, flush_output, write_output
from lispgpt.programs.lowering import PassForm, check_lowered, pipeline_file, run_passes
from lispgpt.programs.mgpu import GpuRuntime


@dataclass(frozen=True)
class Main:
    """What a program's main takes and gives: takes is "" or the type of argc; gives is "" or the result's type."""

    takes: str
    gives: str


def run(
    module: ir.Module,
    *,
    target: Target | None = None,
    passes: Sequence[PassForm] | None = None,
    arguments: Sequence[str] = (),
    libraries: Sequence[str] = (),
    root: Path | None = None,
) -> int:
    """Compile a module with a func.func @main and run it in a child process; returns the process's exit code.

    The context is the module's own.  target: what to compile for, the CPU by default.  passes: the program's own
    compilation form for that target; without it the default pipeline is used.  arguments: what main finds in argv.
    libraries: what link-library named, found relative to root.  main's result is printed after its output.
    UserError when main is missing or of another type, when compiling fails, and when the program crashes.
    """
    main = describe_main(module)
    chosen = target or find_target("cpu")

    def work(reporter: Reporter) -> int:
        with module.context, ir.Location.unknown():
            run_passes(module, passes or pipeline_file("program"), chosen, lambda name: reporter.step(f"pass {name}"))
            check_lowered(module)
            reporter.step("code generation")
            externals = Externals(libraries, root)
            if chosen.kind != "cpu":
                for name, function in GpuRuntime(chosen, reporter.give_up).functions().items():
                    externals.add(name, function)
            program = Program(module, externals)
            reporter.step("run")
            program.call_main(main, arguments)
        return 0

    return _exit_code(run_in_child(work))


def describe_main(module: ir.Module) -> Main:
    """main's signature; UserError where there is no main or it is of a type that cannot be called."""
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "func.func" and ir.StringAttr(operation.attributes["sym_name"]).value == "main":
            type_ = ir.FunctionType(ir.TypeAttr(operation.attributes["function_type"]).value)
            inputs, results = [str(t) for t in type_.inputs], [str(t) for t in type_.results]
            if inputs not in ([], ["i32", "!llvm.ptr"], ["i64", "!llvm.ptr"]):
                wants = "nothing, or argc and argv: (i32, !llvm.ptr) or (i64, !llvm.ptr)"
                raise UserError(f"main takes {wants}; here it takes ({', '.join(inputs)})")
            if len(results) > 1 or (results and results[0] not in RESULTS):
                raise UserError(f"main returns nothing, an integer or a float; here it returns {', '.join(results)}")
            return Main(inputs[0] if inputs else "", results[0] if results else "")
    raise UserError("the program has no function main")


RESULTS = {
    "i1": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "index": "q",
    "f16": "e",
    "bf16": "H",
    "f32": "f",
    "f64": "d",
}
"""The types that main may return, with their `struct` formats."""


LAUNCHING = [
    *("mgpuModuleLoad", "mgpuModuleLoadJIT", "mgpuModuleUnload", "mgpuModuleGetFunction", "mgpuLaunchKernel"),
    *("mgpuStreamCreate", "mgpuStreamDestroy", "mgpuStreamSynchronize"),
]
"""What gpu.launch_func calls once it is machine code; no declaration says so before."""


class Program:
    """The code of a lowered module, in this process."""

    def __init__(self, module: ir.Module, externals: Externals) -> None:
        addresses = externals.resolve(_declared(module))
        self._externals = externals
        self._engine = execution_engine.ExecutionEngine(module, opt_level=3)
        for name, address in addresses.items():
            self._engine.raw_register_runtime(name, ctypes.c_void_p(address))
        self._engine.initialize()

    def call_main(self, main: Main, arguments: Sequence[str]) -> None:
        """Call main and print its result."""
        address = self._engine.raw_lookup("main")
        if not address:
            raise UserError("the program's code could not be linked")
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
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(packed))
        if main.gives:
            write_output(_show(main.gives, bytes(result)) + "\n")
        flush_output()


def _show(type_: str, raw: bytes) -> str:
    """A result as text: integers in decimal, floats as short as reads back the same."""
    value = struct.unpack_from("<" + RESULTS[type_], raw)[0]
    if type_ == "bf16":
        return str(np.uint32(value << 16).view(np.float32))
    if type_ in ("f16", "f32"):
        return str((np.float16 if type_ == "f16" else np.float32)(value))
    return str(int(value)) if type_ != "f64" else str(value)


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


def _exit_code(outcome: Outcome) -> int:
    if not outcome.signal_number:
        return outcome.code
    where = "" if outcome.step == "run" else f" during {outcome.step}"
    raise UserError(f"the program crashed{where} ({outcome.reason})")
