"""Where an instruction's operands come from and where its results go, as functions of the waves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import LITERAL, Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves, constant

Source = Callable[[Waves], Any]
u32, u64 = np.uint32, np.uint64


@dataclass
class Step:
    """What an instruction does.

    reads, writes: its registers, for the checks of `hazards`.  loaded: those that a load sets when it is done, of a
    kind of memory: load, shared or scalar.  every_lane: whether it writes lanes that are off, too.  results: the
    registers that hold its result's words, if it computes; feeds: for each of two words, what it is computed from.
    """

    instruction: Instruction
    run: Callable[[Waves], None] = lambda waves: None
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    loaded: tuple[int, ...] = ()
    kind: str = ""
    every_lane: bool = False
    results: list[int] = field(default_factory=list)
    feeds: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))

    def reading(self, place: int, count: int) -> None:
        if place < 124 or place >= FIRST_VECTOR:
            registers = range(place, place + count)
            self.reads.update(registers)
            self.feeds[0].update(registers if self._downwards() else registers[:1])
            self.feeds[1].update(registers)

    def _downwards(self) -> bool:
        """Whether the high word of an operand reaches the low word of the result."""
        name = self.instruction.name
        return "F64" in name or "SHR" in name

    def writing(self, place: int, count: int) -> None:
        if place < 124 or place >= FIRST_VECTOR:
            self.writes.update(range(place, place + count))

    def computing(self, place: int, count: int) -> None:
        """Note where the result goes; one word of 64-bit operands depends on all of them."""
        self.writing(place, count)
        self.results = list(range(place, place + count))
        if count == 1:
            self.feeds[0].update(self.reads)

    def loading(self, kind: str, place: int, count: int) -> None:
        self.kind, self.loaded = kind, tuple(range(place, place + count))


@dataclass(frozen=True)
class Modifiers:
    """negate, absolute: of floating-point numbers, done on the sign bit.  high: the upper half of a register."""

    negate: bool = False
    absolute: bool = False
    high: bool = False


PLAIN = Modifiers()
WHOLE = 6
PARTS_OF_REGISTERS = {0: (0, 8), 1: (8, 8), 2: (16, 8), 3: (24, 8), 4: (0, 16), 5: (16, 16), WHOLE: (0, 32)}
"""(lowest bit, bits) by the numbers that the SDWA encoding gives them."""


def halves(family: str, place: int, bits: int, wide: bool) -> tuple[int, bool]:
    """(register, whether its upper half): RDNA's short encodings name halves of v0 to v127 in 16-bit operands."""
    if family != "cdna" and bits == 16 and not wide and place >= FIRST_VECTOR + 128:
        return place - 128, True
    return place, False


