"""Launches that start before those ahead of them are done: what they read before they wait is not there yet."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_cuda.machine import Memory, launch
from emulated_cuda.ptx import parse

COPY = """
.visible .entry kernel(
	.param .u64 from,
	.param .u64 to
)
.maxntid 32
{
	ld.param.u64 %from, [from];
	ld.param.u64 %to, [to];
	setp.eq.u32 %first, %laneid, 0;
	BEFORE
	griddepcontrol.wait;
	BEHIND
	@%first st.global.u32 [%to], %found;
	ret;
}
"""
LOAD = "ld.global.u32 %found, [%from];"


def copied(text: str) -> list[int]:
    """What two launches leave that copy a seven to the second word, and from there to the third."""
    words = [np.array([n], np.uint32) for n in (7, 0, 0)]
    memory, kernel = Memory(words), parse(text, "kernel")
    memory.begin()
    for start, end in ((0, 1), (1, 2)):
        launch(kernel, memory, [memory.addresses[start], memory.addresses[end]], (1, 1, 1), early=True)
    return [int(memory.read(i, words[i])[0]) for i in range(3)]


def test_what_is_read_before_the_wait_is_what_was_there_before() -> None:
    assert copied(COPY.replace("BEFORE", "").replace("BEHIND", LOAD)) == [7, 7, 7]
    assert copied(COPY.replace("BEFORE", LOAD).replace("BEHIND", "")) == [7, 7, 0]


def test_nothing_is_stored_before_the_wait() -> None:
    text = COPY.replace("griddepcontrol.wait;", "").replace("BEFORE", LOAD).replace("BEHIND", "")
    with pytest.raises(AssertionError, match="a store to global memory before"):
        copied(text)
