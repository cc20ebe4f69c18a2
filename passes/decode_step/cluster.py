"""What threads of a cluster of blocks do with each other's shared memory, and subgroups with their own: PTX of sm_90.

Addresses in shared memory are i32.  Source: "Parallel Thread Execution ISA", sections st.async, mbarrier, mapa,
barrier, ldmatrix, mma, prefetch and createpolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.decode_step.scalars import Word, assembly, word
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES

REMOTE = "st.async.shared::cluster.mbarrier::complete_tx::bytes"


def wait(barrier: Any, parity: Any) -> None:
    """Until the phase of that parity is over."""
    TENSOR_COPIES.wait(word(barrier).value, word(parity).value)


def lasts(barrier: Any, parity: Any) -> Word:
    """Whether the phase of that parity is not over yet: 1 or 0."""
    return Word(TENSOR_COPIES.lasts(word(barrier).value, word(parity).value))


def expect(barrier: Any, nbytes: Any) -> None:
    """Arrive, and let the phase last until so many bytes have come."""
    TENSOR_COPIES.expect(word(barrier).value, word(nbytes).value)


def arrive(barrier: Any, count: int) -> None:
    assembly(f"mbarrier.arrive.shared::cta.b64 _, [$0], {count};", [barrier])


def address_at(address: Any, rank: Any) -> Word:
    """Where an address of this block's lies in the block of a rank."""
    return assembly("mapa.shared::cluster.u32 $0, $1, $2;", [address, rank], "r", pure=True)[0]


def send(address: Word, words: Sequence[Word], barrier: Word) -> None:
    """1, 2 or 4 words to another block's memory, whose barrier counts their bytes."""
    kind = {1: ".b32", 2: ".v2.b32", 4: ".v4.b32"}[len(words)]
    names = ", ".join(f"${i + 1}" for i in range(len(words)))
    names = names if len(words) == 1 else f"{{{names}}}"
    bits = [w.bits() if w.is_real else w for w in words]
    assembly(f"{REMOTE}{kind} [$0], {names}, [${len(words) + 1}];", [address, *bits, barrier])


def load_words(address: Any, count: int) -> list[Word]:
    """1, 2 or 4 words of this block's memory, as i32."""
    kind = {1: "", 2: ".v2", 4: ".v4"}[count]
    names = ", ".join(f"${i}" for i in range(count))
    names = names if count == 1 else f"{{{names}}}"
    return assembly(f"ld.shared{kind}.b32 {names}, [${count}];", [address], "r" * count)


def load_reals(address: Any, count: int) -> list[Word]:
    return [w.bits() for w in load_words(address, count)]


def store_words(address: Any, words: Sequence[Word]) -> None:
    kind = {1: "", 2: ".v2", 4: ".v4"}[len(words)]
    names = ", ".join(f"${i + 1}" for i in range(len(words)))
    names = names if len(words) == 1 else f"{{{names}}}"
    assembly(f"st.shared{kind}.b32 [$0], {names};", [address, *(w.bits() if w.is_real else w for w in words)])


def load_matrices(address: Word) -> list[Word]:
    """Four 8x8 matrices of bf16, from the rows whose addresses lanes have."""
    return assembly("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", [address], "rrrr")


def multiply(a: Sequence[Word], right: Sequence[Word], total: Sequence[Word]) -> list[Word]:
    """One m16n8k16 step by a subgroup."""
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
        "{$10, $11, $12, $13};"
    )
    return assembly(text, [*a, *right, *total], "ffff", memory=False)


def multiply_whole(a: Sequence[Word], right: Sequence[Word], total: Sequence[Word]) -> list[Word]:
    """One m16n8k32 step of whole numbers of 8 bits by a subgroup, whose sums have 32."""
    text = (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
        "{$10, $11, $12, $13};"
    )
    return assembly(text, [*a, *right, *total], "rrrr", memory=False)


def packed(low: Word, high: Word) -> Word:
    """Two reals as bf16 in one word."""
    return assembly("cvt.rn.bf16x2.f32 $0, $1, $2;", [high, low], "r", pure=True)[0]


def unpacked(pair: Word) -> tuple[Word, Word]:
    return (pair << 16).bits(), (pair & -65536).bits()


def split(a: Word, c: Word) -> list[Word]:
    """Two reals as three bf16 parts each, whose sum they are; a word for each part."""
    found = []
    for number in range(3):
        found.append(packed(a, c))
        if number < 2:
            low, up = unpacked(found[-1])
            a, c = a - low, c - up
    return found


def over_lanes(kind: str, number: Word) -> Word:
    """The largest ("max"), the smallest ("min") or the sum ("add") of a subgroup's signed integers."""
    return assembly(f"redux.sync.{kind}.s32 $0, $1, -1;", [number], "r", memory=False)[0]


def wait_at(number: int, threads: int) -> None:
    """Wait at the block's barrier of that number until so many threads have come."""
    assembly(f"barrier.sync {number}, {threads};", [])


def arrive_at(number: int, threads: int) -> None:
    """Come to it and go on."""
    assembly(f"barrier.arrive {number}, {threads};", [])


def fence_copies() -> None:
    """Let what this thread has read or written in shared memory be over before bulk copies that others start once they
    have been published.  An arrival alone may overtake a load that is still on its way: threads would never see that,
    copies write past them."""
    assembly("fence.proxy.async.shared::cta;", [])


def fence_all_copies() -> None:
    """The same, and of global memory that this thread has written."""
    assembly("fence.proxy.async;", [])


