"""Loads, stores and atomics on buffers, global, shared and private memory, each against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded
from emulated_amd.snippets import BLOCK, CASES, LANE_BYTES, THREADS, WAIT, Outcome, Snippet, family, run

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault

LIMIT = THREADS * LANE_BYTES // 2
"""Bytes that the descriptor in `snippets` allows."""
LOADS = {
    # RDNA's name: (CDNA's, bytes, whether with its sign, the half of the register that it sets or None)
    "b32": ("dword", 4, False, None), "b64": ("dwordx2", 8, False, None), "b128": ("dwordx4", 16, False, None),
    "u8": ("ubyte", 1, False, None), "i8": ("sbyte", 1, True, None), "u16": ("ushort", 2, False, None),
    "i16": ("sshort", 2, True, None), "d16_u8": ("ubyte_d16", 1, False, 0), "d16_hi_u8": ("ubyte_d16_hi", 1, False, 1),
    "d16_i8": ("sbyte_d16", 1, True, 0), "d16_hi_i8": ("sbyte_d16_hi", 1, True, 1),
    "d16_b16": ("short_d16", 2, False, 0), "d16_hi_b16": ("short_d16_hi", 2, False, 1),
}  # fmt: skip
STORES = {
    # RDNA's name: (CDNA's, bytes, the register's lowest bit that it takes)
    "b8": ("byte", 1, 0), "b16": ("short", 2, 0), "b32": ("dword", 4, 0), "b64": ("dwordx2", 8, 0),
    "d16_hi_b8": ("byte_d16_hi", 1, 16), "d16_hi_b16": ("short_d16_hi", 2, 16),
}  # fmt: skip
BUFFER = {"gfx9": "0", "gfx11": "0", "gfx12": "null"}
"""How no scalar offset is written."""


def generator() -> tuple[np.random.Generator, int]:
    seed = int(seeded.rng().integers(1 << 30))
    return np.random.default_rng(seed), seed


def words_of(size: int) -> int:
    return max(1, size // 4)


def load_snippets(chip: str) -> list[Snippet]:
    found, none = [], BUFFER[family(chip)]
    for name, (older, size, _, half) in LOADS.items():
        what, kept = older if family(chip) == "gfx9" else name, "" if half is None else "0"
        count, at = words_of(size), len(kept)
        found.append(Snippet(f"global_{name}", f"global_load_{what} $0, ${at + 1}, ${at + 2} offset:4\n{{wait}}",
                             f"{kept}om", count))  # fmt: skip
        found.append(Snippet(f"buffer_{name}", f"buffer_load_{what} $0, ${at + 1}, ${at + 2}, {none} offen offset:8\n"
                             "{wait}", f"{kept}od", count))  # fmt: skip
    word = "dword" if family(chip) == "gfx9" else "b32"
    base = f"s_movk_i32 s20, 12\nbuffer_load_{word} $0, $1, $2, s20 offen\n{{wait}}"
    return [*found, Snippet("buffer_moved", base, "od")]


def loaded(memory: np.ndarray, old: np.ndarray, name: str, offset: int, bounded: bool) -> np.ndarray:
    """[words, thread] by bytes; beyond the bounds a word is 0."""
    _, size, signed, half = LOADS[name]
    data, result = memory.view(np.uint8), np.zeros((words_of(size), THREADS), np.uint32)
    for thread in range(THREADS):
        for word in range(words_of(size)):
            at, count = thread * LANE_BYTES + offset + 4 * word, min(size, 4)
            piece = bytes(data[at : at + count]) if not bounded or at + count <= LIMIT else bytes(count)
            number = int.from_bytes(piece, "little", signed=signed) & 0xFFFFFFFF
            if half is not None:
                kept = int(old[thread]) & (0xFFFF if half else 0xFFFF0000)
                number = kept | (number & 0xFFFF) << 16 * half
            result[word, thread] = number
    return result


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_loads(chip: str, lanes: int) -> None:
    random, seed = generator()
    old, memory = (random.integers(0, 1 << 32, n, np.uint32) for n in (THREADS, THREADS * LANE_BYTES // 4 + 8))
    snippets = load_snippets(chip)
    for snippet in snippets:
        space, _, name = snippet.name.partition("_")
        found = run(snippets, snippet.name, chip, lanes, old[None], memory).result
        offset = {"buffer": 8, "global": 4}[space] if name != "moved" else 12
        expected = loaded(memory, old, "b32" if name == "moved" else name, offset, space == "buffer")
        np.testing.assert_array_equal(found, expected, err_msg=f"{snippet.name}, seed {seed}")


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_stores(chip: str, lanes: int) -> None:
    random, seed = generator()
    values = random.integers(0, 1 << 32, (2, THREADS), np.uint32)
    memory = random.integers(0, 1 << 32, THREADS * LANE_BYTES // 4, np.uint32)
    none, snippets = BUFFER[family(chip)], []
    for name, (older, size, _) in STORES.items():
        what, data = older if family(chip) == "gfx9" else name, "V" if size == 8 else "v"
        text = f"{{}}_store_{what} {{}}\n{{{{wait}}}}\nv_mov_b32 $0, 0"
        snippets.append(Snippet(f"global_{name}", text.format("global", "$1, $2, $3 offset:4"), f"o{data}m"))
        snippets.append(
            Snippet(f"buffer_{name}", text.format("buffer", f"$2, $1, $3, {none} offen offset:4"), f"o{data}d")
        )
    for snippet in snippets:
        space, _, name = snippet.name.partition("_")
        found = run(snippets, snippet.name, chip, lanes, values, memory).memory
        _, size, low = STORES[name]
        expected = memory.copy()
        for thread in range(THREADS):
            raw = (int(values[0, thread]) | int(values[1, thread]) << 32) >> low
            at = thread * LANE_BYTES + 4
            if space == "global" or at + size <= LIMIT:
                expected.view(np.uint8)[at : at + size] = list((raw & (1 << 8 * size) - 1).to_bytes(size, "little"))
        np.testing.assert_array_equal(found, expected, err_msg=f"{snippet.name}, seed {seed}")


def test_a_global_store_past_the_end_is_a_fault() -> None:
    snippets = [Snippet("past", "global_store_b32 $1, $2, $3 offset:16\n{wait}\nv_mov_b32 $0, 0", "ovm")]
    memory = np.zeros(THREADS * LANE_BYTES // 4, np.uint32)
    with pytest.raises(KernelFault, match="outside of every buffer"):
        run(snippets, "past", "gfx1100", 32, np.zeros((1, THREADS), np.uint32), memory)


def as_f32(word: int) -> Any:
    return np.uint32(word).view(np.float32)


def signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def packed_sum(a: int, b: int, widen: Callable[[int], Any], narrow: Callable[[Any], int]) -> int:
    return sum(narrow(widen(a >> s & 0xFFFF) + widen(b >> s & 0xFFFF)) << s for s in (0, 16))


def f16_bits(value: Any) -> int:
    return int(np.float16(value).view(np.uint16))


UPDATES: dict[str, tuple[str, str, Callable[[int, int, int], int]]] = {
    # RDNA's name: (CDNA's of global memory and of shared, (what is there, value, what to compare with) → what then is)
    "add_u32": ("add", "add_u32", lambda m, v, c: m + v), "sub_u32": ("sub", "sub_u32", lambda m, v, c: m - v),
    "swap_b32": ("swap", "", lambda m, v, c: v), "min_u32": ("umin", "min_u32", lambda m, v, c: min(m, v)),
    "max_u32": ("umax", "max_u32", lambda m, v, c: max(m, v)),
    "min_i32": ("smin", "min_i32", lambda m, v, c: min(m, v, key=signed)),
    "max_i32": ("smax", "max_i32", lambda m, v, c: max(m, v, key=signed)),
    "and_b32": ("and", "and_b32", lambda m, v, c: m & v), "or_b32": ("or", "or_b32", lambda m, v, c: m | v),
    "xor_b32": ("xor", "xor_b32", lambda m, v, c: m ^ v),
    "inc_u32": ("inc", "inc_u32", lambda m, v, c: 0 if m >= v else m + 1),
    "dec_u32": ("dec", "dec_u32", lambda m, v, c: v if m == 0 or m > v else m - 1),
    "cmpswap_b32": ("cmpswap", "cmpst_b32", lambda m, v, c: v if m == c else m),
    "add_f32": ("add_f32", "add_f32", lambda m, v, c: int((as_f32(m) + as_f32(v)).view(np.uint32))),
    "pk_add_f16": ("pk_add_f16", "pk_add_f16", lambda m, v, c: packed_sum(
        m, v, lambda h: np.uint16(h).view(np.float16), f16_bits)),
}  # fmt: skip


def has(chip: str, name: str, shared: bool) -> bool:
    return not (name == "pk_add_f16" and (family(chip) == "gfx11" or (shared and family(chip) == "gfx9")))


def updates(
    random: np.random.Generator, name: str, memory: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(values, what to compare with) for each thread; finite and small where they are numbers with a point."""
    values = random.integers(0, 1 << 32, THREADS, np.uint32)
    if "f32" in name:
        values, memory[:] = (random.standard_normal(n, np.float32).view(np.uint32) for n in (THREADS, memory.size))
    elif "f16" in name:
        values, memory[:] = (
            random.standard_normal(2 * n).astype(np.float16).view(np.uint32) for n in (THREADS, memory.size)
        )
    elif name in ("inc_u32", "dec_u32"):
        values, memory[:] = (random.integers(0, 4, n, np.uint32) for n in (THREADS, memory.size))
    return values, np.where(random.random(THREADS) < 0.5, memory[places], values)


