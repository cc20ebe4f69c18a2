"""NVIDIA GPUs: gpu → NVVM → PTX, which the driver, or ptxas where there is one, compiles for a chip."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.targets.async_copies import ASYNC_COPIES, AsyncCopies
from lispgpt.passes.targets.base import Gpu
from lispgpt.passes.targets.binary import cubin, find_ptxas, serialized_objects
from lispgpt.passes.targets.matrix import MMA_SYNC
from lispgpt.passes.targets.ptx_text import lines_alone, negations_kept
from lispgpt.passes.targets.rates import TERA, Rates
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES, assembly
from lispgpt.passes.targets.warpgroup import WGMMA

INTRINSICS = {
    "exp2": "llvm.nvvm.ex2.approx.ftz.f",
    "reciprocal": "llvm.nvvm.rcp.approx.ftz.f",
    "rsqrt": "llvm.nvvm.rsqrt.approx.f",
    "sqrt": "llvm.sqrt.f32",
}

ACQUIRE_RELEASE = 6
"""LLVM's number of the ordering."""


@dataclass(frozen=True)
class Cuda(Gpu):
    kind: ClassVar[str] = "cuda"
    code_name: ClassVar[str] = "kernels.ptx"
    object_suffix: ClassVar[str] = ".ptx"
    object_is_text: ClassVar[bool] = True
    device_scope: ClassVar[str] = "device"
    line_tables: ClassVar[str] = "DebugDirectivesOnly"
    attach_pass: ClassVar[str] = "nvvm-attach-target"
    convert_pass: ClassVar[str] = "convert-gpu-to-nvvm"
    own_options: ClassVar[frozenset[str]] = frozenset(
        ("chip", "features", "triple", "ftz", "fast", "ptxas-cmd-options", "has-redux")
    )

    adds_bytes: ClassVar[bool] = True
    adds_short_pairs: ClassVar[bool] = True

    intrinsics: dict[str, str] = field(default_factory=lambda: dict(INTRINSICS))
    ptx: str = "+ptx80"
    async_copies: AsyncCopies | None = ASYNC_COPIES

    def dependency_wait(self) -> None:
        if not self.early_launch:
            super().dependency_wait()
            return
        create_op("nvvm.griddepcontrol", attributes={"kind": ir.Attribute.parse("#nvvm<grid_dep_action wait>")})

    def dependency_release(self) -> None:
        if self.early_launch:
            kind = ir.Attribute.parse("#nvvm<grid_dep_action launch_dependents>")
            create_op("nvvm.griddepcontrol", attributes={"kind": kind})

    def set_cluster(self, kernel: ir.Operation, blocks: int) -> None:
        kernel.attributes["cluster"] = ir.DenseI32ArrayAttr.get([blocks, 1, 1])

    def lane_registers(self, threads: int, blocks: int) -> int:
        return super().lane_registers(threads * blocks, blocks)

    def set_residency(self, kernel: ir.Operation, blocks: int) -> None:
        kernel.attributes["residency"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), blocks)

    def rough_tanh(self, x: ir.Value) -> ir.Value | None:
        """tanh.approx, which is within 2^-11 of it, of an f32 or each of several."""
        if b.width_of(x) > 1:
            return b.vector_of([self._rough_tanh(b.lane_of(x, i)) for i in range(b.width_of(x))])
        return self._rough_tanh(x)

    def _rough_tanh(self, x: ir.Value) -> ir.Value:
        return assembly("tanh.approx.f32 $0, $1;", ["=f", "f"], [x], [x.type], pure=True)[0]

    def add_bytes(self, a: ir.Value, other: ir.Value, total: ir.Value) -> ir.Value:
        return b.instruction("llvm.nvvm.idp4a.s.s", [a, other, total], b.i32())

    def add_short_pair(self, a: ir.Value, other: ir.Value) -> ir.Value:
        return b.instruction("llvm.nvvm.fma.rn.bf16x2", [a, b.constant(1.0, a.type), other], a.type)

    def widened_e4m3(self, words: ir.Value) -> ir.Value:
        halves = b.emit("vector.bitcast", [words], [ir.VectorType.get([2 * b.width_of(words)], b.integer(16))])
        pair = b.with_width(ir.F16Type.get(), 2)
        lanes = [b.lane_of(halves, i) for i in range(b.width_of(halves))]
        return b.joined([b.instruction("llvm.nvvm.e4m3x2.to.f16x2.rn", [lane], pair) for lane in lanes])

    def _places(self, word: ir.Value) -> tuple[ir.Value, ir.Value]:
        """As four bits each."""
        pairs = b.binary("arith.ori", word, b.binary("arith.shrui", word, b.constant(4, word.type)))
        both = self._picked(pairs, b.constant(0, b.i32()), b.constant(0x4420, b.i32()))
        upper = b.binary(
            "arith.shrui", b.binary("arith.andi", both, b.constant(0x8888, b.i32())), b.constant(1, b.i32())
        )
        own = b.binary("arith.andi", both, b.constant(0x7777, b.i32()))
        return own, b.binary("arith.ori", upper, b.constant(0x3210, b.i32()))

    def _picked(self, low: ir.Value, high: ir.Value, places: ir.Value) -> ir.Value:
        return b.instruction("llvm.nvvm.prmt", [low, high, places], b.i32())

    def loads_started(self) -> None:
        """A fence: NVIDIA's assembler moves loads past barriers and towards their uses, but not past those."""
        create_op("llvm.fence", attributes={"ordering": ACQUIRE_RELEASE, "syncscope": "block"})

    def team_barrier(self, threads: int) -> None:
        """A named barrier: number 0 is the whole block's."""
        sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])}
        create_op("nvvm.barrier", [b.constant(1, b.i32()), b.constant(threads, b.i32())], attributes=sizes)

    def cluster_barrier(self) -> None:
        create_op("nvvm.cluster.arrive")
        create_op("nvvm.cluster.wait")

    def cluster_leave(self) -> None:
        create_op("nvvm.cluster.arrive.relaxed")
        create_op("nvvm.cluster.wait")

    def cluster_load(self, shared: ir.Value, index: Any, rank: Any, width: int = 1) -> ir.Value:
        pointer = b.pointer(b.add(b.address_of(shared), b.mul(index, 4)), 3)
        number = b.emit("arith.index_cast", [b.as_value(rank)], [b.i32()])
        mapped = b.emit("nvvm.mapa", [pointer, number], [ir.Type.parse("!llvm.ptr<7>")])
        type_ = b.with_width(b.f32(), width)
        return b.emit("llvm.load", [mapped], [type_], alignment=4 * width)

    def attach_options(self) -> dict[str, Any]:
        return {"features": "+ptx80"}

    def binary_options(self) -> dict[str, Any]:
        return {"format": "isa"}

    def lowering(self) -> str:
        return (
            "builtin.module(gpu.module(convert-nvgpu-to-nvvm,convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true}),"
            f"nvvm-attach-target{{chip={self.chip} features={self.ptx} O=3}})"
        )

    def serialize(self, module: ir.Module) -> bytes:
        """PTX text, a module from its `.version` on."""
        return negations_kept(lines_alone(serialized_objects(module, "isa").decode())).encode()

    def assembled(self, code: bytes) -> bytes | None:
        """A cubin."""
        ptxas = find_ptxas()
        return None if ptxas is None else cubin(ptxas, code, self.chip)

    def assembly(self, module: ir.Module) -> str:
        return self.serialize(module).decode()


