"""Instructions on halves and bytes of registers, and on mixed types, each against numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_amd.snippets import CASES, THREADS, Snippet, family, run

import lispgpt

Words = np.ndarray
F16, F32, F64 = np.float16, np.float32, np.float64


def half(words: Words, which: int) -> Words:
    return (words >> np.uint32(16 * which)).astype(np.uint16).view(F16)


def put(old: Words, value: Words, which: int) -> Words:
    """Set a half of a register and keep the other."""
    bits = value.astype(F16).view(np.uint16).astype(np.uint32) << np.uint32(16 * which)
    return old & np.uint32(0xFFFF0000 >> 16 * which) | bits


def f32(words: Words) -> Words:
    return words.view(F32)


def joined(low: Words, high: Words) -> Words:
    return put(put(np.zeros(low.size, np.uint32), low, 0), high, 1)


def once(a: Words, b: Words, c: Words, kind: type) -> Words:
    """a·b + c in float64, rounded to the result's type."""
    return (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(kind)


Case = tuple[str, tuple[str, ...], Callable[[Words, Words, Words], Words]]
EVERY, RDNA = ("gfx9", "gfx11", "gfx12"), ("gfx11", "gfx12")
CASES_OF_PARTS: dict[str, Case] = {
    # name: (assembly on $0 = $2 and inputs $3, $4, families, (old, a, b) → result); inputs are pairs of F16
    "mix_halves": ("v_fma_mix_f32 $0, $2, $3, $0 op_sel:[1,0,0] op_sel_hi:[1,1,0]", EVERY,
                   lambda o, a, b: once(half(a, 1), half(b, 0), f32(o), F32).view(np.uint32)),
    "mix_signs": ("v_fma_mix_f32 $0, -$2, |$3|, -|$0| op_sel:[0,1,0] op_sel_hi:[1,1,0]", EVERY,
                  lambda o, a, b: once(-half(a, 0), abs(half(b, 1)), -abs(f32(o)), F32).view(np.uint32)),
    "mix_words": ("v_fma_mix_f32 $0, $2, $3, 1.0", EVERY,
                  lambda o, a, b: once(f32(a), f32(b), np.ones(1), F32).view(np.uint32)),
    "mix_constant_half": ("v_fma_mix_f32 $0, -$2, 1.0, $3 op_sel_hi:[0,1,1]", EVERY,
                          lambda o, a, b: once(-f32(a), np.ones(1), half(b, 0), F32).view(np.uint32)),
    "mix_whole_number": ("v_fma_mix_f32 $0, $2, $3, 64 op_sel_hi:[0,1,1]", EVERY,
                         lambda o, a, b: once(f32(a), half(b, 0), np.full(1, 2.0**-18), F32).view(np.uint32)),
    "mix_low": ("v_fma_mixlo_f16 $0, $2, $3, $2 op_sel_hi:[1,1,1]", EVERY,
                lambda o, a, b: put(o, once(half(a, 0), half(b, 0), half(a, 0), F32), 0)),
    "mix_high": ("v_fma_mixhi_f16 $0, $2, $3, $2 op_sel:[1,1,0] op_sel_hi:[1,1,1]", EVERY,
                 lambda o, a, b: put(o, once(half(a, 1), half(b, 1), half(a, 0), F32), 1)),
    "scalar_high": ("s_mov_b32 s20, 0x40003c00\ns_cvt_hi_f32_f16 s20, s20\nv_mov_b32 $0, s20", ("gfx1151", "gfx12"),
                    lambda o, a, b: np.full(o.size, 2, F32).view(np.uint32)),
    "packed": ("v_pk_fma_f16 $0, $2, $3, $0 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,1,0]", EVERY,
               lambda o, a, b: joined(once(-half(a, 1), half(b, 0), half(o, 0), F16),
                                      once(half(a, 0), -half(b, 1), half(o, 1), F16))),
    "packed_constant": ("v_pk_mul_f16 $0, $2, 2.0 op_sel_hi:[1,0]", EVERY,
                        lambda o, a, b: joined(half(a, 0) * F16(2), half(a, 1) * F16(2))),
    "packed_integers": ("v_pk_add_u16 $0, $2, $3 op_sel:[0,1] op_sel_hi:[1,0]", EVERY,
                        lambda o, a, b: (a.view(np.uint16).reshape(-1, 2) + b.view(np.uint16).reshape(-1, 2)[:, ::-1])
                        .astype(np.uint16).view(np.uint32)[:, 0]),
    "packed_minus_one": ("v_pk_add_u16 $0, $2, -1", EVERY, lambda o, a, b: (
        a.view(np.uint16) - np.uint16(1)).view(np.uint32)),
    "dots_and_a_constant": ("v_dot2_f32_f16 $0, $2, $3, 1.0", EVERY, lambda o, a, b: (
        half(a, 0).astype(F32) * half(b, 0) + F32(1) + half(a, 1).astype(F32) * half(b, 1)).view(np.uint32)),
    "dots_less_a_sum": ("v_dot2_f32_f16 $0, $2, $3, $0 neg_lo:[0,0,1]", EVERY, lambda o, a, b: (
        half(a, 0).astype(F32) * half(b, 0) - f32(o) + half(a, 1).astype(F32) * half(b, 1)).view(np.uint32)),
    "bytes_and_a_constant": ("v_dot4_u32_u8 $0, $2, $3, -4", EVERY, lambda o, a, b: (
        (a.view(np.uint8).astype(np.uint32) * b.view(np.uint8)).reshape(-1, 4).sum(1) - 4).astype(np.uint32)),
    "upper_result": ("v_fma_f16 $0, $2, $3, $2 op_sel:[0,1,1,1]", RDNA,
                     lambda o, a, b: put(o, once(half(a, 0), half(b, 1), half(a, 1), F16), 1)),
    "lower_result": ("v_fma_f16 $0, -$2, |$3|, $2 op_sel:[1,1,0,0]", RDNA,
                     lambda o, a, b: put(o, once(-half(a, 1), abs(half(b, 1)), half(a, 0), F16), 0)),
    "upper_cleared": ("v_fma_f16 $0, $2, $3, $2", ("gfx9",),
                      lambda o, a, b: put(0 * o, once(half(a, 0), half(b, 0), half(a, 0), F16), 0)),
    "byte_added": ("v_add_u32_sdwa $0, sext($2), $3 dst_sel:DWORD src0_sel:BYTE_2 src1_sel:WORD_1",
                   ("gfx9",), lambda o, a, b: (a << np.uint32(8)).view(np.int32).__rshift__(24).view(np.uint32)
                   + (b >> np.uint32(16))),
    "byte_kept": ("v_or_b32_sdwa $0, $2, $3 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 src1_sel:BYTE_3",
                  ("gfx9",), lambda o, a, b: o & np.uint32(0xFFFF00FF) | ((a | b >> np.uint32(24)) & np.uint32(255))
                  << np.uint32(8)),
    "word_signed": ("v_mov_b32_sdwa $0, $2 dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:WORD_1", ("gfx9",),
                    lambda o, a, b: (a.view(np.int32) >> 16).view(np.uint32)),
    "half_negated": ("v_add_f16_sdwa $0, -$2, |$3| dst_sel:WORD_1 src0_sel:WORD_1 src1_sel:WORD_0",
                     ("gfx9",), lambda o, a, b: put(o, -half(a, 1) + abs(half(b, 0)), 1)),
    "bytes": ("v_perm_b32 $0, $2, $3, $0", EVERY, lambda o, a, b: permuted(a, b, o)),
    "reversed": ("v_bfrev_b32 $0, $2", EVERY, lambda o, a, b: np.array(
        [int(f"{int(word):032b}"[::-1], 2) for word in a], np.uint32)),
    "table": ("v_bitop3_b32 $0, $2, $3, $0 bitop3:0xca", ("gfx950",), lambda o, a, b: a & b | ~a & o),
    "rounded": ("v_cvt_pk_bf16_f32 $0, $2, $3", ("gfx950",), lambda o, a, b: bf16(a) | bf16(b) << np.uint32(16)),
    "scaled": ("v_add_f32 $0, $2, $3 mul:4", EVERY, lambda o, a, b: ((f32(a) + f32(b)) * F32(4)).view(np.uint32)),
    "clamped": ("v_mul_f32 $0, $2, $3 clamp", EVERY, lambda o, a, b: np.clip(f32(a) * f32(b), 0, 1).view(np.uint32)),
    "first_set": ("v_ffbl_b32 $0, $2", ("gfx9",), lambda o, a, b: np.array(
        [(int(w) & -int(w)).bit_length() - 1 for w in a], np.int32).view(np.uint32)),
    "leading": ("v_clz_i32_u32 $0, $2", RDNA, lambda o, a, b: np.array(
        [32 - int(w).bit_length() if w else -1 for w in a], np.int32).view(np.uint32)),
}  # fmt: skip


def permuted(high: Words, low: Words, selector: Words) -> Words:
    found = []
    for first, second, picks in zip(high, low, selector, strict=True):
        data = (int(first) << 32 | int(second)).to_bytes(8, "little")
        rest = [255 * (data[n] >> 7) for n in (1, 3, 5, 7)] + [0] + [255] * 243
        found.append(bytes([*data, *rest][pick] for pick in int(picks).to_bytes(4, "little")))
    return np.frombuffer(b"".join(found), np.uint32)


def bf16(words: Words) -> Words:
    """Nearest, ties to even."""
    return (words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)


@pytest.mark.parametrize(("chip", "lanes"), CASES)
def test_values(chip: str, lanes: int) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    fitting = {name: case for name, case in CASES_OF_PARTS.items() if family(chip) in case[1] or chip in case[1]}
    snippets = [Snippet(name, text, "0vv") for name, (text, _, _) in fitting.items()]
    for name, (_, _, expected) in fitting.items():
        inputs = random.standard_normal((3, 2 * THREADS)).astype(F16).view(np.uint32)
        if name == "bytes":
            inputs[0] = random.integers(0, 14, (THREADS, 4)).astype(np.uint8).view(np.uint32)[:, 0]
        found = run(snippets, name, chip, lanes, inputs, np.zeros(4, np.uint32)).result[0]
        np.testing.assert_array_equal(found, expected(*inputs), err_msg=f"{name}, seed {seed}")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1151"])
def test_half_a_register_may_be_all_that_is_set(chip: str, tmp_path: Path) -> None:
    """gfx942 makes the f16 by v_fma_mixlo_f16, of a register that nothing has set."""
    program = "(entry f [(x [3] bf16)] (let [y (* x x)] {:whole y :short (cast (cast y f16) f32)}))"
    (tmp_path / "squares.lisp").write_text(program)
    with lispgpt.load(tmp_path / "squares.lisp", target=f"emulated:{chip}") as model:
        found = model.run("f", x=[1.5, -0.25, 3.0])
    for name in ("whole", "short"):
        np.testing.assert_array_equal(found[name], [2.25, 0.0625, 9.0])
