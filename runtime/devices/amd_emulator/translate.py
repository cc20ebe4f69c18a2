"""One operation's pseudocode as a Python function over numpy arrays that hold its operands for all lanes.

    D0.u32 = VCC.u64[laneId] ? S1.u32 : S0.u32      becomes      lambda S0, S1, VCC: np.where(VCC, S1, S0)

Operands come as unsigned integers of 32 or 64 bits, VCC as one truth value a lane.  Branches become choices: every
assignment keeps the old value where its condition does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator import numerics
from lispgpt.runtime.devices.amd_emulator.expressions import OPERANDS, Expressions
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.pseudocode import Assign, Declare, For, If, Lambda, Node, parse
from lispgpt.runtime.devices.amd_emulator.values import (
    BOOL,
    KINDS,
    LITERAL,
    U32,
    U64,
    Type,
    Value,
    as_type,
    literal,
    reinterpret,
)
from lispgpt.runtime.devices.amd_emulator.whole_operations import WHOLE_OPERATIONS

NAMES: dict[str, Any] = {**vars(numerics), "infinity": np.inf, "not_a_number": np.nan, "np": np}
RESULTS = ("D0", "D1", "SCC", "VCC", "EXEC", "MEM", "RETURN_DATA", "LANES", "S0")


@dataclass(frozen=True)
class Operation:
    """inputs: the operands that the function takes, in order.  outputs: results in order, with the type of each."""

    function: Callable[..., tuple[Any, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, Type], ...]
    source: str


def translate(name: str, text: str, widths: dict[str, int], constants: dict[str, int]) -> Operation:
    """widths: bits of the operands that have more or fewer than 32.  constants: names with a known number."""
    if name in WHOLE_OPERATIONS:
        return _whole(WHOLE_OPERATIONS[name].replace("TABLE", str(constants.get("TABLE"))), widths)
    writer = _Writer(widths, constants)
    writer.run(parse(text), None)
    outputs = tuple((n, writer.values[n].type) for n in RESULTS if n in writer.assigned)
    return _finish(writer.lines, tuple(writer.inputs), outputs)


def _whole(text: str, widths: dict[str, int]) -> Operation:
    inputs = tuple(n for n in ("S0", "S1", "S2") if re.search(rf"\b{n}\b", text)) + ("D0",) * ("OLD" in text)
    text = text.replace("OLD", "D0")
    kinds = {"D0": Type("u", widths.get("D0", 32)), "VCC": BOOL}
    outputs = tuple((n, kinds[n]) for n in ("D0", "VCC") if re.search(rf"\b{n}\b.*=", text))
    return _finish(text.split("; "), inputs, outputs)


def _finish(lines: list[str], inputs: tuple[str, ...], outputs: tuple[tuple[str, Type], ...]) -> Operation:
    results = ", ".join(n for n, _ in outputs)
    source = "\n    ".join([f"def operation({', '.join(inputs)}):", *lines, f"return ({results},)"])
    scope = dict(NAMES)
    exec(compile(source, "<pseudocode>", "exec"), scope)
    return Operation(scope["operation"], inputs, outputs, source)


class _Writer(Expressions):
    """Writes the lines of one function.

    assigned: the names that it sets.  complete: whether some arm of every branch around a statement runs, so that what
    they all set needs no earlier value.  A statement's `under` is the code of its condition, None for always.
    """

    def __init__(self, widths: dict[str, int], constants: dict[str, int]) -> None:
        super().__init__(widths, constants)
        self.assigned: set[str] = set()
        self.lines: list[str] = []
        self.conditions = 0
        self.complete = False

    def run(self, statements: list[Any], under: str | None) -> None:
        for statement in statements:
            if isinstance(statement, Assign):
                self.assign(statement, under)
            elif isinstance(statement, If):
                self.branch(statement, under)
            elif isinstance(statement, For):
                self.loop(statement, under)
            elif isinstance(statement, Lambda):
                self.lambdas[statement.name] = statement
            elif isinstance(statement, Declare):
                kind = Type(KINDS[statement.kind], statement.bits)
                self.values[statement.name] = as_type(literal(0), kind)

    def branch(self, statement: If, under: str | None) -> None:
        before: list[str] = [under] if under else []
        outer = self.complete
        self.complete = (outer or not under) and statement.arms[-1][0] is None
        self._arms(statement, before)
        self.complete = outer

    def _arms(self, statement: If, before: list[str]) -> None:
        for condition, body in statement.arms:
            if condition is None:
                self.run(body, self.both(before))
                return
            value = self.value(condition)
            if value.number is not None:
                if value.number:
                    self.run(body, self.both(before))
                    return
                continue
            self.conditions += 1
            name = f"c{self.conditions}"
            self.lines.append(f"{name} = {as_type(value, BOOL).code}")
            self.run(body, self.both([*before, name]))
            before.append(f"~{name}")

    @staticmethod
    def both(conditions: list[str]) -> str | None:
        return " & ".join(conditions) or None

    def loop(self, statement: For, under: str | None) -> None:
        first, last = self.value(statement.first).number, self.value(statement.last).number
        if not isinstance(first, int) or not isinstance(last, int):
            raise NotModelled("pseudocode with a loop of unknown length")
        for number in range(first, last + 1):
            self.values[statement.variable] = literal(number)
            self.run(statement.body, under)

    def assign(self, statement: Assign, under: str | None) -> None:
        target, value = statement.target, self.value(statement.value)
        if statement.op:
            value = self.operate(statement.op, self.value(target), value)
        if target[0] == "at" and self.is_lane(target[2]):  # one bit of a mask: this lane's
            name = str(target[1][1][1] if target[1][0] == "member" else target[1][1])
            self.store("LANES" if name == "D0" else name, as_type(value, BOOL), under)
        elif target[0] == "name":
            kind = self.values[target[1]].type if target[1] in self.values else value.type
            if kind == LITERAL:
                kind = BOOL if target[1] in ("SCC", "VCC") else U32
            if target[1] in ("SCC", "VCC"):
                kind = BOOL
            self.store(str(target[1]), as_type(value, kind), under)
        elif target[0] == "member" and target[1][0] == "name":
            self.store(str(target[1][1]), as_type(value, self.member(target[2])), under)
        elif target[0] == "member" and target[1][0] == "at" and target[1][1] == ("name", "MEM"):
            self.store("MEM", as_type(value, self.member(target[2])), under)
        else:
            self.insert(target, value, under)

    def insert(self, target: Node, value: Value, under: str | None) -> None:
        """Assign to some bits of a variable."""
        if target[0] == "member":
            value, target = as_type(value, self.member(target[2])), target[1]
        if target[0] not in ("bits", "at"):
            raise NotModelled("pseudocode that assigns to an expression")
        high = self.number(target[2])
        low = self.number(target[3]) if target[0] == "bits" else high
        node = target[1][1] if target[1][0] == "member" else target[1]
        name = str(node[1])
        size = self.widths.get(name, 64 if high > 31 else 32)
        whole = U64 if max(size, high + 1) > 32 else U32
        before = self.values.get(name) or as_type(literal(0), whole)
        before = reinterpret(before, whole)
        mask = (1 << high - low + 1) - 1 << low
        keep = (1 << whole.bits) - 1 & ~mask
        part = reinterpret(value, Type("u", high - low + 1)) if value.type != LITERAL else as_type(value, whole)
        code = f"({before.code} & {whole.storage}({keep})) | ({as_type(part, whole).code} << {whole.storage}({low}))"
        self.store(name, Value(f"({code})", whole), under)

    def store(self, name: str, value: Value, under: str | None) -> None:
        if under:
            kept = name in OPERANDS and not self.complete
            before = self.values.get(name) or (self.read(name) if kept else None)
            old = reinterpret(before, value.type).code if before else f"{value.type.storage}(0)"
            value = Value(f"np.where({under}, {value.code}, {old})", value.type)
        self.lines.append(f"{name} = {value.code}")
        self.values[name] = Value(name, value.type)
        self.assigned.add(name)
