"""A GPU through its vendor's driver: what CUDA's driver API and HIP do alike.

A vendor's class opens the device, loads machine code and launches a kernel; `driver` says how calls are named.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import CLOSED, INPUT_BYTES, READ_LATER_BYTES, Pieces
from lispgpt.runtime.devices.driver import FAILED_BEFORE, Driver
from lispgpt.runtime.devices.growing import Ranges, Vendor
from lispgpt.runtime.devices.pinned import LaterReads, PinnedInputs, pinned
from lispgpt.runtime.devices.side_stream import SideStream
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch

BUFFER_ALIGNMENT = 256
LONGEST_STEP = (1 << 31) - 1
"""Between pieces that drivers copy by one call, which they do within one allocation and not in what is mapped."""

DOES_IT_FIT = "does the GPU allow this many threads and this much shared memory?"


class GpuDevice:
    """One GPU whose entries and copies run in order on one stream, entries as graphs; buffers are addresses.

    `_owned` has what closing gives back, last first: the driver's call, and what it is called with.
    """

    name: str
    asynchronous = True
    careful = False
    room: int | None = None
    copy_cost = 16 << 20
    weight_rows = 256
    most_runs = 4

    def __init__(self, driver: Driver, device: Any, stream: Any) -> None:
        self._driver, self._device, self._stream = driver, device, stream
        self._owned: list[tuple[str, Any]] = [("StreamDestroy", stream)]
        self._inputs = PinnedInputs(driver, self._owned)
        self._later = LaterReads(driver, self._owned, stream)
        self._behind: dict[int, int] = {}
        self._shared: dict[int, memoryview] = {}
        self._functions: dict[str, Any] = {}
        self._together: dict[str, int] = {}
        self._ranges: Ranges | None = None
        self._beside: tuple[SideStream, Any] | None = None
        self.whole = ""

    def _load_modules(self, code: bytes, objects: Sequence[bytes]) -> list[Any]:
        """The driver's modules of an artifact's machine code, or of what is that code for one chip."""
        raise NotImplementedError

    def _configure(self, kernel: str, facts: Mapping[str, Any]) -> None:
        """Do what a kernel of `_functions` needs before its first launch."""

    def _vendor(self) -> Vendor:
        """How the vendor's package describes memory that is mapped."""
        raise NotImplementedError

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        """Launch a kernel on the stream.  first: whether none of its entry is ahead of it."""
        raise NotImplementedError

    def _resident(self, launch: Launch, cluster: int) -> int:
        """How many blocks of a launch the GPU holds at once, in clusters of that size."""
        function, threads, about = self._functions[launch.kernel], math.prod(launch.block), f"kernel {launch.label}"
        (blocks,) = self._driver("OccupancyBlocks", function, threads, launch.shared_bytes, about=about)
        return int(blocks) * int(self._driver("DeviceGetCores", self._device)[0])

    def _fitting(self, launch: Launch) -> Launch:
        """A launch whose blocks wait for each other, with no more of them than it holds at once; others as they are.

        The kernel fact "persistent" says which those are: how many neighbouring blocks have to stay together.
        """
        cluster = self._together.get(launch.kernel)
        if cluster is None:
            return launch
        most = self._resident(launch, cluster) // cluster * cluster
        if not most:
            raise UserError(f"{self.name} holds no block of kernel {launch.label}: compile for fewer threads a block")
        return replace(launch, grid=(min(launch.grid[0], most), 1, 1))

    def enter(self) -> None:
        """Make the device's context the calling thread's, where it is not closed."""
        if not self._owned:
            raise UserError(CLOSED)

    def alloc(self, nbytes: int) -> int:
        address = self._reserve(nbytes)
        self._driver("MemsetD8Async", address, 0, max(nbytes, 1), self._stream)
        return address

    def alloc_together(self, sizes: Sequence[int]) -> list[int]:
        rooms = [-(-max(nbytes, 1) // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT for nbytes in sizes]
        places = list(accumulate(rooms, initial=self.alloc(sum(rooms))))[:-1] if rooms else []
        self._behind |= dict(pairwise(places))
        return places

    def alloc_shared(self, nbytes: int) -> int:
        address, contents = pinned(self._driver, self._owned, max(nbytes, 1))
        contents[:] = bytes(len(contents))
        self._shared[address] = contents
        return address

    @property
    def granularity(self) -> int:
        if self._ranges is None and not self.whole:
            try:
                self._ranges = Ranges(self._driver, self._vendor(), self._stream)
            except UserError as error:
                self.whole = error.message
        return 0 if self._ranges is None or self.whole else self._ranges.granularity

    def reserve(self, nbytes: int) -> int:
        if self.granularity:
            assert self._ranges is not None
            try:
                return self._ranges.reserve(nbytes)
            except UserError as error:
                self.whole = error.message
        return self.alloc(nbytes)

    def back(self, buffer: int, start: int, end: int) -> None:
        if self._ranges is not None and buffer in self._ranges:
            self._ranges.back(buffer, start, end)

    def taken(self, buffer: int, nbytes: int) -> int:
        return self._ranges.taken(buffer) if self._ranges is not None and buffer in self._ranges else nbytes

    def _reserve(self, nbytes: int) -> int:
        hint = "the GPU is short of memory"
        if self.whole:
            hint += f", and takes all of it at once, as {self.whole}; --context N makes room for fewer positions"
        (pointer,) = self._driver("MemAlloc", max(nbytes, 1), about=f"{nbytes:,} bytes", hint=hint)
        self._owned.append(("MemFree", pointer))
        return int(pointer)

    def copy_in(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        source = np.ascontiguousarray(array)
        if 0 < source.nbytes <= INPUT_BYTES:
            place = self._inputs.kept([(0, source)], source.nbytes, self.sync)
            self._copy("MemcpyHtoDAsync", buffer + offset, place, source.nbytes)
            return
        self._copy("MemcpyHtoDAsync", buffer + offset, source.ctypes.data, source.nbytes)
        self.sync()

    def copy_in_together(self, filled: Sequence[tuple[int, np.ndarray]]) -> None:
        parts = sorted(filled, key=itemgetter(0))
        neighbours = len(parts) > 1 and all(self._behind.get(a) == b for (a, _), (b, _) in pairwise(parts))
        nbytes = parts[-1][0] + parts[-1][1].nbytes - parts[0][0] if neighbours else 0
        if not 0 < nbytes <= INPUT_BYTES or not all(array.nbytes for _, array in parts):
            for buffer, array in parts:
                self.copy_in(buffer, array)
            return
        start = parts[0][0]
        sources = [(buffer - start, np.ascontiguousarray(array)) for buffer, array in parts]
        self._copy("MemcpyHtoDAsync", start, self._inputs.kept(sources, nbytes, self.sync), nbytes)

    def copy_out(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        if buffer in self._shared:
            self.sync()
            array.reshape(-1).view(np.uint8)[:] = self._shared[buffer][offset : offset + array.nbytes]
            return
        if 0 < array.nbytes <= READ_LATER_BYTES:
            place = self._inputs.place(array.nbytes, self.sync)
            self._copy("MemcpyDtoHAsync", place, buffer + offset, array.nbytes)
            self.sync()
            self._inputs.fill(array, place)
            return
        self._copy("MemcpyDtoHAsync", array.ctypes.data, buffer + offset, array.nbytes)
        self.sync()

    def copy(self, source: int, target: int, nbytes: int, source_offset: int = 0, target_offset: int = 0) -> None:
        self._copy("MemcpyDtoDAsync", target + target_offset, source + source_offset, nbytes)

    def copy_pieces(self, source: int, target: int, pieces: Pieces) -> None:
        mapped = self._ranges is not None and (source in self._ranges or target in self._ranges)
        if not mapped and pieces.count > 1 and max(pieces.source_step, pieces.target_step) <= LONGEST_STEP:
            return self._copy_apart(source + pieces.source, target + pieces.target, pieces)
        for start, end in pieces.each():
            self.copy(source, target, pieces.nbytes, start, end)

    def _copy_apart(self, source: int, target: int, pieces: Pieces) -> None:
        """Copy pieces by one call; source, target: where the first is."""
        raise NotImplementedError

    def _copy(self, name: str, target: int, source: int, nbytes: int) -> None:
        """Copy behind what the stream has to do; one from or to the host's memory may wait for that and fail for it."""
        self._driver(name, target, source, nbytes, self._stream, hint=FAILED_BEFORE)

    def adopt(self, array: np.ndarray) -> int:
        address = self._reserve(array.nbytes)
        self.copy_in(address, array)
        return address

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        if not kernels:
            return
        modules = self._load_modules(code, objects)
        self._owned += [("ModuleUnload", module) for module in modules]
        for name, facts in kernels.items():
            self._functions[name + suffix] = self._find(name, modules)
            if facts.get("persistent"):
                self._together[name + suffix] = int(facts["persistent"])
            self._configure(name + suffix, facts)

    def _find(self, kernel: str, modules: Sequence[Any]) -> Any:
        """The function of a kernel, which one of the modules has."""
        for module in modules[:-1]:
            status, found = self._driver.status("ModuleGetFunction", module, kernel.encode())
            if not status:
                return found[0]
        about, hint = f"kernel {kernel}", "the artifact is damaged"
        return self._driver("ModuleGetFunction", modules[-1], kernel.encode(), about=about, hint=hint)[0]

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        return self.prepare_runs([entry], buffers)

    def prepare_runs(self, entries: Sequence[Entry], buffers: Mapping[str, int]) -> Any:
        about, runs = f"entry {entries[0].name}", [[self._fitting(each) for each in e.launches] for e in entries]
        self._driver("StreamBeginCapture", self._stream)
        try:
            for number, launch in chain.from_iterable(map(enumerate, runs)):
                self._launch_kernel(launch, [buffers[a.buffer] + a.offset for a in launch.arguments], number == 0)
        except BaseException:
            with suppress(UserError):  # that the capture ends badly follows from the error, which says more
                self._end_capture(about)
            raise
        graph = self._end_capture(about)
        (executable,) = self._driver("GraphInstantiate", graph, 0, about=about)
        self._owned.append(("GraphExecDestroy", executable))
        return executable

    def _end_capture(self, about: str) -> Any:
        """The graph of what was launched since the capture began."""
        (graph,) = self._driver("StreamEndCapture", self._stream, about=about)
        self._owned.append(("GraphDestroy", graph))
        return graph

    def launch(self, executable: Any) -> None:
        self._driver("GraphLaunch", executable, self._stream)

    def launch_beside(self, executable: Any) -> None:
        if self._beside is None:
            side = self.side_stream()
            self._beside = side, side.event()
        side, done = self._beside
        side.follow()
        side.launch(executable)
        side.record(done)

    def join(self) -> None:
        if self._beside is not None:
            side, done = self._beside
            side.lead(done)

    def launch_reading(self, executable: Any, buffer: int, array: np.ndarray) -> Callable[[], np.ndarray]:
        self._later.check(array.nbytes)
        self.launch(executable)
        return self.read_later(buffer, array)

    def read_later(self, buffer: int, array: np.ndarray) -> Callable[[], np.ndarray]:
        if buffer in self._shared:  # which the next step may write to
            self.copy_out(buffer, array)
            return lambda: array
        self._later.check(array.nbytes)
        read = self._later.read(lambda place: self._copy("MemcpyDtoHAsync", place, buffer, array.nbytes), array)
        return self._inputs.freed_by(read)

    def side_stream(self) -> SideStream:
        """A second stream, whose work goes on beside the first's."""
        (stream,) = self._driver("StreamCreate")
        self._owned.append(("StreamDestroy", stream))
        return SideStream(self._driver, self._stream, stream, self._owned)

    def sync(self) -> None:
        self._driver("StreamSynchronize", self._stream, hint=FAILED_BEFORE)
        self._inputs.done()

    def close(self) -> None:
        """Give everything back, once nothing is under way; the first failure is raised unless an error led here."""
        if self._owned:
            self.join()
        owned, self._owned = self._owned, []
        ranges = [] if self._ranges is None else self._ranges.close()
        failures = []
        for call in [("StreamSynchronize", self._stream), *ranges, *reversed(owned)] if owned else []:
            try:
                self._driver(*call, hint=FAILED_BEFORE)
            except UserError as error:
                failures.append(error)
        if failures and sys.exc_info()[0] is None:
            raise failures[0]
