"""Loads, stores and atomics: of global, flat, scratch, buffer and shared memory, and scalar loads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator import lanes as across
from lispgpt.runtime.devices.amd_emulator.alu import operation, register_bits
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Source, Step, source
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves

u32, u64, i64 = np.uint32, np.uint64, np.int64
NAME = re.compile(
    r"(?:GLOBAL|FLAT|SCRATCH|BUFFER|DS|S)_(LOAD|STORE|READ|WRITE)(2ST64|2|_2ADDR_STRIDE64|_2ADDR)?_"
    r"(D16_)?(HI_)?([A-Z]+\d*)(_D16)?(_HI)?$"
)
SIZES = {
    "U8": 1, "I8": 1, "B8": 1, "UBYTE": 1, "SBYTE": 1, "BYTE": 1, "U16": 2, "I16": 2, "B16": 2, "USHORT": 2,
    "SSHORT": 2, "SHORT": 2, "B32": 4, "DWORD": 4, "B64": 8, "DWORDX2": 8, "B96": 12, "DWORDX3": 12, "B128": 16,
    "DWORDX4": 16, "B256": 32, "DWORDX8": 32, "B512": 64, "DWORDX16": 64,
}  # fmt: skip
SIGNED = ("I8", "I16", "SBYTE", "SSHORT")


class Shape:
    """What an instruction's name says.  size: bytes at each address.  stride: bytes that one unit of the two offsets
    stands for, 0 where there is one address.  half, upper: whether a load sets half of a register, and which."""

    def __init__(self, name: str) -> None:
        match = NAME.match(name)
        if match is None or match[5] not in SIZES:
            raise NotModelled(name)
        self.load = match[1] in ("LOAD", "READ")
        self.size, self.signed = SIZES[match[5]], match[5] in SIGNED
        self.half = bool(match[3] or match[6])
        self.upper = bool(match[4] or match[7])
        self.stride = self.size * (64 if "64" in (match[2] or "") else 1) if match[2] else 0
        self.registers = max(1, self.size // 4)


def _wide(place: int, step: Step) -> Source:
    return source(step, place, 64)


def address_of(step: Step, family: str) -> Callable[[Waves], np.ndarray]:
    """Addresses [wave, lane] of a global or flat instruction."""
    i = step.instruction
    vector = i["vaddr"] if "vaddr" in i.fields else i["addr"]
    base, bits = i["saddr"], 24 if family == "rdna4" else 13
    offset = i["ioffset"] if family == "rdna4" else i["offset"]
    signed = offset - (1 << bits) if offset >> bits - 1 else offset
    moved = u64(signed & (1 << 64) - 1)
    if base >= 124:
        get = _wide(vector, step)
        return lambda waves: get(waves) + moved
    low, high = source(step, vector, 32), _wide(base, step)
    return lambda waves: low(waves).astype(u64) + high(waves) + moved


def scratch_offset(step: Step, family: str) -> Callable[[Waves], np.ndarray]:
    """Offsets [wave, lane] into each lane's own memory of a scratch instruction."""
    i = step.instruction
    vector = i["vaddr"] if "vaddr" in i.fields else i["addr"]
    bits = 24 if family == "rdna4" else 13
    offset = i["ioffset"] if family == "rdna4" else i["offset"]
    signed = offset - (1 << bits) if offset >> bits - 1 else offset
    gets = [source(step, i["saddr"], 32)] if i["saddr"] < 124 else []
    gets += [source(step, vector, 32)] if i["sve"] else []
    return lambda waves: np.broadcast_to(
        sum((get(waves).astype(i64) for get in gets), np.zeros((1, 1), i64)) + signed, (waves.count, waves.lanes)
    )


def data_place(step: Step) -> int:
    """Where an instruction's data to be stored begin."""
    i = step.instruction
    place = next(i[name] for name in ("vsrc", "data", "data0", "vdata") if name in i.fields)
    return place + (256 if i.get("acc") else 0)


def result_place(step: Step) -> int:
    i = step.instruction
    return (i["vdst"] if "vdst" in i.fields else i["vdata"]) + (256 if i.get("acc") else 0)