def source(step: Step, place: int, bits: int, floating: bool = False, modifiers: Modifiers = PLAIN) -> Source:
    """An operand as an unsigned integer of 32 or 64 bits for each lane, or one that stands for all lanes."""
    number = step.instruction.get("literal") if place == LITERAL else constant(place, bits, floating)
    if number is not None:
        if place == LITERAL and bits == 64 and floating:
            number <<= 32
        kind = u64 if bits == 64 else u32
        found = np.asarray(_modified(np.asarray(kind(number))[None, None], bits, modifiers))
        return lambda waves: found
    step.reading(place, max(1, bits // 32))
    base = _vector(place, bits) if place >= FIRST_VECTOR else _scalar(place, bits)
    if modifiers == PLAIN and bits >= 32:
        return base
    return lambda waves: _modified(base(waves), bits, modifiers)


def _vector(place: int, bits: int) -> Source:
    register = place - FIRST_VECTOR
    if bits <= 32:
        return lambda waves: waves.vector(register)
    return lambda waves: waves.vector(register).astype(u64) | waves.vector(register + 1).astype(u64) << u64(32)


def _scalar(place: int, bits: int) -> Source:
    if bits <= 32:
        return lambda waves: waves.scalar(place)[:, None]
    return lambda waves: waves.scalar64(place)[:, None]


def _modified(value: np.ndarray, bits: int, modifiers: Modifiers) -> np.ndarray:
    if bits == 16:
        value = value >> u32(16) if modifiers.high else value & u32(0xFFFF)
    kind = u64 if bits == 64 else u32
    sign = kind(1 << bits - 1)
    if modifiers.absolute:
        value = value & ~sign
    return value ^ sign if modifiers.negate else value


def flat_scalar(get: Source) -> Source:
    """The same operand for scalar instructions: [wave]."""
    return lambda waves: get(waves)[:, 0]


def floating(instruction: Instruction, name: str) -> bool:
    """Whether an operand's format is of floating-point numbers."""
    what = instruction.operands.get(name, ("", 32))[0]
    return "F16" in what or "F32" in what or "F64" in what


def packed(step: Step, name: str, index: int, bits: int) -> Source:
    """An operand of a packed instruction: both halves, each picked and negated as the instruction says.

    bits: of the operand; halves have 16 of 32, or 32 of 64.
    """
    instruction = step.instruction
    high = instruction["opsel_hi"] >> index & 1 if index < 2 else instruction.get("opsel_hi2", 1)
    picks = (instruction["opsel"] >> index & 1, high)
    flips = (instruction["neg"] >> index & 1, instruction["neg_hi"] >> index & 1)
    place = instruction[name]
    known = step.instruction.get("literal") if place == LITERAL else constant(place, bits // 2, floating=True)
    if known is not None and bits == 64:
        get: Source = _fixed(known | known << 32, u64)
    else:
        get = source(step, place, bits) if known is None or bits == 64 else _fixed(known, u32)
    if bits == 64 and known is None:
        step.feeds[0].discard(place)
        step.feeds[1].difference_update((place, place + 1))
        for word in (0, 1):
            step.feeds[word].add(place + picks[word])
    half, kind = bits // 2, u64 if bits == 64 else u32
    if picks == (0, 1) and flips == (0, 0):
        return get
    mask, sign = kind((1 << half) - 1), 1 << half - 1

    def read(waves: Waves) -> np.ndarray:
        value = get(waves)
        parts = [(value >> kind(half) if pick else value) & mask for pick in picks]
        low, top = (part ^ kind(sign) if flip else part for part, flip in zip(parts, flips, strict=True))
        return np.asarray(low | top << kind(half))

    return read


def part_of_register(step: Step, place: int, name: str, bits: int, modifiers: Modifiers) -> Source:
    """A source of CDNA's SDWA encoding: a byte or a half of a register, with its sign or without."""
    instruction = step.instruction
    if instruction.get("s0" if name == "src0" else "s1"):
        place -= FIRST_VECTOR
    get, part = source(step, place, 32), instruction[f"{name}_sel"]
    low, size = PARTS_OF_REGISTERS[part]
    up = u32(32 - size)

    def read(waves: Waves) -> np.ndarray:
        value = get(waves) >> u32(low) << up
        value = (value.view(np.int32) >> up.view(np.int32)).view(u32) if instruction[f"{name}_sext"] else value >> up
        return _modified(value, bits, modifiers)

    return read


def store_part(step: Step, place: int) -> Callable[..., None]:
    """A result of the SDWA encoding in a byte or a half of a register; the rest becomes zeros, signs or stays."""
    low, size = PARTS_OF_REGISTERS[step.instruction["dst_sel"]]
    rest, register, mask = step.instruction["dst_unused"], place - FIRST_VECTOR, u32((1 << size) - 1 << low)
    step.computing(place, 1)

    def put(waves: Waves, value: np.ndarray, lanes: np.ndarray | None = None) -> None:
        value = value.view(u32) if value.dtype.itemsize == 4 else value.view(np.uint16).astype(u32)
        part = value << u32(low) & mask
        if rest == 2:
            part = part | waves.vector(register) & ~mask
        elif rest == 1:
            top = u32(32 - low - size)
            part = ((part << top).view(np.int32) >> top.view(np.int32)).view(u32)
        waves.set_vector(register, part, lanes)

    return put


def _fixed(number: int, kind: Any) -> Source:
    value = np.asarray(kind(number))[None, None]
    return lambda waves: value


def store(step: Step, place: int, bits: int, high: bool = False, keep: bool = True) -> Callable[..., None]:
    """A function that puts a result of 16, 32 or 64 bits a lane into vector registers.

    high: the upper half.  keep: whether a 16-bit result leaves the other half as it is rather than clearing it.
    """
    register = place - FIRST_VECTOR
    if register < 0:
        raise NotModelled("a vector result in a scalar register")
    step.computing(place, max(1, bits // 32))

    def put(waves: Waves, value: Any, lanes: np.ndarray | None = None) -> None:
        if bits == 16 and keep:
            old, value = waves.vector(register), value & u32(0xFFFF)
            value = old & u32(0xFFFF) | value << u32(16) if high else old & u32(0xFFFF0000) | value
        if bits <= 32:
            waves.set_vector(register, value, lanes)
        else:
            waves.set_vector(register, value.astype(u32), lanes)
            waves.set_vector(register + 1, (value >> u64(32)).astype(u32), lanes)

    return put
