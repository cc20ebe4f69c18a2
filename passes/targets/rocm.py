"""AMD GPUs: gpu → ROCDL → a code object (hsaco), linked by whichever LLD is at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lispgpt.ir.mlir import ir
from lispgpt.passes.targets.base import Gpu
from lispgpt.passes.targets.binary import linker_toolkit, serialized_objects
from lispgpt.passes.targets.matrix import MFMA, WMMA_RDNA3, WMMA_RDNA4

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

    shared_bytes: int = 64 * 1024
    intrinsics: dict[str, str] = field(default_factory=lambda: dict(INTRINSICS))

    def lowering(self) -> str:
        waves = "wave64=true" if self.subgroup == 64 else "wave64=false features=+wavefrontsize32"
        return (
            f"builtin.module(gpu.module(convert-amdgpu-to-rocdl{{chipset={self.chip}}},"
            f"convert-gpu-to-rocdl{{chipset={self.chip} use-bare-ptr-memref-call-conv=true "
            f"runtime=HIP}}),rocdl-attach-target{{chip={self.chip} {waves} O=3}})"
        )

    def serialize(self, module: ir.Module) -> bytes:
        """An ELF code object."""
        return serialized_objects(module, "bin", toolkit=linker_toolkit())

    def assembly(self, module: ir.Module) -> str:
        return serialized_objects(module, "isa").decode()


CHIPS = {
    "gfx942": Rocm("gfx942", subgroup=64, cores=304, matrix=MFMA),
    "gfx950": Rocm("gfx950", subgroup=64, cores=256, matrix=MFMA, shared_bytes=160 * 1024),
    "gfx1100": Rocm("gfx1100", cores=96, matrix=WMMA_RDNA3),
    "gfx1151": Rocm("gfx1151", cores=40, matrix=WMMA_RDNA3),
    "gfx1201": Rocm("gfx1201", cores=64, matrix=WMMA_RDNA4),
}
