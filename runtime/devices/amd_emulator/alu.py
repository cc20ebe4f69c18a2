"""Arithmetic: an instruction's step from the translation of its operation's pseudocode and its operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator import lanes as across
from lispgpt.runtime.devices.amd_emulator.decode import Instruction, plain_name, tables
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import (
    WHOLE,
    Modifiers,
    Source,
    Step,
    flat_scalar,
    floating,
    halves,
    packed,
    part_of_register,
    source,
    store,
    store_part,
)
from lispgpt.runtime.devices.amd_emulator.translate import Operation, translate
from lispgpt.runtime.devices.amd_emulator.waves import EXEC, FIRST_VECTOR, SCC, VCC, Waves

PARTS = {"S0": ("src0", "vsrc0", "ssrc0"), "S1": ("src1", "vsrc1", "ssrc1"), "S2": ("src2",), "D0": ("vdst", "sdst")}


@cache
def operation(
    family: str, op: Any, name: str, lanes: int, widths: tuple[tuple[str, int], ...], table: int
) -> Operation:
    """An operation's translation, made once."""
    text = tables(family)[2].get(op) or _texts(family).get(name.replace("V_DUAL_", "V_"))
    if text is None:
        raise NotModelled(f"{name} has no pseudocode")
    text = re.sub(r"addr = Calc\w+\([^;]*;", "", text)  # addresses are computed before
    constants = {"WAVE32": int(lanes == 32), "WAVE64": int(lanes == 64), "TABLE": table}
    try:
        return translate(name, text, dict(widths), constants)
    except (NotModelled, SyntaxError) as error:
        raise NotModelled(f"{name}: {error}") from error


@cache
def _texts(family: str) -> dict[str, str]:
    """Pseudocode by an operation's name: an operation of a dual instruction has that of its own."""
    return {plain_name(op.name): text for op, text in tables(family)[2].items()}


def _widths(instruction: Instruction) -> dict[str, int]:
    found = {"EXEC": 64}
    for part, names in PARTS.items():
        for name in names:
            if name in instruction.operands:
                found[part] = instruction.bits(name)
    if instruction.name == "V_DIV_SCALE_F32":  # the tables give its result two words
        found["D0"] = 32
    return found


def scalar(step: Step, family: str, lanes: int) -> None:
    """Set the run function of a scalar instruction."""
    instruction = step.instruction
    widths = _widths(instruction)
    done = operation(family, instruction.op, instruction.name, lanes, tuple(sorted(widths.items())), 0)
    gets = [_scalar_input(step, name, widths, done) for name in done.inputs]
    puts = [(_scalar_output(step, name, kind.bits), kind.kind) for name, kind in done.outputs]

    def run(waves: Waves) -> None:
        for (put, kind), value in zip(puts, done.function(*[get(waves) for get in gets]), strict=True):
            put(waves, register_bits(np.asarray(value), kind))

    step.run = run


def _scalar_input(step: Step, name: str, widths: dict[str, int], done: Operation) -> Source:
    instruction = step.instruction
    if name == "SCC":
        return lambda waves: waves.scalar(SCC) != 0
    if name == "EXEC":
        return lambda waves: waves.scalar64(EXEC) if waves.lanes == 64 else waves.scalar(EXEC).astype(np.uint64)
    if name in ("SIMM16", "SIMM32"):
        number = np.uint32(instruction["simm16"] if name == "SIMM16" else instruction["literal"])
        return lambda waves: np.full(waves.count, number)
    constant_last = "simm16" in instruction.fields and name != "D0" and "SIMM16" not in done.inputs
    if constant_last and (name == "S1" or "S1" not in done.inputs):
        number = np.uint32(instruction["simm16"])
        return lambda waves: np.full(waves.count, number)
    place = next((instruction[n] for n in PARTS[name] if n in instruction.fields), instruction.get("sdst"))
    get = flat_scalar(source(step, place, widths.get(name, 32), floating(instruction, PARTS[name][-1])))
    return lambda waves: np.broadcast_to(get(waves), waves.count)