def subgroup_barrier() -> None:
    assembly("bar.warp.sync -1;", [])


def load_line(pointer: ir.Value) -> list[Word]:
    """Four words that another block of the launch has written at once, as two i64."""
    text = "{ .reg .b128 t; ld.relaxed.gpu.global.b128 t, [$2]; mov.b128 {$0, $1}, t; }"
    return assembly(text, [pointer], "ll")


def load_halves(pointer: ir.Value) -> list[Word]:
    """Two neighbouring i64, each of which other blocks of the launch write or add to by itself."""
    return assembly("ld.relaxed.gpu.global.v2.b64 {$0, $1}, [$2];", [pointer], "ll")


def words_of(halves: Sequence[Word]) -> list[Word]:
    """The four words of two i64."""
    thirty_two = b.constant(32, b.i64())
    found = []
    for half in halves:
        upper = b.emit("arith.shrui", [half.value, thirty_two], [half.value.type])
        found += [low_of(half), low_of(Word(upper))]
    return found


def store_line(pointer: ir.Value, words: Sequence[Word]) -> None:
    """Four words at once, for other blocks of the launch."""
    halves = [wide(w.bits() if w.is_real else w) for w in words]
    store_halves(pointer, [halves[i] | (halves[i + 1] << 32) for i in (0, 2)])


def store_halves(pointer: ir.Value, halves: Sequence[Word]) -> None:
    """The same of two i64."""
    assembly("{ .reg .b128 t; mov.b128 t, {$1, $2}; st.relaxed.gpu.global.b128 [$0], t; }", [pointer, *halves])


def low_of(half: Word) -> Word:
    """The lower word of an i64."""
    return Word(b.emit("arith.trunci", [half.value], [b.i32()]))


def clock() -> Word:
    """The core's clock, in a word that overflows."""
    return assembly("mov.u32 $0, %clock;", [], "r")[0]


def pause_until(start: Word, clocks: int) -> None:
    """Ask for nothing that others wait for, until so many clocks have gone by since `start`."""
    b.repeat([], lambda: ((clock() - start).is_("u<", clocks).value, []))


def await_lines(pointers: Sequence[ir.Value], lacks: Callable[[list[Word]], Word]) -> list[list[Word]]:
    """Four words each, once lacks(…) of all lines' words is 0."""
    return list(map(words_of, await_halves(pointers, lambda _, halves: lacks(words_of(halves)), load_line)))


def await_halves(
    pointers: Sequence[ir.Value],
    lacks: Callable[[int, list[Word]], Word],
    load_both: Callable[[ir.Value], list[Word]] = load_halves,
) -> list[list[Word]]:
    """The same of two i64 each, and lacks(number of a line, its halves)."""
    count = len(pointers)

    def load() -> tuple[ir.Value, list[ir.Value]]:
        found = [half for pointer in pointers for half in load_both(pointer)]
        wrong = [lacks(i, found[2 * i : 2 * i + 2]) for i in range(count)]
        return (reduce(Word.__or__, wrong) != 0).value, [half.value for half in found]

    found = list(map(Word, b.repeat([b.i64()] * (2 * count), load)))
    return [found[2 * i : 2 * i + 2] for i in range(count)]


def add(pointer: ir.Value, number: Word) -> None:
    """To an i64 that blocks of the launch share."""
    assembly("red.relaxed.gpu.global.add.u64 [$0], $1;", [pointer, number])


def wide(number: Word) -> Word:
    """As i64."""
    return Word(b.emit("arith.extui", [number.value], [b.i64()]))


def pointer(memory: ir.Value, offset: Any) -> ir.Value:
    """A pointer so many bytes, of i32 or i64, into an argument."""
    i64, offset = b.i64(), word(offset)
    start = b.emit("memref.extract_aligned_pointer_as_index", [memory], [ir.IndexType.get()])
    first = b.emit("arith.index_cast", [start], [i64])
    more = offset.value if offset.value.type == i64 else wide(offset).value
    return b.emit("llvm.inttoptr", [b.emit("arith.addi", [first, more], [i64])], [ir.Type.parse("!llvm.ptr<1>")])


def fetch(pointer: ir.Value) -> None:
    """Start to bring the line at a pointer to the cache of all cores, where it stays longer than others."""
    assembly("prefetch.global.L2::evict_last [$0];", [pointer])


def policy(kind: str, share: float = 1.0) -> Word:
    """What a copy says of how long its bytes are wanted in the cache: evict_first or evict_last; where that is so of a
    share of them, the others are evict_first."""
    others = ".L2::evict_first" if share < 1 else ""
    return assembly(f"createpolicy.fractional.L2::{kind}{others}.b64 $0, {share:.4f};", [], "l", pure=True)[0]


def copy_box(map_: ir.Value, at: Sequence[Any], shared: Word, barrier: Word, hint: Word) -> None:
    """Start to bring a tensor map's box; the barrier counts its bytes."""
    places = ", ".join(f"${4 + i}" for i in range(len(at)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        f"[$0], [$1, {{{places}}}], [$2], $3;"
    )
    assembly(text, [shared, map_, barrier, hint, *at])


def copy_bytes(source: ir.Value, nbytes: int, shared: Word, barrier: Word, hint: Word) -> None:
    """Start to bring bytes that lie together, multiples of 16 at such; the barrier counts them."""
    text = (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        f"[$0], [$1], {nbytes}, [$2], $3;"
    )
    assembly(text, [shared, source, barrier, hint])


def cluster_barrier() -> None:
    create_op("nvvm.cluster.arrive")
    create_op("nvvm.cluster.wait")
