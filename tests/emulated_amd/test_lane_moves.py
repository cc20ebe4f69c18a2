"""Instructions that move values between lanes, each against loops over lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import seeded
from emulated_amd.snippets import BLOCK, CASES, THREADS, Snippet, family, run

ON = 0xF0FF3C5A
"""The lanes that are on in half of the tests, of each 32."""
Reads = Callable[[int, int], int | None]
"""(lane, lanes of a wave) → the lane that it reads, None for none."""


def shift(amount: int) -> Reads:
    return lambda lane, lanes: lane + amount if 0 <= lane % 16 + amount < 16 else None


PATTERNS: dict[str, tuple[str, tuple[str, ...], Reads]] = {
    # name: (DPP's control, families that have it, which lane it reads)
    "quad": ("quad_perm:[1,3,0,2]", ("gfx9", "gfx11", "gfx12"), lambda i, n: i // 4 * 4 + (1, 3, 0, 2)[i % 4]),
    "left": ("row_shl:3", ("gfx9", "gfx11", "gfx12"), shift(3)),
    "right": ("row_shr:5", ("gfx9", "gfx11", "gfx12"), shift(-5)),
    "turned": ("row_ror:7", ("gfx9", "gfx11", "gfx12"), lambda i, n: i // 16 * 16 + (i % 16 - 7) % 16),
    "mirror": ("row_mirror", ("gfx9", "gfx11", "gfx12"), lambda i, n: i // 16 * 16 + 15 - i % 16),
    "half_mirror": ("row_half_mirror", ("gfx9", "gfx11", "gfx12"), lambda i, n: i // 8 * 8 + 7 - i % 8),
    "broadcast15": ("row_bcast:15", ("gfx9",), lambda i, n: i // 16 * 16 - 1 if i >= 16 else None),
    "broadcast31": ("row_bcast:31", ("gfx9",), lambda i, n: i // 32 * 32 - 1 if i >= 32 else None),
    "wave_left": ("wave_shl:1", ("gfx9",), lambda i, n: i + 1 if i + 1 < n else None),
    "wave_right": ("wave_shr:1", ("gfx9",), lambda i, n: i - 1 if i else None),
    "wave_turn_left": ("wave_rol:1", ("gfx9",), lambda i, n: (i + 1) % n),
    "wave_turn_right": ("wave_ror:1", ("gfx9",), lambda i, n: (i - 1) % n),
    "share": ("row_share:6", ("gfx11", "gfx12"), lambda i, n: i // 16 * 16 + 6),
    "newbcast": ("row_newbcast:9", ("gfx9",), lambda i, n: i // 16 * 16 + 9),
    "crossed": ("row_xmask:11", ("gfx11", "gfx12"), lambda i, n: i ^ 11),
    "eight": ("dpp8:[7,0,2,1,4,4,3,6]", ("gfx11", "gfx12"), lambda i, n: i // 8 * 8 + (7, 0, 2, 1, 4, 4, 3, 6)[i % 8]),
}
MASKED = f"s_mov_b32 exec_lo, {ON:#x}\n{{high}}\ns_nop 4\n{{text}}\ns_mov_b32 exec_lo, -1\n{{restore}}"


def on_some_lanes(text: str, lanes: int) -> str:
    """Assembly around an instruction that is for the lanes of ON only."""
    high, restore = (f"s_mov_b32 exec_hi, {ON:#x}", "s_mov_b32 exec_hi, -1") if lanes == 64 else ("", "")
    return MASKED.format(text=text, high=high, restore=restore)


def dpp_snippets(chip: str, lanes: int) -> list[Snippet]:
    found = []
    for name, (control, families, _) in PATTERNS.items():
        if family(chip) not in families:
            continue
        masks = "" if "dpp8" in control else " row_mask:0xf bank_mask:0xf"
        zero = "" if "dpp8" in control else " bound_ctrl:0" if family(chip) == "gfx9" else " bound_ctrl:1"
        move = f"v_mov_b32_dpp $0, $2 {control}"
        found.append(Snippet(f"{name}_all", f"s_nop 4\n{move}{masks}", "0v"))
        found.append(Snippet(f"{name}_some", on_some_lanes(move + masks, lanes), "0v"))
        found.append(Snippet(f"{name}_zero", on_some_lanes(move + masks + zero, lanes), "0v"))
    if family(chip) != "gfx9":
        found.append(
            Snippet(
                "fetched", on_some_lanes("v_mov_b32_dpp $0, $2 row_ror:7 row_mask:0xf bank_mask:0xf fi:1", lanes), "0v"
            )
        )
    found.append(Snippet("masked", "s_nop 4\nv_mov_b32_dpp $0, $2 row_ror:7 row_mask:0x5 bank_mask:0xb", "0v"))
    add = "v_add_f32_dpp $0, -$2, |$3| row_ror:7 row_mask:0xf bank_mask:0xf"
    found.append(Snippet("added", f"s_nop 4\n{add}", "0vv"))
    return found


def lane_on(lane: int) -> bool:
    return bool(ON >> lane % 32 & 1)


def moved(
    old: np.ndarray, new: np.ndarray, lanes: int, reads: Reads, some: bool, zero: bool, fetch: bool
) -> np.ndarray:
    """What v_mov_b32_dpp makes of one wave at a time."""
    result = old.copy()
    for thread in range(THREADS):
        lane, first = thread % lanes, thread // lanes * lanes
        if some and not lane_on(lane):
            continue
        there = reads(lane, lanes)
        if there is not None and (fetch or not some or lane_on(there)):
            result[thread] = new[first + there]
        elif zero:
            result[thread] = 0
    return result


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_dpp(chip: str, lanes: int) -> None:
    random, seed = generator()
    old, new, other = random.standard_normal((3, THREADS), np.float32).view(np.uint32)
    snippets, memory = dpp_snippets(chip, lanes), np.zeros(4, np.uint32)
    for snippet in snippets:
        found = run(snippets, snippet.name, chip, lanes, np.array([old, new, other]), memory).result[0]
        name, _, how = snippet.name.rpartition("_")
        if name:
            control, _, reads = PATTERNS[name]
            expected = moved(old, new, lanes, reads, how != "all", how == "zero" or "dpp8" in control, False)
        else:
            turn = PATTERNS["turned"][2]
            expected = moved(old, new, lanes, turn, how == "fetched", False, how == "fetched")
            if how == "masked":
                thread = np.arange(THREADS)
                chosen = (0x5 >> thread // 16 % 4 & 1 & (0xB >> thread // 4 % 4 & 1)).astype(bool)
                expected = np.where(chosen, expected, old)
            if how == "added":
                expected = (-expected.view(np.float32) + np.abs(other.view(np.float32))).view(np.uint32)
        np.testing.assert_array_equal(found, expected, err_msg=f"{snippet.name}, seed {seed}")


def generator() -> tuple[np.random.Generator, int]:
    seed = int(seeded.rng().integers(1 << 30))
    return np.random.default_rng(seed), seed


SWIZZLES: dict[str, tuple[str, Reads]] = {
    "butterfly": ("swizzle(SWAP, 8)", lambda i, n: i ^ 8),
    "reverse": ("swizzle(REVERSE, 16)", lambda i, n: i ^ 15),
    "one_of": ("swizzle(BROADCAST, 8, 5)", lambda i, n: i // 8 * 8 + 5),
    "bits": ('swizzle(BITMASK_PERM, "01pi0")', lambda i, n: i // 32 * 32 + (8 | i & 4 | ~i & 2)),
    "quads": ("swizzle(QUAD_PERM, 3, 0, 0, 2)", lambda i, n: i // 4 * 4 + (3, 0, 0, 2)[i % 4]),
}


def movers(chip: str, lanes: int) -> list[Snippet]:
    found = [Snippet(name, f"ds_swizzle_b32 $0, $1 offset:{text}\n{{wait}}") for name, (text, _) in SWIZZLES.items()]
    found += [
        Snippet("bpermute", "ds_bpermute_b32 $0, $1, $2 offset:12\n{wait}", "vv"),
        Snippet(
            "bpermute_some", "v_mov_b32 $0, 7\n" + on_some_lanes("ds_bpermute_b32 $0, $1, $2", lanes) + "\n{wait}", "vv"
        ),
        Snippet("permute", "ds_permute_b32 $0, $1, $2\n{wait}", "vv"),
        Snippet("first", on_some_lanes("v_readfirstlane_b32 s20, $1", lanes) + "\nv_mov_b32 $0, s20"),
        Snippet("lane", "v_readlane_b32 s20, $1, 9\ns_nop 4\nv_mov_b32 $0, s20"),
        Snippet("written", "s_movk_i32 s20, 0x1234\ns_nop 4\nv_writelane_b32 $0, s20, 11", "0"),
        Snippet("below", "v_mbcnt_lo_u32_b32 $0, $1, 5" + ("\nv_mbcnt_hi_u32_b32 $0, $1, $0" if lanes == 64 else "")),
    ]
    if family(chip) != "gfx9":
        for across in ("", "x"):
            text = f"s_mov_b32 s20, 0x3210fedc\ns_mov_b32 s21, 0x98badcfe\nv_permlane{across}16_b32 $0, $2, s20, s21"
            found.append(Snippet(f"row{across}", text, "0v"))
        found += [Snippet("halves", "v_permlane64_b32 $0, $1")] * (lanes == 64)
    if family(chip) == "gfx12":
        found += [Snippet(f"own{across}", f"v_permlane{across}16_var_b32 $0, $2, $3", "0vv") for across in ("", "x")]
    return found


def expected_move(name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, lanes: int, chip: str) -> np.ndarray:
    """By loops over the lanes of each wave; a, b and c are the inputs."""
    group = 32 if family(chip) == "gfx11" else lanes
    picks = [0xC, 0xD, 0xE, 0xF, 0, 1, 2, 3, 0xE, 0xF, 0xC, 0xD, 0xA, 0xB, 8, 9]
    result = np.zeros(THREADS, np.uint32)
    for start in range(0, THREADS, lanes):
        for lane in range(lanes):
            at = start + lane
            near = start + lane // group * group
            other_row = start + (lane // 16 ^ 1) * 16
            if name in SWIZZLES:
                result[at] = a[start + SWIZZLES[name][1](lane, lanes)]  # type: ignore[operator]
            elif name == "bpermute":
                result[at] = b[near + (int(a[at]) + 12) // 4 % group]
            elif name == "bpermute_some":
                there = near + int(a[at]) // 4 % group
                result[at] = 7 if not lane_on(lane) else b[there] if lane_on(there - start) else 0
            elif name == "permute":
                writers = [w for w in range(lanes) if start + w // group * group + int(a[start + w]) // 4 % group == at]
                result[at] = b[start + writers[-1]] if writers else 0
            elif name in ("first", "lane"):
                result[at] = a[start + (9 if name == "lane" else next(n for n in range(lanes) if lane_on(n)))]
            elif name == "written":
                result[at] = 0x1234 if lane == 11 else a[at]
            elif name == "below":
                both = int(a[at]) & (1 << min(lane, 32)) - 1, int(a[at]) & (1 << max(lane - 32, 0)) - 1
                result[at] = 5 + both[0].bit_count() + both[1].bit_count()
            elif name in ("row", "rowx"):
                result[at] = b[(at // 16 * 16 if name == "row" else other_row) + picks[lane % 16]]
            elif name in ("own", "ownx"):
                result[at] = b[(at // 16 * 16 if name == "own" else other_row) + int(c[at]) % 16]
            elif name == "halves":
                result[at] = a[at ^ 32]
    return result


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_moves(chip: str, lanes: int) -> None:
    random, seed = generator()
    a, b, c = random.integers(0, 1 << 32, (3, THREADS), np.uint32)
    permuted = np.concatenate([random.permutation(lanes) for _ in range(THREADS // lanes)]).astype(np.uint32) * 4
    snippets, memory = movers(chip, lanes), np.zeros(4, np.uint32)
    for snippet in snippets:
        first = permuted if "permute" in snippet.name else a
        found = run(snippets, snippet.name, chip, lanes, np.array([first, b, c]), memory).result[0]
        expected = expected_move(snippet.name, first, b, c, lanes, chip)
        np.testing.assert_array_equal(found, expected, err_msg=f"{snippet.name}, seed {seed}")


@pytest.mark.parametrize("distance", [16, 32])
def test_swaps_of_rows(distance: int) -> None:
    """gfx950's v_permlane16_swap_b32 and v_permlane32_swap_b32."""
    random, seed = generator()
    a, b = random.integers(0, 1 << 32, (2, THREADS), np.uint32)
    text = f"v_permlane{distance}_swap_b32 $0, $2"
    snippets = [
        Snippet("kept", text, "0v"),
        Snippet("given", f"v_mov_b32 v20, $1\ns_nop 4\nv_permlane{distance}_swap_b32 v20, $0", "v0"),
    ]
    first, second = a.copy(), b.copy()
    for thread in range(THREADS):
        if thread // distance % 2:
            first[thread], second[thread - distance] = b[thread - distance], a[thread]
    inputs = np.array([a, b])
    kept = run(snippets[:1], "kept", "gfx950", 64, inputs, np.zeros(4, np.uint32)).result[0]
    np.testing.assert_array_equal(kept, first, err_msg=f"seed {seed}")
    given = run(snippets[1:], "given", "gfx950", 64, inputs, np.zeros(4, np.uint32)).result[0]
    np.testing.assert_array_equal(given, second, err_msg=f"seed {seed}")
    assert BLOCK % 64 == 0
