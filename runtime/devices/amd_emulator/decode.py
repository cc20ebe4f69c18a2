"""Machine code into instructions, by the encodings and operand tables of PyPI's tinygrad."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

FAMILIES = {"gfx9": "cdna", "gfx11": "rdna3", "gfx12": "rdna4"}
LITERAL, DPP8, SDWA, DPP16 = 255, (233, 234), 249, 250
"""What a source field holds where a constant, or a source with its own encoding, follows the instruction."""
FOLLOWED = ("_DPP16", "_DPP8", "_SDWA", "_LIT", "_SDWA_SDST")
SUFFIXES = ("_E32", "_E64", "_DPP16", "_DPP8", "_SDWA", "_LIT")
REGISTER_FIELDS = {"SrcField": 0, "VGPRField": 256, "SGPRField": 0, "SSrcField": 0, "SBaseField": 0, "SRsrcField": 0}
SCALED_FIELDS = {"SBaseField": 2, "SRsrcField": 4}


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction.

    format: of its encoding, such as VOP3 or GLOBAL, without what follows it.  name: of the operation, without its
    encoding's suffix.  fields: raw numbers by field; registers by their place in the operand space (scalar registers
    from 0, constants from 128, vector registers from 256).  operands: field → (format's name, bits).  address: of its
    first byte.
    """

    format: str
    name: str
    op: Any
    fields: dict[str, int]
    operands: dict[str, tuple[str, int]]
    address: int
    size: int
    words: tuple[int, ...]

    def __getitem__(self, field: str) -> int:
        return self.fields[field]

    def get(self, field: str, default: int = 0) -> int:
        return self.fields.get(field, default)

    def bits(self, field: str, default: int = 32) -> int:
        """The width of an operand in bits."""
        return self.operands[field][1] if field in self.operands else default

    def text(self) -> str:
        """The operation and its fields, as a trace prints them; modifiers that are zero are left out."""
        shown = []
        for name, value in self.fields.items():
            if name.startswith(REGISTERS) and not name.endswith(("neg", "abs", "sel", "sext")):
                text = (
                    f"{self['literal']:#x}" if value == LITERAL and "literal" in self.fields else register_name(value)
                )
                shown.append(f"{name}={text}")
            elif value and name != "literal":
                shown.append(f"{name}={value}")
        return f"{self.name.lower()} {', '.join(shown)}"


REGISTERS = (
    "src",
    "ssrc",
    "vsrc",
    "vdst",
    "sdst",
    "vaddr",
    "addr",
    "saddr",
    "data",
    "vdata",
    "sdata",
    "sbase",
    "soffset",
)


def register_name(place: int) -> str:
    """A register's or constant's name by its place in the operand space."""
    special = {106: "vcc_lo", 107: "vcc_hi", 124: "null", 125: "m0", 126: "exec_lo", 127: "exec_hi", 253: "scc"}
    if place >= 256:
        return f"v{place - 256}" if place < 512 else f"a{place - 512}"
    if place in special:
        return special[place]
    if place < 128:
        return f"s{place}"
    return str(place - 128) if place <= 192 else str(192 - place) if place <= 208 else f"constant{place}"


def family(chip: str) -> str:
    """The name of a chip's tables: cdna, rdna3 or rdna4."""
    for prefix, name in FAMILIES.items():
        if chip.startswith(prefix):
            return name
    raise NotModelled(f"{chip} is of no family that is emulated: {', '.join(FAMILIES)}")


@cache
def tables(name: str) -> tuple[list[tuple[int, int, Any, list[Any]]], dict[Any, Any], dict[Any, str]]:
    """A family's encodings (mask, bits, class, variants), most specific first; operands; pseudocode."""
    base = f"tinygrad.runtime.autogen.amd.{name}"
    module = importlib.import_module(f"{base}.ins")
    instruction = importlib.import_module("tinygrad.renderer.amd.dsl").Inst
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, instruction)]
    roots = [c for c in classes if instruction in c.__bases__]
    encodings = [
        (*_pattern(root), root, [c for c in classes if c is not root and issubclass(c, root)]) for root in roots
    ]
    encodings.sort(key=lambda encoding: -encoding[0].bit_count())
    operands = importlib.import_module(f"{base}.operands").OPERANDS
    return encodings, operands, importlib.import_module(f"{base}.str_pcode").PCODE


