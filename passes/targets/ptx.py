"""PTX of sm_90 for kernels that are written out thread by thread (lispgpt.ir.threads): what a cluster's blocks do with
each other's shared memory, subgroups with their own, and lanes with a word's bytes.

Addresses in shared memory are i32.  Source: "Parallel Thread Execution ISA", sections st.async, mbarrier, mapa,
barrier, ldmatrix, mma, cvt, prmt, lop3, prefetch and createpolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.threads import word
from lispgpt.passes.targets import tensor_copies
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES

REMOTE = "st.async.shared::cluster.mbarrier::complete_tx::bytes"


def assembly(
    text: str,
    operands: Sequence[Any],
    results: str = "",
    inputs: str | None = None,
    memory: bool = True,
    pure: bool = False,
) -> list[Number]:
    """Instructions as text.  results, inputs: letters of constraints, one for each (r, f, l, h); results' types follow.

    memory: whether it may read or write any.
    """
    values = [o.value if isinstance(o, Number) else word(o).value if isinstance(o, int) else o for o in operands]
    kinds = {"r": b.i32(), "f": b.f32(), "l": b.i64()}
    types = [kinds[r] for r in results]
    letters = list(inputs) if inputs is not None else [_letter(v.type) for v in values]
    constraints = [f"={r}" for r in results] + letters + (["~{memory}"] if memory and not pure else [])
    return list(map(Number, tensor_copies.assembly(text, constraints, values, types, pure)))


def _letter(type_: ir.Type) -> str:
    if isinstance(type_, ir.F32Type):
        return "f"
    if isinstance(type_, ir.IntegerType):
        return {16: "h", 32: "r", 64: "l"}[type_.width]
    return "l"


def wait(barrier: Any, parity: Any) -> None:
    """Until the phase of that parity is over."""
    TENSOR_COPIES.wait(word(barrier).value, word(parity).value)


def lasts(barrier: Any, parity: Any) -> Number:
    """Whether the phase of that parity is not over yet: 1 or 0."""
    return Number(TENSOR_COPIES.lasts(word(barrier).value, word(parity).value))


def expect(barrier: Any, nbytes: Any) -> None:
    """Arrive, and let the phase last until so many bytes have come."""
    TENSOR_COPIES.expect(word(barrier).value, word(nbytes).value)


def arrive(barrier: Any, count: int) -> None:
    assembly(f"mbarrier.arrive.shared::cta.b64 _, [$0], {count};", [barrier])


def address_at(address: Any, rank: Any) -> Number:
    """Where an address of this block's lies in the block of a rank."""
    return assembly("mapa.shared::cluster.u32 $0, $1, $2;", [address, rank], "r", pure=True)[0]


def send(address: Number, words: Sequence[Number], barrier: Number) -> None:
    """1, 2 or 4 words to another block's memory, whose barrier counts their bytes."""
    kind = {1: ".b32", 2: ".v2.b32", 4: ".v4.b32"}[len(words)]
    names = ", ".join(f"${i + 1}" for i in range(len(words)))
    names = names if len(words) == 1 else f"{{{names}}}"
    bits = [w.bits() if w.is_real else w for w in words]
    assembly(f"{REMOTE}{kind} [$0], {names}, [${len(words) + 1}];", [address, *bits, barrier])


def load_words(address: Any, count: int) -> list[Number]:
    """1, 2 or 4 words of this block's memory, as i32."""
    kind = {1: "", 2: ".v2", 4: ".v4"}[count]
    names = ", ".join(f"${i}" for i in range(count))
    names = names if count == 1 else f"{{{names}}}"
    return assembly(f"ld.shared{kind}.b32 {names}, [${count}];", [address], "r" * count)


def load_reals(address: Any, count: int) -> list[Number]:
    return [w.bits() for w in load_words(address, count)]


def store_words(address: Any, words: Sequence[Number]) -> None:
    kind = {1: "", 2: ".v2", 4: ".v4"}[len(words)]
    names = ", ".join(f"${i + 1}" for i in range(len(words)))
    names = names if len(words) == 1 else f"{{{names}}}"
    assembly(f"st.shared{kind}.b32 [$0], {names};", [address, *(w.bits() if w.is_real else w for w in words)])