@pytest.mark.parametrize("returns", [False, True], ids=["in_place", "returning"])
@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_atomics_on_global_memory(chip: str, lanes: int, returns: bool) -> None:
    """Pairs of lanes update one place, which takes them in their order."""
    random, seed = generator()
    flag = {"gfx9": " sc0", "gfx11": " glc", "gfx12": " th:TH_ATOMIC_RETURN"}[family(chip)] if returns else ""
    snippets = []
    for name, (older, _, _) in UPDATES.items():
        if has(chip, name, shared=False):
            what, data = older if family(chip) == "gfx9" else name, "V" if "cmpswap" in name else "v"
            into, keep = ("$0, ", "") if returns else ("", "\nv_mov_b32 $0, 0")
            text = f"global_atomic_{what} {into}$1, $2, $3{flag}\n{{wait}}{keep}"
            snippets.append(Snippet(name, text, f"c{data}m"))
    for snippet in snippets:
        memory = random.integers(0, 1 << 32, THREADS * LANE_BYTES // 4, np.uint32)
        values, compared = updates(random, snippet.name, memory, np.arange(THREADS) // 2 * (LANE_BYTES // 4))
        found = run(snippets, snippet.name, chip, lanes, np.array([values, compared]), memory)
        expected = Outcome(np.zeros((1, THREADS), np.uint32), memory.copy())
        for thread in range(THREADS):
            at = thread // 2 * (LANE_BYTES // 4)
            old = int(expected.memory[at])
            new = UPDATES[snippet.name][2](old, int(values[thread]), int(compared[thread]))
            expected.memory[at] = new & 0xFFFFFFFF
            expected.result[0, thread] = old if returns else 0
        np.testing.assert_array_equal(found.memory, expected.memory, err_msg=f"{snippet.name}, seed {seed}")
        np.testing.assert_array_equal(found.result, expected.result, err_msg=f"{snippet.name}, seed {seed}")


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_atomics_on_shared_memory(chip: str, lanes: int) -> None:
    """At each lane's own place, and at one that all waves of a workgroup add to."""
    random, seed = generator()
    older, wait = family(chip) == "gfx9", WAIT[family(chip)]
    write, read = ("ds_write_b32", "ds_read_b32") if older else ("ds_store_b32", "ds_load_b32")
    barrier = "s_barrier_signal -1\ns_barrier_wait -1" if family(chip) == "gfx12" else "s_barrier"
    snippets = []
    for name, (_, shared, _) in UPDATES.items():
        what = (shared if older else name).replace("cmpswap", "cmpstore")
        if what and has(chip, name, shared=True) and name not in ("swap_b32",):
            # CDNA 3 compares with the first value, the others with the second
            data = ("$4, $3" if older else "$3, $4") if "cmp" in what else "$3"
            update = f"ds_{what.replace('_', '_rtn_', 1) if 'pk' not in what else 'pk_add_rtn_f16'} $0, $1, {data}"
            text = f"{write} $1, $2\n{wait}\n{update}\n{wait}\n{read} v40, $1\n{wait}\nv_xor_b32 $0, $0, v40"
            snippets.append(Snippet(name, text, "lvvv"))
    for snippet in snippets:
        start = random.integers(0, 1 << 32, THREADS, np.uint32)
        values, compared = updates(random, snippet.name, start, np.arange(THREADS))
        inputs = np.array([start, values, compared])
        found = run(snippets, snippet.name, chip, lanes, inputs, np.zeros(4, np.uint32)).result[0]
        after = [UPDATES[snippet.name][2](int(m), int(v), int(c)) & 0xFFFFFFFF for m, v, c in inputs.T]
        expected = start ^ np.array(after, np.uint32)
        np.testing.assert_array_equal(found, expected, err_msg=f"{snippet.name}, seed {seed}")
    total = f"v_mov_b32 v40, 0\nds_and_b32 $1, v40\n{wait}\n{barrier}\nds_add_u32 $1, $2\n{wait}\n{barrier}\n"
    summed = [Snippet("total", f"{total}{read} $0, $1\n{wait}", "gv")]
    values = random.integers(0, 1 << 32, THREADS, np.uint32)
    found = run(summed, "total", chip, lanes, values[None], np.zeros(4, np.uint32)).result[0]
    sums = values.reshape(-1, BLOCK).sum(axis=1, dtype=np.uint32)
    np.testing.assert_array_equal(found, np.repeat(sums, BLOCK), err_msg=f"seed {seed}")


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_shared_and_private_memory(chip: str, lanes: int) -> None:
    """Wide, paired and narrow loads and stores of shared memory; private memory at an address and an offset."""
    random, seed = generator()
    a, b = random.integers(0, 1 << 32, (2, THREADS), np.uint32)
    old = family(chip) == "gfx9"
    write, read = ("ds_write", "ds_read") if old else ("ds_store", "ds_load")
    pair, d16_hi = "2_b32" if old else "_2addr_b32", "b16_d16_hi"
    word, part = ("dword", "ubyte") if old else ("b32", "u8")
    zero = f"{write}_b32 $1, $3\n{{wait}}\n"
    pairs = f"{write}{pair} $1, $2, $3 offset0:1 offset1:3"
    cases = {
        "wide": (f"{write}_b64 $1, $2 offset:8\n{{wait}}\n{read}_b64 $0, $1 offset:8", "lV", 2, [a, b]),
        "pair": (f"{pairs}\n{{wait}}\n{read}{pair} $0, $1 offset0:3 offset1:1", "lvv", 2, [b, a]),
        "byte": (f"{zero}{write}_b8 $1, $2 offset:1\n{{wait}}\n{read}_b32 $0, $1", "lvv", 1,
                 [b & np.uint32(0xFFFF00FF) | (a & np.uint32(0xFF)) << np.uint32(8)]),
        "upper": (f"{zero}{write}_{d16_hi} $1, $2 offset:2\n{{wait}}\n{read}_b32 $0, $1", "lvv", 1,
                  [b & np.uint32(0xFFFF) | a & np.uint32(0xFFFF0000)]),
        "upper_load": (f"{zero}{read}_u16_d16_hi $2, $1\n{{wait}}\nv_mov_b32 $0, $2", "lvv", 1,
                       [a & np.uint32(0xFFFF) | b << np.uint32(16)]),
        "signed": (f"{zero}{read}_i8 $0, $1 offset:3", "lvv", 1, [(b.view(np.int32) >> 24).view(np.uint32)]),
        "private": (f"scratch_store_{word} $1, $2, off offset:4\n{{wait}}\nscratch_load_{part} $0, $1, off offset:6",
                    "sv", 1, [a >> np.uint32(16) & np.uint32(0xFF)]),
    }  # fmt: skip
    snippets = [
        Snippet(name, f"{text}\n{{wait}}", operands, words) for name, (text, operands, words, _) in cases.items()
    ]
    for name, (_, _, _, expected) in cases.items():
        found = run(snippets, name, chip, lanes, np.array([a, b]), np.zeros(4, np.uint32)).result
        np.testing.assert_array_equal(found, np.array(expected), err_msg=f"{name}, seed {seed}")


@pytest.mark.parametrize("chip", ["gfx1151", "gfx1201"])
def test_a_half_of_a_register_may_be_stored_while_the_other_is_loaded(chip: str) -> None:
    random, seed = generator()
    a, b = random.integers(0, 1 << 32, (2, THREADS), np.uint32)
    loading = "ds_store_b32 $1, $3\nds_store_b32 $1, $3 offset:4\n{wait}\nds_load_u16_d16_hi $2, $1\n"
    snippets = [
        Snippet(
            name, f"{loading}ds_store_{what} $1, $2 offset:4\n{{wait}}\nds_load_b32 $0, $1 offset:4\n{{wait}}", "lvv"
        )
        for name, what in (("other", "b16"), ("same", "b16_d16_hi"), ("whole", "b32"))
    ]
    given, memory = np.array([a, b]), np.zeros(4, np.uint32)
    found = run(snippets, "other", chip, 32, given, memory).result[0]
    np.testing.assert_array_equal(found & np.uint32(0xFFFF), a & np.uint32(0xFFFF), err_msg=f"seed {seed}")
    for name in ("same", "whole"):
        with pytest.raises(KernelFault, match="is read while a shared load of it is under way"):
            run(snippets, name, chip, 32, given, memory)
