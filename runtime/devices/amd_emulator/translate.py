"""One operation's pseudocode as a Python function over numpy arrays that hold its operands for all lanes.

    D0.u32 = VCC.u64[laneId] ? S1.u32 : S0.u32      becomes      lambda S0, S1, VCC: np.where(VCC, S1, S0)

Operands come as unsigned integers of 32 or 64 bits, wider ones as their words, VCC as one truth value a lane; MEM loads
and stores.  Branches become choices: an assignment keeps the old value where its condition does not hold.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator import numerics
from lispgpt.runtime.devices.amd_emulator.expressions import OPERANDS, RESULTS, SYMBOLS, Expressions
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.pseudocode import parse
from lispgpt.runtime.devices.amd_emulator.values import (
    Value,
    bits_of,
    convert,
    field,
    literal,
    reinterpret,
    storage,
)

NAMES: dict[str, Any] = {**vars(numerics), "inf": np.inf, "nan": np.nan, "np": np}
OVERRIDES = [(re.compile(pattern), text) for pattern, text in (
    # shorter than AMD's text, or saying what it leaves out
    (r"[VS]_(?:DUAL_)?(MAX|MIN)(?:_NUM)?_(F32|F64)", "D0.{1} = v_{0}_{1}(S0.{1}, S1.{1})"),
    (r"[VS]_(MAX|MIN)IMUM_(F32|F64)", "D0.{1} = v_{0}imum_{1}(S0.{1}, S1.{1})"),
    (r"V_LDEXP_(F32|F64)", "D0.{0} = ldexp(S0.{0}, S1.i32)"),
    (r"V_MAD_LEGACY_U16", "tmp = S0.u16 * S1.u16 + S2.u16; D0 = {{ 16'0, tmp.u16 }}"),
    (r"V_ACCVGPR_.*", "D0.b32 = S0.b32"),
    (r"V_RNDNE_F32", "D0.f32 = rint(S0.f32)"),
    (r"V_DOT4_I32_IU8 (\d)", "D0.u32 = dot_of_bytes(S0.u32, S1.u32, S2.u32, {0}U)"),
    (r"V_PERM_B32", "D0.u32 = permute_bytes(S0.u32, S1.u32, S2.u32)"),
    (r"V_PK_MOV_B32", "D0.u64 = {{ S1[31 : 0].u32, S0[31 : 0].u32 }}"),
    (r"V_MAD_(?:CO_)?U64_U32", "p = 64'U(S0.u32) * 64'U(S1.u32); D0.u64 = p + S2.u64; VCC = D0.u64 < p"),
    (r"V_MAD_(?:CO_)?I64_I32", "D0.i64 = 64'I(S0.i32) * 64'I(S1.i32) + S2.i64; VCC = D0.i64 < 0"),
    (r"V_ADD_(?:NC_)?U32 CLAMPED", "tmp = S0.u32 + S1.u32; D0.u32 = tmp < S0.u32 ? 0xffffffff : tmp"),
    (r"V_SUB_(?:NC_)?U32 CLAMPED", "D0.u32 = S0.u32 < S1.u32 ? 0U : S0.u32 - S1.u32"),
    (r"V_SUBREV_(?:NC_)?U32 CLAMPED", "D0.u32 = S1.u32 < S0.u32 ? 0U : S1.u32 - S0.u32"),
    (r"V_DIV_FMAS_F32", "q = fma(S0.f32, S1.f32, S2.f32); "
     "D0.f32 = VCC.u64[laneId] ? ldexp(q, exponent(S2.f32) > 127 ? 64 : -64) : q"),
    (r"V_DIV_FMAS_F64", "q = fma(S0.f64, S1.f64, S2.f64); "
     "D0.f64 = VCC.u64[laneId] ? ldexp(q, exponent(S2.f64) > 1023 ? 128 : -128) : q"),
    (r"V_(?:FMA|MAD)_MIX_F32", "D0.f32 = fma(S0.f32, S1.f32, S2.f32)"),
    (r"V_(?:FMA|MAD)_MIXLO_F16", "D0[15 : 0].f16 = f32_to_f16(fma(S0.f32, S1.f32, S2.f32))"),
    (r"V_(?:FMA|MAD)_MIXHI_F16", "D0[31 : 16].f16 = f32_to_f16(fma(S0.f32, S1.f32, S2.f32))"),
)]  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """inputs: the operands that the function takes behind MEM, in order.  outputs: (name, kind, bits) of its results.
    Words of operands wider than 64 bits have their numbers: DATA_2.  loads, stores: whether it uses MEM so."""

    function: Callable[..., tuple[Any, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str, int], ...]
    loads: bool
    stores: bool


def translate(name: str, text: str, widths: dict[str, int], constants: dict[str, int]) -> Operation:
    """widths: bits of the operands that have more or fewer than 32.  constants: names with a known number."""
    if name.startswith("V_DIV_SCALE"):
        kind = name[-3:].lower()
        text = f"D0.{kind} = S0.{kind}; " + re.sub(r"DENORM.f\d+", f"DENORM.{kind}", text)
        # a large denominator is made smaller for a small quotient, which v_div_fmas makes as much smaller again
        text = re.sub(r"(&&.*?ldexp\(S0\.\w+, )(\d+)", r"\1-\2", text, count=1, flags=re.DOTALL)
    if name.startswith("V_DIV_FIXUP"):  # the quotient of finite numbers that is none is too large
        kind = name[-3:].lower()
        known = f"sign_out ? -abs(S0.{kind}) : abs(S0.{kind})"
        text = text.replace(known, f"isNAN(64'F(S0.{kind})) ? (sign_out ? -INF.{kind} : +INF.{kind}) : ({known})")
    for pattern, short in OVERRIDES:
        if match := pattern.fullmatch(name):
            text = short.format(*[group.lower() for group in match.groups()])
    return _Writer(widths, constants).operation(parse(text))


class _Writer(Expressions):
    """Writes the lines of one function.

    assigned: the names that it sets; covered: the bits of each that were assigned in parts.  complete: whether some arm
    of every branch around a statement runs, so that what they all set needs no earlier value.  running: the condition
    under which a loop goes on.  A statement's `under` is the code of its condition, None for always.
    """

    def __init__(self, widths: dict[str, int], constants: dict[str, int]) -> None:
        super().__init__(widths, constants)
        self.covered: dict[str, int] = {}
        self.lines: list[str] = []
        self.assigned: list[str] = []
        self.conditions, self.complete = 0, False
        self.running: str | None = None

    def operation(self, statements: list[ast.stmt]) -> Operation:
        self.run(statements, None)
        first = []
        for name, mask in self.covered.items():
            whole = self.values[name].bits
            if mask != (1 << whole) - 1 and name in OPERANDS:
                self.read(name)
            first.append(f"{name}_before = {name if name in self.inputs else f'u{whole}(0)'}")
        results = [n for n in self.assigned if n.rpartition("_")[0] in RESULTS or n in RESULTS]
        lines = [
            f"def operation(MEM, {', '.join(self.inputs)}):",
            *first,
            *self.lines,
            f"return ({', '.join(results)},)",
        ]
        scope = dict(NAMES)
        exec(compile("\n    ".join(lines if results else [*lines[:-1], "return ()"]), "<pseudocode>", "exec"), scope)
        outputs = [(name, self.values[name].kind, self.values[name].bits) for name in results]
        memory = [f"MEM.{use}(" in "".join(lines) for use in ("load", "store")]
        return Operation(scope["operation"], tuple(self.inputs), tuple(outputs), *memory)

    def run(self, statements: list[ast.stmt], under: str | None) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                    self.lambdas[name] = function
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self.assign(target, self.value(value), under)
                case ast.AugAssign(target=target, op=op, value=value):
                    old = self.value(target)
                    self.assign(target, self.operate(SYMBOLS[type(op)], old, self.value(value)), under)
                case ast.If():
                    self.branch(statement, under)
                case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=[first, last]), body=body):
                    self.loop(name, range(self.number(first), self.number(last) + 1), body, under)
                case ast.Break():
                    went_on = f"{self.running} & " if self.running else ""
                    self.running = self.condition(f"{went_on}~({under})" if under else "boolean(False)")
                case ast.Pass():
                    pass
                case _:
                    raise NotModelled(f"pseudocode with {ast.unparse(statement)}")

    def condition(self, code: str) -> str:
        self.conditions += 1
        self.lines.append(f"c{self.conditions} = {code}")
        return f"c{self.conditions}"

    def branch(self, statement: ast.If, under: str | None) -> None:
        arms: list[tuple[ast.expr | None, list[ast.stmt]]] = [(statement.test, statement.body)]
        rest = statement.orelse
        while len(rest) == 1 and isinstance(rest[0], ast.If):
            arms.append((rest[0].test, rest[0].body))
            rest = rest[0].orelse
        outer, self.complete = self.complete, (self.complete or not under) and bool(rest)
        so_far = [under] if under else []
        for test, body in [*arms, (None, rest)]:
            known = literal(1) if test is None else self.value(test)
            if known.number is None:
                name = self.condition(convert(known, "bool", 1).code)
                self.run(body, " & ".join([*so_far, name]))
                so_far.append(f"~{name}")
            elif known.number:
                self.run(body, " & ".join(so_far) or None)
                break
        self.complete = outer

    def loop(self, name: str, numbers: range, body: list[ast.stmt], under: str | None) -> None:
        outer, self.running = self.running, None
        for number in numbers:
            self.values[name] = literal(number)
            self.run(body, " & ".join(c for c in (under, self.running) if c) or None)
        self.running = outer

    def assign(self, target: ast.expr, value: Value, under: str | None) -> None:
        if isinstance(target, ast.Attribute):
            value, target = convert(value, *self.member(target.attr)), target.value
        base = target.value if isinstance(target, ast.Subscript) else target
        name = base.value if isinstance(base, ast.Attribute) else base
        if not isinstance(name, ast.Name):
            raise NotModelled(f"pseudocode that assigns to {ast.unparse(target)}")
        if not isinstance(target, ast.Subscript):
            known = self.values.get(name.id)
            if name.id in ("SCC", "VCC"):
                value = convert(value, "bool", 1)
            elif value.kind == "number":
                value = convert(value, *(known[1:3] if known and known.kind != "number" else ("u", 32)))
            self.store({"D": "D0"}.get(name.id, name.id), value, under)
        elif name.id == "MEM":
            kept = (
                f"np.where({under}, {bits_of(value).code}, {self.value(target).code})" if under else bits_of(value).code
            )
            self.lines.append(f"MEM.store({self.value(target.slice).code}, {value.bits}, {kept})")
        elif self.is_lane(target.slice):  # one bit of a mask: this lane's
            self.store("LANES" if name.id == "D0" else name.id, convert(value, "bool", 1), under)
        else:
            self.insert(name.id, target.slice, value, under)

    def insert(self, name: str, index: ast.expr, value: Value, under: str | None) -> None:
        """Assign to some bits of a variable."""
        if not isinstance(index, ast.Slice) and self.value(index).number is None:
            old, at = self.read(name), self.value(index)
            one = f"({storage('u', old.bits)}(1) << {convert(at, 'u', old.bits).code})"
            chosen = f"np.where({convert(value, 'bool', 1).code}, {old.code} | {one}, {old.code} & ~{one})"
            return self.store(name, Value(chosen, "u", old.bits), under)
        high, low = self.ends(index)
        if self.widths.get(name, 32) > 64:
            for word in range(low // 32, high // 32 + 1):
                self.store(f"{name}_{word}", field(value, 32 * word + 31 - low, 32 * word - low), under)
            return None
        whole = 64 if max(self.widths.get(name, 64 if high > 31 else 32), high + 1) > 32 else 32
        if name not in self.values:
            self.covered[name] = 0
        before = reinterpret(self.values.get(name) or Value(f"{name}_before", "u", whole), "u", whole)
        mask = (1 << high - low + 1) - 1 << low
        if name in self.covered and not under:
            self.covered[name] |= mask
        part = convert(bits_of(convert(value, "u", whole) if value.kind == "number" else value), "u", whole)
        keep = (1 << whole) - 1 & ~mask
        part = field(part, high - low, 0) if value.bits > high - low + 1 else part
        code = f"(({before.code} & u{whole}({keep})) | ({convert(part, 'u', whole).code} << u{whole}({low})))"
        return self.store(name, Value(code, "u", whole), under)

    def store(self, name: str, value: Value, under: str | None) -> None:
        if under:
            kept = name in OPERANDS and not self.complete and name != "LANES"
            before = self.values.get(name) or (self.read(name) if kept else None)
            old = reinterpret(before, *value[1:3]).code if before else f"{storage(*value[1:3])}(0)"
            value = Value(f"np.where({under}, {value.code}, {old})", *value[1:3])
        self.lines.append(f"{name} = {value.code}")
        self.values[name] = Value(name, *value[1:3])
        if name not in self.assigned:
            self.assigned.append(name)
