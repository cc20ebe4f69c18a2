"""CPUs: native objects for the host, or for a level such as x86-64-v3."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from lispgpt.base import host, scratch
from lispgpt.base.errors import UserError
from lispgpt.ir.calls import llvm_alias
from lispgpt.ir.mlir import execution_engine, ir, new_context
from lispgpt.ir.structure import operations, symbol_of
from lispgpt.passes.targets.base import Target
from lispgpt.passes.targets.binary import check_lowered, shared_object
from lispgpt.passes.targets.pairs import AMX_BF16, AVX512_BF16, Pairs

FEATURES = ("avx2", "fma", "avx_vnni", "avx512f", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
"""What schedules may ask for, by Linux's names."""


OPTIMISATION = 2
"""LLVM's level.  Kernels come unrolled as far as that pays: level 3, which unrolls more, took a third longer to
compile, and what it made was no faster."""

EXECUTOR = Path(__file__).with_name("cpu_executor.mlir")
ROUNDING, ROUNDS = Path(__file__).with_name("cpu_rounding.mlir"), "__truncsfbf2"
"""What LLVM's code calls on chips that do not round to bf16, and its name."""


@dataclass(frozen=True)
class Cpu(Target):
    """chip: "" for the host, else one of host.FEATURES.  registers: vector registers of vector_bytes each.  cores: that
    blocks of a kernel are made for; code runs on any number.  pairs: its instruction for products of bf16.
    features: what it has of FEATURES.  optimisation: LLVM's level, of its passes alone: instructions are chosen as at
    level 2, but for functions that are to have none (`optimize_none`)."""

    kind: ClassVar[str] = "cpu"
    pipeline: ClassVar[str] = "cpu"
    code_name: ClassVar[str] = "kernels.so"
    in_turns: ClassVar[bool] = True
    subgroup: ClassVar[int] = 1
    max_threads: ClassVar[int] = 1
    dynamic_shared_bytes: ClassVar[int] = 0
    matrix: ClassVar[None] = None

    chip: str = ""
    registers: int = 16
    cores: int = 16
    pairs: Pairs | None = None
    features: frozenset[str] = frozenset()
    optimisation: int = OPTIMISATION

    @property
    def vnni(self) -> bool:
        """Whether it has an instruction that multiplies unsigned bytes by signed ones and adds, at any vector size."""
        return "avx_vnni" in self.features or {"avx512_vnni", "avx512vl"} <= self.features

    @property
    def rounds_to_bf16(self) -> bool:
        """Whether it has an instruction that rounds f32 numbers to bf16, at any vector size."""
        return {"avx512_bf16", "avx512vl"} <= self.features

    def block_capabilities(self) -> dict[str, int]:
        return {
            **super().block_capabilities(),
            "subgroup-size": self.subgroup,
            "vector-bytes": self.vector_bytes,
            "max-threads": self.max_threads,
            "cores": self.cores,
        }

    def describe(self) -> str:
        known = ", ".join(name.replace("_", "-") for name in FEATURES if name in self.features)
        return f"vectors of {self.vector_bytes} bytes, {known or 'none of its special instructions'}"

    def serialize(self, module: ir.Module) -> bytes:
        """A relocatable object, from a module in the LLVM dialect."""
        return _object(module, self.chip, self.optimisation)

    def join_code(self, pieces: Sequence[bytes]) -> bytes:
        """A shared object: the kernels, and what runs lists of launches of them."""
        return shared_object([*pieces, _executor(self.chip, self.optimisation)])

    def prepare(self) -> None:
        """Make what the code of all programs has in common, for this process and its forks."""
        _executor(self.chip, self.optimisation)

    def assembly(self, module: ir.Module) -> str:
        """The shared object's disassembly; UserError where no objdump is installed."""
        return self._disassembly(module)

    def lined_assembly(self, module: ir.Module) -> str:
        return self._disassembly(module, "--line-numbers", "--syms")

    def _disassembly(self, module: ir.Module, *options: str) -> str:
        tool = shutil.which("llvm-objdump") or shutil.which("objdump")
        if tool is None:
            raise UserError("--emit asm for a CPU needs llvm-objdump or objdump: install the package llvm or binutils")
        with scratch.kept_to(), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.code_name
            path.write_bytes(shared_object([self.serialize(module)]))
            command = [tool, "-d", "--no-show-raw-insn", *options, str(path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def quick(self) -> Cpu:
        return replace(self, optimisation=0)

    def host(self) -> str:
        return "" if self.chip else host.cpu_signature()


@dataclass(frozen=True)
class PackingCpu(Cpu):
    """A CPU with instructions for pairs: packing weights for them pays over many rows."""

    prefill_chunks: ClassVar[tuple[int, ...]] = (1, 16, 128, 512)


def _cpu(chip: str, features: Collection[str], cores: int = 16) -> Cpu:
    """A CPU with such features, by Linux's names."""
    width = host.vector_bytes(features)
    pairs = next((p for p in (AMX_BF16, AVX512_BF16) if width == 64 and p.feature in features), None)
    kind = PackingCpu if pairs is not None else Cpu
    known = frozenset(features) & frozenset(FEATURES)
    return kind(chip, width, registers=32 if width == 64 else 16, cores=cores, pairs=pairs, features=known)


def _usable_features() -> frozenset[str]:
    """This machine's, without registers that its system keeps from processes."""
    features = host.cpu_features()
    tiles = AMX_BF16.feature in features and host.may_use_tiles()
    return features if tiles else features - {"amx_bf16", "amx_int8", "amx_tile"}


@ctypes.CFUNCTYPE(None)
def _nothing() -> None:
    """What has an address."""


@cache
def _executor(chip: str, optimisation: int) -> bytes:
    """The relocatable object of the functions with which threads take blocks of launches, and of what LLVM calls."""
    with new_context():
        module = ir.Module.parse(EXECUTOR.read_text(encoding="utf-8"))
        with ir.Location.unknown():
            module.body.append(ir.Operation.parse(ROUNDING.read_text(encoding="utf-8")))
        return _object(module, chip, optimisation)


def _object(module: ir.Module, chip: str, optimisation: int = OPTIMISATION) -> bytes:
    """LLVM's for a chip; "" is this machine's own.

    A function that names a chip and no features would have this machine's beside the chip's: code for x86-64-v3 with
    instructions of AVX-512, and for a chip with more than this machine none at all.  Code is in .text, where debuggers
    look for it: LLVM's code model would have it in .ltext.
    """
    check_lowered(module.operation, "llvm.")
    defined = [op for op in operations(module.body) if op.name == "llvm.func" and list(op.regions[0].blocks)]
    for function in defined:
        if "kernel" in function.attributes:
            name = symbol_of(function)
            raise UserError(f"threads cannot call kernel {name!r}: run wrap-cpu-kernels behind convert-func-to-llvm")
    if not defined:  # of which there would be no object
        with ir.Location.unknown(module.context):
            nothing = ir.Operation.parse("llvm.func @nothing() { llvm.return }")
        module.body.append(nothing)
        defined = [nothing.operation]
    for function in defined if chip else ():
        function.attributes["target_cpu"] = ir.StringAttr.get(chip)
        function.attributes["target_features"] = ir.Attribute.parse('#llvm.target_features<["+sse2"]>')
    for function in defined:
        function.attributes["section"] = ir.StringAttr.get(".text")
    looked_up = _seen_from_outside(module, defined[-1])
    engine = execution_engine.ExecutionEngine(module, opt_level=optimisation, enable_pic=True)
    if all(symbol_of(op) != ROUNDS for op in defined):  # the engine looks for it, and nobody runs what the engine has
        engine.raw_register_runtime(ROUNDS, ctypes.cast(_nothing, ctypes.c_void_p))
    engine.raw_lookup(looked_up)
    with scratch.kept_to(), tempfile.NamedTemporaryFile(suffix=".o") as file:
        engine.dump_to_object_file(file.name)
        return Path(file.name).read_bytes()


def _seen_from_outside(module: ir.Module, function: ir.Operation) -> str:
    """A name by which the engine finds a function: it makes one for each that is no internal one.  Of those the name is
    of one of the module's kernels, as the same function may be in objects that are linked with this one."""
    name, kind = symbol_of(function), ir.TypeAttr(function.attributes["function_type"]).value
    if "internal" in str(function.attributes["linkage"]):
        name = next((symbol_of(op) for op in operations(module.body) if op.name == "llvm.mlir.alias"), name)
        with ir.InsertionPoint(module.body), ir.Location.unknown(module.context):
            llvm_alias(f"_mlir_{name}", symbol_of(function), kind, hidden=True)
    return name


CHIPS = {
    "": _cpu("", _usable_features(), host.cores()),
    **{chip: _cpu(chip, features) for chip, features in host.FEATURES.items()},
}
"""By LLVM's name of an x86-64 level or core; "" is this machine's own CPU."""

DEFAULT_CHIP = ""
