"""CPUs: native objects for the host, or for a level such as x86-64-v3."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lispgpt.base import host
from lispgpt.base.errors import InternalError, UserError
from lispgpt.ir.mlir import execution_engine, ir
from lispgpt.passes.targets.base import Target
from lispgpt.passes.targets.binary import linker_toolkit

LEVELS = {"x86-64": 16, "x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64, "znver4": 64, "znver5": 64, "znver3": 32}


@dataclass(frozen=True)
class Cpu(Target):
    """chip: "" for the host, else one of LEVELS.  registers: vector registers of vector_bytes each."""

    kind: ClassVar[str] = "cpu"
    pipeline: ClassVar[str] = "cpu"
    code_name: ClassVar[str] = "kernels.so"

    chip: str = ""
    registers: int = 16

    def check_tools(self) -> None:
        linker_toolkit()

    def serialize(self, module: ir.Module) -> bytes:
        """A shared object, from a module in the LLVM dialect."""
        with tempfile.TemporaryDirectory() as folder:
            return self._link(module, Path(folder)).read_bytes()

    def assembly(self, module: ir.Module) -> str:
        """The shared object's disassembly; UserError where no objdump is installed."""
        tool = shutil.which("llvm-objdump") or shutil.which("objdump")
        if tool is None:
            raise UserError("--emit asm for a CPU needs llvm-objdump or objdump: install the package llvm or binutils")
        with tempfile.TemporaryDirectory() as folder:
            command = [tool, "-d", "--no-show-raw-insn", str(self._link(module, Path(folder)))]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _link(self, module: ir.Module, folder: Path) -> Path:
        if self.chip:
            _set_target_cpu(module, self.chip)
        engine = execution_engine.ExecutionEngine(module, opt_level=3, enable_pic=True)
        engine.raw_lookup("lispgpt_run")
        engine.dump_to_object_file(str(folder / "kernels.o"))
        linker = linker_toolkit() / "llvm" / "bin" / "ld.lld"
        command = [str(linker), "-shared", "-o", str(folder / "kernels.so"), str(folder / "kernels.o")]
        linked = subprocess.run(command, capture_output=True, text=True, check=False)
        if linked.returncode:
            raise InternalError(f"the linker failed: {linked.stderr.strip()}")
        return folder / "kernels.so"

    def host(self) -> str:
        return "" if self.chip else host.cpu_signature()


def _cpu(chip: str, vector_bytes: int) -> Cpu:
    return Cpu(chip, vector_bytes, registers=32 if vector_bytes == 64 else 16)


def _set_target_cpu(module: ir.Module, chip: str) -> None:
    for op in module.body.operations:
        if op.operation.name == "llvm.func" and list(op.operation.regions[0].blocks):
            op.operation.attributes["target_cpu"] = ir.StringAttr.get(chip)


CHIPS = {"": _cpu("", host.vector_bytes()), **{chip: _cpu(chip, width) for chip, width in LEVELS.items()}}
"""By LLVM's name of an x86-64 level or core; "" is this machine's own CPU."""

DEFAULT_CHIP = ""
