"""Where an instruction's operands come from and where its results go, as functions of the waves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.changes import Change, absolute, bit_field, halves, negated, widened
from lispgpt.runtime.devices.amd_emulator.decode import LITERAL, Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.waves import EXEC, FIRST_VECTOR, FLOATS, SCC, VCC, Waves, constant

Source = Callable[[Waves], Any]
u32, u64 = np.uint32, np.uint64
FIELDS = {"S0": ("vsrc0", "src0", "ssrc0", "sdst"), "S1": ("src1", "vsrc1", "ssrc1"), "S2": ("src2",),
          "D0": ("vdst", "sdst")}  # fmt: skip
WHOLE = 6
PARTS_OF_REGISTERS = {0: (0, 8), 1: (8, 8), 2: (16, 8), 3: (24, 8), 4: (0, 16), 5: (16, 16), WHOLE: (0, 32)}
"""(lowest bit, bits) by the numbers that CDNA's SDWA encoding gives them."""


@dataclass
class Step:
    """What an instruction does to waves of some lanes.

    reads, writes: its registers, for the checks of `hazards`.  loaded: those that a load sets when it is done, of a
    kind of memory: load, shared or scalar.  touched: all of these.  every_lane: whether it writes lanes that are off,
    too.  results: the registers that hold its result's words, if it computes; feeds: for each of two words, what it is
    computed from.  shared: the registers, in their order, whose words a store puts into shared memory.  halves: which
    half of a register a load sets or a store takes, where that is all it does with it: 0 the lower, 1 the upper.
    """

    instruction: Instruction
    lanes: int
    run: Callable[[Waves], None] = lambda waves: None
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    loaded: tuple[int, ...] = ()
    kind: str = ""
    every_lane: bool = False
    touched: frozenset[int] = frozenset()
    results: list[int] = field(default_factory=list)
    feeds: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    shared: tuple[int, ...] = ()
    halves: dict[int, int] = field(default_factory=dict)

    def reading(self, place: int, count: int, picks: tuple[int, ...] = ()) -> None:
        """Note an operand.  picks: its word that each of the result's two words is computed from; without them its
        high word reaches the result's low one in a few operations only."""
        if place < 124 or place >= FIRST_VECTOR:
            registers = range(place, place + count)
            downwards = "F64" in self.instruction.name or "SHR" in self.instruction.name
            self.reads.update(registers)
            self.feeds[0].update([place + picks[0]] if picks else registers if downwards else registers[:1])
            self.feeds[1].update([place + picks[1]] if picks else registers)

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


def fixed(number: int, bits: int) -> Source:
    """A number that stands for all lanes."""
    value = np.asarray((u64 if bits > 32 else u32)(number))[None, None]
    return lambda waves: value


