"""Arithmetic: an instruction's step from the translation of its operation's pseudocode and its operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from lispgpt.runtime.devices.amd_emulator.decode import Instruction, plain_name, tables
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.lanes import dpp
from lispgpt.runtime.devices.amd_emulator.operands import FIELDS, Step, operand, result
from lispgpt.runtime.devices.amd_emulator.translate import Operation, translate
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves

MODIFIERS = ("OMOD", "ABS", "NEG")


def operation(i: Instruction, lanes: int, widths: dict[str, int]) -> Operation:
    """The translation of an instruction's pseudocode.  widths: bits of operands that have more or fewer than 32."""
    table = tuple(i.get(name.lower()) for name in MODIFIERS) if i.name.startswith("V_BITOP3") else ()
    name = f"{i.name} CLAMPED" if i.saturates else i.name
    name += f" {i['neg'] & 3}" if i.name.endswith("_IU8") else ""  # which operands have signs
    return _operation(i.family, i.op, name, lanes, tuple(sorted(widths.items())), table)


@cache
def _operation(
    family: str, op: Any, name: str, lanes: int, widths: tuple[tuple[str, int], ...], table: tuple[int, ...]
) -> Operation:
    _, texts, by_name = tables(family)
    text = texts.get(op) or by_name.get(name.replace("V_DUAL_", "V_"), "")
    constants = {"WAVE32": int(lanes == 32), "WAVE64": int(lanes == 64), **dict(zip(MODIFIERS, table, strict=False))}
    try:  # addresses are computed before
        return translate(name, re.sub(r"addr = Calc\w+\([^;]*;", "", text), dict(widths), constants)
    except NotModelled as error:
        raise NotModelled(f"{name}: {error}") from error


def _moves_lanes(i: Instruction) -> bool:
    """Whether its first operand is another lane's."""
    return "dpp" in i.fields or "lane_sel_0" in i.fields


def compute(step: Step) -> None:
    """Set the run function of an instruction that computes, for scalars or for lanes."""
    read, write = _parts(step, step.instruction)
    step.run = lambda waves: write(waves, read(waves))
    if _moves_lanes(step.instruction):
        off = dpp(step.instruction, lambda waves: None, step.lanes)[2]
        first, count = min(step.results, default=0), len(step.results)

        def run(waves: Waves) -> None:
            missing = None if waves.full or waves.machine.watched is None else off(waves)
            write(waves, read(waves))
            if missing is not None and first >= FIRST_VECTOR:
                waves.machine.hazards.found_nothing(first, [missing] * count)

        step.run = run


def dual(step: Step) -> None:
    """Set the run function of two vector operations in one instruction; both read before either writes."""
    i, halves = step.instruction, []
    for op, letter in zip(i.op, "xy", strict=True):
        names = {"src0": f"src{letter}0", "vsrc1": f"vsrc{letter}1", "vdst": f"vdst{letter}", "literal": "literal"}
        fields = {name: i[field] for name, field in names.items() if field in i.fields}
        half = Step(replace(i, format="VOP2", name=plain_name(op.name), op=op, fields=fields), step.lanes)
        halves.append((half, *_parts(half, half.instruction)))
    (first, read_first, write_first), (second, read_second, write_second) = halves
    step.reads, step.writes = first.reads | second.reads, first.writes | second.writes
    step.results, step.feeds = first.results + second.results, (first.reads, second.reads)

    def run(waves: Waves) -> None:
        one, other = read_first(waves), read_second(waves)
        write_first(waves, one)
        write_second(waves, other)

    step.run = run


def _parts(step: Step, i: Instruction) -> tuple[Callable[[Waves], Any], Callable[[Waves, Any], None]]:
    """(what an instruction computes from its operands, what it does with it)."""
    widths = {part: i.operands[n][1] for part, names in FIELDS.items() for n in reversed(names) if n in i.operands}
    if i.name == "V_DIV_SCALE_F32" or "_MIX" in i.name:  # the tables give its result two words, or half of one
        widths["D0"] = 32
    if i.name == "S_CVT_HI_F32_F16":  # they give its operand the width of the half that it reads
        widths["S0"] = 32
    done = operation(i, step.lanes, widths)
    gets = [operand(step, i, part, widths.get(part, 32), done.inputs) for part in done.inputs]
    written: Callable[[Waves], Any] = lambda waves: None  # noqa: E731
    if _moves_lanes(i):
        at = done.inputs.index("S0")
        gets[at], written, _ = dpp(i, gets[at], step.lanes)
    puts = [result(step, i, name, kind, bits) for name, kind, bits in done.outputs]

    def read(waves: Waves) -> Any:
        return done.function(None, *[get(waves) for get in gets])

    def write(waves: Waves, values: Any) -> None:
        lanes = written(waves)
        for put, value in zip(puts, values, strict=True):
            put(waves, value, lanes)

    return read, write
