"""A linker of relocatable objects as LLVM makes them of kernels: x86-64's and AMD's, to a shared object.

It is for machines without LLD.  As a command it takes what MLIR gives LLD: `-shared INPUT… -o OUTPUT`.

What an object leaves to others becomes an undefined symbol, which the loader finds; what objects define is found
within.
Sources: "System V Application Binary Interface, AMD64 Architecture Processor Supplement" (its large code model), and
"User Guide for AMDGPU Backend".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.linking.relocatable import RelocatableObject, Relocation, Unlinkable
from lispgpt.base.linking.shared_object import (
    ABSOLUTE,
    ALLOC,
    AMDGPU,
    LOCAL,
    NOBITS,
    PROGBITS,
    WEAK,
    WRITE,
    X86_64,
    Section,
    SharedObject,
    Symbol,
)

COMMENT = b"lispgpt\0"


@dataclass(frozen=True)
class Rule:
    """What a type of relocation writes.  value: absolute (S + A), relative (S + A - P), from-table (S + A - GOT), table
    (GOT + A - P), slot (G + A), slot-relative (GOT + G + A - P), in the ABI's letters.  size: bytes of the value, which
    is shifted right by so many bits; narrow: whether all of it must fit."""

    value: str
    size: int
    shift: int = 0
    narrow: bool = True


RULES = {
    X86_64: {
        1: Rule("absolute", 8), 2: Rule("relative", 4), 4: Rule("relative", 4), 9: Rule("slot-relative", 4),
        10: Rule("absolute", 4), 24: Rule("relative", 8), 25: Rule("from-table", 8), 26: Rule("table", 4),
        27: Rule("slot", 8), 28: Rule("slot-relative", 8), 29: Rule("table", 8), 31: Rule("from-table", 8),
        41: Rule("slot-relative", 4), 42: Rule("slot-relative", 4),
    },
    AMDGPU: {
        3: Rule("absolute", 8), 4: Rule("relative", 4), 5: Rule("relative", 8), 6: Rule("absolute", 4),
        10: Rule("relative", 4, 0, False), 11: Rule("relative", 4, 32),
    },
}  # fmt: skip
RELATIVE = {X86_64: 8, AMDGPU: 13}
"""The loader's: the object's place is added."""
WHOLE, SLOT = {X86_64: 1, AMDGPU: 3}, {X86_64: 6}
"""The loader's: a symbol's address, as data and as what other code finds it by."""


def link(pieces: Sequence[bytes], comment: bytes = COMMENT) -> bytes:
    """The shared object of relocatable ones for one machine; Unlinkable where one has what is not known here.

    comment: what the file says it was made by.
    """
    return _Link([RelocatableObject(piece) for piece in pieces]).finish(comment)


class _Link:
    """Objects on their way to one: sections are merged by name, and each global name has one symbol."""

    def __init__(self, objects: Sequence[RelocatableObject]) -> None:
        self.machine = objects[0].machine
        if any(other.machine != self.machine for other in objects) or self.machine.number not in RULES:
            raise Unlinkable(f"objects of machine {self.machine.number} and others are not linked here")
        self.rules = RULES[self.machine.number]
        self.relocations = [relocation for each in objects for relocation in each.relocations]
        self.globals: dict[str, Symbol] = {}
        self.locals: list[Symbol] = []
        for each in objects:
            for symbol in each.symbols:
                self._meet(symbol)
        self.parts: dict[Section, tuple[Section, int]] = {}
        self.merged: dict[str, Section] = {}
        for each in objects:
            for section in each.sections.values():
                self._merge(section)
        self.slots: dict[Symbol, int] = {}
        self.table = Section(".got", PROGBITS, ALLOC | WRITE, 8, read_only_later=True)

    def _meet(self, symbol: Symbol) -> None:
        if symbol.binding == LOCAL:
            if symbol.name and symbol.kind not in (3, 4) and not symbol.name.startswith(".L"):
                self.locals.append(symbol)
            return
        if symbol.name == "_GLOBAL_OFFSET_TABLE_":
            return
        other = self.globals.setdefault(symbol.name, symbol)
        if other is symbol or not symbol.is_defined:
            return
        if other.is_defined and WEAK not in (other.binding, symbol.binding):
            raise Unlinkable(f"{symbol.name!r} is defined twice")
        if not other.is_defined or other.binding == WEAK:
            self.globals[symbol.name] = symbol

    def _merge(self, section: Section) -> None:
        """Put an object's section behind what others have of its kind."""
        name = _output_name(section)
        whole = self.merged.get(name)
        if whole is None:
            whole = self.merged[name] = Section(name, section.kind, section.flags, 1)
            whole.read_only_later, whole.entry_bytes = section.read_only_later, section.entry_bytes
        if whole.kind == NOBITS and section.kind != NOBITS:
            raise Unlinkable(f"section {name} has bytes in one object, and none in another")
        start = -(-whole.size // section.align) * section.align
        whole.align = max(whole.align, section.align)
        whole.flags &= section.flags | ~0x30  # of strings alone, if both are
        if whole.entry_bytes != section.entry_bytes:
            whole.flags, whole.entry_bytes = whole.flags & ~0x30, 0
        if whole.kind == NOBITS:
            whole.empty_bytes = start + section.size
        else:
            whole.data += bytes(start - whole.size) + (section.data or bytes(section.size))
        self.parts[section] = (whole, start)

    def _resolved(self, symbol: Symbol) -> Symbol:
        return symbol if symbol.binding == LOCAL else self.globals.get(symbol.name, symbol)

    def finish(self, comment: bytes) -> bytes:
        for symbol in {*self.locals, *self.globals.values(), *(r.symbol for r in self.relocations)}:
            if isinstance(symbol.section, Section):
                symbol.section, start = self.parts[symbol.section]
                symbol.offset += start
        for relocation in self.relocations:
            if self._rule(relocation).value.startswith("slot"):
                self.slots.setdefault(self._resolved(relocation.symbol), 8 * len(self.slots))
        self.table.data = bytearray(8 * len(self.slots))
        sections = [*self.merged.values(), *([self.table] if self._needs_table() else [])]
        symbols = [*self.locals, *self.globals.values()]
        count = sum(map(self._is_for_the_loader, self.relocations)) + len(self.slots)
        whole = SharedObject(self.machine, sections, symbols, count, comment=comment)
        whole.lay_out()
        for symbol, place in self.slots.items():
            self._leave(whole, self.table, place, symbol, 0, SLOT)
        for relocation in self.relocations:
            section, start = self.parts[relocation.section]
            if self._is_for_the_loader(relocation):
                place, symbol = start + relocation.place, self._resolved(relocation.symbol)
                self._leave(whole, section, place, symbol, relocation.addend, WHOLE)
            else:
                self._write(relocation, section, start + relocation.place)
        return whole.to_bytes()

    def _needs_table(self) -> bool:
        return any("table" in self._rule(r).value or "slot" in self._rule(r).value for r in self.relocations)

    def _rule(self, relocation: Relocation) -> Rule:
        if relocation.kind not in self.rules:
            raise Unlinkable(f"relocations of type {relocation.kind} are not linked here")
        return self.rules[relocation.kind]

    def _is_for_the_loader(self, relocation: Relocation) -> bool:
        """Whether a place is to hold an address, which only the loader knows."""
        rule, where = self._rule(relocation), self.parts[relocation.section][0]
        if rule.value != "absolute" or not where.flags & ALLOC or self._resolved(relocation.symbol).section == ABSOLUTE:
            return False
        if rule.size != 8 or not where.flags & WRITE:
            raise Unlinkable(f"{where.name} has addresses, and nothing may write to it")
        return True

    def _leave(
        self, whole: SharedObject, section: Section, place: int, symbol: Symbol, addend: int, kinds: dict[int, int]
    ) -> None:
        """Have the loader write an address."""
        number = self.machine.number
        if symbol.is_defined:
            whole.relocations.append((section.address + place, RELATIVE[number], None, symbol.address + addend))
        elif number in kinds:
            whole.relocations.append((section.address + place, kinds[number], symbol, addend))
        else:
            raise Unlinkable(f"{symbol.name!r} is not defined")

    def _write(self, relocation: Relocation, section: Section, place: int) -> None:
        rule, symbol, table = self._rule(relocation), self._resolved(relocation.symbol), self.table.address
        here = section.address + place
        if not symbol.is_defined and rule.value in ("absolute", "relative", "from-table"):
            raise Unlinkable(f"{symbol.name!r} is not defined")
        value = (
            relocation.addend
            + {
                "absolute": symbol.address,
                "relative": symbol.address - here,
                "from-table": symbol.address - table,
                "table": table - here,
                "slot": self.slots.get(symbol, 0),
                "slot-relative": table + self.slots.get(symbol, 0) - here,
            }[rule.value]
        )
        if place + rule.size > len(section.data):
            raise Unlinkable(f"a relocation lies outside of section {section.name}")
        value >>= rule.shift
        bits = 8 * rule.size
        if rule.narrow and not -(1 << bits - 1) <= value < 1 << bits:
            raise Unlinkable(f"{symbol.name or 'a section'} is too far from what refers to it")
        section.data[place : place + rule.size] = (value % (1 << bits)).to_bytes(rule.size, "little")


def _output_name(section: Section) -> str:
    """The name of what a section is merged into: `.text` for `.ltext` and `.text.kernel`, and so on."""
    for name in (".data.rel.ro", ".text", ".rodata", ".data", ".bss"):
        for beginning in (name, f".l{name[1:]}"):
            if section.name == beginning or section.name.startswith(f"{beginning}."):
                return name
    return section.name


def main(arguments: list[str]) -> int:
    """Link as LLD would be asked to; what is wrong goes to standard error."""
    output = Path(arguments[arguments.index("-o") + 1])
    names = [a for number, a in enumerate(arguments) if not a.startswith("-") and arguments[number - 1] != "-o"]
    try:
        output.write_bytes(link([Path(name).read_bytes() for name in names]))
    except (OSError, UserError) as error:
        print(f"lispgpt's linker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
