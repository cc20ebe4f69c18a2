"""Lanes that read other lanes: DPP's patterns, permlane, readlane, swizzles and permutes through shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Source, Step, source
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves

Reads = Callable[[Waves], np.ndarray]
"""The lane that each lane reads [wave or 1, lane]; the number of lanes for none, which gives 0."""


def dpp_pattern(i: Instruction, lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lane that each lane reads, whether there is one), by DPP16's control or DPP8's selectors."""
    always = np.ones(lane.size, bool)
    if "lane_sel_0" in i.fields:
        picks = np.array([i[f"lane_sel_{n}"] for n in range(8)])
        return lane & ~7 | picks[lane & 7], always
    control, row, inner = i["dpp"], lane & ~15, lane & 15
    kind, amount = control >> 4, control & 15
    if kind < 0x10:
        return lane & ~3 | control >> 2 * (lane & 3) & 3, always
    if kind in (0x10, 0x11):  # shift within a row
        there = inner + (amount if kind == 0x10 else -amount)
        return row + there.clip(0, 15), (there >= 0) & (there < 16)
    moves = {0x12: row + (inner - amount) % 16, 0x15: row + amount, 0x16: lane ^ amount}
    turns = {0x134: (lane + 1) % lane.size, 0x13C: (lane - 1) % lane.size, 0x140: lane ^ 15, 0x141: lane ^ 7}
    if kind in moves or control in turns:
        return turns[control] if control in turns else moves[kind], always
    if control in (0x130, 0x138):  # shift by one within the wave
        there = lane + (1 if control == 0x130 else -1)
        return there.clip(0, lane.size - 1), (there >= 0) & (there < lane.size)
    if control in (0x142, 0x143):  # a row's, or two rows', last lane to the next
        wide = 16 if control == 0x142 else 32
        return np.maximum(lane // wide * wide - 1, 0), lane >= wide
    raise NotModelled(f"DPP control {control:#x}")


def dpp(
    i: Instruction, get: Source, lanes: int
) -> tuple[Source, Callable[[Waves], np.ndarray], Callable[[Waves], np.ndarray]]:
    """(the source with its lanes moved, which lanes the instruction writes, which of them read a lane that is off)."""
    lane = np.arange(lanes)
    reads, there = dpp_pattern(i, lane)
    chosen = (i.get("row_mask", 15) >> lane // 16 % 4 & i.get("bank_mask", 15) >> lane // 4 % 4 & 1).astype(bool)
    of_inactive, zero = bool(i.get("fi")) or i.get("src0") == 234, bool(i.get("bc")) or "lane_sel_0" in i.fields

    def valid(waves: Waves) -> np.ndarray:
        return there[None] & (True if of_inactive else waves.active[:, reads])

    def moved(waves: Waves) -> np.ndarray:
        value = np.broadcast_to(get(waves), (waves.count, lanes))[:, reads]
        return np.where(valid(waves), value, value.dtype.type(0))

    def written(waves: Waves) -> np.ndarray:
        return waves.active & chosen[None] & (True if zero else valid(waves))

    def off(waves: Waves) -> np.ndarray:
        return waves.active & chosen[None] & there[None] & ~waves.active[:, reads]

    return moved, written, off


def cross_lane(step: Step) -> bool:
    """Set the run function of an instruction that moves values between lanes; False where it is none."""
    name, lane = step.instruction.name, np.arange(step.lanes)
    if name in ("V_READFIRSTLANE_B32", "V_READLANE_B32"):
        _read_lane(step, first=name == "V_READFIRSTLANE_B32")
    elif name == "V_WRITELANE_B32":
        _write_lane(step)
    elif name.startswith("V_PERMLANE") and name.endswith("_SWAP_B32"):
        _swap(step, 16 if "16" in name else 32)
    elif name.startswith(("V_PERMLANE16", "V_PERMLANEX16")):
        _move(step, "src0", _rows(step, across="X16" in name, by_lane="_VAR_" in name))
    elif name == "V_PERMLANE64_B32":
        _move(step, "src0", lambda waves: lane[None] ^ (32 if step.lanes == 64 else 0))
    elif name == "DS_SWIZZLE_B32":
        reads = swizzle(step.instruction["offset0"] | step.instruction["offset1"] << 8, lane)
        _move(step, "addr" if "addr" in step.instruction.fields else "data0", lambda waves: reads[None], shared=True)
    elif name in ("DS_BPERMUTE_B32", "DS_PERMUTE_B32"):
        _move(step, "data0", _named(step, name == "DS_BPERMUTE_B32"), shared=True)
    else:
        return False
    return True


def _read_lane(step: Step, first: bool) -> None:
    get = source(step, step.instruction["src0"], 32)
    pick = None if first else source(step, step.instruction["src1"], 32)
    place = step.instruction["vdst"] % FIRST_VECTOR
    step.writing(place, 1)

    def run(waves: Waves) -> None:
        value = np.broadcast_to(get(waves), (waves.count, step.lanes))
        chosen = waves.active.argmax(axis=1) if pick is None else pick(waves)[:, 0] % step.lanes
        waves.set_scalar(place, value[np.arange(waves.count), chosen])

    step.run = run


def _write_lane(step: Step) -> None:
    get, pick = (source(step, step.instruction[name], 32) for name in ("src0", "src1"))
    register = step.instruction["vdst"] - FIRST_VECTOR
    step.writing(step.instruction["vdst"], 1)
    step.every_lane = True  # nothing but v_readlane_b32 of the same lanes looks at it

    def run(waves: Waves) -> None:
        at = waves.lane == pick(waves) % np.uint32(step.lanes)
        waves.set_vector(register, get(waves), np.broadcast_to(at, (waves.count, step.lanes)))

    step.run = run


def _swap(step: Step, distance: int) -> None:
    """Halves of pairs of rows: the second half of vdst and the first half of the source change places."""
    places = step.instruction["src0"], step.instruction["vdst"]
    for place in places:
        step.reading(place, 1)
        step.writing(place, 1)

    def run(waves: Waves) -> None:
        one, other = (waves.vector(place - FIRST_VECTOR).copy() for place in places)
        pairs = (waves.count, -1, 2, distance)
        first, second = one.reshape(pairs)[:, :, 0], other.reshape(pairs)[:, :, 1]
        first[...], second[...] = second.copy(), first.copy()
        for place, value in zip(places, (one, other), strict=True):
            waves.set_vector(place - FIRST_VECTOR, value)

    step.run = run


def _move(step: Step, field: str, reads: Reads, shared: bool = False) -> None:
    """vdst of each lane from the source of the lane that it reads.  shared: as shared memory does it, where lanes that
    are off give 0; else they give what they hold."""
    get, place = source(step, step.instruction[field], 32), step.instruction["vdst"]
    if shared:
        step.loading("shared", place, 1)
    else:
        step.writing(place, 1)

    def run(waves: Waves) -> None:
        value = np.broadcast_to(get(waves), (waves.count, waves.lanes))
        if shared:
            value = np.pad(np.where(waves.active, value, np.uint32(0)), ((0, 0), (0, 1)))
        lanes = np.broadcast_to(reads(waves), (waves.count, waves.lanes))
        waves.set_vector(place - FIRST_VECTOR, np.take_along_axis(value, lanes, axis=1))
        if not waves.full and waves.machine.watched is not None:
            there = np.take_along_axis(np.pad(waves.active, ((0, 0), (0, 1))), lanes, axis=1)
            waves.machine.hazards.found_nothing(place, [waves.active & ~there])

    step.run = run


def _rows(step: Step, across: bool, by_lane: bool) -> Reads:
    """v_permlane16: a lane of the own row of 16, or across of the other, by four bits of two words or a lane's own."""
    lane = np.arange(step.lanes)
    row, inner = (lane & ~15) ^ 16 * across, lane & 15
    low = source(step, step.instruction["src1"], 32)
    high = low if by_lane else source(step, step.instruction["src2"], 32)
    shifts = (0 * inner if by_lane else 4 * (inner & 7)).astype(np.uint32)
    return lambda waves: row + (np.where(inner < 8, low(waves), high(waves)) >> shifts & np.uint32(15)).astype(np.int64)


def swizzle(offset: int, lane: np.ndarray) -> np.ndarray:
    """ds_swizzle_b32's fixed patterns in groups of 4 or 32 lanes."""
    if offset & 0x8000 == 0:
        return lane & ~31 | ((lane & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31)
    if offset < 0xC000:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    if offset < 0xE000:
        amount, keep = offset >> 5 & 31, offset & 31
        turned = (lane + (-amount if offset >> 10 & 1 else amount)) & 31
        return lane & ~31 | lane & keep | turned & ~keep & 31
    raise NotModelled("ds_swizzle_b32 in FFT order")


def _named(step: Step, backward: bool) -> Reads:
    """ds_bpermute_b32: each lane names the lane that it reads; ds_permute_b32: the lane that it writes."""
    i, lanes = step.instruction, step.lanes
    index, offset = source(step, i["addr"], 32), np.uint32(i["offset0"] | i["offset1"] << 8)
    group = 32 if i.family == "rdna3" else lanes

    def there(waves: Waves) -> np.ndarray:
        chosen = (np.broadcast_to(index(waves), (waves.count, lanes)) + offset) >> np.uint32(2)
        return np.arange(lanes)[None] // group * group + (chosen % np.uint32(group)).astype(np.int64)

    def reads(waves: Waves) -> np.ndarray:
        found = np.full((waves.count, lanes), lanes)
        wave, lane = np.nonzero(waves.active)
        found[wave, there(waves)[wave, lane]] = lane
        return found

    return there if backward else reads