PORTABLE_SHARED_BYTES = 99 * 1024
"""What a block can have on every chip from sm_80 on: sm_86, sm_89 and sm_120, which run the same PTX, allow no more.

Source: "CUDA C++ Programming Guide", technical specifications per compute capability.
"""

HOPPER_LAUNCH = 1.4e-6
"""Seconds, on an H200 that decodes GPT-2 124M, whose bytes take 67 us: 65 early launches take 159 us."""

HOPPER_CLUSTERS = 2.6e-6
"""Seconds from one exchange among clusters to the next, with what is done between them (see one_sequence.py)."""

HOPPER_REST = 200
"""Nanoseconds of sleep, which may last twice as long, where units sleep after 590 without an instruction."""

H200 = Rates("H200 SXM", 4.8 * TERA, 989.4 * TERA, 66.9 * TERA)

HOPPER = Cuda(
    "sm_90",
    cores=132,
    matrix=MMA_SYNC,
    dynamic_shared_bytes=PORTABLE_SHARED_BYTES,
    early_launch=True,
    widens_e4m3=True,
    cluster=8,
    cluster_cores=120,
    launch_seconds=HOPPER_LAUNCH,
    rates=H200,
)

CHIPS = {
    "sm_80": Cuda(
        "sm_80",
        cores=108,
        matrix=MMA_SYNC,
        dynamic_shared_bytes=PORTABLE_SHARED_BYTES,
        rates=Rates("A100 80GB SXM", 2.039 * TERA, 312 * TERA, 19.5 * TERA),
    ),
    "sm_90": HOPPER,
    "sm_90a": replace(
        HOPPER,
        chip="sm_90a",
        warpgroup=WGMMA,
        copies=TENSOR_COPIES,
        ptx="+ptx84",
        dynamic_shared_bytes=227 * 1024,
        l2_bytes=50 << 20,
        cluster_seconds=HOPPER_CLUSTERS,
        matrix_rest=HOPPER_REST,
    ),
}
DEFAULT_CHIP = "sm_90"


def portable(chip: str) -> str | None:
    """The latest chip here whose PTX runs on another: that of the same number or below, and of no chip alone."""
    number = re.fullmatch(r"sm_(\d+)[af]?", chip)
    known = [name for name in CHIPS if name[-1].isdigit() and number and int(name[3:]) <= int(number.group(1))]
    return max(known, key=lambda name: int(name[3:]), default=None)
