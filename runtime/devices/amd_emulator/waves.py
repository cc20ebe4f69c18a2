"""The registers of the waves that run together, and which of the waves and lanes an instruction is for."""

from __future__ import annotations

from typing import Any

import numpy as np

VCC, NULL, EXEC, SCC, VCC_IS_ZERO, EXEC_IS_ZERO = 106, 124, 126, 253, 251, 252
FIRST_VECTOR, FIRST_ACCUMULATOR = 256, 512
FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494309189532}
LOW = np.uint64(0xFFFFFFFF)


def constant(place: int, bits: int = 32, floating: bool = False) -> int | None:
    """The bits of an inline constant of the operand space, None where the place is a register.

    floating: whether a 16-bit or 64-bit operand is a floating-point number; then so is the constant.
    """
    if 128 <= place <= 192:
        return place - 128
    if 193 <= place <= 208:
        return (192 - place) & (1 << bits) - 1
    if place not in FLOATS:
        return None
    kinds: dict[int, tuple[Any, Any]] = {16: (np.float16, np.uint16), 64: (np.float64, np.uint64)}
    kind, raw = kinds.get(bits if floating else 32, (np.float32, np.uint32))
    return int(kind(FLOATS[place]).view(raw))


class Waves:
    """Waves of some lanes, `per_group` to a workgroup.

    v: vector registers [register, wave, lane], accumulation registers from 256; s: scalar registers [register, wave];
    group, member: of each wave.  machine: what runs them.  An instruction is for the waves of `select`: `which`, their
    numbers; `at`, the same or all as an index; `active`, which of their lanes take part.
    """

    def __init__(self, groups: int, per_group: int, lanes: int, family: str, machine: Any) -> None:
        self.machine = machine
        self.n, self.lanes, self.groups = groups * per_group, lanes, groups
        self.null = NULL if family != "cdna" else -1
        self.v = np.zeros((512, self.n, lanes), np.uint32)
        self.s = np.zeros((256, self.n), np.uint32)
        self.group, self.member = np.divmod(np.arange(self.n), per_group)
        self.lane = np.arange(lanes, dtype=np.uint32)[None]
        self.select(np.arange(self.n))

    def select(self, which: np.ndarray) -> None:
        """Let the next instructions be for these waves, by number in ascending order."""
        self.all = which.size == self.n
        self.at: Any = slice(None) if self.all else which
        self.which, self.count = which, which.size
        self.refresh()

    def refresh(self) -> None:
        """Read the lanes that are on, after a change of EXEC."""
        self.active = self.mask(EXEC)
        self.full = bool(self.active.all())
        self.full_everywhere = self.full and self.all

    def vector(self, register: int) -> np.ndarray:
        """[wave, lane] of the selected waves; a view where all are."""
        row = self.v[register]
        return row if self.all else row[self.at]

    def scalar(self, register: int) -> np.ndarray:
        """[wave] of the selected waves."""
        if register in (VCC_IS_ZERO, EXEC_IS_ZERO):
            return (self.mask_bits(VCC if register == VCC_IS_ZERO else EXEC) == 0).astype(np.uint32)
        row = self.s[register]
        return row if self.all else row[self.at]

    def scalar64(self, register: int) -> np.ndarray:
        if register == self.null:
            return np.zeros(self.count, np.uint64)
        return self.scalar(register).astype(np.uint64) | self.scalar(register + 1).astype(np.uint64) << np.uint64(32)

    def mask_bits(self, register: int) -> np.ndarray:
        """[wave]: one or, with 64 lanes, two scalar registers as one number."""
        return self.scalar64(register) if self.lanes == 64 else self.scalar(register).astype(np.uint64)

    def mask(self, register: int) -> np.ndarray:
        """One truth value a lane [wave, lane] from the bits of one scalar register or, with 64 lanes, two."""
        words = np.ascontiguousarray(self.s[register : register + self.lanes // 32, self.at].T)
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)

    def set_vector(self, register: int, value: Any, lanes: np.ndarray | None = None) -> None:
        """Write the lanes that are on, or those given (a subset of them)."""
        if self.full_everywhere and lanes is None:
            self.v[register] = value
        elif self.all:
            np.copyto(self.v[register], value, where=self.active if lanes is None else lanes)
        else:
            row = self.v[register]
            held = row[self.at]
            np.copyto(held, value, where=self.active if lanes is None else lanes)
            row[self.at] = held

    def set_scalar(self, register: int, value: Any) -> None:
        if register != self.null:
            self.s[register][self.at] = value
            if EXEC <= register < EXEC + 2:
                self.refresh()

    def set_scalar64(self, register: int, value: Any) -> None:
        if register != self.null:
            self.s[register][self.at] = value & LOW
            self.s[register + 1][self.at] = value >> np.uint64(32)
            if register == EXEC:
                self.refresh()

    def set_mask(self, register: int, lanes: np.ndarray) -> None:
        """The inverse of `mask`."""
        if register == self.null:
            return
        lanes = np.broadcast_to(lanes, (self.count, self.lanes))
        words = np.packbits(lanes, axis=1, bitorder="little").view(np.uint32)
        for i in range(self.lanes // 32):
            self.s[register + i][self.at] = words[:, i]
        if register == EXEC:
            self.refresh()