def put_words(waves: Waves, place: int, words: list[np.ndarray], on: np.ndarray, shape: Shape) -> None:
    """Put what lanes loaded into registers.  words: one value for each lane in `on`, flat."""
    for number, word in enumerate(words):
        if shape.signed:
            shift = u32(32 - 8 * shape.size)
            word = ((word << shift).view(np.int32) >> shift.view(np.int32)).view(u32)
        if word.size == on.size:
            value = word.reshape(on.shape)
        else:
            value = np.zeros(on.shape, u32)
            value[on] = word
        register = place - FIRST_VECTOR + number
        if shape.half:
            old = waves.vector(register)
            value = old & u32(0xFFFF) | value << u32(16) if shape.upper else old & u32(0xFFFF0000) | value & u32(0xFFFF)
        waves.set_vector(register, value)


def take_words(waves: Waves, place: int, on: np.ndarray, shape: Shape) -> list[np.ndarray]:
    """The values of the lanes in `on` that are to be stored, flat."""
    words = [np.broadcast_to(waves.vector(place - FIRST_VECTOR + i), on.shape)[on] for i in range(shape.registers)]
    return [words[0] >> u32(16)] if shape.upper and shape.size < 4 else words


def vector_memory(step: Step, family: str, machine: Any) -> None:
    """Set the run function of a global, flat or scratch instruction; machine: its memory, hazards and scratch."""
    name = step.instruction.name
    if "ATOMIC" in name:
        atomic(step, family, machine)
        return
    shape = Shape(name)
    private = name.startswith("SCRATCH")
    where = scratch_offset(step, family) if private else address_of(step, family)
    place = result_place(step) if shape.load else data_place(step)
    if shape.load:
        step.loading("load", place, shape.registers)
    else:
        step.reading(place, shape.registers)
    flat = name.startswith("FLAT")

    def run(waves: Waves) -> None:
        machine.hazards.issue("load" if shape.load else "store", step.loaded)
        if flat:
            machine.hazards.issue("shared", step.loaded if shape.load else ())
        on = waves.active
        if not on.any():
            return
        at = np.broadcast_to(where(waves), on.shape)[on]
        if private:
            at = machine.private_addresses(waves, at, on, shape.size)
        if shape.load:
            put_words(waves, place, machine.memory.gather(at, shape.size), on, shape)
        else:
            machine.memory.scatter(at, take_words(waves, place, on, shape), shape.size)

    step.run = run


def scalar_memory(step: Step, family: str, machine: Any) -> None:
    """Set the run function of a scalar load."""
    i = step.instruction
    if not i.name.startswith("S_LOAD"):
        if i.name.startswith(("S_DCACHE", "S_GL1", "S_ICACHE", "S_PREFETCH")):
            return
        raise NotModelled(i.name)
    shape = Shape(i.name)
    bits = {"cdna": 21, "rdna3": 21, "rdna4": 24}[family]
    offset = i["ioffset"] if family == "rdna4" else i["offset"]
    if family == "cdna" and not i["imm"]:
        offset = 0
    signed = offset - (1 << bits) if offset >> bits - 1 else offset
    base = source(step, i["sbase"], 64)
    uses = i["soffset_en"] if family == "cdna" else i["soffset"] < 124
    more = source(step, i["soffset"], 32) if uses else None
    step.loading("scalar", i["sdata"], shape.registers)

    def run(waves: Waves) -> None:
        machine.hazards.issue("scalar", step.loaded)
        at = base(waves)[:, 0] + u64(signed & (1 << 64) - 1)
        if more is not None:
            at = at + more(waves)[:, 0].astype(u64)
        for number, word in enumerate(machine.memory.gather(at, shape.size)):
            waves.set_scalar(i["sdata"] + number, word)

    step.run = run


