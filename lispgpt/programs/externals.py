"""What a program may call beyond itself: the C library, MLIR's print helpers, a clock, and libraries that it names.

Every function that a lowered module declares is looked up before the program runs, so that a missing one is an error
with its name instead of a failure of the linker.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.dtypes import DTYPES
from lispgpt.base.errors import UserError
from lispgpt.language.reader.handles import PREFIX, FormHandles
from lispgpt.programs.sharing import Sharing

C_INTERFACE = "_mlir_ciface_"

_libc = ctypes.CDLL(None, use_errno=True)
_libm = ctypes.CDLL(ctypes.util.find_library("m") or None, mode=ctypes.RTLD_GLOBAL)

ELEMENT_TYPES: dict[str, np.dtype[Any]] = {
    name.upper(): DTYPES[name].numpy for name in ("f32", "f64", "i8", "i16", "i32", "i64")
} | {"Ind": DTYPES["i64"].numpy}
"""Suffixes of printMemref… and the elements that they print."""


def flush_output() -> None:
    """Write out what C's stdio still holds; OSError where some of the output could not be written, now or before."""
    ctypes.set_errno(0)
    stream = ctypes.c_void_p.in_dll(_libc, "stdout")
    if _libc.fflush(None) or _libc.ferror(stream):
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), "standard output")


def write_output(text: str) -> None:
    """Print through C's stdio, in order with what the program itself printed."""
    _libc.printf(b"%s", text.encode())


class Externals:
    """The functions of one program's process, by name; it has to outlive the program's code."""

    def __init__(self, libraries: Sequence[str] = (), root: Path | None = None) -> None:
        self._libraries = [_open_library(name, root) for name in libraries]
        self._callbacks: dict[str, Any] = _print_helpers() | _memref_helpers() | _process()
        self._forms = FormHandles()
        self._callbacks["gpu_address_of"] = _function(ctypes.c_void_p, ctypes.c_void_p)(lambda address: address)
        self._callbacks["share_work"] = Sharing().function()
        self._aliases = {"gpu_thread_alloc": "aligned_alloc", "gpu_thread_free": "free", "gpu_printf": "printf"}
        self._aliases |= {f"printf_{count}": "printf" for count in range(1, 5)}  # for so many integers or pointers

    def add(self, name: str, callback: Any) -> None:
        """Provide a ctypes callback, or the address of a function, under a name."""
        self._callbacks[name] = callback

    def address(self, name: str) -> int | None:
        """Where a function is in this process, or None."""
        if name.startswith(PREFIX):
            self._callbacks |= self._forms.functions()
        callback = self._callbacks.get(name)
        if callback is not None:
            return callback if isinstance(callback, int) else _address(callback)
        name = self._aliases.get(name, name)
        for library in [_libc, _libm, *self._libraries]:
            if hasattr(library, name):
                return _address(getattr(library, name))
        if name.startswith(C_INTERFACE):
            return self.address(name.removeprefix(C_INTERFACE))
        return None

    def resolve(self, names: Iterable[str]) -> dict[str, int]:
        """The address of every name; UserError lists those that nothing provides."""
        found = {name: self.address(name) for name in names}
        missing = sorted(name for name, address in found.items() if address is None)
        if missing:
            what = "function" if len(missing) == 1 else "functions"
            raise UserError(
                f"no library has the {what} {', '.join(missing)} that the program declares; "
                'name the library with (link-library "lib….so") or define the function'
            )
        return {name: address for name, address in found.items() if address is not None}


