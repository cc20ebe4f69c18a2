"""Lanes that read other lanes: DPP's patterns, permlane, readlane, swizzles and permutes through shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Source, Step, source
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves

Pattern = tuple[np.ndarray, np.ndarray]
"""(lane that each lane reads, whether there is one)."""


def dpp_pattern(instruction: Instruction, lanes: int) -> Pattern:
    """What DPP16's control or DPP8's selectors say."""
    lane = np.arange(lanes)
    if "lane_sel_0" in instruction.fields:
        picks = np.array([instruction[f"lane_sel_{i}"] for i in range(8)])
        return lane & ~7 | picks[lane & 7], np.ones(lanes, bool)
    control, row, inner = instruction["dpp"], lane & ~15, lane & 15
    amount = control & 15
    if control < 0x100:
        return lane & ~3 | control >> 2 * (lane & 3) & 3, np.ones(lanes, bool)
    if 0x101 <= control <= 0x10F:
        return row + np.minimum(inner + amount, 15), inner + amount < 16
    if 0x111 <= control <= 0x11F:
        return row + np.maximum(inner - amount, 0), inner >= amount
    if 0x121 <= control <= 0x12F:
        return row + (inner - amount) % 16, np.ones(lanes, bool)
    shifts = {0x130: 1, 0x138: -1}
    if control in shifts:
        there = lane + shifts[control]
        return there.clip(0, lanes - 1), (there >= 0) & (there < lanes)
    if control in (0x134, 0x13C):
        return (lane + (1 if control == 0x134 else -1)) % lanes, np.ones(lanes, bool)
    if control in (0x140, 0x141):
        return (row + 15 - inner, np.ones(lanes, bool)) if control == 0x140 else (lane ^ 7, np.ones(lanes, bool))
    if control in (0x142, 0x143):  # a row's, or two rows', last lane to the next
        wide = 16 if control == 0x142 else 32
        return np.maximum(lane // wide * wide - 1, 0), lane >= wide
    if 0x150 <= control <= 0x15F:
        return row + amount, np.ones(lanes, bool)
    if 0x160 <= control <= 0x16F:
        return lane ^ amount, np.ones(lanes, bool)
    raise NotModelled(f"DPP control {control:#x}")


def dpp(step: Step, get: Source, lanes: int) -> tuple[Source, Callable[[Waves], np.ndarray]]:
    """(the source with its lanes moved, which lanes the instruction writes)."""
    instruction = step.instruction
    reads, there = dpp_pattern(instruction, lanes)
    row = np.arange(lanes) // 16
    chosen = (instruction.get("row_mask", 15) >> row % 4 & 1).astype(bool)
    chosen &= (instruction.get("bank_mask", 15) >> (np.arange(lanes) // 4 % 4) & 1).astype(bool)
    of_inactive, zero = bool(instruction.get("fi")), bool(instruction.get("bc"))

    def valid(waves: Waves) -> np.ndarray:
        return there[None] & (True if of_inactive else waves.active[:, reads])

    def moved(waves: Waves) -> np.ndarray:
        value = np.broadcast_to(get(waves), (waves.count, lanes))[:, reads]
        return np.where(valid(waves), value, value.dtype.type(0))

    def written(waves: Waves) -> np.ndarray:
        return waves.active & chosen[None] & (True if zero else valid(waves))

    return moved, written


def cross_lane(step: Step, lanes: int) -> bool:
    """Set the run function of an instruction that moves values between lanes; False where it is none."""
    name = step.instruction.name
    if name in ("V_READFIRSTLANE_B32", "V_READLANE_B32"):
        _read_lane(step, lanes, first=name == "V_READFIRSTLANE_B32")
    elif name == "V_WRITELANE_B32":
        _write_lane(step, lanes)
    elif name.startswith("V_PERMLANE") and name.endswith("_SWAP_B32"):
        _swap(step, 16 if "16" in name else 32)
    elif name.startswith(("V_PERMLANE16", "V_PERMLANEX16")):
        _permute_rows(step, lanes, across="X16" in name, by_lane="_VAR_" in name)
    elif name == "V_PERMLANE64_B32":
        _move(step, lambda waves: np.arange(lanes)[None] ^ 32 if lanes == 64 else np.arange(lanes)[None])
    else:
        return False
    return True


def _read_lane(step: Step, lanes: int, first: bool) -> None:
    get = source(step, step.instruction["src0"], 32)
    pick = None if first else source(step, step.instruction["src1"], 32)
    place = step.instruction["vdst"] - (FIRST_VECTOR if step.instruction["vdst"] >= FIRST_VECTOR else 0)
    step.writing(place, 1)

    def run(waves: Waves) -> None:
        value = np.broadcast_to(get(waves), (waves.count, lanes))
        lane = waves.active.argmax(axis=1) if pick is None else np.broadcast_to(pick(waves)[:, 0], waves.count) % lanes
        waves.set_scalar(place, value[np.arange(waves.count), lane])

    step.run = run


def _write_lane(step: Step, lanes: int) -> None:
    get, pick = (source(step, step.instruction[name], 32) for name in ("src0", "src1"))
    register = step.instruction["vdst"] - FIRST_VECTOR
    step.writing(step.instruction["vdst"], 1)
    step.every_lane = True  # nothing but v_readlane_b32 of the same lanes looks at it

    def run(waves: Waves) -> None:
        at = np.arange(lanes)[None] == pick(waves) % np.uint32(lanes)
        waves.set_vector(register, get(waves), np.broadcast_to(at, (waves.count, lanes)))

    step.run = run


def _swap(step: Step, distance: int) -> None:
    """Halves of pairs of rows: the second half of vdst and the first half of the source change places."""
    first, second = step.instruction["src0"], step.instruction["vdst"]
    for place in (first, second):
        step.reading(place, 1)
        step.writing(place, 1)

    def run(waves: Waves) -> None:
        a, b = (waves.vector(place - FIRST_VECTOR).copy() for place in (first, second))
        pairs = (waves.count, -1, 2, distance)
        one, other = a.reshape(pairs), b.reshape(pairs)
        kept = one[:, :, 0].copy()
        one[:, :, 0], other[:, :, 1] = other[:, :, 1], kept
        for place, value in ((first, a), (second, b)):
            waves.set_vector(place - FIRST_VECTOR, value)

    step.run = run


def _move(step: Step, reads: Callable[[Waves], np.ndarray]) -> None:
    """vdst of each lane from the source of the lane that it reads, on or off."""
    get, register = source(step, step.instruction["src0"], 32), step.instruction["vdst"] - FIRST_VECTOR
    step.writing(step.instruction["vdst"], 1)

    def run(waves: Waves) -> None:
        value = np.broadcast_to(get(waves), (waves.count, waves.lanes))
        lanes = np.broadcast_to(reads(waves), value.shape)
        waves.set_vector(register, np.take_along_axis(value, lanes, axis=1))

    step.run = run


def _permute_rows(step: Step, lanes: int, across: bool, by_lane: bool) -> None:
    lane = np.arange(lanes)
    row, inner = (lane & ~15) ^ (16 if across else 0), lane & 15
    low = source(step, step.instruction["src1"], 32)
    high = low if by_lane else source(step, step.instruction["src2"], 32)
    shifts = (4 * (inner & 7)).astype(np.uint32)

    def reads(waves: Waves) -> np.ndarray:
        if by_lane:
            return np.asarray(row + (low(waves) & 15).astype(np.int64))
        chosen = np.where(inner < 8, low(waves), high(waves)) >> shifts & np.uint32(15)
        return np.asarray(row + chosen.astype(np.int64))

    _move(step, reads)


def swizzle(step: Step, lanes: int) -> None:
    """ds_swizzle_b32: a fixed pattern in groups of 4 or 32 lanes."""
    offset, lane = step.instruction["offset0"] | step.instruction["offset1"] << 8, np.arange(lanes)
    if offset & 0x8000 == 0:
        reads = lane & ~31 | ((lane & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31)
    elif offset < 0xC000:
        reads = lane & ~3 | offset >> 2 * (lane & 3) & 3
    elif offset < 0xE000:
        amount, keep = offset >> 5 & 31, offset & 31
        turned = (lane + (-amount if offset >> 10 & 1 else amount)) & 31
        reads = lane & ~31 | lane & keep | turned & ~keep & 31
    else:
        raise NotModelled("ds_swizzle_b32 in FFT order")
    _through_shared(step, step.instruction["addr"], lambda waves: reads[None])


def permute(step: Step, lanes: int, backward: bool, family: str) -> None:
    """ds_bpermute_b32: each lane names the lane that it reads; ds_permute_b32: the lane that it writes."""
    index = source(step, step.instruction["addr"], 32)
    offset = np.uint32(step.instruction["offset0"] | step.instruction["offset1"] << 8)
    group = 32 if family == "rdna3" else lanes

    def there(waves: Waves) -> np.ndarray:
        chosen = (np.broadcast_to(index(waves), (waves.count, lanes)) + offset) >> np.uint32(2)
        return np.arange(lanes)[None] // group * group + (chosen % np.uint32(group)).astype(np.int64)

    def reads(waves: Waves) -> np.ndarray:
        found = np.tile(np.arange(lanes), (waves.count, 1))
        wave, lane = np.nonzero(waves.active)
        found[wave, there(waves)[wave, lane]] = lane
        return found

    _through_shared(step, step.instruction["data0"], there if backward else reads)


def _through_shared(step: Step, place: int, reads: Callable[[Waves], np.ndarray]) -> None:
    """Move lanes as shared memory does it: lanes that are off give 0."""
    get, register = source(step, place, 32), step.instruction["vdst"] - FIRST_VECTOR

    def run(waves: Waves) -> None:
        value = np.where(waves.active, get(waves), np.uint32(0))
        waves.set_vector(register, np.take_along_axis(value, np.broadcast_to(reads(waves), value.shape), axis=1))

    step.run = run