def _scalar_output(step: Step, name: str, bits: int) -> Callable[[Waves, Any], None]:
    if name == "SCC":
        return lambda waves, value: waves.set_scalar(SCC, value)
    place = EXEC if name == "EXEC" else step.instruction["sdst"]
    (step.computing if name == "D0" else step.writing)(place, max(1, bits // 32))
    if bits > 32:
        return lambda waves, value: waves.set_scalar64(place, value)
    if name not in ("D0", "EXEC"):
        raise NotModelled(f"{step.instruction.name} sets {name}")
    return lambda waves, value: waves.set_scalar(place, value)


def vector(step: Step, family: str, lanes: int) -> None:
    """Set the run function of a vector instruction."""
    instruction, name = step.instruction, step.instruction.name
    if across.cross_lane(step, lanes):
        return
    table = instruction.get("omod") << 6 | instruction.get("abs") << 3 | instruction.get("neg")
    widths = _widths(instruction)
    logic = name.startswith("V_BITOP3")
    done = operation(family, instruction.op, name, lanes, tuple(sorted(widths.items())), table if logic else 0)
    if instruction.get("omod") and not logic:
        raise NotModelled(f"{name} with an output modifier")
    gets = [_vector_input(step, part, family, widths, done, logic) for part in done.inputs]
    written: Callable[[Waves], np.ndarray | None] = _every_active
    if "dpp" in instruction.fields or "lane_sel_0" in instruction.fields:
        at = done.inputs.index("S0")
        gets[at], written = across.dpp(step, gets[at], lanes)
    puts = [_vector_output(step, part, kind.bits, family, kind.kind) for part, kind in done.outputs]

    def run(waves: Waves) -> None:
        values = done.function(*[get(waves) for get in gets])
        on = written(waves)
        for put, value in zip(puts, values, strict=True):
            put(waves, value, on)

    step.run = run


def _vector_input(step: Step, part: str, family: str, widths: dict[str, int], done: Operation, logic: bool) -> Source:
    instruction = step.instruction
    if part == "laneId":
        return lambda waves: waves.lane
    if part == "VCC":
        place = VCC
        if (
            instruction.format.startswith(("VOP3", "VOP3SD"))
            and "S2" not in done.inputs
            and "src2" in instruction.operands
        ):
            place = instruction["src2"]
        step.reading(place, 2 if family == "cdna" else 1)
        return lambda waves: waves.mask(place)
    if part == "SIMM32":
        number = np.asarray(np.uint32(instruction["literal"]))[None, None]
        return lambda waves: number
    if part == "SCC" or part not in PARTS:
        raise NotModelled(f"{instruction.name} reads {part}")
    name = next(n for n in PARTS[part] if n in instruction.fields)
    if part == "S0" and "vsrc0" in instruction.fields:
        name = "vsrc0"
    bits, index = widths.get(part, 32), {"S0": 0, "S1": 1, "S2": 2, "D0": 3}[part]
    if instruction.format.startswith("VOP3P") and part != "D0":
        return packed(step, name, index, bits)
    wide = instruction.format.startswith("VOP3")
    place, high = halves(family, instruction[name], bits, wide)
    high = high or bool(wide and bits == 16 and instruction.get("opsel") >> index & 1)
    if part == "D0" or logic:
        return source(step, place, bits, modifiers=Modifiers(high=high))
    short = {"S0": "src0", "S1": "src1"}.get(part, "")
    negate = bool(instruction.get("neg") >> index & 1 or instruction.get(f"{short}_neg"))
    absolute = bool(instruction.get("abs") >> index & 1 or instruction.get(f"{short}_abs"))
    kind = floating(instruction, name if name in instruction.operands else name.removeprefix("v"))
    if f"{short}_sel" in instruction.fields:
        return part_of_register(step, place, short, bits, Modifiers(negate, absolute))
    return source(step, place, bits, kind, Modifiers(negate, absolute, high))


def _vector_output(step: Step, part: str, bits: int, family: str, kind: str) -> Callable[..., None]:
    instruction = step.instruction
    count = 2 if family == "cdna" else 1
    if part in ("VCC", "LANES", "EXEC"):
        place = instruction.get("sdst", VCC) if part == "VCC" else EXEC if part == "EXEC" else _mask_place(instruction)
        step.writing(place, count)
        return lambda waves, value, lanes: waves.set_mask(place, value & (waves.active if lanes is None else lanes))
    if part == "S0":
        return store(step, instruction["src0"], bits)
    wide = instruction.format.startswith("VOP3")
    if instruction.operands.get("vdst", ("", 32))[1] == 16:
        bits = 16
    place, high = halves(family, instruction["vdst"], bits, wide)
    high = high or bool(wide and bits == 16 and instruction.get("opsel") & 8)
    if part == "D0" and place < FIRST_VECTOR and bits == 32:
        step.computing(place, 1)
        return lambda waves, value, lanes: waves.set_scalar(place, register_bits(value, kind)[:, 0])
    if part != "D0" or place < FIRST_VECTOR:
        raise NotModelled(f"{instruction.name} sets {part}")
    if instruction.get("dst_sel", WHOLE) != WHOLE:
        return store_part(step, place)
    put = store(step, place, bits, high, keep=family != "cdna")
    encode = _clamped if instruction.get("clmp") else register_bits
    return lambda waves, value, lanes: put(waves, encode(value, kind), lanes)


def _mask_place(instruction: Instruction) -> int:
    """Where a comparison's result goes."""
    if instruction.format.startswith("VOP3"):
        return instruction["vdst"]
    return instruction.get("sdst", VCC) if instruction.get("sd", 1) else VCC


def _every_active(waves: Waves) -> None:
    """No choice among the lanes that are on."""


def register_bits(value: np.ndarray, kind: str) -> np.ndarray:
    """A result as the unsigned integers that registers hold."""
    if value.dtype == np.bool_:
        return value.astype(np.uint32)
    if kind == "bf":
        return value.view(np.uint32) >> np.uint32(16)
    if value.dtype.itemsize == 2:
        return value.view(np.uint16).astype(np.uint32)
    return value.view(np.uint32 if value.dtype.itemsize == 4 else np.uint64)


def _clamped(value: np.ndarray, kind: str) -> np.ndarray:
    if value.dtype.kind != "f":
        raise NotModelled("a clamped integer")
    return register_bits(np.nan_to_num(np.clip(value, 0, 1), nan=0.0).astype(value.dtype), kind)


def dual(step: Step, family: str) -> None:
    """Set the run function of two vector operations in one instruction; both read before either writes."""
    instruction = step.instruction
    runs = []
    parts = (Step(instruction), Step(instruction))
    for op, letter, part in zip(instruction.op, "xy", parts, strict=True):
        done = operation(family, op, op.name, 32, (), 0)
        gets = [_dual_input(part, name, letter) for name in done.inputs]
        runs.append((done.function, gets, store(part, instruction[f"vdst{letter}"], 32)))
        step.reads |= part.reads
        step.writes |= part.writes
        step.results += part.results
    step.feeds = parts[0].reads, parts[1].reads

    def run(waves: Waves) -> None:
        values = [function(*[get(waves) for get in gets])[0] for function, gets, _ in runs]
        for (_, _, put), value in zip(runs, values, strict=True):
            put(waves, register_bits(value, "u"))

    step.run = run


def _dual_input(step: Step, name: str, letter: str) -> Source:
    if name == "VCC":
        step.reading(VCC, 1)
        return lambda waves: waves.mask(VCC)
    if name == "SIMM32":
        number = np.asarray(np.uint32(step.instruction["literal"]))[None, None]
        return lambda waves: number
    place = {"S0": f"src{letter}0", "S1": f"vsrc{letter}1", "D0": f"vdst{letter}"}[name]
    return source(step, step.instruction[place], 32)
