"""NVIDIA GPUs: gpu → NVVM → PTX, which the driver compiles for the chip it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lispgpt.mlir import create_op, ir
from lispgpt.passes.targets.base import Gpu
from lispgpt.passes.targets.binary import serialized_objects
from lispgpt.passes.targets.matrix import MMA_SYNC

INTRINSICS = {"exp2": "llvm.exp2.f32", "rsqrt": "llvm.nvvm.rsqrt.approx.f", "sqrt": "llvm.sqrt.f32"}


@dataclass(frozen=True)
class Cuda(Gpu):
    kind: ClassVar[str] = "cuda"
    code_name: ClassVar[str] = "kernels.ptx"

    intrinsics: dict[str, str] = field(default_factory=lambda: dict(INTRINSICS))
    ptx: str = "+ptx80"

    def dependency_wait(self) -> None:
        if self.early_launch:
            create_op("nvvm.griddepcontrol", attributes={"kind": ir.Attribute.parse("#nvvm<grid_dep_action wait>")})

    def dependency_release(self) -> None:
        if self.early_launch:
            kind = ir.Attribute.parse("#nvvm<grid_dep_action launch_dependents>")
            create_op("nvvm.griddepcontrol", attributes={"kind": kind})

    def set_cluster(self, kernel: ir.Operation, blocks: int) -> None:
        kernel.attributes["cluster"] = ir.DenseI32ArrayAttr.get([blocks, 1, 1])

    def set_residency(self, kernel: ir.Operation, blocks: int) -> None:
        kernel.attributes["residency"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), blocks)

    def cluster_barrier(self) -> None:
        create_op("nvvm.cluster.arrive")
        create_op("nvvm.cluster.wait")

    def cluster_load(self, shared: ir.Value, index: Any, rank: int) -> ir.Value:
        i64, i32 = (ir.IntegerType.get_signless(n) for n in (64, 32))
        local, remote = (ir.Type.parse(f"!llvm.ptr<{space}>") for space in (3, 7))
        base = create_op("memref.extract_aligned_pointer_as_index", [shared], [ir.IndexType.get()]).results[0]
        four = create_op("arith.constant", [], [ir.IndexType.get()], {"value": _index_attribute(4)}).results[0]
        if isinstance(index, int):
            value = {"value": _index_attribute(index)}
            index = create_op("arith.constant", [], [ir.IndexType.get()], value).results[0]
        offset = create_op("arith.muli", [index, four], [ir.IndexType.get()]).results[0]
        address = create_op("arith.addi", [base, offset], [ir.IndexType.get()]).results[0]
        address = create_op("arith.index_cast", [address], [i64]).results[0]
        pointer = create_op("llvm.inttoptr", [address], [local]).results[0]
        number = create_op("arith.constant", [], [i32], {"value": ir.IntegerAttr.get(i32, rank)}).results[0]
        mapped = create_op("nvvm.mapa", [pointer, number], [remote]).results[0]
        return create_op("llvm.load", [mapped], [ir.F32Type.get()]).results[0]

    def lowering(self) -> str:
        return (
            "builtin.module(gpu.module(convert-nvgpu-to-nvvm,convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true}),"
            f"nvvm-attach-target{{chip={self.chip} features={self.ptx} O=3}})"
        )

    def serialize(self, module: ir.Module) -> bytes:
        """PTX text."""
        return serialized_objects(module, "isa")

    def assembly(self, module: ir.Module) -> str:
        return self.serialize(module).decode()


def _index_attribute(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IndexType.get(), value)


CHIPS = {
    "sm_80": Cuda("sm_80", cores=108, matrix=MMA_SYNC),
    "sm_90": Cuda("sm_90", cores=132, matrix=MMA_SYNC, early_launch=True, cluster=8),
}
