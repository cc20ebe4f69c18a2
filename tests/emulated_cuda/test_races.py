"""The race detector: small kernels that are right, in any order of warps, and each of their planted faults is found."""

from __future__ import annotations

import numpy as np
import pytest
import seeded
from emulated_cuda.bulk_ops import MappedTensor
from emulated_cuda.machine import Memory, launch
from emulated_cuda.ptx import parse

from lispgpt.runtime.plan.tensor_maps import TensorMap

CHUNKS, ORDERS = 6, 12
HEAD = """
.visible .entry kernel(
	.param .u64 out,
	.param .align 64 .b8 map[128]
)
.maxntid 64
{
	.shared .align 1024 .b8 memory[3072];
	mov.u32 %tid, %tid.x;
	mov.u32 %start, memory;
	shr.u32 %warp, %tid, 5;
	and.b32 %lane, %tid, 31;
	setp.eq.u32 %first, %lane, 0;
	setp.eq.u32 %brings, %warp, 0;
	ld.param.u64 %out, [out];
	mov.b64 %map, map;
"""
RING = (
    HEAD
    + """
	setp.ne.u32 %others, %tid, 0;
	@%others bra $L__made;
	add.u32 %full, %start, 2048;
	add.u32 %fuller, %start, 2056;
	add.u32 %empty, %start, 2064;
	add.u32 %emptier, %start, 2072;
	mbarrier.init.shared::cta.b64 [%full], 1;
	mbarrier.init.shared::cta.b64 [%fuller], 1;
	mbarrier.init.shared::cta.b64 [%empty], 1;
	mbarrier.init.shared::cta.b64 [%emptier], 1;
$L__made:
	bar.sync 0;
	mov.u32 %chunk, 0;
	mov.u32 %sum, 0f00000000;
$L__again:
	and.b32 %number, %chunk, 1;
	shr.u32 %use, %chunk, 1;
	and.b32 %parity, %use, 1;
	xor.b32 %before, %parity, 1;
	shl.b32 %full, %number, 3;
	add.u32 %full, %full, %start;
	add.u32 %full, %full, 2048;
	add.u32 %empty, %full, 16;
	shl.b32 %slot, %number, 10;
	add.u32 %slot, %slot, %start;
	@!%brings bra $L__read;
	@!%first bra $L__next;
$L__empty:
	mbarrier.try_wait.parity.shared::cta.b64 %over, [%empty], %before;
	@!%over bra $L__empty;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 128;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%slot], [%map, {0, %chunk}], [%full];
	bra $L__next;
$L__read:
	mbarrier.try_wait.parity.shared::cta.b64 %over, [%full], %parity;
	@!%over bra $L__read;
	shl.b32 %place, %lane, 2;
	add.u32 %place, %place, %slot;
	ld.shared.b32 %value, [%place];
	add.f32 %sum, %sum, %value;
	fence.proxy.async.shared::cta;
	bar.warp.sync -1;
	@%first mbarrier.arrive.shared::cta.b64 _, [%empty];
$L__next:
	add.u32 %chunk, %chunk, 1;
	setp.lt.u32 %more, %chunk, 6;
	@%more bra $L__again;
	@%brings bra $L__end;
	mul.wide.u32 %offset, %lane, 4;
	add.u64 %out, %out, %offset;
	st.global.b32 [%out], %sum;
$L__end:
	ret;
}
"""
)
HANDED_ON = (
    HEAD
    + """
	shl.b32 %place, %lane, 2;
	add.u32 %place, %place, %start;
	@!%brings bra $L__read;
	mov.b32 %value, 0f40000000;
	st.shared.b32 [%place], %value;
	bar.arrive 1, 64;
	bra $L__end;
$L__read:
	bar.sync 1, 64;
	ld.shared.b32 %value, [%place];
	mul.wide.u32 %offset, %lane, 4;
	add.u64 %out, %out, %offset;
	st.global.b32 [%out], %value;
$L__end:
	ret;
}
"""
)
FAULTS = {
    "no wait for a chunk": ("@!%over bra $L__read;", ""),
    "a wait for the wrong phase of a chunk": ("[%full], %parity", "[%full], %before"),
    "no wait for an empty slot": ("@!%over bra $L__empty;", ""),
    "a wait for the wrong phase of an empty slot": ("[%empty], %before", "[%empty], %parity"),
    "a slot given back before it is read": (
        "\tld.shared.b32 %value, [%place];\n",
        "\t@%first mbarrier.arrive.shared::cta.b64 _, [%empty];\n\tld.shared.b32 %value, [%place];\n"
        "\tmov.b32 %first, 0;\n",
    ),
    "no fence between a load and a copy": ("fence.proxy.async.shared::cta;", ""),
    "one arrival too few": ("[%emptier], 1;", "[%emptier], 2;"),
    "one arrival too many": ("arrive.shared::cta.b64 _, [%empty];", "arrive.shared::cta.b64 _, [%empty], 2;"),
    "a slot fewer than the phases tell": ("shl.b32 %slot, %number, 10;", "mov.u32 %slot, 0;"),
}
"""What is planted in RING."""


