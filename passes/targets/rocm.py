"""AMD GPUs: gpu → ROCDL → a code object (hsaco), linked by LLD, where it is installed, or by `lispgpt.base.linking`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.targets.base import Gpu
from lispgpt.passes.targets.binary import linker_toolkit, serialized_objects
from lispgpt.passes.targets.matrix import MFMA, WMMA_RDNA3, WMMA_RDNA4
from lispgpt.passes.targets.rates import TERA, Rates

INTRINSICS = {
    "exp2": "llvm.amdgcn.exp2.f32",
    "reciprocal": "llvm.amdgcn.rcp.f32",
    "rsqrt": "llvm.amdgcn.rsq.f32",
    "sqrt": "llvm.sqrt.f32",
}


@dataclass(frozen=True)
class Rocm(Gpu):
    kind: ClassVar[str] = "rocm"
    code_name: ClassVar[str] = "kernels.hsaco"
    object_suffix: ClassVar[str] = ".hsaco"
    attach_pass: ClassVar[str] = "rocdl-attach-target"
    convert_pass: ClassVar[str] = "convert-gpu-to-rocdl"
    device_scope: ClassVar[str] = "agent"
    chooses_masked_words_apart: ClassVar[bool] = True
    register_constraints: ClassVar[tuple[str, str]] = ("v", "s")
    own_options: ClassVar[frozenset[str]] = frozenset(
        ("chip", "features", "chipset", "runtime", "triple", "abi", "wave64", "finite-only", "unsafe-math")
    )

    loop_annotation: ClassVar[str] = "#llvm.loop_annotation<unroll = <disable = true>>"
    """Tile programs say what is on its way while they multiply.  Of loops that it writes out LLVM starts the loads of
    all rounds at once, for which lanes have no registers."""

    makes_room: ClassVar[bool] = False

    shared_bytes: int = 64 * 1024
    registers: int = 192 * 1024
    most_registers: int = 256
    intrinsics: dict[str, str] = field(default_factory=lambda: dict(INTRINSICS))

    def worker_count(self) -> ir.Value:
        """What the driver puts behind a kernel's arguments starts with it ("User Guide for AMDGPU Backend")."""
        where = b.instruction("llvm.amdgcn.implicitarg.ptr", [], ir.Type.parse("!llvm.ptr<4>"))
        return b.emit("arith.index_cast", [b.emit("llvm.load", [where], [b.i32()])], [ir.IndexType.get()])

    def _places(self, word: ir.Value) -> tuple[ir.Value, ir.Value]:
        """As a byte each."""
        upper = b.binary(
            "arith.shrui", b.binary("arith.andi", word, b.constant(0x08080808, b.i32())), b.constant(1, b.i32())
        )
        own = b.binary("arith.andi", word, b.constant(0x07070707, b.i32()))
        return own, b.binary("arith.ori", upper, b.constant(0x03020100, b.i32()))

    def _picked(self, low: ir.Value, high: ir.Value, places: ir.Value) -> ir.Value:
        return b.instruction("llvm.amdgcn.perm", [high, low, places], b.i32())

    def attach_options(self) -> dict[str, Any]:
        return {"wave64": True} if self.subgroup == 64 else {"wave64": False, "features": "+wavefrontsize32"}

    def convert_options(self) -> dict[str, Any]:
        return {"chipset": self.chip}

    def binary_options(self) -> dict[str, Any]:
        return {"toolkit": str(linker_toolkit()), "format": "bin"}

    def lowering(self) -> str:
        waves = "wave64=true" if self.subgroup == 64 else "wave64=false features=+wavefrontsize32"
        return (
            f"builtin.module(gpu.module(convert-amdgpu-to-rocdl{{chipset={self.chip}}},"
            f"convert-gpu-to-rocdl{{chipset={self.chip} use-bare-ptr-memref-call-conv=true "
            f"runtime=HIP}}),rocdl-attach-target{{chip={self.chip} {waves} O=3}})"
        )

    def serialize(self, module: ir.Module) -> bytes:
        """An ELF code object, as long as its header says."""
        return serialized_objects(module, "bin")

    def assembly(self, module: ir.Module) -> str:
        """Of a copy, since making code takes the kernels out of a module."""
        return serialized_objects(module.operation.clone(), "isa").decode()


CHIPS = {
    "gfx942": Rocm(
        "gfx942",
        subgroup=64,
        cores=304,
        matrix=MFMA,
        registers=128 * 1024,
        rates=Rates("MI300X", 5.325 * TERA, 1307.4 * TERA, 163.4 * TERA),
    ),
    "gfx950": Rocm(
        "gfx950",
        subgroup=64,
        cores=256,
        matrix=MFMA,
        shared_bytes=160 * 1024,
        registers=128 * 1024,
        rates=Rates("MI355X", 8.0 * TERA, 2516.6 * TERA, 157.3 * TERA),
    ),
    "gfx1100": Rocm(
        "gfx1100", cores=96, matrix=WMMA_RDNA3, rates=Rates("RX 7900 XTX", 0.96 * TERA, 122.8 * TERA, 61.4 * TERA)
    ),
    "gfx1151": Rocm(
        "gfx1151", cores=40, matrix=WMMA_RDNA3, rates=Rates("Ryzen AI Max+ 395", 0.256 * TERA, 59.4 * TERA, 29.7 * TERA)
    ),
    "gfx1201": Rocm(
        "gfx1201",
        cores=64,
        matrix=WMMA_RDNA4,
        attention_keys=16,
        rates=Rates("RX 9070 XT", 0.64 * TERA, 195 * TERA, 48.7 * TERA),
    ),
}
DEFAULT_CHIP = "gfx1151"