def shared_memory(step: Step, family: str, machine: Any) -> None:
    """Set the run function of an instruction on shared memory."""
    i, name = step.instruction, step.instruction.name
    if name == "DS_SWIZZLE_B32":
        step.loading("shared", i["vdst"], 1)
        across.swizzle(step, machine.lanes)
        _counted(step, machine)
        return
    if name in ("DS_BPERMUTE_B32", "DS_PERMUTE_B32"):
        step.loading("shared", i["vdst"], 1)
        across.permute(step, machine.lanes, name == "DS_BPERMUTE_B32", family)
        _counted(step, machine)
        return
    if not NAME.match(name):
        atomic(step, family, machine)
        return
    shape = Shape(name)
    get = source(step, i["addr"], 32)
    offsets = (
        [i["offset0"] * shape.stride, i["offset1"] * shape.stride]
        if shape.stride
        else [i["offset0"] | i["offset1"] << 8]
    )
    extra = 256 if i.get("acc") else 0
    if shape.load:
        places = [i["vdst"] + extra + n * shape.registers for n in range(len(offsets))]
        step.loading("shared", places[0], shape.registers * len(offsets))
    else:
        places = [i[n] + extra for n in ("data0", "data1")][: len(offsets)]
        for place in places:
            step.reading(place, shape.registers)

    def run(waves: Waves) -> None:
        hazards, memory, on = machine.hazards, machine.shared, waves.active
        hazards.issue("shared", step.loaded)
        if not shape.load:
            hazards.shared_store()
        wave = np.broadcast_to(waves.which[:, None], on.shape)[on]
        address = np.broadcast_to(get(waves), on.shape)[on].astype(i64)
        for place, offset in zip(places, offsets, strict=True):
            at = memory.places(address + offset, wave, shape.size, not shape.load)
            if shape.load:
                put_words(waves, place, memory.gather(at, shape.size), on, shape)
            else:
                memory.scatter(at, take_words(waves, place, on, shape), shape.size)

    step.run = run


def _counted(step: Step, machine: Any) -> None:
    inner = step.run

    def run(waves: Waves) -> None:
        machine.hazards.issue("shared", step.loaded)
        inner(waves)

    step.run = run


def atomic(step: Step, family: str, machine: Any) -> None:
    """Set the run function of an atomic: lanes that name one address take turns, in their order."""
    i, name = step.instruction, step.instruction.name
    on_shared = name.startswith("DS")
    returns = "_RTN" in name if on_shared else bool(i.get("glc") or i.get("sc0") or i.get("th") & 1)
    size = 8 if re.search(r"(64|X2)$", name) else 4
    pair = "CMPSW" in name and not on_shared  # the new value and the one to compare with, side by side
    if pair and size == 8:
        raise NotModelled(name)
    given = {"MEM": size, "DATA": 2 * size if pair else size, "DATA2": size}
    done = operation(family, i.op, name, 32, tuple((part, 8 * n) for part, n in sorted(given.items())), 0)
    where = source(step, i["addr"], 32) if on_shared else address_of(step, family)
    places = {"DATA": data_place(step), "DATA2": i.get("data1") + (256 if i.get("acc") else 0)}
    gets = {part: source(step, places[part], 8 * given[part]) for part in places if part in done.inputs}
    memory_result = [part for part, _ in done.outputs].index("MEM")
    if returns:
        step.loading("shared" if on_shared else "load", result_place(step), size // 4)
    kind, offset = "shared" if on_shared else "load" if returns else "store", i.get("offset0") | i.get("offset1") << 8

    def run(waves: Waves) -> None:
        on = waves.active
        machine.hazards.issue(kind, step.loaded)
        if not on.any():
            return
        at = np.broadcast_to(where(waves), on.shape)[on]
        memory: Any = machine.memory
        if on_shared:
            machine.hazards.shared_store()
            wave = np.broadcast_to(waves.which[:, None], on.shape)[on]
            at, memory = machine.shared.update_places(at.astype(i64) + offset, wave, size), machine.shared
        values = {part: np.broadcast_to(get(waves), on.shape)[on] for part, get in gets.items()}
        old = np.zeros(at.size, u64 if size == 8 else u32)
        for turn in rounds(at):
            now = _joined(memory.gather(at[turn], size))
            results = done.function(*[now if part == "MEM" else values[part][turn] for part in done.inputs])
            memory.scatter(at[turn], _words(register_bits(results[memory_result], "u")), size)
            old[turn] = now
        if returns:
            put_words(waves, result_place(step), _words(old), on, WORDS)

    step.run = run


WORDS = Shape("GLOBAL_LOAD_B32")


def _joined(words: list[np.ndarray]) -> np.ndarray:
    return words[0] if len(words) == 1 else words[0].astype(u64) | words[1].astype(u64) << u64(32)


def _words(value: np.ndarray) -> list[np.ndarray]:
    return [value] if value.dtype == u32 else [value.astype(u32), (value >> u64(32)).astype(u32)]


def rounds(addresses: np.ndarray) -> list[np.ndarray]:
    """Places in `addresses`, in turns in which no address comes twice."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    turn = np.arange(order.size) - np.repeat(starts, np.diff(np.r_[starts, order.size]))
    return [order[turn == number] for number in range(int(turn.max()) + 1)]
