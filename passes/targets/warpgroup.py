"""Warpgroup matrix instructions: D[m, n] += A[m, k] · B[n, k] by four subgroups together, bf16 in, f32 out.

A comes from registers or from shared memory, B from there, in lines of 128 bytes along k; or transposed, along m or n,
with 64 of those for 64 elements of k of the first line's length of m or n, then as many for the next.  The sum stays in
registers while the instruction runs on its own: fence() before the first of a batch, commit() after its last, wait()
before the sum or A's registers are touched. Who holds what, and how B lies in shared memory: "Parallel Thread Execution
ISA", section wgmma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.targets.tensor_copies import assembly

SWIZZLE_128 = 1 << 62
GROUP_STRIDE = (1024 >> 4) << 32
"""In a descriptor: bytes / 16 between groups of eight lines of shared memory."""

LEADING, TRANSPOSED_LEADING = 1 << 16, (8192 >> 4) << 16
"""In a descriptor: bytes / 16 between lines' lengths of an operand that is longer than a line; 1: none is."""


@dataclass(frozen=True)
class WarpgroupUnit:
    """Hopper's wgmma.m64nNk16, for any N that is a multiple of `columns` up to `most_columns`.

    threads: of a warpgroup.  rows: of D.  block: elements of k of one instruction.  inner: elements of k in a row of B
    in shared memory, 128 bytes.  multiply_adds: of a core in a clock cycle.
    row_words: of A that a thread has in registers.
    """

    threads: int = 128
    rows: int = 64
    columns: int = 8
    most_columns: int = 256
    block: int = 16
    inner: int = 64
    multiply_adds: int = 2048
    row_words: int = 4

    def lane_places(self, thread: Index) -> tuple[Index, Index]:
        """(row, pair): a thread holds rows `row` and `row + 8` of A and D, and of eight columns two from 2·pair."""
        lane = b.mod(thread, 32)
        return b.add(b.mul(b.div(thread, 32), 16), b.div(lane, 4)), b.mod(lane, 4)

    def descriptor(self, memory: ir.Value, offset: Index, transposed: bool = False) -> ir.Value:
        """Of an operand's lines from a byte offset in swizzled shared memory, whose base is a multiple of 1024."""
        return self.descriptor_at(b.add(b.address_of(memory), offset), transposed)

    def descriptor_at(self, address: Index, transposed: bool = False) -> ir.Value:
        """The same from the address of the first line, an index."""
        i64 = b.i64()
        address = b.emit("arith.index_cast", [address], [i64])
        short = b.emit("arith.andi", [address, b.constant(0x3FFFF, i64)], [i64])
        short = b.emit("arith.shrui", [short, b.constant(4, i64)], [i64])
        layout = SWIZZLE_128 | GROUP_STRIDE | (TRANSPOSED_LEADING if transposed else LEADING)
        return b.emit("arith.ori", [short, b.constant(layout, i64)], [i64])

    def lower_word(self, address: Index, length: int = 0) -> ir.Value:
        """What changes in descriptors from one line of shared memory to another, an i32: a 16th of the address.
        length: bytes from one line's length of m or n to the next, of what is transposed and longer than one."""
        i32 = b.i32()
        number = b.emit("arith.index_cast", [b.as_value(address)], [i32])
        short = b.emit("arith.shrui", [number, b.constant(4, i32)], [i32])
        return b.emit("arith.ori", [short, b.constant((length >> 4) << 16 or LEADING, i32)], [i32])

    def with_lower(self, word: ir.Value, further: int) -> ir.Value:
        """The descriptor with a lower word that is `further` bytes on."""
        i64 = b.i64()
        later = b.emit("arith.addi", [word, b.constant(further // 16, b.i32())], [b.i32()])
        wide = b.emit("arith.extui", [later], [i64])
        return b.emit("arith.ori", [wide, b.constant(SWIZZLE_128 | GROUP_STRIDE, i64)], [i64])

    def advanced(self, descriptor: ir.Value, block: int, transposed: bool = False) -> ir.Value:
        """The descriptor of the block-th `block` of k: in the same lines, or if transposed in as many further ones."""
        i64 = descriptor.type
        step = self.inner * 2 if transposed else 2
        return b.emit("arith.addi", [descriptor, b.constant(block * self.block * step // 16, i64)], [i64])

    def further(self, descriptor: ir.Value, nbytes: int) -> ir.Value:
        """The descriptor of lines so many bytes on."""
        if not nbytes:
            return descriptor
        return b.emit("arith.addi", [descriptor, b.constant(nbytes // 16, descriptor.type)], [descriptor.type])

    def publish(self) -> None:
        """Let instructions, which read shared memory another way, see what this thread has stored or copied there."""
        kind = ir.Attribute.parse("#nvvm.proxy_kind<async.shared>")
        space = ir.Attribute.parse("#nvvm.shared_space<cta>")
        create_op("nvvm.fence.proxy", attributes={"kind": kind, "space": space})

    def fence(self) -> None:
        create_op("nvvm.wgmma.fence.aligned")

    def commit(self) -> None:
        create_op("nvvm.wgmma.commit.group.sync.aligned")

    def wait(self, newest: int) -> None:
        """Until every instruction of this warpgroup is done but those of the `newest` batches."""
        create_op("nvvm.wgmma.wait.group.sync.aligned", attributes={"group": newest})

    def split(self, pair: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Two f32 as two i32 of two bf16 each that add up to them: their upper halves, and the rest, rounded."""
        i32s = ir.VectorType.get([2], b.i32())
        bits = b.emit("vector.bitcast", [pair], [i32s])
        upper = b.emit("arith.andi", [bits, b.constant(-65536, i32s)], [i32s])
        rest = b.binary("arith.subf", pair, b.emit("vector.bitcast", [upper], [pair.type]))
        halves = [b.lane_of(bits, 0), b.lane_of(bits, 1), b.constant(0x7632, b.i32())]
        high = b.intrinsic("llvm.nvvm.prmt", halves, b.i32())
        return high, self.rounded(rest)

    def rounded(self, pair: ir.Value) -> ir.Value:
        """Two f32 as an i32 of two bf16."""
        short = b.emit("arith.truncf", [pair], [ir.VectorType.get([2], ir.BF16Type.get())])
        return b.lane_of(b.emit("vector.bitcast", [short], [ir.VectorType.get([1], b.i32())]), 0)

    def ready(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """fence() for these f32 and i32 registers, which are thus written before it."""
        return self._assembly("wgmma.fence.sync.aligned;", list(values))

    def done(self, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """wait(0) for sums, which are thus not taken before it."""
        return self._assembly("wgmma.wait_group.sync.aligned 0;", list(sums))

    def multiply(
        self,
        left: Sequence[ir.Value],
        right: ir.Value,
        sums: Sequence[ir.Value],
        transposed: bool = False,
        left_transposed: bool = False,
    ) -> list[ir.Value]:
        """left: four i32 of two bf16 each, or a descriptor of A.  right: a descriptor.  sums: this thread's N / 2
        elements of D, in f32.

        transposed: B lies so in shared memory; left_transposed: A does.
        """
        return self._multiply(left, right, len(sums), sums, (left_transposed, transposed))

    def start(self, left: Sequence[ir.Value], right: ir.Value, count: int) -> list[ir.Value]:
        """The same for `count` sums that start at zero."""
        return self._multiply(left, right, count, [], (False, False))

    def multiply_if(
        self,
        left: Sequence[ir.Value],
        right: ir.Value,
        sums: Sequence[ir.Value],
        transposed: tuple[bool, bool],
        adds: ir.Value,
    ) -> list[ir.Value]:
        """transposed: of A, where it is in shared memory, and of B.  adds: an i32; where it is 0 the sums start at
        zero, whatever they were."""
        return self._multiply(left, right, len(sums), sums, transposed, adds)

    def _multiply(
        self,
        left: Sequence[ir.Value],
        right: ir.Value,
        count: int,
        sums: Sequence[ir.Value],
        transposed: tuple[bool, bool],
        adds: ir.Value | None = None,
    ) -> list[ir.Value]:
        """$0 and on are `count` sums, then those that were there, A, B's descriptor, and what says if they count."""
        shared, at = len(left) == 1, count + len(sums)
        names, words = (", ".join(f"${first + i}" for i in range(n)) for first, n in ((0, count), (at, len(left))))
        flags = f"{int(transposed[0])}, {int(transposed[1])}" if shared else f"{int(transposed[1])}"
        right_at = at + len(left)
        kept, says = "accumulate", f"{'eq' if sums else 'ne'}.u32 accumulate, 0, 0"
        if adds is not None:
            kept, says = "adds", f"ne.b32 adds, ${right_at + 1}, 0"
        text = (
            f"{{ .reg .pred {kept}; setp.{says}; "
            f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.bf16.bf16 {{{names}}}, "
            f"{words if shared else f'{{{words}}}'}, ${right_at}, {kept}, 1, 1, {flags}; }}"
        )
        constraints = ["=f"] * count + [str(i) for i in range(len(sums))] + (["l"] if shared else ["r"] * 4) + ["l"]
        more = [] if adds is None else [adds]
        return assembly(text, constraints + ["r"] * len(more), [*sums, *left, right, *more], [b.f32()] * count)

    def _assembly(self, text: str, changed: list[ir.Value]) -> list[ir.Value]:
        """An instruction that waits, as if it changed these f32 and i32 registers."""
        outputs = ["=r" if value.type == b.i32() else "=f" for value in changed]
        return assembly(text, outputs + [str(i) for i in range(len(changed))], changed, [v.type for v in changed])


WGMMA = WarpgroupUnit()
