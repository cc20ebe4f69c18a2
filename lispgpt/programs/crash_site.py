"""Where in the Lisp a program crashed: signal handlers in the child, and the line table of the program's own code.

Only on x86-64 Linux; elsewhere the crash is reported without its line.
"""

from __future__ import annotations

import ctypes
import platform
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)
ON_OWN_STACK, WITH_INFO, ONCE = 0x08000000, 4, 0x80000000
HANDLER_STACK = 1 << 20
STACK_WORDS = 4096
"""How far up the stack a return address into the program is looked for, when it crashed in a library."""

REGISTERS, STACK_POINTER, PROGRAM_COUNTER = 40, 15, 16
"""Offset of the registers in the kernel's ucontext on x86-64, and the numbers of two of them."""

Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """The C library's struct sigaction on x86-64."""

    _fields_ = (
        ("handler", Handler),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Stack(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class CrashSite:
    """Reports the Lisp line of a crash once, before the signal ends the process; keep it while the program runs.

    code: the program's object file.  symbol, address: a function of it, and where that is in memory.
    """

    def __init__(self, code: bytes, symbol: str, address: int, report: Callable[[str, int], None]) -> None:
        self._report = report
        self._object = ElfObject(code)
        self._slide = address - self._object.symbol(symbol)
        self._end = self._slide + self._object.code_size
        self._keep: list[object] = []

    def watch(self) -> None:
        """Install the handlers, on a stack of their own so that an overflow of the program's is survived."""
        if platform.machine() != "x86_64" or not self._object.code_size:
            return
        libc = ctypes.CDLL(None)
        memory = ctypes.create_string_buffer(HANDLER_STACK)
        stack = _Stack(ctypes.addressof(memory), 0, HANDLER_STACK)
        libc.sigaltstack(ctypes.byref(stack), None)
        handler = Handler(self._crashed)
        action = _Action(handler, flags=ctypes.c_int32(ON_OWN_STACK | WITH_INFO | ONCE - (1 << 32)).value)
        for number in FATAL:
            libc.sigaction(number, ctypes.byref(action), None)
        self._keep += [memory, handler]

    def _crashed(self, number: int, info: int, context: int) -> None:
        """Returning runs the faulty instruction again, this time with the signal's usual effect."""
        registers = (ctypes.c_uint64 * 23).from_address(context + REGISTERS)
        place = self._find(registers[PROGRAM_COUNTER], registers[STACK_POINTER])
        if place is not None:
            self._report(*place)

    def _find(self, counter: int, stack: int) -> tuple[str, int] | None:
        if self._inside(counter):
            return self._object.place(counter - self._slide)
        for word in (ctypes.c_uint64 * STACK_WORDS).from_address(stack):
            if self._inside(word):
                return self._object.place(word - 1 - self._slide)
        return None

    def _inside(self, address: int) -> bool:
        return self._slide <= address < self._end


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


class ElfObject:
    """What is needed of a 64-bit little-endian ELF object with one section of code and DWARF 4 line tables."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        text = headers[names][4]
        self._sections = {self._string(text + h[0]): _Section(h[1], h[4], h[5], h[6]) for h in headers}
        code = [s.size for n, s in self._sections.items() if n in (".text", ".ltext")]
        self.code_size = max(code, default=0)

    def _string(self, offset: int) -> str:
        return self._data[offset : self._data.index(b"\0", offset)].decode(errors="replace")

    def symbol(self, name: str) -> int:
        """A symbol's offset in the code; 0 where there is none."""
        symbols, strings = self._sections[".symtab"], self._sections[".strtab"]
        for at in range(symbols.offset, symbols.offset + symbols.size, 24):
            start, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", self._data, at)
            if self._string(strings.offset + start) == name:
                return int(value)
        return 0

    def place(self, offset: int) -> tuple[str, int] | None:
        """The file and line of the instruction at an offset in the code."""
        before: tuple[int, str, int] | None = None
        for address, file, line in self._rows():
            if before is not None and before[0] <= offset < address and before[2]:
                return before[1], before[2]
            before = (address, file, line)
        return None

    def _rows(self) -> Iterator[tuple[int, str, int]]:
        """(address, file, line) of every row of the line tables; line 0 where there is none or a sequence ends."""
        section = self._sections.get(".debug_line")
        at = section.offset if section else 0
        while section and at < section.offset + section.size:
            (length, version) = struct.unpack_from("<IH", self._data, at)
            if version == 4:
                yield from _LineProgram(self._data[at : at + 4 + length], self._addends(at - section.offset)).rows()
            at += 4 + length

    def _addends(self, unit: int) -> dict[int, int]:
        """Addresses that relocations put into a unit, by their offset in it."""
        section = self._sections.get(".rela.debug_line")
        found = {}
        for at in range(section.offset, section.offset + section.size, 24) if section else ():
            offset, _, addend = struct.unpack_from("<QQq", self._data, at)
            found[offset - unit] = addend
        return found


class _LineProgram:
    """One unit of .debug_line (DWARF 4, section 6.2)."""

    def __init__(self, data: bytes, addends: dict[int, int]) -> None:
        self._data, self._addends, self._at = data, addends, 0
        (header,) = struct.unpack_from("<I", data, 6)
        self._start = 10 + header
        self._step, _, _, self._base, self._range, opcodes = struct.unpack_from("<BBBbBB", data, 10)
        self._lengths = list(data[16 : 15 + opcodes])
        self._at = 15 + opcodes
        folders = ["", *self._texts()]
        self._files = [""]
        while self._data[self._at]:
            name, folder = self._text(), self._number()
            self._number(), self._number()
            self._files.append(f"{folders[folder]}/{name}" if folders[folder] else name)

    def _texts(self) -> list[str]:
        texts = []
        while self._data[self._at]:
            texts.append(self._text())
        self._at += 1
        return texts

    def _text(self) -> str:
        end = self._data.index(b"\0", self._at)
        text = self._data[self._at : end].decode(errors="replace")
        self._at = end + 1
        return text

    def _number(self, signed: bool = False) -> int:
        """A LEB128 number."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def rows(self) -> Iterator[tuple[int, str, int]]:
        self._at = self._start
        address, file, line = 0, 1, 1
        while self._at < len(self._data):
            code = self._data[self._at]
            self._at += 1
            if code > len(self._lengths):
                advance, step = divmod(code - len(self._lengths) - 1, self._range)
                address, line = address + advance * self._step, line + self._base + step
                yield address, self._files[file], line
            elif code == 0:
                end = self._number() + self._at
                if self._data[self._at] == 2:
                    (given,) = struct.unpack_from("<Q", self._data, self._at + 1)
                    address = self._addends.get(self._at + 1, given)
                elif self._data[self._at] == 1:
                    yield address, "", 0
                    address, file, line = 0, 1, 1
                self._at = end
            elif code == 1:
                yield address, self._files[file], line
            elif code == 2:
                address += self._number() * self._step
            elif code == 3:
                line += self._number(signed=True)
            elif code == 4:
                file = self._number()
            elif code == 8:
                address += (255 - len(self._lengths) - 1) // self._range * self._step
            elif code == 9:
                (advance,) = struct.unpack_from("<H", self._data, self._at)
                address, self._at = address + advance, self._at + 2
            else:
                for _ in range(self._lengths[code - 1]):
                    self._number()
