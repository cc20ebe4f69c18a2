"""What a device is.  A new one is one file in this folder, named as the kind of its targets; copy `null.py`.

Beside the class the file has RANK (where there are several devices, `--target auto` takes that of the highest),
`missing()` (why none can be used here, in one line, or None), `installed_target()` (what code to make for the one that
is here, or None) and `open_device(threads, index)`, where index is the number of a GPU.

You get a plan that has been validated, and the artifact's machine code as bytes.  You return opaque buffers (whatever
your driver calls an address), and executables made from an entry's steps once, run many times.  You may assume that
one session uses a device, from one Python thread at a time, and that buffers live as long as the session.  You may not
assume that MLIR or lark can be imported, that environment variables can be read, or that a failed call may be ignored:
raise `UserError` with the driver call's name, the kernel where there is one, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lispgpt.runtime.plan.plan import Entry

READS_AHEAD, READ_LATER_BYTES = 16, 1 << 14
"""How many reads may be unclaimed, and how much one reads at most while other work goes on."""

RUNS_AHEAD, LAUNCHES_AHEAD = 32, 2
"""How many runs of an entry may be launched ahead of what has been read, and in how many launches where one does
several runs: the next one is there when one ends."""

INPUT_BYTES = 1 << 20
"""Of an array that is copied in without waiting for what was launched, at most."""

CLOSED = "the model was closed, and its memory is free: load it again to go on"


@dataclass(frozen=True)
class Pieces:
    """`count` pieces of `nbytes` each: where the first is in the source and in the target, and how far apart they are
    there."""

    nbytes: int
    source: int
    target: int
    count: int = 1
    source_step: int = 0
    target_step: int = 0

    def each(self) -> Iterator[tuple[int, int]]:
        """Where every piece begins in the source, and where in the target."""
        for number in range(self.count):
            yield self.source + number * self.source_step, self.target + number * self.target_step


class Device(Protocol):
    """The contract between a session and a chip."""

    name: str
    """What the user is told, such as "AMD EPYC (2 threads)" or "NVIDIA H200 (sm_90)"."""

    asynchronous: bool
    """Whether launches go on while the host does."""

    careful: bool
    """Whether sessions look for what is wrong with an entry's plan (see `flow.check`) before it is prepared."""

    whole: str
    """Why `reserve` takes all memory at once; "" where it does not, or nobody has asked."""

    room: int | None
    """Bytes of memory that it has in all, where asking for more does not fail at once; None where it does."""

    copy_cost: int
    """The bytes that take about as long to copy as starting a `copy` takes."""

    weight_rows: int
    """Rows of a model's work that take about as long as starting an entry and reading the weights once does."""

    most_runs: int
    """How many runs of an entry go by one launch at most, where that takes less time than one by one; 1 for none."""

    def enter(self) -> None:
        """Let the calling thread use the device: whoever calls sees to it that no other does meanwhile.

        UserError CLOSED once the device is closed.
        """

    def alloc(self, nbytes: int) -> Any:
        """Zeroed memory of that many bytes, aligned to at least 256, as an opaque buffer; UserError if short."""

    def alloc_together(self, sizes: Sequence[int]) -> list[Any]:
        """A buffer of each size, which `copy_in_together` may fill by one copy."""

    def alloc_shared(self, nbytes: int) -> Any:
        """A buffer for a small result that `copy_out` reads without a copy where the device can: nothing may be
        launched that writes it before it is read."""

    @property
    def granularity(self) -> int:
        """Bytes that `back` takes memory for at once; 0 where a buffer's memory needs no word from anyone."""

    def reserve(self, nbytes: int) -> Any:
        """A buffer of zeros whose memory is taken as `back` says; all of it where the device knows no other way."""

    def back(self, buffer: Any, start: int, end: int) -> None:
        """Have memory for these bytes of a buffer that was reserved: nobody may write before."""

    def taken(self, buffer: Any, nbytes: int) -> int:
        """How much memory a buffer of so many bytes has now, as far as the device knows."""

    def copy_in(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        """Copy a C-contiguous array's bytes to `offset` bytes into the buffer, behind what was launched before.

        What is launched next finds them there, and the array may change, once it returns.
        """

    def copy_in_together(self, filled: Sequence[tuple[Any, np.ndarray]]) -> None:
        """`copy_in` for some buffers and the array of each; none stands twice."""

    def copy_out(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        """Fill a C-contiguous array from `offset` bytes into the buffer; waits for launches before it."""

    def copy(self, source: Any, target: Any, nbytes: int, source_offset: int = 0, target_offset: int = 0) -> None:
        """Copy that many bytes from one buffer to another, each from its offset on; may return before it is done."""

    def copy_pieces(self, source: Any, target: Any, pieces: Pieces) -> None:
        """Copy pieces from one buffer to another, by one call where the driver has it; may return before it is done."""

    def adopt(self, array: np.ndarray) -> Any:
        """A read-only buffer with the array's contents; a device that shares the host's memory does not copy."""

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        """Load an artifact's machine code; kernels: name → facts such as dynamic shared bytes.

        A session may load several.  suffix: what launches put behind these kernels' names to tell them from others'.
        objects: the same code compiled for one chip, which a device may take where it fits.
        """

    def prepare(self, entry: Entry, buffers: Mapping[str, Any]) -> Any:
        """An executable of the entry's launches in order (a GPU captures them as one graph); other steps are not a
        device's."""

    def prepare_runs(self, entries: Sequence[Entry], buffers: Mapping[str, Any]) -> Any:
        """The same for the launches of some entries, one after another."""

    def launch(self, executable: Any) -> None:
        """Run an executable; may return before it is done."""

    def launch_beside(self, executable: Any) -> None:
        """Run an executable behind what was launched before, and beside what is launched from here on: they have no
        memory in common that either writes, up to `join`.  One at a time; only of asynchronous devices."""

    def join(self) -> None:
        """Have what is launched from here on come behind what goes on beside."""

    def launch_reading(self, executable: Any, buffer: Any, array: np.ndarray) -> Callable[[], np.ndarray]:
        """Run an executable, then read the array's bytes from the buffer's start; may return before either is done.

        The returned function waits for the array and gives it.  At most `READS_AHEAD` reads may be unclaimed.
        """

    def read_later(self, buffer: Any, array: np.ndarray) -> Callable[[], np.ndarray]:
        """The same without running anything: read what the buffer holds once all is done that was launched so far,
        whatever is launched next."""

    def sync(self) -> None:
        """Wait until everything launched is done."""

    def close(self) -> None:
        """Free memory, threads and modules, once nothing is under way; a second call does nothing.

        It tries all of it, and raises the first failure only where no error is under way already.
        """