def load_matrices(address: Number) -> list[Number]:
    """Four 8x8 matrices of bf16, from the rows whose addresses lanes have."""
    return assembly("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", [address], "rrrr")


def multiply(a: Sequence[Number], right: Sequence[Number], total: Sequence[Number]) -> list[Number]:
    """One m16n8k16 step by a subgroup."""
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
        "{$10, $11, $12, $13};"
    )
    return assembly(text, [*a, *right, *total], "ffff", memory=False)


def multiply_whole(a: Sequence[Number], right: Sequence[Number], total: Sequence[Number]) -> list[Number]:
    """One m16n8k32 step of whole numbers of 8 bits by a subgroup, whose sums have 32."""
    text = (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
        "{$10, $11, $12, $13};"
    )
    return assembly(text, [*a, *right, *total], "rrrr", memory=False)


def packed(low: Number, high: Number) -> Number:
    """Two reals as bf16 in one word."""
    return assembly("cvt.rn.bf16x2.f32 $0, $1, $2;", [high, low], "r", pure=True)[0]


def unpacked(pair: Number) -> tuple[Number, Number]:
    return (pair << 16).bits(), (pair & -65536).bits()


def split(a: Number, c: Number) -> list[Number]:
    """Two reals as three bf16 parts each, whose sum they are; a word for each part."""
    found = []
    for number in range(3):
        found.append(packed(a, c))
        if number < 2:
            low, up = unpacked(found[-1])
            a, c = a - low, c - up
    return found


def over_lanes(kind: str, number: Number) -> Number:
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


def load_line(pointer: ir.Value) -> list[Number]:
    """Four words that another block of the launch has written at once, as two i64."""
    text = "{ .reg .b128 t; ld.relaxed.gpu.global.b128 t, [$2]; mov.b128 {$0, $1}, t; }"
    return assembly(text, [pointer], "ll")


def load_halves(pointer: ir.Value) -> list[Number]:
    """Two neighbouring i64, each of which other blocks of the launch write or add to by itself."""
    return assembly("ld.relaxed.gpu.global.v2.b64 {$0, $1}, [$2];", [pointer], "ll")


def words_of(halves: Sequence[Number]) -> list[Number]:
    """The four words of two i64."""
    thirty_two = b.constant(32, b.i64())
    found = []
    for half in halves:
        upper = b.emit("arith.shrui", [half.value, thirty_two], [half.value.type])
        found += [low_of(half), low_of(Number(upper))]
    return found


def store_line(pointer: ir.Value, words: Sequence[Number]) -> None:
    """Four words at once, for other blocks of the launch."""
    halves = [wide(w.bits() if w.is_real else w) for w in words]
    store_halves(pointer, [halves[i] | (halves[i + 1] << 32) for i in (0, 2)])


def store_halves(pointer: ir.Value, halves: Sequence[Number]) -> None:
    """The same of two i64."""
    assembly("{ .reg .b128 t; mov.b128 t, {$1, $2}; st.relaxed.gpu.global.b128 [$0], t; }", [pointer, *halves])


def low_of(half: Number) -> Number:
    """The lower word of an i64."""
    return Number(b.emit("arith.trunci", [half.value], [b.i32()]))


def clock() -> Number:
    """The core's clock, in a word that overflows."""
    return assembly("mov.u32 $0, %clock;", [], "r")[0]


def pause_until(start: Number, clocks: int) -> None:
    """Ask for nothing that others wait for, until so many clocks have gone by since `start`."""
    b.repeat([], lambda: ((clock() - start).is_("u<", clocks).value, []))


def await_lines(pointers: Sequence[ir.Value], lacks: Callable[[list[Number]], Number]) -> list[list[Number]]:
    """Four words each, once lacks(…) of all lines' words is 0."""
    return list(map(words_of, await_halves(pointers, lambda _, halves: lacks(words_of(halves)), load_line)))