def found(text: str, order: int) -> np.ndarray:
    """What 32 threads leave; the detector's AssertionError where it has found something."""
    given = np.arange(32 * CHUNKS, dtype=np.float32)
    memory = Memory([np.zeros(32, np.float32), given])
    map_ = MappedTensor(TensorMap(1, 0, "f32", (32, CHUNKS), (128,), (32, 1)), memory.addresses[1])
    launch(parse(text, "kernel"), memory, [memory.addresses[0], map_], (1, 1, 1), seed=order, watched=True)
    return memory.read(0, np.empty(32, np.float32))


def test_kernels_without_a_fault_have_no_race() -> None:
    seed = seeded.fresh_seed()
    wanted = np.arange(32 * CHUNKS, dtype=np.float32).reshape(CHUNKS, 32).sum(0)
    for order in range(ORDERS):
        np.testing.assert_array_equal(found(RING, seed + order), wanted, err_msg=f"order {seed + order}")
        np.testing.assert_array_equal(found(HANDED_ON, seed + order), 2, err_msg=f"order {seed + order}")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_ring_is_found_in_one_of_few_orders(fault: str) -> None:
    right, wrong = FAULTS[fault]
    assert RING.count(right) == 1
    seed = seeded.fresh_seed()
    with pytest.raises(AssertionError, match=r"races\n|deadlock|more arrivals"):
        for order in range(ORDERS):
            found(RING.replace(right, wrong), seed + order)


def test_a_race_is_told_with_both_lines() -> None:
    fence = FAULTS["no fence between a load and a copy"]
    text = RING.replace(*fence)
    with pytest.raises(AssertionError, match=r"ld\.shared\.b32") as raised:
        found(text, 1 + seeded.fresh_seed())
    lines = {i + 1: line.strip() for i, line in enumerate(text.splitlines())}
    load, copy = (next(i for i, line in lines.items() if start in line) for start in ("ld.shared", "cp.async.bulk"))
    assert f"line {load}: ld.shared.b32" in str(raised.value) and f"line {copy}: cp.async.bulk" in str(raised.value)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("bar.sync 1, 64;", ""), ("bar.arrive 1, 64;\n\tbra", "bra"), ("bar.sync 1, 64;", "bar.sync 1, 32;")],
)
def test_a_fault_of_what_a_block_hands_on_is_found(right: str, wrong: str) -> None:
    assert HANDED_ON.count(right) == 1
    seed = seeded.fresh_seed()
    for order in range(ORDERS):
        with pytest.raises(AssertionError, match=r"races\n|deadlock|more threads"):
            found(HANDED_ON.replace(right, wrong), seed + order)
