"""Matrix instructions and their loads.  bf16 products are summed in f32, at once.

After "Parallel Thread Execution ISA": 9.7.14 for mma, 9.7.15 for wgmma.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from emulated_cuda.registers import LANES, halves, names


class MatrixOps(ABC):
    """What a warp does with its registers' fragments.  shared: the block's memory."""

    shared: np.ndarray

    @abstractmethod
    def value(self, operand: str, kind: str) -> np.ndarray: ...

    @abstractmethod
    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None: ...

    @abstractmethod
    def rows_at(self, operand: str, count: int) -> np.ndarray:
        """16 bytes from each of the first `count` lanes' addresses."""

    def op_ldmatrix(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.15: lane 8 i + r names row r of matrix i; lane l gets two elements of its row (or column) l / 4."""
        assert lanes.all() and "m8n8" in suffixes
        registers = names(operands[0])
        matrices = self.rows_at(operands[1], 8 * len(registers)).view(np.uint16).reshape(len(registers), 8, 8)
        for matrix, register in zip(matrices, registers, strict=True):
            own = (matrix.T if "trans" in suffixes else matrix).reshape(32, 2).astype(np.uint64)
            self.write(register, own[:, 0] | own[:, 1] << np.uint64(16), lanes)

    def op_wgmma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.15: a warp's 16 rows of m64nNk16, at once; B in shared memory, its rows of 128 bytes swizzled."""
        assert lanes.all()
        if suffixes[0] != "mma_async":
            return
        registers, columns = names(operands[0]), int(suffixes[3][4:-3])
        a = self._fragment(operands[1])
        b = self._right(int(self.value(operands[2], "u64")[0]), columns, operands[6] == "1")
        group, inner = LANES // 4, LANES % 4
        places = [(group + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * inner + i % 2) for i in range(len(registers))]
        c = np.zeros((16, columns), np.float32)
        if self.value(operands[3], "pred").all():
            for place, register in zip(places, registers, strict=True):
                c[place] = self.value(register, "f32")
        total = a @ b + c
        for place, register in zip(places, registers, strict=True):
            self.write(register, total[place], lanes)

    def _right(self, descriptor: int, columns: int, turned: bool) -> np.ndarray:
        """B [16 columns] of a matrix descriptor: rows of n, or if turned of k."""
        start, stride = (descriptor & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
        assert descriptor >> 62 == 1 and (not turned or columns == 64)
        rows, along = np.meshgrid(
            np.arange(16 if turned else columns), np.arange(columns if turned else 16), indexing="ij"
        )
        places = start + rows // 8 * stride + rows % 8 * 128 + 2 * along
        places ^= (places >> 7 & 7) << 4
        bits = self.shared[places].astype(np.uint32) | self.shared[places + 1].astype(np.uint32) << np.uint32(8)
        values = (bits << np.uint32(16)).view(np.float32)
        return values if turned else values.T

    def _fragment(self, operand: str) -> np.ndarray:
        """A [16 16] of the four words of each lane."""
        a = np.zeros((16, 16), np.float32)
        for i, register in enumerate(names(operand)):
            for half, values in enumerate(halves(self.value(register, "u32"))):
                a[LANES // 4 + 8 * (i % 2), 2 * (LANES % 4) + half + 8 * (i // 2)] = values
        return a

    def op_mma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.8: fragments of m16n8k16."""
        assert lanes.all() and "m16n8k16" in suffixes and suffixes[-3:] == ["bf16", "bf16", "f32"]
        group, inner = LANES // 4, LANES % 4
        a, b, c = self._fragment(operands[1]), np.zeros((16, 8), np.float32), np.zeros((16, 8), np.float32)
        for i, register in enumerate(names(operands[2])):
            for half, values in enumerate(halves(self.value(register, "u32"))):
                b[2 * inner + half + 8 * i, group] = values
        places = [(group + 8 * (i // 2), 2 * inner + i % 2) for i in range(4)]
        for place, register in zip(places, names(operands[3]), strict=True):
            c[place] = self.value(register, "f32")
        total = a @ b + c
        for place, register in zip(places, names(operands[0]), strict=True):
            self.write(register, total[place], lanes)