def await_halves(
    pointers: Sequence[ir.Value],
    lacks: Callable[[int, list[Number]], Number],
    load_both: Callable[[ir.Value], list[Number]] = load_halves,
) -> list[list[Number]]:
    """The same of two i64 each, and lacks(number of a line, its halves)."""
    count = len(pointers)

    def load() -> tuple[ir.Value, list[ir.Value]]:
        found = [half for pointer in pointers for half in load_both(pointer)]
        wrong = [lacks(i, found[2 * i : 2 * i + 2]) for i in range(count)]
        return (reduce(Number.__or__, wrong) != 0).value, [half.value for half in found]

    found = list(map(Number, b.repeat([b.i64()] * (2 * count), load)))
    return [found[2 * i : 2 * i + 2] for i in range(count)]


def add(pointer: ir.Value, number: Number) -> None:
    """To an i64 that blocks of the launch share."""
    assembly("red.relaxed.gpu.global.add.u64 [$0], $1;", [pointer, number])


def wide(number: Number) -> Number:
    """As i64."""
    return Number(b.emit("arith.extui", [number.value], [b.i64()]))


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


def policy(kind: str, share: float = 1.0) -> Number:
    """What a copy says of how long its bytes are wanted in the cache: evict_first or evict_last; where that is so of a
    share of them, the others are evict_first."""
    others = ".L2::evict_first" if share < 1 else ""
    return assembly(f"createpolicy.fractional.L2::{kind}{others}.b64 $0, {share:.4f};", [], "l", pure=True)[0]


def copy_box(map_: ir.Value, at: Sequence[Any], shared: Number, barrier: Number, hint: Number) -> None:
    """Start to bring a tensor map's box; the barrier counts its bytes."""
    places = ", ".join(f"${4 + i}" for i in range(len(at)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        f"[$0], [$1, {{{places}}}], [$2], $3;"
    )
    assembly(text, [shared, map_, barrier, hint, *at])


def copy_bytes(source: ir.Value, nbytes: int, shared: Number, barrier: Number, hint: Number) -> None:
    """Start to bring bytes that lie together, multiples of 16 at such; the barrier counts them."""
    text = (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        f"[$0], [$1], {nbytes}, [$2], $3;"
    )
    assembly(text, [shared, source, barrier, hint])


def cluster_barrier() -> None:
    create_op("nvvm.cluster.arrive")
    create_op("nvvm.cluster.wait")


def opaque(number: Number) -> Number:
    """The same word, which the compiler takes for another: what is made of it stays where it stands."""
    return assembly("mov.b32 $0, $1;", [number], "r")[0]


def rounded(real: Number, bits: int) -> Number:
    """A real as a whole number of 32 or 64 bits, the nearest one, the even one of two."""
    return assembly(f"cvt.rni.s{bits}.f32 $0, $1;", [real], {32: "r", 64: "l"}[bits], pure=True)[0]


def load_half(address: Number) -> Number:
    """An F16 of this block's memory, as F32."""
    return assembly("{ .reg .b16 half; ld.shared.b16 half, [$1]; cvt.f32.f16 $0, half; }", [address], "f")[0]


def bytes_of(a: Number, other: Number, selector: Number) -> Number:
    """Four bytes of two words, those of the second being 4 to 7, as the selector's digits say."""
    return assembly("prmt.b32 $0, $1, $2, $3;", [a, other, selector], "r", pure=True)[0]


def bytes_as_bf16(numbers: Number) -> list[Number]:
    """Bytes 0 and 2 of a word, which have signs, as BF16, and bytes 1 and 3: the lower seven bits of each below the
    exponent of 128, less 128, or 256 where the upper bit is set."""
    text = "shr.u32 more, $2, 8; "
    for source, name in (("$2", "a"), ("more", "c")):
        text += f"lop3.b32 {name}, {source}, 0x007F007F, $3, 0xEA; lop3.b32 {name}s, {source}, 0x00800080, $3, 0xEA; "
    text += "sub.rn.bf16x2 $0, a, as; sub.rn.bf16x2 $1, c, cs; "
    return assembly(f"{{ .reg .b32 a, as, c, cs, more; {text}}}", [numbers, word(0x43004300)], "rr", pure=True)


def sleep(nanoseconds: int) -> None:
    """Do nothing for so long, or up to twice as long."""
    assembly(f"nanosleep.u32 {nanoseconds};", [])
