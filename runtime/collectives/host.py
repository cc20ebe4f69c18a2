"""Collectives in the host's memory: a thread of their own does them one after the other, while kernels run.

Devices whose memory is another's have theirs copied here and back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.steps import ALL_REDUCE, ALL_REDUCE_MAX, ALL_REDUCE_MIN, REDUCE_SCATTER, Collective

Part = tuple[np.ndarray, np.ndarray, str]
"""What a part of a collective reads and writes, which may be the same array, and the elements' type."""


class Transport(Protocol):
    """How processes exchange arrays; calls come from one thread."""

    name: str

    def run(self, step: Collective, part: Part) -> None:
        """Do what a step says with one of its parts; the arrays are of one dimension."""

    def close(self) -> None: ...


@dataclass
class _Prepared:
    """copied: where the device's memory is another's: (array, buffer, offset, whether it is written)."""

    step: Collective
    parts: list[Part]
    copied: list[tuple[np.ndarray, Any, int, bool]]


@dataclass
class _Begun:
    prepared: _Prepared
    number: int
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class HostEngine:
    """An engine of a transport."""

    asynchronous = False

    def __init__(self, device: Device, peers: Peers, transport: Transport) -> None:
        self.name, self.rank = transport.name, peers.place.rank
        self._device, self._peers, self._transport = device, peers, transport
        self._jobs: queue.SimpleQueue[_Begun | None] = queue.SimpleQueue()
        self._under_way: list[_Begun] = []
        self._count = 0
        self._thread: threading.Thread | None = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def prepare(self, step: Collective, buffers: Mapping[str, Any]) -> _Prepared:
        parts: list[Part] = []
        copied: list[tuple[np.ndarray, Any, int, bool]] = []
        for source, target, dtype in step.pairs:
            arrays = []
            for argument in (source, target):
                buffer, kind = buffers[argument.buffer], find_dtype(dtype).numpy
                if isinstance(buffer, np.ndarray):
                    arrays.append(buffer[argument.offset : argument.end].view(kind))
                elif argument is target and target is source and arrays:
                    arrays.append(arrays[0])
                else:
                    array = np.zeros(argument.nbytes // np.dtype(kind).itemsize, kind)
                    copied.append((array, buffer, argument.offset, argument.writes))
                    arrays.append(array)
            parts.append((arrays[0], arrays[1], dtype))
        return _Prepared(step, parts, copied)

    def start(self, prepared: _Prepared) -> _Begun:
        for array, buffer, offset, _ in prepared.copied:
            self._device.copy_out(buffer, array, offset)
        begun = _Begun(prepared, self._count)
        self._count += 1
        self._under_way.append(begun)
        self._jobs.put(begun)
        return begun

    def wait(self, begun: _Begun) -> None:
        begun.done.wait()
        if begun in self._under_way:
            self._under_way.remove(begun)
        if begun.error is not None:
            raise begun.error
        for array, buffer, offset, written in begun.prepared.copied:
            if written:
                self._device.copy_in(buffer, array, offset)

    def mark(self) -> int:
        return self._count

    def settle(self, count: int | None = None) -> None:
        for begun in list(self._under_way):
            if count is None or begun.number < count:
                self.wait(begun)

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
            self._transport.close()

    def _work(self) -> None:
        while (begun := self._jobs.get()) is not None:
            try:
                self._peers.arrived()
                for part in begun.prepared.parts:
                    self._transport.run(begun.prepared.step, part)
            except BaseException as error:
                begun.error = error
            begun.done.set()


COMBINES = {ALL_REDUCE: np.add, ALL_REDUCE_MAX: np.maximum, ALL_REDUCE_MIN: np.minimum, REDUCE_SCATTER: np.add}
"""What makes one element of two devices'."""


def combined(operation: str, arrays: list[np.ndarray], dtype: str) -> np.ndarray:
    """What an operation makes of arrays, in their order; of bf16, a sum is in f32 and rounded once."""
    if dtype != "bf16":
        total = arrays[0].copy()
        for array in arrays[1:]:
            COMBINES[operation](total, array, out=total)
        return total
    return rounded(combined(operation, [widened(array) for array in arrays], "f32"))


def widened(bits: np.ndarray) -> np.ndarray:
    """BF16's bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """Float32 as the bits of the nearest BF16, of two the even one; NaN stays NaN."""
    bits = values.view(np.uint32)
    even = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), even)


def waiting_loop(
    peers: Peers,
    done: Callable[[], bool],
    what: str,
    pause: Callable[[float], None],
    now: Callable[[], float],
    number: int = 0,
) -> None:
    """Return when `done` says so; look at the other processes meanwhile.

    number: of the collective that is waited for, where it is not the last one that this process has come to.
    """
    for _ in range(200):
        if done():
            return
        pause(0)
    since = now()
    while not done():
        pause(min(0.001, max(0.00002, (now() - since) / 50)))
        peers.check()
        if now() - since > peers.patience:
            peers.waiting(what, number=number)
