"""The heap over managed memory: blocks do not overlap, are used again, and large ones go back to the driver."""

from __future__ import annotations

import itertools
import random

from lispgpt.programs.managed_memory import ManagedMemory


def test_blocks_are_apart_aligned_and_used_again() -> None:
    given: dict[int, int] = {}
    returned: list[int] = []

    def allocate(size: int) -> int:
        address = 1 << 30 if not given else max(a + s for a, s in given.items()) + (1 << 20)
        address += -address % (1 << 21)
        given[address] = size
        return address

    heap = ManagedMemory(allocate, returned.append)
    generator = random.Random()
    live: dict[int, int] = {}
    for _ in range(3000):
        if live and generator.random() < 0.45:
            address = generator.choice(list(live))
            del live[address]
            assert heap.free(address)
        else:
            size = generator.choice([0, 1, 63, 64, 65, 1000, 4096, 65536, 65537, 300_000])
            address = heap.malloc(size)
            assert address % min(256, 1 << (max(size, 64) - 1).bit_length()) == 0
            assert heap.holds(address) and heap.holds(address + max(size, 1) - 1)
            assert heap.size(address) >= size
            live[address] = size
    places = sorted(live.items())
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(places))
    assert all(any(start <= a and a + size <= start + length for start, length in given.items()) for a, size in places)
    assert set(returned) == {a for a, s in given.items() if s in (65537, 300_000) and a not in live}
    assert not heap.free(12345)
    assert not heap.holds(12345)
