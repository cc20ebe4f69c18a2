"""NVIDIA GPUs: gpu → NVVM → PTX, which the driver compiles for the chip it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lispgpt.mlir import create_op, ir
from lispgpt.passes.targets.base import Gpu, MatrixShape
from lispgpt.passes.targets.binary import serialized_objects

INTRINSICS = {"exp2": "llvm.exp2.f32", "rsqrt": "llvm.nvvm.rsqrt.approx.f", "sqrt": "llvm.sqrt.f32"}
MMA = (MatrixShape(16, 8, 16, "bf16", "f32"), MatrixShape(16, 8, 8, "tf32", "f32"))


@dataclass(frozen=True)
class Cuda(Gpu):
    kind: ClassVar[str] = "cuda"

    intrinsics: dict[str, str] = field(default_factory=lambda: dict(INTRINSICS))
    ptx: str = "+ptx80"

    def dependency_wait(self) -> None:
        if self.early_launch:
            create_op("nvvm.griddepcontrol", attributes={"kind": ir.Attribute.parse("#nvvm<grid_dep_action wait>")})

    def dependency_release(self) -> None:
        if self.early_launch:
            kind = ir.Attribute.parse("#nvvm<grid_dep_action launch_dependents>")
            create_op("nvvm.griddepcontrol", attributes={"kind": kind})

    def lowering(self) -> str:
        return (
            "builtin.module(gpu.module(convert-scf-to-cf,expand-strided-metadata,lower-affine,"
            "convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true},convert-vector-to-llvm,convert-arith-to-llvm,"
            f"reconcile-unrealized-casts),nvvm-attach-target{{chip={self.chip} features={self.ptx} O=3}})"
        )

    def serialize(self, module: ir.Module) -> bytes:
        """PTX text."""
        return serialized_objects(module, "isa")


CHIPS = {
    "sm_80": Cuda("sm_80", cores=108, matrix=MMA),
    "sm_90": Cuda("sm_90", cores=132, matrix=MMA, early_launch=True, cluster=8),
}
