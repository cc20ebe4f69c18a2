"""Loads, stores and atomics: of global, flat, scratch, buffer and shared memory, and scalar loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.alu import operation
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.global_memory import GlobalAccess
from lispgpt.runtime.devices.amd_emulator.memory import Access, rounds
from lispgpt.runtime.devices.amd_emulator.operands import Source, Step, fixed, register, register_bits, source
from lispgpt.runtime.devices.amd_emulator.shared_memory import SharedAccess
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves

u32, u64, i64 = np.uint32, np.uint64, np.int64
SPACES = ("DS", "SMEM", "SCRATCH", "FLAT", "BUF", "GLOBAL")
"""As formats of instructions contain them."""
STORED, RESULTS = ("vsrc", "data0", "data", "vdata"), ("vdst", "vdata", "sdata")
FIELDS = {"DATA": STORED, "VDATA": (*STORED, *RESULTS), "DATA2": ("data1",), "RETURN_DATA": RESULTS, "SDATA": RESULTS}
DEVICE_SCOPE = 2
"""Of RDNA 4's scopes."""
NO_STRIDE, STRIDE_BITS = u64(0xFFFF), 14
"""Of a buffer's descriptor: the address's upper bits in its second word, and the stride that follows them."""


def transfer(step: Step) -> None:
    """Set the run function of an instruction that loads, stores or updates."""
    i = step.instruction
    space = next(name for name in SPACES if name in i.format)
    fields = {part: next((n for n in names if n in i.operands), "") for part, names in FIELDS.items()}
    done = operation(i, step.lanes, {part: i.operands[n][1] for part, n in fields.items() if n})
    atomic, returns = done.loads and done.stores, done.loads
    if atomic:
        returns = "vdst" in i.operands if space == "DS" else bool(i.get("glc") or i.get("sc0") or i.get("th") & 1)
    gets = [_data(step, part, i, fields, done.loads and not atomic) for part in done.inputs]
    target = next((i[n] for n in RESULTS if n in i.fields), 0)
    outputs = [(target + _word(name), kind, bits) for name, kind, bits in done.outputs] if returns else []
    kind = {"DS": "shared", "SMEM": "scalar"}.get(space, "load" if returns else "store")
    if outputs:
        step.loading(kind, target, sum(max(1, bits // 32) for _, _, bits in outputs))
    where = _address(step, i, space, pair="OFFSET0" in done.inputs)
    seen = space in ("GLOBAL", "FLAT", "BUF") and (atomic or _seen_by_all(i))

    if not atomic and i.family.startswith("rdna"):
        step.halves = _halves(i, done.stores)
    if space == "DS" and done.stores and not atomic:
        step.shared = _stored(done.inputs, i, fields)

    def run(waves: Waves) -> None:
        hazards = waves.machine.hazards
        hazards.issue(kind, step.loaded, step.halves)
        if space == "FLAT":
            hazards.issue("shared", step.loaded, step.halves)
        if space == "DS" and done.stores:
            hazards.shared_store()
        on = np.ones((waves.count, 1), bool) if space == "SMEM" else waves.active
        lanes = _Lanes(waves, on)
        if lanes.wave.size == 0:
            return
        at = [lanes.flat(value) for value in where(waves)]
        given = [lanes.flat(get(waves)) for get in gets]
        turns: Sequence[Any] = [slice(None)]
        if atomic:  # lanes that name one address take turns, in their order
            turns = rounds(at[0].astype(i64) + (waves.group[lanes.wave] << 40 if space == "DS" else 0))
        results: list[Any] = []
        missing: Sequence[np.ndarray] = ()
        if seen:
            waves.machine.order.exchange = True
        for turn in turns:
            memory = _access(space, atomic or seen, lanes, turn, *[value[turn] for value in at])
            part = done.function(memory, *[value if isinstance(value, int) else value[turn] for value in given])
            missing = memory.done()
            if step.shared and (unset := hazards.unset_words(step.shared)) is not None:
                memory.forget([lanes.flat(word) for word in unset])
            results = results or [np.zeros(lanes.wave.size, value.dtype) for value in part]
            for result, values in zip(results, part, strict=True):
                result[turn] = values
        for (place, kind_of, bits), value in zip(outputs, results, strict=False):
            lanes.put(place, register_bits(value, kind_of), bits)
        if len(missing) and outputs and not atomic:
            hazards.found_nothing(target, lanes.spread(missing))

    step.run = run


def _seen_by_all(i: Instruction) -> bool:
    """Whether a load or store is of what all of the chip see at once, as atomic accesses of words are."""
    if i.family == "rdna4":
        return i.get("scope") >= DEVICE_SCOPE
    return bool(i.get("sc1") or i.get("glc"))


def count(step: Step) -> None:
    """Have an instruction counted that moves lanes through shared memory."""
    move = step.run

    def run(waves: Waves) -> None:
        waves.machine.hazards.issue("shared", step.loaded)
        move(waves)

    step.run = run


class _Lanes:
    """The lanes that take part, one after the other.  on: which those are [wave, lane].  wave: of each."""

    def __init__(self, waves: Waves, on: np.ndarray) -> None:
        self.waves, self.on = waves, on
        self.all = bool(on.all())
        self.wave = self.flat(waves.which[:, None])

    @cached_property
    def lane(self) -> np.ndarray:
        """The number of each in its wave."""
        return np.nonzero(self.on)[1]

    def spread(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """[wave, lane] of [lane that takes part], false for the others."""
        found = [np.zeros(self.on.shape, bool) for _ in values]
        for whole, part in zip(found, values, strict=True):
            whole[self.on] = part
        return found

    def flat(self, value: Any) -> Any:
        """[lane that takes part]; numbers that are the same for all stay numbers."""
        if isinstance(value, int):
            return value
        spread = value if value.shape == self.on.shape else np.broadcast_to(value, self.on.shape)
        return spread.reshape(-1) if self.all else spread[self.on]

    def put(self, place: int, value: np.ndarray, bits: int) -> None:
        """Put what they loaded into registers."""
        if bits > 32:
            self.put(place, value.astype(u32), 32)
            self.put(place + 1, (value >> u64(32)).astype(u32), 32)
        elif place < FIRST_VECTOR:
            self.waves.set_scalar(place, value)
        elif self.all:
            self.waves.set_vector(place - FIRST_VECTOR, value.reshape(self.on.shape))
        else:
            spread = np.zeros(self.on.shape, u32)
            spread[self.on] = value
            self.waves.set_vector(place - FIRST_VECTOR, spread)


def _word(name: str) -> int:
    """Which word of a wide operand a name is for."""
    return int(name.rpartition("_")[2]) if name[-1].isdigit() and "_" in name else 0


def _data(step: Step, part: str, i: Instruction, fields: dict[str, str], loading: bool) -> Source:
    if part.startswith("OFFSET"):
        return lambda waves: i[part.lower()]
    field = fields[part if part in fields else part.rpartition("_")[0]]
    bits = 32 if part not in fields else min(64, max(32, i.operands[field][1]))
    place = i[field] + _word(part)
    return register(place, bits) if loading else source(step, place, bits)  # a load keeps what it does not set


def _halves(i: Instruction, stores: bool) -> dict[int, int]:
    """The half of a register that a load or store of at most 16 bits is of; CDNA's loads may clear the other one."""
    upper = "D16_HI" in i.name
    if not upper and not (i.name.endswith(("_B16", "_B8")) if stores else "D16" in i.name):
        return {}
    return {i[next(name for name in (STORED if stores else RESULTS) if name in i.fields)]: int(upper)}


def _stored(inputs: Sequence[str], i: Instruction, fields: dict[str, str]) -> tuple[int, ...]:
    """The registers of the data that a store has, word by word."""
    found: list[int] = []
    for part in [part for part in inputs if part.startswith("DATA")]:
        field = fields[part if part in fields else part.rpartition("_")[0]]
        count = 1 if part not in fields else max(1, min(64, i.operands[field][1]) // 32)
        found += range(i[field] + _word(part), i[field] + _word(part) + count)
    return tuple(found)


def _address(step: Step, i: Instruction, space: str, pair: bool) -> Callable[[Waves], Sequence[Any]]:
    """The address of each lane, in its space; where there is a descriptor also the end of its bounds."""
    if space == "DS":
        get, offset = source(step, i["addr"], 32), 0 if pair else i["offset0"] | i["offset1"] << 8
        return lambda waves: (get(waves).astype(i64) + offset,)
    name, bits = ("ioffset", 24) if "ioffset" in i.fields else ("offset", 21 if space == "SMEM" else 13)
    offset = i.offset(name, bits) if i.get("imm", 1) and space != "BUF" else i[name] * (space == "BUF")
    scalar, vector = i.get("saddr", 124), i.get("vaddr", i.get("addr"))
    scalar = 124 if i.name.startswith("FLAT_") else scalar  # whose field says nothing
    if space == "BUF" or "BUFFER" in i.name:
        return _described(step, i, offset)
    if space == "SMEM":
        uses = i["soffset_en"] if i.family == "cdna" else i["soffset"] < 124
        parts = [(i["sbase"], 64), *[(i["soffset"], 32)] * bool(uses)]
    elif space == "SCRATCH":
        parts = [(scalar, 32)] * (scalar < 124) + [(vector, 32)] * i["sve"]
    else:
        parts = [(vector, 32), (scalar, 64)] if scalar < 124 else [(vector, 64)]
    gets = [source(step, place, size) for place, size in parts] or [fixed(0, 32)]
    moved = u64(offset & (1 << 64) - 1)
    return lambda waves: (sum((get(waves).astype(u64) for get in gets[1:]), gets[0](waves).astype(u64) + moved),)


def _described(step: Step, i: Instruction, offset: int) -> Callable[[Waves], Sequence[Any]]:
    """Addresses by a descriptor of four words: address, stride, and how many bytes or records there are."""
    first = i.get("srsrc", i.get("rsrc", i.get("sbase")))
    words = [source(step, first + n, 32) for n in range(3)]
    vector = [source(step, i["vaddr"] + n, 32) for n in range(i.get("offen") + i.get("idxen"))]
    more = (
        source(step, i["soffset"], 32)
        if "vaddr" in i.fields or i.get("soffset_en", i["soffset"] < 124)
        else fixed(0, 32)
    )

    def addresses(waves: Waves) -> Sequence[Any]:
        low, high, records = (word(waves).astype(u64) for word in words)
        base, stride = low | (high & NO_STRIDE) << u64(32), high >> u64(16) & u64((1 << STRIDE_BITS) - 1)
        given = [get(waves).astype(u64) for get in vector]
        at = base + more(waves) + u64(offset) + (given[-1] if i.get("offen") else u64(0))
        if i.get("idxen"):
            at = at + given[0] * stride
        return at, base + np.where(stride == 0, records, records * stride)

    return addresses


def _access(
    space: str, atomic: bool, lanes: _Lanes, which: Any, at: np.ndarray, ends: np.ndarray | None = None
) -> Access:
    """What the pseudocode's MEM is, for some of the lanes that take part."""
    machine = lanes.waves.machine
    if space == "DS":
        return SharedAccess(machine.shared, at, lanes.wave[which], lanes.lane[which], atomic)
    if space != "SCRATCH":
        if machine.watched is None:
            return Access(machine.memory, at, ends)
        return GlobalAccess(machine.watched, at, lanes.wave[which], lanes.lane[which], atomic, ends)
    nbytes = machine.private_bytes  # of each lane; beyond them would be another's
    if (at >= nbytes).any():
        raise KernelFault(f"private memory outside of a lane's {nbytes} bytes")
    number = lanes.wave[which] * lanes.waves.lanes + lanes.lane[which]
    return Access(machine.memory, (machine.private + number * nbytes).astype(u64) + at)