def _open_library(name: str, root: Path | None) -> ctypes.CDLL:
    """A library by its short name (c, m, …), by a path relative to the program, or by what the loader finds."""
    if name.lstrip(":") == "c":
        return _libc
    path = (root or Path()) / name
    choices = [str(path)] if path.exists() else []
    choices += [ctypes.util.find_library(name.lstrip(":")) or name]
    try:
        return ctypes.CDLL(choices[0], mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise UserError(f"cannot open the library {name!r}: {error}") from None


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _function(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    return ctypes.CFUNCTYPE(result, *arguments)


def _print_helpers() -> dict[str, Any]:
    """MLIR's runner functions for scalars and punctuation, which `vector.print` calls too."""

    def text(content: bytes) -> Any:
        return _function(None)(lambda: _libc.printf(b"%s", content) and None)

    return {
        "printF32": _function(None, ctypes.c_float)(lambda x: _libc.printf(b"%g", ctypes.c_double(x)) and None),
        "printF64": _function(None, ctypes.c_double)(lambda x: _libc.printf(b"%g", ctypes.c_double(x)) and None),
        "printBF16": _function(None, ctypes.c_uint16)(_print_bf16),
        "printI64": _function(None, ctypes.c_int64)(lambda x: _libc.printf(b"%ld", ctypes.c_long(x)) and None),
        "printU64": _function(None, ctypes.c_uint64)(lambda x: _libc.printf(b"%lu", ctypes.c_ulong(x)) and None),
        "printString": _function(None, ctypes.c_char_p)(lambda s: _libc.printf(b"%s", s) and None),
        "printOpen": text(b"( "),
        "printClose": text(b" )"),
        "printComma": text(b", "),
        "printNewline": text(b"\n"),
    }


def _print_bf16(bits: int) -> None:
    value = np.uint32(bits << 16).view(np.float32)
    _libc.printf(b"%g", ctypes.c_double(float(value)))


def _process() -> dict[str, Any]:
    """Clocks, and an exit that leaves this process without the interpreter's own farewells."""

    def leave(code: int) -> None:
        try:
            flush_output()
        except OSError as error:
            os.write(2, f"error: standard output: {error.strerror}\n".encode())
            code = code or 1
        os._exit(code & 0xFF)

    return {
        "clock_ms": _function(ctypes.c_int64)(lambda: time.monotonic_ns() // 1_000_000),
        "rtclock": _function(ctypes.c_double)(time.monotonic),
        "exit": _function(None, ctypes.c_int)(leave),
    }


def _memref_helpers() -> dict[str, Any]:
    """Functions on unranked memrefs, which arrive as a rank and the address of a descriptor."""
    helpers: dict[str, Any] = {}
    for suffix, dtype in ELEMENT_TYPES.items():
        show, show_boxed = _memref_printers(dtype)
        helpers[f"printMemref{suffix}"] = _function(None, ctypes.c_int64, ctypes.c_void_p)(show)
        helpers[f"{C_INTERFACE}printMemref{suffix}"] = _function(None, ctypes.c_void_p)(show_boxed)
    helpers["memrefCopy"] = _function(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(_copy_memref)
    return helpers


def _memref_printers(dtype: np.dtype[Any]) -> tuple[Callable[[int, int], None], Callable[[int], None]]:
    """printMemref… as called directly, and through the C interface with the address of {rank, descriptor}."""

    def show(rank: int, descriptor: int) -> None:
        write_output(_describe_memref(rank, descriptor, dtype))

    def show_boxed(box: int) -> None:
        show(*(ctypes.c_int64 * 2).from_address(box))

    return show, show_boxed


def memref_view(rank: int, descriptor: int, dtype: np.dtype[Any]) -> np.ndarray:
    """A numpy view of the memory that a ranked descriptor {allocated, aligned, offset, sizes, strides} describes."""
    _, aligned, offset = (ctypes.c_int64 * 3).from_address(descriptor)
    words = (ctypes.c_int64 * (2 * rank)).from_address(descriptor + 24) if rank else ()
    sizes, strides = list(words[:rank]), list(words[rank:])
    if 0 in sizes or not aligned:
        return np.zeros(sizes, dtype)
    steps = [(n - 1) * s for n, s in zip(sizes, strides, strict=True)]
    low = sum(min(0, step) for step in steps)
    count = sum(max(0, step) for step in steps) - low + 1
    start = aligned + (offset + low) * dtype.itemsize
    raw = np.frombuffer(memoryview((ctypes.c_char * (count * dtype.itemsize)).from_address(start)), dtype=dtype)
    byte_strides = [s * dtype.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(raw[-low:], sizes, byte_strides)


def _copy_memref(item_bytes: int, source: int, destination: int) -> None:
    """MLIR's memrefCopy: both are {rank, descriptor} boxes of the same shape."""
    dtype = np.dtype(f"V{item_bytes}")
    (rank, from_), (_, to) = ((ctypes.c_int64 * 2).from_address(box) for box in (source, destination))
    memref_view(rank, to, dtype)[...] = memref_view(rank, from_, dtype)


def _describe_memref(rank: int, descriptor: int, dtype: np.dtype[Any]) -> str:
    view = memref_view(rank, descriptor, dtype)
    _, aligned, offset = (ctypes.c_int64 * 3).from_address(descriptor)
    strides = [s // dtype.itemsize for s in view.strides]
    head = f"Unranked Memref base@ = {aligned:#x} rank = {rank} offset = {offset} "
    return head + f"sizes = {list(view.shape)} strides = {strides} data = \n{_nested(view)}\n"


def _nested(view: np.ndarray, indent: int = 1) -> str:
    if view.ndim == 0:
        return f"{float(view):g}" if view.dtype.kind == "f" else str(int(view))
    separator = ",   " if view.ndim == 1 else ", \n" + " " * indent
    return "[" + separator.join(_nested(row, indent + 1) for row in view) + "]"
