"""Matrix instructions and their loads, of all warps at once.  bf16 products are summed in f32, at once.

After "Parallel Thread Execution ISA": 9.7.14 for mma, 9.7.15 for wgmma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
from emulated_cuda.bulk_ops import Progress, Reading
from emulated_cuda.clocks import MATRICES
from emulated_cuda.races import Races
from emulated_cuda.registers import LANES, halves, names

GROUP, INNER = LANES // 4, LANES % 4


@lru_cache
def _accumulators(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns that each lane's registers hold of a warp's sums, [registers 32]."""
    i = np.arange(count)[:, None]
    return GROUP + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * INNER + i % 2


@lru_cache
def _lines(outer: int, turned: bool) -> tuple[np.ndarray, np.ndarray]:
    """[outer 16]: where the elements of a described matrix lie, were lines not swizzled, and in which of the pieces
    that are a leading distance apart."""
    rows, k = np.meshgrid(np.arange(outer), np.arange(16), indexing="ij")
    line, along = (k, rows % 64) if turned else (rows, k)
    return line // 8 * 1024 + line % 8 * 128 + 2 * along, rows // 64


class MatrixOps(ABC):
    """What warps do with their registers' fragments.

    shared: the blocks' memories, `shared_bytes` each.  block, lane: each thread's block, and its place in its warp.
    """

    shared: np.ndarray
    shared_bytes: int
    block: np.ndarray
    lane: np.ndarray
    unfenced: np.ndarray
    progress: Progress
    races: Races | None

    @abstractmethod
    def value(self, operand: str, kind: str, lanes: np.ndarray | None = None) -> np.ndarray: ...

    @abstractmethod
    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None: ...

    @abstractmethod
    def whole_warps(self, lanes: np.ndarray) -> None: ...

    @abstractmethod
    def places(self, operand: str, size: int, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    @abstractmethod
    def watch(self, memory: np.ndarray, places: np.ndarray, nbytes: int, lanes: np.ndarray, writes: bool) -> None: ...

    def warps(self, operand: str, kind: str) -> np.ndarray:
        """A register as [warps 32]."""
        return self.value(operand, kind).reshape(-1, 32)

    def op_ldmatrix(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.15: lane 8 i + r names row r of matrix i; lane l gets two elements of its row (or column) l / 4."""
        self.whole_warps(lanes)
        assert "m8n8" in suffixes
        registers = names(operands[0])
        named = lanes & (self.lane < 8 * len(registers))
        memory, places = self.places(operands[1], 16, named)
        unknown = self.watch(memory, places, 16, named, False)
        rows = self.spoil(memory.view(np.uint16)[places[:, None] // 2 + np.arange(8)], unknown)
        matrices = rows.reshape(-1, len(registers), 8, 8)
        if "trans" in suffixes:
            matrices = matrices.transpose(0, 1, 3, 2)
        for i, register in enumerate(registers):
            own = matrices[:, i].reshape(-1, 2).astype(np.uint64)
            values = np.zeros(lanes.size, np.uint64)
            values[lanes] = own[:, 0] | own[:, 1] << np.uint64(16)
            self.write(register, values, lanes)

    def op_wgmma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.15: m64nNk16 by warpgroups, at once; shared operands lie in swizzled lines of 128 bytes."""
        self.whole_warps(lanes)
        if suffixes[0] != "mma_async":
            self.matrix_group(suffixes, operands, lanes)
            return
        warps = np.flatnonzero(lanes[::32])
        groups = warps[::4]
        assert (warps.reshape(-1, 4) == groups[:, None] + np.arange(4)).all(), (
            "a warpgroup of which some warps are missing"
        )
        registers, columns = names(operands[0]), int(suffixes[3][4:-3])
        if operands[1].startswith("{"):
            a = self._fragment(operands[1])[warps].reshape(-1, 64, 16)
        else:
            a = self._described(operands[1], 64, operands[-2] == "1", groups, lanes)
        right = self._described(operands[2], columns, operands[-1] == "1", groups, lanes).transpose(0, 2, 1)
        threads = np.flatnonzero(lanes)
        rows, along = _accumulators(len(registers))
        c = np.zeros((len(warps), 16, columns), np.float32)
        adds = self.value(operands[3], "pred", threads).reshape(-1, 1, 32)
        if adds.any():
            known = np.stack([self.value(register, "f32", threads).reshape(-1, 32) for register in registers], axis=1)
            c[:, rows, along] = np.where(adds, known, np.float32(0))
        total = (a @ right).reshape(c.shape) + c
        values = np.ascontiguousarray(total[:, rows, along].transpose(1, 0, 2)).reshape(len(registers), -1)
        for register, each in zip(registers, values, strict=True):
            self.write(register, each, lanes)

    def _described(self, operand: str, outer: int, turned: bool, groups: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """[groups outer 16] of matrix descriptors, of the warpgroups that start with these warps: lines along k, or if
        turned along 64 rows or columns."""
        descriptors = self.warps(operand, "u64")[:, 0].astype(np.int64)
        descriptor = descriptors[groups]
        start, leading, stride = ((descriptor >> n & 0x3FFF) << 4 for n in (0, 16, 32))
        assert (descriptor >> 62 & 3 == 1).all() and (stride == 1024).all()
        lines, apart = _lines(outer, turned)
        places = start[:, None, None] + lines
        if turned:
            places += apart * leading[:, None, None]
        places ^= (places >> 7 & 7) << 4
        assert places.max() + 2 <= self.shared_bytes, "outside shared memory"
        self.note_reading((descriptors & 0x3FFF) << 4, int((places.max((1, 2)) - start).max()) + 2, lanes)
        places += self.block[32 * groups, None, None] * self.shared_bytes
        return (self.shared.view(np.uint16)[places // 2].astype(np.uint32) << np.uint32(16)).view(np.float32)

    def _fragment(self, operand: str) -> np.ndarray:
        """A [warps 16 16] of the four words of each lane."""
        words = [self.warps(register, "u32") for register in names(operand)]
        a = np.zeros((len(words[0]), 16, 16), np.float32)
        for i, word in enumerate(words):
            for half, values in enumerate(halves(word)):
                a[:, GROUP + 8 * (i % 2), 2 * INNER + half + 8 * (i // 2)] = values
        return a

    def op_mma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.8: fragments of m16n8k16."""
        self.whole_warps(lanes)
        if "s8" in suffixes:
            return self._whole_mma(suffixes, operands, lanes)
        assert "m16n8k16" in suffixes and suffixes[-3:] == ["bf16", "bf16", "f32"]
        a = self._fragment(operands[1])
        b, c = np.zeros((len(a), 16, 8), np.float32), np.zeros((len(a), 16, 8), np.float32)
        for i, register in enumerate(names(operands[2])):
            for half, values in enumerate(halves(self.warps(register, "u32"))):
                b[:, 2 * INNER + half + 8 * i, GROUP] = values
        places = [(GROUP + 8 * (i // 2), 2 * INNER + i % 2) for i in range(4)]
        for (row, column), register in zip(places, names(operands[3]), strict=True):
            c[:, row, column] = self.warps(register, "f32")
        total = a @ b + c
        for (row, column), register in zip(places, names(operands[0]), strict=True):
            self.write(register, total[:, row, column].reshape(-1), lanes)

    def _whole_mma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.10: fragments of m16n8k32 of whole numbers, which are summed up in 32 bits."""
        assert "m16n8k32" in suffixes and suffixes[-4:] == ["s32", "s8", "s8", "s32"]
        count = len(self.warps(names(operands[1])[0], "u32"))
        a, b = np.zeros((count, 16, 32), np.int64), np.zeros((count, 32, 8), np.int64)
        for operand, side in ((operands[1], a), (operands[2], b)):
            for i, register in enumerate(names(operand)):
                values = np.ascontiguousarray(self.warps(register, "u32")).view(np.int8).reshape(count, 32, 4)
                for byte in range(4):
                    if side is a:
                        a[:, GROUP + 8 * (i % 2), 4 * INNER + byte + 16 * (i // 2)] = values[..., byte]
                    else:
                        b[:, 4 * INNER + byte + 16 * i, GROUP] = values[..., byte]
        found = a @ b
        for i, (register, before) in enumerate(zip(names(operands[0]), names(operands[3]), strict=True)):
            total = found[:, GROUP + 8 * (i // 2), 2 * INNER + i % 2] + self.warps(before, "s32")
            self.write(register, total.astype(np.int32).view(np.uint32).reshape(-1), lanes)

    def op_stmatrix(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.16: lane 8 i + r names row r of matrix i; lane l has two elements of each matrix' row l / 4."""
        registers = names(operands[1])
        assert "m8n8" in suffixes and len(registers) == 4 and "trans" not in suffixes
        addresses = self.value(operands[0].strip("[]"), "u32").astype(np.int64)
        assert (addresses[lanes] % 16 == 0).all() and (addresses[lanes] + 16 <= self.shared_bytes).all()
        rows = (addresses + self.block * self.shared_bytes).reshape(-1, 4, 8)
        whole = lanes.reshape(-1, 32).any(1)
        self.watch(self.shared, rows.reshape(-1)[lanes], 16, lanes, True)
        words = self.shared.view(np.uint32)
        for i, register in enumerate(registers):
            values = self.value(register, "u32").reshape(-1, 8, 4)
            to = rows[:, i, :, None] // 4 + np.arange(4)
            words[to[whole]] = values[whole]
            self.unfenced[to[whole]] = np.flatnonzero(lanes).reshape(-1, 8, 4) + 1

    def note_reading(self, operand: np.ndarray, nbytes: int, lanes: np.ndarray) -> None:
        """operand: by warp, where a matrix instruction's operand in shared memory starts; nbytes: how far it goes."""
        for warp in np.flatnonzero(lanes.reshape(-1, 32).any(1))[::4]:
            thread = int(warp) * 32
            key = -1 - thread // 128
            batch, low = self.progress.batches.setdefault(key, 0), int(operand[warp])
            self.progress.readings.append(Reading(int(self.block[thread]), key, low, low + nbytes, batch))
            if self.races:
                view, line = self.races.begin(int(warp))
                words = (int(self.block[thread]) * self.shared_bytes + np.arange(low, low + nbytes, 4)) // 4
                agent = MATRICES * self.races.clocks.count + int(warp)
                self.races.by_copy(True, words, agent, batch + 1, view, False, line)

    def matrix_group(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """wgmma.commit_group and wait_group."""
        for thread in map(int, np.flatnonzero(lanes)[::128]):
            key = -1 - thread // 128
            if suffixes[0] == "commit_group":
                self.progress.batches[key] = self.progress.batches.get(key, 0) + 1
            elif suffixes[0] == "wait_group":
                oldest = self.progress.batches.get(key, 0) - int(operands[0])
                readings = self.progress.readings
                self.progress.readings = [r for r in readings if r.warpgroup != key or r.batch >= oldest]
                for warp in range(thread // 32, thread // 32 + 4) if self.races else ():
                    self.races.clocks.over(warp, MATRICES, oldest, thread // 32)
