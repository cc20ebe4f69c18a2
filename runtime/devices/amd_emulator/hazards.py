"""Registers that may not be read yet: nothing has set them, or the load that does was not waited for.

Loads count up a counter of their wave and a wait says how many may still be under way, as on the chip: each family has
its own counters, and scalar loads come back in any order, so that only a wait for none covers them.  The emulator has
every value at once; what is checked is whether the program had the right to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import register_name
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.operands import Step
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves

COUNTERS = {
    "cdna": {"load": "vmcnt", "store": "vmcnt", "shared": "lgkmcnt", "scalar": "lgkmcnt"},
    "rdna3": {"load": "vmcnt", "store": "vscnt", "shared": "lgkmcnt", "scalar": "lgkmcnt"},
    "rdna4": {"load": "loadcnt", "store": "storecnt", "shared": "dscnt", "scalar": "kmcnt"},
}


LOADS = ("load", "shared", "scalar")

Load = tuple[str, int | None]

NONE: Mapping[int, int] = {}


class Hazards:
    """Registers by their place in the operand space, those with something to check; most instructions touch none.

    unset: register → which of its lanes nothing has written [wave, lane], of scalars [wave, 1].
    under_way: register → (kind of memory, the half that it sets or None) → number that the load had in its wave's count
    [wave], 0 for none.
    """

    def __init__(self, waves: Waves, family: str, unset: Iterable[int]) -> None:
        self.waves, self.counter_of, n = waves, COUNTERS[family], waves.n
        scalar, vector = (np.broadcast_to(np.True_, (n, lanes)) for lanes in (1, waves.lanes))
        self.unset = {register: vector if register >= FIRST_VECTOR else scalar for register in unset}
        self.under_way: dict[int, dict[Load, np.ndarray]] = {}
        self.issued = {name: np.zeros(n, np.int64) for name in set(self.counter_of.values())}
        self.done = {name: np.zeros(n, np.int64) for name in self.issued}
        self.scalars_done = np.zeros(n, np.int64)  # scalar loads up to this count of their counter
        self.last_scalar, self.last_shared_store = np.zeros((2, n), np.int64)
        self.trips = np.zeros(n, np.int64)  # waits for global memory that were not over at once

    def check(self, step: Step) -> None:
        """Check an instruction that the active lanes are about to execute, and note what it sets.

        A result that is computed from what nothing has set counts as not set itself: compilers leave such values in
        words that they do not use, and so does what is put into shared memory, which others load without using it.
        Addresses, data to be stored to global memory and conditions of branches must have been set.
        """
        unset, touched = self.unset.keys(), step.touched
        if not self.under_way.keys().isdisjoint(touched):  # loads of one kind come back in order
            self._check_loads(step.reads, "read", step.halves)
            self._check_loads(step.writes, "overwritten", {})
            self._check_loads(step.loaded, "loaded again", step.halves, but=step.kind)
        if unset.isdisjoint(touched):
            return
        missing: dict[int, np.ndarray] = {}
        if not unset.isdisjoint(step.reads):
            for register in () if step.writes else step.reads.difference(step.shared):
                if (wrong := self._missing([register])).any():
                    raise KernelFault(
                        f"{register_name(register)} is read, but nothing has set it, or what it comes from, be it a "
                        f"register, a lane that is off or memory{self._where(wrong)}"
                    )
            found = {result: self._missing(step.feeds[word]) for word, result in enumerate(step.results)}
            found |= {mask: self._missing(step.reads) for mask in step.writes.difference(step.results)}
            missing = {register: lanes for register, lanes in found.items() if lanes.any()}
        for register in unset & {*step.writes, *step.loaded} | missing.keys():
            self._set(register, step.every_lane, missing.get(register))

    def _missing(self, registers: Iterable[int]) -> np.ndarray:
        """The active lanes in which nothing has set one of several registers: [wave, lane], of scalars [wave, 1]."""
        active = self.waves.active
        found = np.zeros((active.shape[0], 1), bool)
        for register in self.unset.keys() & registers:
            on = active if register >= FIRST_VECTOR else active.any(axis=1, keepdims=True)
            found = found | on & self.unset[register][self.waves.at]
        return found

    def _set(self, register: int, every_lane: bool, missing: np.ndarray | None) -> None:
        """Note that lanes write a register, in some of them what counts as missing."""
        waves, scalar = self.waves, register < FIRST_VECTOR
        if missing is None and (waves.full_everywhere or (waves.all and (scalar or every_lane))):
            del self.unset[register]
            return
        on = np.ones((waves.count, 1 if scalar else waves.lanes), bool) if scalar or every_lane else waves.active
        before = np.array(self.unset.get(register, np.zeros((waves.n, on.shape[1]), bool)))
        still = before[waves.at] & ~on
        if missing is not None:
            still |= on & (missing.any(axis=1, keepdims=True) if scalar else missing)
        before[waves.at] = still
        self.unset[register] = before
        if not before.any():
            del self.unset[register]

    def unset_words(self, registers: Sequence[int]) -> list[np.ndarray] | None:
        """The active lanes in which nothing has set each register; None where all are set."""
        if self.unset.keys().isdisjoint(registers):
            return None
        return [np.broadcast_to(self._missing([register]), self.waves.active.shape) for register in registers]

    def found_nothing(self, first: int, missing: Sequence[np.ndarray]) -> None:
        """Note the lanes in which registers from the first on hold what is nothing.  missing: of each, [wave, lane]."""
        for register, lanes in enumerate(missing, first):
            if lanes.any():
                before = self.unset.get(register)
                width = self.waves.lanes if register >= FIRST_VECTOR else 1
                after = np.zeros((self.waves.n, width), bool) if before is None else np.array(before)
                after[self.waves.at] |= lanes
                self.unset[register] = after

    def _check_loads(self, registers: Iterable[int], what: str, halves: Mapping[int, int], but: str = "") -> None:
        at = self.waves.at
        for register in self.under_way.keys() & registers:
            for (kind, half), numbers in [*self.under_way[register].items()]:
                if half is not None and halves.get(register, half) != half:
                    continue
                counter = self.counter_of[kind]
                done = self.scalars_done if kind == "scalar" else self.done[counter]
                if kind != but and (late := numbers[at] > done[at]).any():
                    raise KernelFault(
                        f"{register_name(register)} is {what} while a {kind} load of it is under way: "
                        f"no wait for {counter} covers it{self._where(late)}"
                    )
                if kind != but and self.waves.all:  # it came for all waves
                    del self.under_way[register][kind, half]
            if not self.under_way[register]:
                del self.under_way[register]

    def _where(self, wrong: np.ndarray) -> str:
        wrong = wrong.reshape(self.waves.count, -1)
        wave = int(np.flatnonzero(wrong.any(axis=1))[0])
        number = int(self.waves.which[wave])
        lanes = "" if wrong.shape[1] == 1 else f", lane {int(np.flatnonzero(wrong[wave])[0])}"
        return f" (workgroup {self.waves.group[number]}, wave {self.waves.member[number]}{lanes})"

    def issue(self, kind: str, registers: Iterable[int] = (), halves: Mapping[int, int] = NONE) -> None:
        """Count a memory operation, and note the registers that it will set, of some one half."""
        counter, at = self.counter_of[kind], self.waves.at
        self.issued[counter][at] += 1
        if kind == "scalar":
            self.last_scalar[at] = self.issued[counter][at]
        for register in registers:
            loads = self.under_way.setdefault(register, {})
            of = kind, halves.get(register)
            loads.setdefault(of, np.zeros(self.waves.n, np.int64))[at] = self.issued[counter][at]

    def shared_store(self) -> None:
        """Note that the operation counted last writes shared memory."""
        at = self.waves.at
        self.last_shared_store[at] = self.issued[self.counter_of["shared"]][at]

    def wait(self, counter: str, left: int) -> None:
        """Let at most `left` operations of a counter be under way."""
        at, scalars = self.waves.at, self.counter_of["scalar"] == counter
        issued, done = self.issued[counter][at], self.done[counter][at]
        if counter == self.counter_of["load"]:
            self.trips[at] += issued - left > done
        if left == 0:
            self.done[counter][at] = issued
            if scalars:
                self.scalars_done[at] = issued
            if self.waves.all:  # none of its loads is under way
                others = {kind for kind in LOADS if self.counter_of[kind] != counter}
                found = {r: {k: n for k, n in loads.items() if k[0] in others} for r, loads in self.under_way.items()}
                self.under_way = {register: loads for register, loads in found.items() if loads}
            return
        reached = np.maximum(done, issued - left)
        if scalars:  # one of them may be what is left, whatever came after it
            reached = np.where(self.last_scalar[at] > self.scalars_done[at], done, reached)
        self.done[counter][at] = reached

    def barrier(self) -> None:
        """Check that a wave that comes to a barrier has waited for what it wrote to shared memory."""
        at = self.waves.at
        late = self.last_shared_store[at] > self.done[self.counter_of["shared"]][at]
        if late.any():
            raise KernelFault(f"a barrier is reached while a store to shared memory is under way{self._where(late)}")
