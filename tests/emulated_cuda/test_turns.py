"""Turns that threads take: whoever can go on does so in the end, and where nobody can, it is said who waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated_cuda.machine import Memory
from emulated_cuda.ptx import parse
from emulated_cuda.threads import Threads

TOLD = """
.visible .entry kernel(
	.param .u64 out
)
.maxntid 32
{
	mov.u32 %lane, %tid.x;
	mov.u32 %block, %ctaid.x;
	ld.param.u64 %out, [out];
	setp.eq.u32 %first, %lane, 0;
	setp.eq.u32 %tells, %block, 1;
	@!%first bra $L__met;
	@%tells bra $L__tell;
$L__look:
	ld.relaxed.gpu.global.b32 %word, [%out];
	setp.eq.u32 %again, %word, 0;
	@%again bra $L__look;
	bra $L__met;
$L__tell:
	mov.u32 %word, 7;
	st.relaxed.gpu.global.b32 [%out], %word;
$L__met:
	shfl.sync.idx.b32 %found, %word, 0, 31, -1;
	shl.b32 %offset, %block, 5;
	add.u32 %offset, %offset, %lane;
	mul.wide.u32 %offset, %offset, 4;
	add.u64 %place, %out, %offset;
	st.global.b32 [%place+4], %found;
	ret;
}
"""
"""A thread of block 0 waits for a word of block 1's; the others of either warp wait for it."""


class LowestFirst(np.random.Generator):
    """Who comes last is never chosen as long as there are others."""

    def choice(self, among: Any, *_: Any, **__: Any) -> Any:
        return np.min(among)


def told(text: str, watched: bool) -> list[int]:
    """What the blocks' threads have found."""
    memory, there = Memory([np.zeros(65, np.uint32)]), np.zeros(65, np.uint32)
    threads = Threads(parse(text, "kernel"), memory.bytes, memory.addresses, (2, 1, 1), range(2), 0, 1, watched)
    threads.rng = LowestFirst(np.random.PCG64(1))
    threads.run()
    return memory.read(0, there)[1:].tolist()


@pytest.mark.parametrize("watched", [False, True])
def test_who_waits_for_others_of_its_warp_lets_others_go_on(watched: bool) -> None:
    assert told(TOLD, watched) == [7] * 64


TELLS, WORD = "@%tells bra $L__tell;", "mov.u32 %word, 7;"
MISSED = "an instruction of a warp that some of its threads miss"


@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        pytest.param(TELLS, "", f"2 threads wait for what .*shfl.*: {MISSED}", id="a word"),
        pytest.param(WORD, WORD + "barrier.sync 3;", rf"barriers \[3\]\n.*shfl.*: {MISSED}", id="a barrier"),
        pytest.param(WORD, WORD + "bar.sync 3;", f"line 20: bar.sync: {MISSED}", id="an aligned barrier"),
        pytest.param("@%tells", "bar.sync 3; @%tells", f"line 13: bar.sync: {MISSED}", id="a barrier in a branch"),
        pytest.param("@!%first", "@%first bar.sync 3; @!%first", MISSED, id="a barrier for some"),
    ],
)
def test_it_is_said_where_nobody_goes_on(right: str, wrong: str, why: str) -> None:
    assert right in TOLD
    with pytest.raises(AssertionError, match=f"(?s){why}"):
        told(TOLD.replace(right, wrong), True)
