"""Loads beside stores: no race where nothing is made of what they find, a race as soon as something is."""

from __future__ import annotations

import numpy as np
import pytest
import seeded
from emulated_cuda.bulk_ops import MappedTensor
from emulated_cuda.machine import Memory, launch
from emulated_cuda.ptx import parse
from emulated_cuda.test_races import HEAD, ORDERS

from lispgpt.runtime.plan.tensor_maps import TensorMap

DROPPED = (
    HEAD
    + """
	shl.b32 %place, %lane, 2;
	mul.wide.u32 %offset, %lane, 4;
	add.u64 %out, %out, %offset;
	@!%brings bra $L__read;
	mov.b32 %value, 0f40000000;
	st.global.b32 [%out], %value;
	bra $L__end;
$L__read:
	ld.global.b32 %value, [%out];
	setp.lt.u32 %valid, %warp, 1;
	selp.b32 %value, %value, 0f3F800000, %valid;
	st.global.b32 [%out+128], %value;
$L__end:
	ret;
}
"""
)
"""Of two warps one loads what the other stores, and drops it."""
COPIED = DROPPED.replace(
    "ld.global.b32 %value, [%out];",
    """add.u32 %place, %place, %start;
	cp.async.ca.shared.global [%place], [%out], 4;
	cp.async.commit_group;
	cp.async.wait_group 0;
	ld.shared.b32 %value, [%place];""",
)
MATRICES = (
    DROPPED.replace("shl.b32 %place, %lane, 2;", "shl.b32 %place, %lane, 4;\n\tadd.u32 %place, %place, %start;")
    .replace(
        "st.global.b32 [%out], %value;",
        "st.shared.v4.b32 [%place], {%value, %value, %value, %value};\n\tst.global.b32 [%out], %value;",
    )
    .replace(
        "ld.global.b32 %value, [%out];",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%value, %second, %third, %fourth}, [%place];",
    )
)
TEXTS = pytest.mark.parametrize("text", [DROPPED, COPIED, MATRICES], ids=["loaded", "copied", "matrices"])
USES = {
    "used": ("selp.b32 %value, %value, 0f3F800000, %valid;", ""),
    "multiplied by zero": (
        "selp.b32 %value, %value, 0f3F800000, %valid;",
        "mul.f32 %value, %value, 0f00000000;\n\tadd.f32 %value, %value, 0f3F800000;",
    ),
    "in a maximum, which drops NaN": (
        "selp.b32 %value, %value, 0f3F800000, %valid;", "max.f32 %value, %value, 0f3F800000;",
    ),
    "in a minimum, which drops NaN": (
        "selp.b32 %value, %value, 0f3F800000, %valid;", "min.f32 %value, %value, 0f3F800000;",
    ),
    "chosen": ("setp.lt.u32 %valid, %warp, 1;", "setp.ge.u32 %valid, %warp, 1;"),
    "asked": (
        "selp.b32 %value, %value, 0f3F800000, %valid;",
        "setp.gt.f32 %valid, %value, 0f41000000;\n\tselp.b32 %value, 0f40000000, 0f3F800000, %valid;",
    ),
    "a place": ("selp.b32 %value,", "shr.u32 %far, %value, 21;\n\tld.shared.b32 %far, [%far];\n\tselp.b32 %value,"),
    "another store": ("@!%brings bra $L__read;", "cvt.rn.f32.u32 %value, %warp;\n\tst.global.b32 [%out], %value;\n"),
}  # fmt: skip
"""What is planted in DROPPED."""
LATE = (
    HEAD
    + """
	mul.wide.u32 %offset, %lane, 4;
	add.u64 %out, %out, %offset;
	shl.b32 %place, %lane, 2;
	add.u32 %place, %place, %start;
	@%brings bra $L__stores;
	cp.async.ca.shared.global [%place], [%out], 4, WANTED;
	cp.async.commit_group;
	cp.async.wait_group WAITS;
	bar.sync 0;
	cp.async.wait_group 0;
	ld.shared.b32 %value, [%place];
	st.global.b32 [%out+128], %value;
	bra $L__end;
$L__stores:
	bar.sync 0;
	mov.b32 %value, 0f40000000;
	st.global.b32 [%out], %value;
$L__end:
	ret;
}
"""
)
"""A warp stores where another has copied from."""


def rows_after(text: str, seed: int) -> np.ndarray:
    """[2 32] that two warps leave."""
    memory = Memory([np.zeros((2, 32), np.float32), np.zeros(32, np.float32)])
    map_ = MappedTensor(TensorMap(1, 0, "f32", (32, 1), (128,), (32, 1)), memory.addresses[1])
    launch(parse(text, "kernel"), memory, [memory.addresses[0], map_], (1, 1, 1), seed=seed, watched=True)
    return memory.read(0, np.empty((2, 32), np.float32))


@TEXTS
def test_what_is_loaded_beside_a_store_and_dropped_is_no_race(text: str) -> None:
    seed = seeded.fresh_seed()
    for order in range(ORDERS):
        np.testing.assert_array_equal(rows_after(text, seed + order), np.repeat([[2], [1]], 32, axis=1))


@pytest.mark.parametrize("use", USES)
@TEXTS
def test_what_is_loaded_beside_a_store_and_used_is_a_race(text: str, use: str) -> None:
    right, wrong = USES[use]
    assert text.count(right) == 1
    seed = seeded.fresh_seed()
    for order in range(ORDERS):
        with pytest.raises(AssertionError, match=r"races\n|misaligned"):  # shared memory's poison is no place
            rows_after(text.replace(right, wrong), seed + order)


HALVES = (
    HEAD
    + """
	shl.b32 %offset, %warp, 1;
	cvt.u64.u32 %offset, %offset;
	add.u64 %out, %out, %offset;
	mov.b32 %value, %tid;
	@%first st.global.b16 [%out], %value;
	ret;
}
"""
)
"""Each warp stores one half of a word."""


def test_halves_of_a_word_are_stored_apart() -> None:
    assert rows_after(HALVES, 0)[0, :1].view(np.uint16).tolist() == [0, 32]
    with pytest.raises(AssertionError, match=r"races\n.*\n.*st\.global\.b16"):
        rows_after(HALVES.replace("shl.b32 %offset, %warp, 1;", "mov.u32 %offset, 0;"), 0)


def test_a_copy_reads_until_it_is_waited_for() -> None:
    seed = seeded.fresh_seed()
    for order in range(ORDERS):
        rows_after(LATE.replace("WAITS", "0").replace("WANTED", "4"), seed + order)
        rows_after(LATE.replace("WAITS", "1").replace("WANTED", "0"), seed + order)  # it reads nothing
        with pytest.raises(AssertionError, match=r"races\n.*\n.*cp\.async"):
            rows_after(LATE.replace("WAITS", "1").replace("WANTED", "4"), seed + order)
