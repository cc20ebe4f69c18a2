"""NVIDIA GPUs: gpu → NVVM → PTX, which the driver compiles for the chip it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lispgpt.mlir import create_op, ir
from lispgpt.passes.gpu import build as b
from lispgpt.passes.targets.base import Gpu
from lispgpt.passes.targets.binary import serialized_objects
from lispgpt.passes.targets.matrix import MMA_SYNC
from lispgpt.passes.targets.warpgroup import WGMMA

INTRINSICS = {
    "exp2": "llvm.nvvm.ex2.approx.ftz.f",
    "reciprocal": "llvm.nvvm.rcp.approx.ftz.f",
    "rsqrt": "llvm.nvvm.rsqrt.approx.f",
    "sqrt": "llvm.sqrt.f32",
}


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

    def team_barrier(self, team: Any, threads: int) -> None:
        """Named barriers, of which number 0 is the whole block's."""
        number = b.emit("arith.index_cast", [b.as_value(b.add(team, 1))], [b.i32()])
        sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])}
        create_op("nvvm.barrier", [number, b.constant(threads, b.i32())], attributes=sizes)

    def cluster_barrier(self) -> None:
        create_op("nvvm.cluster.arrive")
        create_op("nvvm.cluster.wait")

    def copy_async(
        self, source: ir.Value, source_index: Sequence[Any], shared: ir.Value, shared_index: Sequence[Any], width: int
    ) -> None:
        places = [[b.as_value(i) for i in index] for index in (shared_index, source_index)]
        attributes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(places[0]), 1, len(places[1]), 0]),
            "dstElements": _index_attribute(width),
            "bypassL1": ir.UnitAttr.get(),
        }
        token = ir.Type.parse("!nvgpu.device.async.token")
        create_op("nvgpu.device_async_copy", [shared, *places[0], source, *places[1]], [token], attributes)

    def commit_copies(self) -> None:
        create_op("nvvm.cp.async.commit.group")

    def await_copies(self, newest: int) -> None:
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), newest)
        create_op("nvvm.cp.async.wait.group", attributes={"n": number})
        # Matrix instructions read shared memory through another path than the copies wrote it.
        kind, space = (
            ir.Attribute.parse("#nvvm.proxy_kind<async.shared>"),
            ir.Attribute.parse("#nvvm.shared_space<cta>"),
        )
        create_op("nvvm.fence.proxy", attributes={"kind": kind, "space": space})

    def cluster_load(self, shared: ir.Value, index: Any, rank: int, width: int = 1) -> ir.Value:
        i64, i32 = (ir.IntegerType.get_signless(n) for n in (64, 32))
        local, remote = (ir.Type.parse(f"!llvm.ptr<{space}>") for space in (3, 7))
        base = create_op("memref.extract_aligned_pointer_as_index", [shared], [ir.IndexType.get()]).results[0]
        offset = create_op("arith.muli", [b.as_value(index), b.as_value(4)], [ir.IndexType.get()]).results[0]
        address = create_op("arith.addi", [base, offset], [ir.IndexType.get()]).results[0]
        address = create_op("arith.index_cast", [address], [i64]).results[0]
        pointer = create_op("llvm.inttoptr", [address], [local]).results[0]
        number = create_op("arith.constant", [], [i32], {"value": ir.IntegerAttr.get(i32, rank)}).results[0]
        mapped = create_op("nvvm.mapa", [pointer, number], [remote]).results[0]
        loaded = ir.F32Type.get() if width == 1 else ir.VectorType.get([width], ir.F32Type.get())
        alignment = {"alignment": ir.IntegerAttr.get(i64, 4 * width)}
        return create_op("llvm.load", [mapped], [loaded], alignment).results[0]

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
    "sm_90": Cuda("sm_90", cores=132, matrix=MMA_SYNC, early_launch=True, cluster=8, cluster_cores=120),
    "sm_90a": Cuda(
        "sm_90a",
        cores=132,
        matrix=MMA_SYNC,
        warpgroup=WGMMA,
        dynamic_shared_bytes=227 * 1024,
        early_launch=True,
        cluster=8,
        cluster_cores=120,
    ),
}