def source(
    step: Step, place: int, bits: int, floating: bool = False, changes: tuple[Change, ...] = (),
    picks: tuple[int, ...] = (),
) -> Source:  # fmt: skip
    """An operand as unsigned integers of 32 or 64 bits [wave, lane], of scalars [wave, 1], of constants [1, 1]."""
    number = step.instruction.get("literal") if place == LITERAL else constant(place, bits, floating)
    if number is None:
        step.reading(place, max(1, bits // 32), picks)
        get = register(place, bits)
    else:
        get = fixed(number << 32 if place == LITERAL and bits == 64 and floating else number, bits)
    for change in changes:
        get = _then(get, change)
    return get


def _then(get: Source, change: Change) -> Source:
    return lambda waves: change(get(waves))


def register(place: int, bits: int) -> Source:
    if place < FIRST_VECTOR:
        if bits <= 32:
            return lambda waves: waves.scalar(place)[:, None]
        return lambda waves: waves.scalar64(place)[:, None]
    number = place - FIRST_VECTOR
    if bits <= 32:
        return lambda waves: waves.vector(number)
    return lambda waves: waves.vector(number).astype(u64) | waves.vector(number + 1).astype(u64) << u64(32)


def operand(step: Step, i: Instruction, part: str, bits: int, inputs: tuple[str, ...]) -> Source:
    """An operand of an operation by its name in the pseudocode."""
    if part == "laneId":
        return lambda waves: waves.lane
    if part == "SCC":
        return lambda waves: waves.scalar(SCC)[:, None] != 0
    if part == "EXEC":
        return lambda waves: waves.mask_bits(EXEC)[:, None]
    if part == "VCC":
        carries = i.format.startswith("VOP3") and "S2" not in inputs and "src2" in i.operands
        place = i["src2"] if carries else VCC
        step.reading(place, step.lanes // 32)
        return lambda waves: waves.mask(place)
    if part in ("SIMM16", "SIMM32"):
        return fixed(i["simm16" if part == "SIMM16" else "literal"], 32)
    if i.format == "SOPK" and part != "D0" and not {"S1", "SIMM16"} & ({*inputs} - {part}):
        return fixed(i["simm16"], 32)
    if part not in FIELDS:
        raise NotModelled(f"{i.name} reads {part}")
    name = next(n for n in FIELDS[part] if n in i.fields)
    kept = part == "D0" and "_MIX" in i.name  # the other half of its result, which nothing need have set
    return source(Step(i, step.lanes) if kept else step, *_changed(i, name, part, bits))


def _changed(i: Instruction, name: str, part: str, bits: int) -> tuple[Any, ...]:
    """What `source` takes: what the instruction does to an operand before it computes."""
    index, place, wide = ("S0", "S1", "S2", "D0").index(part), i[name], i.format.startswith("VOP3")
    what = i.operands.get(name, i.operands.get(name.removeprefix("v"), ("", 32)))[0]
    floating = any(kind in what for kind in ("F16", "F32", "F64"))
    if i.format.startswith("VOP3P") and part != "D0":
        return _packed(i, place, index, bits, what)
    if i.family != "cdna" and bits == 16 and not wide and place >= FIRST_VECTOR + 128:
        place, high = place - 128, True  # the short encodings name halves of v0 to v127
    else:
        high = bool(wide and bits == 16 and i.get("opsel") >> index & 1)
    changes: list[Change] = [bit_field(16 * high, 16)] if bits == 16 else []
    if part == "D0" or i.name.startswith("V_BITOP3") or not i.format.startswith("V"):
        return place, bits, floating and part != "D0", tuple(changes)
    short = name.removeprefix("v")
    if f"{short}_sel" in i.fields:
        place -= FIRST_VECTOR if i.get("s0" if short == "src0" else "s1") else 0
        changes = [bit_field(*PARTS_OF_REGISTERS[i[f"{short}_sel"]], bool(i[f"{short}_sext"]))]
    if i.get("abs") >> index & 1 or i.get(f"{short}_abs"):
        changes.append(absolute(bits))
    if i.get("neg") >> index & 1 or i.get(f"{short}_neg"):
        changes.append(negated(bits))
    return place, 32 if f"{short}_sel" in i.fields else bits, floating, tuple(changes)


def _packed(i: Instruction, place: int, index: int, bits: int, what: str) -> tuple[Any, ...]:
    """An operand of a packed instruction: of both halves of the result, or of a sum of mixed types.

    what: its format's name.  Constants are 32 bits wide, as LLVM's AMDGPUBaseInfo.cpp describes the hardware: whole
    numbers with their sign, floating-point ones of an operand of 16 bits in the lower half, with zeros above.
    """
    high = i["opsel_hi"] >> index & 1 if index < 2 else i.get("opsel_hi2", 1)
    low, flips = i["opsel"] >> index & 1, (bool(i["neg"] >> index & 1), bool(i["neg_hi"] >> index & 1))
    halved, floats = ("_MIX" in i.name and high) or what.endswith("F16"), place in FLOATS
    if "_MIX" in i.name:
        changes: list[Change] = [bit_field(16 * low, 16), widened] if high else []
        changes += [absolute(32)] * flips[1] + [negated(32)] * flips[0]
        return place, 16 if halved and floats else 32, True, tuple(changes)
    if i.name.endswith("_IU8"):  # whose `neg` says which bytes have signs
        return place, bits, False, ()
    if "PK" not in what:  # what the products of packed operands are added to
        return place, bits, halved, (negated(bits),) * flips[0]
    plain = (low, high, *flips) == (0, 1, False, False)
    parts = () if plain else (halves(bits, (low, high), flips),)
    if constant(place) is None:
        return place, bits, bits == 32, parts, (low, high) if bits == 64 else ()
    if bits == 64:  # a constant stands for both
        return place, 32, False, (lambda value: value.astype(u64) * u64(0x100000001), *parts)
    if what.endswith("BF16") and floats:
        return place, 32, False, (bit_field(16, 16), *parts)
    return place, 16 if halved and floats else 32, halved, parts


def result(step: Step, i: Instruction, part: str, kind: str, bits: int) -> Callable[[Waves, Any, Any], None]:
    """A function that puts a result where the pseudocode's name for it says.

    Its third argument is which lanes are written, None for all that are on.
    """
    if part == "SCC":
        return lambda waves, value, lanes: waves.set_scalar(SCC, value[:, 0])
    if part == "LANES" or (part in ("VCC", "EXEC") and kind == "bool"):
        place = {"EXEC": EXEC, "VCC": i.get("sdst", VCC)}.get(part, _mask_place(i))
        step.writing(place, step.lanes // 32)
        return lambda waves, value, lanes: waves.set_mask(place, value & (waves.active if lanes is None else lanes))
    if part == "EXEC":
        return lambda waves, value, lanes: waves.set_scalar64(EXEC, value[:, 0])
    if part not in ("D0", "S0"):
        raise NotModelled(f"{i.name} sets {part}")
    place = i["src0"] if part == "S0" else next(i[n] for n in FIELDS["D0"] if n in i.fields)
    encode = _clamped if i.clamps else _scaled(i.get("omod")) if i.get("omod") and kind == "f" else register_bits
    if place < FIRST_VECTOR:
        step.computing(place, max(1, bits // 32))
        if bits > 32:
            return lambda waves, value, lanes: waves.set_scalar64(place, register_bits(value, kind)[:, 0])
        return lambda waves, value, lanes: waves.set_scalar(place, encode(value, kind)[:, 0])
    if i.operands.get("vdst", ("", 32))[1] == 16 and i.format != "VOP3P":  # whose pseudocode names halves itself
        bits = 16
    put = _vector(step, i, place, bits)
    return lambda waves, value, lanes: put(waves, encode(value, kind), lanes)


def _mask_place(i: Instruction) -> int:
    """Where a comparison's result goes."""
    if i.format.startswith("VOP3"):
        return i["vdst"]
    return i.get("sdst", VCC) if i.get("sd", 1) else VCC


def _vector(step: Step, i: Instruction, place: int, bits: int) -> Callable[[Waves, Any, Any], None]:
    """Puts a result into vector registers.  The rest of a register that a result leaves: SDWA and RDNA say what."""
    wide, part, rest = i.format.startswith("VOP3"), WHOLE, 2
    if "dst_sel" in i.fields:
        part, rest = i["dst_sel"], i["dst_unused"]
    elif bits == 16 and i.family != "cdna":
        high = place >= FIRST_VECTOR + 128 if not wide else bool(i.get("opsel") & 8)
        place, part = place - 128 * (high and not wide), 4 + high
    number = place - FIRST_VECTOR
    step.computing(place, max(1, bits // 32))
    if bits > 32:

        def put_both(waves: Waves, value: Any, lanes: Any) -> None:
            waves.set_vector(number, value.astype(u32), lanes)
            waves.set_vector(number + 1, (value >> u64(32)).astype(u32), lanes)

        return put_both
    if part == WHOLE:
        return lambda waves, value, lanes: waves.set_vector(number, value, lanes)
    low, size = PARTS_OF_REGISTERS[part]
    signed, mask = bit_field(0, low + size, True), u32((1 << size) - 1 << low)

    def put_part(waves: Waves, value: Any, lanes: Any) -> None:
        value = value << u32(low) & mask
        if rest == 2:
            value = value | waves.vector(number) & ~mask
        waves.set_vector(number, signed(value) if rest == 1 else value, lanes)

    return put_part


def register_bits(value: Any, kind: str) -> Any:
    """A result as the unsigned integers that registers hold."""
    if value.dtype == np.bool_:
        return value.astype(u32)
    if kind == "bf":
        return value.view(u32) >> u32(16)
    if value.dtype.itemsize == 2:
        return value.view(np.uint16).astype(u32)
    return value.view(u32 if value.dtype.itemsize == 4 else u64)


def _scaled(modifier: int) -> Callable[[Any, str], Any]:
    """A result times 2, times 4, or halved."""
    return lambda value, kind: register_bits(value * value.dtype.type((1, 2, 4, 0.5)[modifier]), kind)


def _clamped(value: Any, kind: str) -> Any:
    if kind != "f":
        raise NotModelled("a clamped integer")
    return register_bits(np.nan_to_num(np.clip(value, 0, 1), nan=0.0).astype(value.dtype), kind)
