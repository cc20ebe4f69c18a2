"""Machine code into instructions, by the encodings and operand tables of PyPI's tinygrad."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

FAMILIES = {"gfx9": "cdna", "gfx11": "rdna3", "gfx12": "rdna4"}
LITERAL = 255
MARKED = {"_LIT": (LITERAL,), "_DPP16": (250,), "_DPP8": (233, 234), "_SDWA": (249,), "_SDWA_SDST": (249,)}
"""What a source field holds where a constant, or a source with its own encoding, follows the instruction."""
LITERAL_OPERATIONS = re.compile("[AD][AM]K_|SETREG_IMM32")
SUFFIX = re.compile("(_E32|_E64|_DPP16|_DPP8|_SDWA|_LIT)+$")
LONGEST = 16
"""Bytes of an instruction."""
DECODED: dict[tuple[str, bytes], Instruction] = {}
"""Instructions by family and bytes: kernels have most of theirs many times."""


@dataclass(frozen=True, eq=False)
class Instruction:
    """One decoded instruction, wherever it stands; those of equal words are the same object.

    format: of its encoding, such as VOP3 or GLOBAL, without what follows it.  name: of the operation, without its
    encoding's suffix.  fields: raw numbers by field; registers by their place in the operand space (scalar registers
    from 0, constants from 128, vector registers from 256, accumulation registers from 512).  operands: field →
    (format's name, bits).  registers: the fields that name a place in the operand space.
    """

    family: str
    format: str
    name: str
    op: Any
    fields: dict[str, int]
    operands: dict[str, tuple[str, int]]
    registers: tuple[str, ...]
    words: tuple[int, ...]

    def __getitem__(self, field: str) -> int:
        return self.fields[field]

    def get(self, field: str, default: int = 0) -> int:
        return self.fields.get(field, default)

    @property
    def nbytes(self) -> int:
        return 4 * len(self.words)

    @property
    def saturates(self) -> bool:
        """Whether it is a sum or difference of integers that stays at the end of their range."""
        return bool(self.get("clmp")) and re.fullmatch(r"V_(ADD|SUB|SUBREV)_(NC_)?U32", self.name) is not None

    @property
    def clamps(self) -> bool:
        """Whether it takes its result to between 0 and 1."""
        return bool(self.get("clmp")) and not self.saturates

    def offset(self, field: str, bits: int) -> int:
        """A field with its sign."""
        return (self.fields[field] ^ 1 << bits - 1) - (1 << bits - 1)

    def text(self) -> str:
        """The operation and its fields, as a trace prints them; modifiers that are zero are left out."""
        shown = {name: register_name(self[name]) for name in self.registers}
        shown |= {name: str(value) for name, value in self.fields.items() if value and name not in shown}
        return f"{self.name.lower()} {', '.join(f'{name}={shown[name]}' for name in self.fields if name in shown)}"


def register_name(place: int) -> str:
    """A register's or constant's name by its place in the operand space."""
    if place >= 512:
        return f"a{place - 512}"
    return str(importlib.import_module("tinygrad.renderer.amd.dsl").Reg(place, 1).fmt())


def family(chip: str) -> str:
    """The family of a chip, by LLVM's name: one set of encodings."""
    for prefix, name in FAMILIES.items():
        if chip.startswith(prefix):
            return name
    raise NotModelled(f"{chip} is of no family that is emulated: {', '.join(FAMILIES)}")


@cache
def tables(name: str) -> tuple[dict[Any, Any], dict[Any, str], dict[str, str]]:
    """A family's operands and pseudocode by operation, and the pseudocode by an operation's plain name."""
    base = f"tinygrad.runtime.autogen.amd.{name}"
    texts = importlib.import_module(f"{base}.str_pcode").PCODE
    by_name = {plain_name(op.name): text for op, text in texts.items()}
    return importlib.import_module(f"{base}.operands").OPERANDS, texts, by_name


@cache
def _encodings(name: str) -> list[tuple[int, int, str, dict[str, Any]]]:
    """(mask, bits, format, fields) of a family's encodings: which bits are always the same, and what they are.

    Those that say more come first, so that an encoding with something behind it precedes the plain one.
    """
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{name}.ins")
    base = importlib.import_module("tinygrad.renderer.amd.dsl").Inst
    named = {n: c for n, c in vars(module).items() if isinstance(c, type)}
    classes: dict[str, Any] = {n: c for n, c in named.items() if issubclass(c, base) and c is not base}
    found = []
    for plain, encoding in classes.items():
        root = next(c for c in reversed(encoding.__mro__) if c.__name__ in classes).__name__
        fields = dict(encoding._fields)
        fixed = [f for f in fields.values() if type(f).__name__ == "FixedBitField"]
        mask, bits = sum(f.mask << f.lo for f in fixed), sum(f.default << f.lo for f in fixed)
        if not plain.endswith(tuple(MARKED)):
            found.append((mask, bits, plain, fields))
        for suffix in [s for s in MARKED if not plain.endswith(tuple(MARKED)) and root + s in classes]:
            both = {**dict(classes[root + suffix]._fields), **fields}
            for source in _sources(fields, root, first=suffix != "_LIT"):
                for mark in MARKED[suffix]:
                    found.append((mask | source.mask << source.lo, bits | mark << source.lo, plain + suffix, both))
        for f in fields.values():
            if plain.endswith("_LIT") and type(f).__name__ == "EnumBitField":
                for op in [op for op in f._enum if LITERAL_OPERATIONS.search(op.name)]:
                    found.append((mask | f.mask << f.lo, bits | op.value << f.lo, plain, fields))
    return sorted(found, key=lambda entry: -entry[0].bit_count())


def _sources(fields: dict[str, Any], root: str, first: bool) -> list[Any]:
    """The fields that may name what follows the instruction, or the first of them."""
    found = [f for n, f in fields.items() if type(f).__name__ in ("SrcField", "SSrcField") and "dst" not in n]
    return [f for f in found if f.lo == (32 if root.startswith("VOP3") else 0)] if first else found


def decode(code: bytes, name: str) -> Instruction:
    """The instruction of a family that `code` begins with."""
    for size in range(4, LONGEST + 1, 4):
        if (known := DECODED.get((name, code[:size]))) is not None:
            return known
    raw = int.from_bytes(code, "little")
    for mask, bits, what, layout in _encodings(name):
        if raw & mask == bits and (ops := _operations(layout, raw)) is not None:
            found = _instruction(name, what.removesuffix("_LIT"), layout, ops, raw)
            return DECODED.setdefault((name, code[: found.nbytes]), found)
    raise NotModelled(f"no {name} encoding has the word {raw & 0xFFFFFFFF:#010x}")


def _operations(layout: dict[str, Any], raw: int) -> list[Any] | None:
    """The operations that the bits name, None where one is not of this encoding."""
    found = []
    for field in layout.values():
        if type(field).__name__ == "EnumBitField":
            try:
                found.append(field.decode(raw >> field.lo & field.mask))
            except ValueError:
                return None
            if field.allowed is not None and found[-1] not in field.allowed:
                return None
    return found


def _instruction(name: str, what: str, layout: dict[str, Any], ops: list[Any], raw: int) -> Instruction:
    fields: dict[str, int] = {}
    registers: tuple[str, ...] = ()
    for field, at in layout.items():
        if type(at).__name__ not in ("EnumBitField", "FixedBitField"):
            value = at.decode(raw >> at.lo & at.mask)
            fields[field] = value if isinstance(value, int) else value.offset
            registers += () if isinstance(value, int) else (field,)
    if "vdsty" in fields:  # the lowest bit is the opposite of the other destination's
        registers += ("vdsty",)
        fields["vdsty"] = 256 + (fields["vdsty"] << 1 | (fields["vdstx"] & 1 ^ 1))
    operations = "::".join(plain_name(op.name) for op in ops)
    for field in _accumulators(operations, fields):
        fields[field] += 256
    table = tables(name)[0].get(ops[0], {}) if len(ops) == 1 else {}
    words = tuple(raw >> 32 * i & 0xFFFFFFFF for i in range(-(-(max(f.hi for f in layout.values()) + 1) // 32)))
    kinds = {k: (v[0].name, v[1]) for k, v in table.items()}
    op = ops[0] if len(ops) == 1 else tuple(ops)
    return Instruction(name, what, operations, op, fields, kinds, registers, words)


def _accumulators(name: str, fields: dict[str, int]) -> list[str]:
    """The fields that name accumulation registers."""
    if name.startswith("V_ACCVGPR"):
        found = ["src0"] * ("WRITE" not in name) + ["vdst"] * ("READ" not in name)
    elif "acc_cd" in fields:
        found = ["src0"] * (fields["acc"] & 1) + ["src1"] * (fields["acc"] >> 1)
        found += ["src2", "vdst"] * fields["acc_cd"]
    else:
        found = ["vdst", "vdata", "data", "data0", "data1"] * fields.get("acc", 0)
    return [field for field in found if fields.get(field, 0) >= 256]


def plain_name(name: str) -> str:
    """An operation's name without its encoding's suffix."""
    return SUFFIX.sub("", name)