def _pattern(encoding: Any) -> tuple[int, int]:
    """(mask, bits): which bits of its instructions are always the same, and what they are."""
    fixed = [f for _, f in encoding._fields if type(f).__name__ == "FixedBitField"]
    return sum(f.mask << f.lo for f in fixed), sum(f.default << f.lo for f in fixed)


def decode(code: bytes, at: int, address: int, name: str) -> Instruction:
    """The instruction at an offset into `code`; address: where its first byte is when it runs."""
    encodings, operands, _ = tables(name)
    raw = int.from_bytes(code[at : at + 24], "little")
    for mask, bits, root, variants in encodings:
        if raw & mask != bits:
            continue
        fitting = [c for c in (root, *variants) if _operation(c, raw) is not None]
        if fitting:
            plain = [c for c in fitting if not c.__name__.endswith(FOLLOWED)]
            encoding = (plain or fitting)[0]
            suffix = _what_follows(root, encoding, raw)
            more = [c for c in (*fitting, *variants) if suffix and c.__name__.endswith(suffix)]
            fields = {**dict((more or [encoding])[0]._fields), **dict(encoding._fields)}
            return _instruction(encoding.__name__.removesuffix("_LIT") + suffix, fields, raw, address, operands)
    raise NotModelled(f"no {name} encoding has the word {raw & 0xFFFFFFFF:#010x}")


def _operation(encoding: Any, raw: int) -> Any:
    """The operation's enum value, () for an encoding of two operations, None where it is not this encoding's."""
    fields = dict(encoding._fields)
    if "op" not in fields:
        return ()
    field = fields["op"]
    try:
        found = field.decode(raw >> field.lo & field.mask)
    except ValueError:
        return None
    return found if field.allowed is None or found in field.allowed else None


def _what_follows(root: Any, encoding: Any, raw: int) -> str:
    """The suffix of the variant that the sources ask for: a literal, lanes of others, parts of a register; or none."""
    fields = dict(encoding._fields)
    sources = {n: f for n, f in fields.items() if type(f).__name__ in ("SrcField", "SSrcField") and "dst" not in n}
    values = [raw >> f.lo & f.mask for f in sources.values()]
    ops = [f.decode(raw >> f.lo & f.mask).name for f in fields.values() if type(f).__name__ == "EnumBitField"]
    if LITERAL in values or any("AAK" in n or "AMK" in n or "SETREG_IMM32" in n for n in ops):
        return "_LIT"
    if "src0" not in sources or not root.__name__.startswith("VOP"):
        return ""
    if values[0] == DPP16:
        return "_DPP16"
    if values[0] in DPP8 and "cdna" not in root.__module__:
        return "_DPP8"
    return ("_SDWA_SDST" if root.__name__ == "VOPC" else "_SDWA") if values[0] == SDWA else ""


def _instruction(what: str, layout: dict[str, Any], raw: int, address: int, operands: dict[Any, Any]) -> Instruction:
    fields, ops = {}, []
    for field, at in layout.items():
        kind, number = type(at).__name__, raw >> at.lo & at.mask
        if kind == "EnumBitField":
            ops.append(at.decode(number))
        elif kind != "FixedBitField":
            fields[field] = REGISTER_FIELDS.get(kind, 0) + number * SCALED_FIELDS.get(kind, 1)
    if "vdsty" in fields:  # the lowest bit is the opposite of the other destination's
        fields["vdsty"] = 256 + (fields["vdsty"] << 1 | (fields["vdstx"] & 1 ^ 1))
    names = "::".join(plain_name(op.name) for op in ops)
    table = {k: (v[0].name, v[1]) for k, v in operands.get(ops[0], {}).items()} if len(ops) == 1 else {}
    size = -(-(max(f.hi for f in layout.values()) + 1) // 32) * 4
    words = tuple(raw >> 32 * i & 0xFFFFFFFF for i in range(size // 4))
    return Instruction(
        what.removesuffix("_LIT"), names, ops[0] if len(ops) == 1 else tuple(ops), fields, table, address, size, words
    )


def plain_name(name: str) -> str:
    """An operation's name without its encoding's suffix."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name
