"""The host's CPU: kernels are functions in a shared object, and a pool of threads takes their blocks.

The shared object's `lispgpt_run` and `lispgpt_worker` (see the compiler's CPU executor) share a pool of 64-bit words:
[0] generation  [8] stop  [16] launches  [17] how many  [18] threads  [24] arrivals  [32] finished  [40] counters.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base import scratch
from lispgpt.base.errors import UserError
from lispgpt.base.host import cores, cpu_name, may_use_tiles, memory
from lispgpt.runtime.devices.base import CLOSED
from lispgpt.runtime.devices.host_memory import HostMemory
from lispgpt.runtime.plan.loops import launches
from lispgpt.runtime.plan.plan import Entry

ALIGNMENT = 256
UNRESERVED_FROM = 1 << 30
"""Bytes of a buffer that may be larger than the machine's memory, as long as most of it is never touched."""
UNRESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
STOP, LAUNCHES, COUNT, THREADS, COUNTERS, POOL_WORDS = 8, 16, 17, 18, 40, 64


RANK = 0


def missing() -> str | None:
    return None


def installed_target() -> str | None:
    return "cpu"


def open_device(threads: int | None = None, index: int = 0) -> CpuDevice:
    return CpuDevice(threads)


@dataclass(frozen=True)
class _Executable:
    """launches: (kernel, arguments, blocks) rows; the other arrays are kept alive because rows hold their addresses."""

    launches: np.ndarray
    keep: tuple[Any, ...]


class CpuDevice(HostMemory):
    """One pool of threads.  Buffers are numpy arrays of bytes; 256-byte aligned where this device allocates them."""

    careful = False

    def __init__(self, threads: int | None = None) -> None:
        self.threads = cores() if threads is None else threads
        if type(self.threads) is not int or self.threads < 1:
            raise UserError(f"a CPU session needs at least one thread, not {self.threads}")
        self.room = memory()
        self.name = f"{cpu_name()} ({self.threads} thread{'s' if self.threads > 1 else ''})"
        self._pool = np.zeros(POOL_WORDS, np.int64)
        self._workers: list[threading.Thread] = []
        self._stop = weakref.finalize(self, _stop_workers, self._pool, self._workers)
        self._libraries: list[ctypes.CDLL] = []
        self._kernels: dict[str, int] = {}
        self._counters = np.zeros(0, np.int64)

    def enter(self) -> None:
        if not self._stop.alive:
            raise UserError(CLOSED)

    def alloc(self, nbytes: int) -> np.ndarray:
        """Memory that is taken as it is written: a cache for a long context costs what is used of it."""
        try:
            if nbytes < UNRESERVED_FROM:
                raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
            else:
                raw = np.frombuffer(mmap.mmap(-1, nbytes + ALIGNMENT, flags=UNRESERVED), np.uint8)
        except (OSError, ValueError, OverflowError, MemoryError):
            raise UserError(f"not enough memory for a buffer of {nbytes:,} bytes") from None
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def adopt(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(-1).view(np.uint8)

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        if any(facts.get("permission") == "amx" for facts in kernels.values()) and not may_use_tiles(ask=True):
            raise UserError(
                "the artifact's kernels use AMX, and the system does not let this process: "
                "compile for a CPU without it (--target cpu:x86-64-v4)"
            )
        with scratch.used() as own, tempfile.NamedTemporaryFile(suffix=".so", dir=own) as file:
            file.write(code)
            file.flush()
            try:
                library = ctypes.CDLL(file.name)
            except OSError as error:
                raise UserError(f"the artifact's machine code does not load on this machine: {error}") from None
            names = (*kernels, "lispgpt_run", "lispgpt_worker")
            missing = [name for name in names if not _defines(library, file.name, name)]
        if missing:
            raise UserError(f"the artifact's machine code has no kernel {missing[0]!r}")
        self._kernels |= {k + suffix: ctypes.cast(getattr(library, k), ctypes.c_void_p).value or 0 for k in kernels}
        self._libraries.append(library)
        if len(self._libraries) == 1:
            self._start_workers(library)

    def _start_workers(self, library: ctypes.CDLL) -> None:
        """Start the threads that take blocks beside the caller's, in one library's executor for all."""
        library.lispgpt_run.argtypes = library.lispgpt_worker.argtypes = [ctypes.c_void_p]
        self._pool[THREADS] = self.threads
        self._pool[32] = self.threads - 1
        for _ in range(self.threads - 1):
            arguments = (library.lispgpt_worker, self._pool.ctypes.data)
            worker = threading.Thread(target=arguments[0], args=arguments[1:], daemon=True)
            worker.start()
            self._workers.append(worker)

    def prepare(self, entry: Entry, buffers: Mapping[str, np.ndarray]) -> _Executable:
        rows, addresses = [], []
        begins = {name: buffer.ctypes.data for name, buffer in buffers.items()}
        for launch in launches(entry.steps):
            values = [begins[a.buffer] + a.offset for a in launch.arguments]
            arguments = np.array(values or [0], np.uint64)
            addresses.append(arguments)
            blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
            rows.append((self._kernels[launch.kernel], arguments.ctypes.data, blocks))
        return _Executable(np.array(rows, np.int64).reshape(-1, 3), (addresses, dict(buffers)))

    def launch(self, executable: _Executable) -> None:
        count = len(executable.launches)
        if not count:  # of an entry that gives nothing but tensors without elements
            return
        if self._counters.size < count * 16:
            self._counters = np.zeros(count * 16, np.int64)
        self._pool[LAUNCHES] = executable.launches.ctypes.data
        self._pool[COUNT] = count
        self._pool[COUNTERS] = self._counters.ctypes.data
        self._libraries[0].lispgpt_run(self._pool.ctypes.data)

    def launch_reading(
        self, executable: _Executable, buffer: np.ndarray, array: np.ndarray
    ) -> Callable[[], np.ndarray]:
        self.launch(executable)
        return self.read_later(buffer, array)

    def read_later(self, buffer: np.ndarray, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.copy_out(buffer, array)
        return lambda: array

    def sync(self) -> None:
        """Launches have finished when `launch` returns."""

    def close(self) -> None:
        self._stop()


class _Place(ctypes.Structure):
    """Dl_info of dlfcn.h: where an address lies."""

    _fields_ = [(name, ctypes.c_char_p) for name in ("file", "base", "symbol", "address")]


def _defines(library: ctypes.CDLL, path: str, name: str) -> bool:
    """Whether a library has a function itself: the loader also gives what libraries that it needs have."""
    if not hasattr(library, name):
        return False
    place, address = _Place(), ctypes.cast(getattr(library, name), ctypes.c_void_p)
    return bool(ctypes.CDLL(None).dladdr(address, ctypes.byref(place))) and place.file == os.fsencode(path)


def _stop_workers(pool: np.ndarray, workers: list[threading.Thread]) -> None:
    """End the threads that wait on a pool, before its memory can go away."""
    if workers:
        pool[STOP] = 1
        pool[0] += 1
        for worker in workers:
            worker.join()
        workers.clear()
