"""Bulk copies of boxes of tensors between global and shared memory, and the barriers that count them.

NVIDIA's cp.async.bulk.tensor: one thread starts a copy of a whole box of what a tensor map describes, which the host
has made, and the box's 128-byte lines arrive swizzled as warpgroup instructions take them.  What lies past a
tensor's end arrives as zeros, and is not stored.  Shared addresses are i32 values.
Source: "Parallel Thread Execution ISA", sections cp.async.bulk.tensor, mbarrier, stmatrix and setmaxnreg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir


@dataclass(frozen=True)
class TensorCopies:
    """line: bytes of a box' innermost dimension.  most: elements of a box along each other one.  rank: of a tensor.
    alignment: of a tensor's start and strides, in bytes.  barrier_bytes: of one barrier."""

    line: int = 128
    most: int = 256
    rank: int = 5
    alignment: int = 16
    barrier_bytes: int = 8

    def number(self, value: Index) -> ir.Value:
        """An index, such as an address in shared memory, as i32."""
        if isinstance(value, int):
            return b.constant(value, b.i32())
        return value if value.type == b.i32() else b.emit("arith.index_cast", [value], [b.i32()])

    def pointer(self, address: Index) -> ir.Value:
        """An address in shared memory for loads and stores."""
        return b.emit("llvm.inttoptr", [self.number(address)], [ir.Type.parse("!llvm.ptr<3>")])

    def make_barrier(self, barrier: Index, arrivals: int) -> None:
        """Whose phases end when so many have arrived and the bytes that they expect are there; by one thread."""
        self._run("mbarrier.init.shared::cta.b64 [$0], $1;", [barrier, arrivals])

    def publish_barriers(self) -> None:
        """Let other blocks of the cluster, and copies, see barriers that this thread has made."""
        self._run("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", [])

    def expect(self, barrier: Index, nbytes: int) -> None:
        """Arrive, and let the phase last until copies have brought that many bytes more."""
        self._run("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", [barrier, nbytes])

    def arrive(self, barrier: Index, rank: Index | None = None) -> None:
        """rank: of the block in the cluster whose barrier it is, at the same address; None: this block's."""
        if rank is None:
            self._run("mbarrier.arrive.shared::cta.b64 _, [$0];", [barrier])
            return
        # Said to release to the cluster, it would cost a full memory barrier.
        text = (
            "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, $0, $1; "
            "mbarrier.arrive.shared::cluster.b64 _, [remote]; }"
        )
        self._run(text, [barrier, rank])

    def wait(self, barrier: Index, parity: Index) -> None:
        """Until the phase of that parity has ended; on a barrier that is new, 1 has."""
        numbers = self.number(barrier), self.number(parity)
        b.repeat([], lambda: (b.emit("arith.trunci", [self.lasts(*numbers, "try_wait")], [b.i1()]), []))

    def lasts(self, barrier: Index, parity: Index, asks: str = "test_wait") -> ir.Value:
        """Whether the phase of that parity has not ended: 1 or 0.  asks: at once, or "try_wait", after some time."""
        text = f"{{ .reg .pred over; mbarrier.{asks}.parity.shared::cta.b64 over, [$1], $2; selp.u32 $0, 0, 1, over; }}"
        operands = [self.number(barrier), self.number(parity)]
        return assembly(text, ["=r", "r", "r", "~{memory}"], operands, [b.i32()])[0]

    def prefetch(self, map_: ir.Value) -> None:
        """Start to bring a map to where copies read it; the first copy would wait for that."""
        assembly("prefetch.tensormap [$0];", ["l", "~{memory}"], [map_], [])

    def load(
        self, map_: ir.Value, at: Sequence[Index], shared: Index, barrier: Index, blocks: Sequence[int] = ()
    ) -> None:
        """Start to bring the box at a place (innermost dimension first).

        blocks: ranks of the cluster's blocks that it is for, at the same address, each with its own barrier; none:
        this one alone.
        """
        places = ", ".join(f"${3 + i}" for i in range(len(at)))
        many = ".multicast::cluster" if blocks else ""
        mask = f", ${3 + len(at)}" if blocks else ""
        text = (
            f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.mbarrier::complete_tx::bytes{many} "
            f"[$0], [$1, {{{places}}}], [$2]{mask};"
        )
        operands = [self.number(shared), map_, self.number(barrier), *map(self.number, at)]
        constraints = ["r", "l", "r"] + ["r"] * len(at)
        if blocks:
            operands.append(b.constant(sum(1 << i for i in blocks), b.integer(16)))
            constraints.append("h")
        assembly(text, [*constraints, "~{memory}"], operands, [])

    def send(self, shared: Index, nbytes: int, barrier: Index, rank: Index) -> None:
        """Start to copy what lies in this block's memory to the same place in that of the cluster's block of a rank,
        whose barrier at that address counts the bytes."""
        text = (
            "{ .reg .b32 there, counts; mapa.shared::cluster.u32 there, $0, $2; "
            "mapa.shared::cluster.u32 counts, $1, $2; "
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
            f"[there], [$0], {nbytes}, [counts]; }}"
        )
        self._run(text, [shared, barrier, rank])

    def fetch(self, map_: ir.Value, at: Sequence[Index]) -> None:
        """Start to bring a box to the cache, for loads of single elements later."""
        places = ", ".join(f"${1 + i}" for i in range(len(at)))
        text = f"cp.async.bulk.prefetch.tensor.{len(at)}d.L2.global.tile [$0, {{{places}}}];"
        assembly(text, ["l", *["r"] * len(at)], [map_, *map(self.number, at)], [])

    def store(self, map_: ir.Value, at: Sequence[Index], shared: Index) -> None:
        """Start to store a box, in a batch of its own that this thread can wait for."""
        places = ", ".join(f"${2 + i}" for i in range(len(at)))
        text = (
            f"cp.async.bulk.tensor.{len(at)}d.global.shared::cta.bulk_group [$0, {{{places}}}], [$1]; "
            "cp.async.bulk.commit_group;"
        )
        operands = [map_, self.number(shared), *map(self.number, at)]
        assembly(text, ["l", "r", *["r"] * len(at), "~{memory}"], operands, [])

    def wait_stored(self, newest: int) -> None:
        """Until this thread's stores but the `newest` batches have read shared memory."""
        self._run(f"cp.async.bulk.wait_group.read {newest};", [])

    def put_matrices(self, address: Index, words: Sequence[ir.Value]) -> None:
        """Store four 8x8 matrices of bf16, two of a row in each lane's word, to the rows whose addresses lanes have."""
        self._run("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", [address, *words])

    def put_pair(self, address: Index, values: Sequence[ir.Value]) -> None:
        """Store two neighbouring f32."""
        operands = [self.number(address), *values]
        assembly("st.shared.v2.f32 [$0], {$1, $2};", ["r", "f", "f", "~{memory}"], operands, [])

    def subgroup_barrier(self) -> None:
        self._run("bar.warp.sync -1;", [])

    def registers(self, count: int, more: bool) -> None:
        """Let each thread of this warpgroup have so many, more or fewer than it started with."""
        self._run(f"setmaxnreg.{'inc' if more else 'dec'}.sync.aligned.u32 {count};", [])

    def _run(self, text: str, operands: Sequence[Index]) -> None:
        assembly(text, ["r"] * len(operands) + ["~{memory}"], list(map(self.number, operands)), [])


TENSOR_COPIES = TensorCopies()


def assembly(
    text: str,
    constraints: Sequence[str],
    operands: Sequence[ir.Value],
    types: Sequence[ir.Type],
    pure: bool = False,
) -> list[ir.Value]:
    """Instructions as text; their results, of these types.

    pure: that may be moved and left out, as it does nothing but to make its results.
    """
    attributes = {"asm_string": text, "constraints": ",".join(constraints)}
    attributes |= {} if pure else {"has_side_effects": ir.UnitAttr.get()}
    if len(types) < 2:
        return list(create_op("llvm.inline_asm", operands, list(types), attributes).results)
    struct = ir.Type.parse(f"!llvm.struct<({', '.join(map(str, types))})>")
    result = create_op("llvm.inline_asm", operands, [struct], attributes).results[0]
    return [b.emit("llvm.extractvalue", [result], [type_], position=[i]) for i, type_ in enumerate(types)]
