"""What lanes of a warp, and blocks of a cluster, find at each other: a part of the PTX interpreter."""

from __future__ import annotations

import numpy as np
from emulated_cuda.bulk_ops import REMOTE


class WarpOps:
    """Instructions of Threads."""

    def whole_warps(self, lanes: np.ndarray) -> None:
        """What a warp does together, all of its threads do."""
        together = lanes.reshape(-1, 32)
        assert (together.all(1) == together.any(1)).all(), "an instruction of a warp that some of its threads miss"

    def op_mapa(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        rank = self.value(operands[2], "u32").astype(np.uint64)
        apart = np.uint64(32 if suffixes[-1] == "u64" else REMOTE.bit_length() - 1)
        self.write(operands[0], (rank + np.uint64(1)) << apart | self.value(operands[1], "u64"), lanes)

    def op_shfl(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        assert suffixes[0] == "sync"
        self.whole_warps(lanes)
        by = self.value(operands[2], "u32").astype(np.int64)
        lane = {
            "bfly": self.lane ^ by, "idx": by & 31, "down": self.lane + by, "up": self.lane - by,
        }[suffixes[1]]  # fmt: skip
        lane = np.where((lane >= 0) & (lane < 32), lane, self.lane)
        other = np.arange(self.count) - self.lane + lane
        self.write(operands[0].split("|")[0], self.value(operands[1], "u32")[other], lanes)

    def op_vote(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        assert suffixes[:2] == ["sync", "ballot"]
        self.whole_warps(lanes)
        bits = self.value(operands[1], "pred").astype(np.uint32) << self.lane.astype(np.uint32)
        self.write(operands[0], np.bitwise_or.reduce(bits.reshape(-1, 32), axis=1).repeat(32), lanes)

    def op_redux(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        assert suffixes[0] == "sync"
        self.whole_warps(lanes)
        combine = {"max": np.maximum, "min": np.minimum, "add": np.add}[suffixes[1]]
        found = combine.reduce(self.value(operands[1], suffixes[2]).reshape(-1, 32), axis=1)
        self.write(operands[0], found.astype(np.int32).view(np.uint32).repeat(32), lanes)
