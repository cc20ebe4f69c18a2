"""Threads that execute PTX on numpy, all of some blocks side by side: enough of the ISA for the compiler's kernels.

After "Parallel Thread Execution ISA", section 9.7.  Blocks of a launch may run in any order, so also in step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from emulated_cuda.async_copies import AsyncCopies
from emulated_cuda.bulk_bytes import BulkBytes
from emulated_cuda.bulk_ops import MappedTensor, Progress
from emulated_cuda.cluster_ops import ClusterOps
from emulated_cuda.matrix_ops import MatrixOps
from emulated_cuda.memory_ops import GLOBAL_BASE, MemoryOps
from emulated_cuda.operations import Operations
from emulated_cuda.ptx import Kernel
from emulated_cuda.races import Races
from emulated_cuda.registers import SIGNED, UNSIGNED
from emulated_cuda.warp_ops import WarpOps

MAP_BASE = 1 << 40
"""Where tensor maps would lie, which nobody reads."""
TOGETHER = {"wgmma": 128, "setmaxnreg": 128}
TOGETHER |= dict.fromkeys(("shfl", "vote", "bar.", "ldmatrix", "stmatrix", "mma"), 32)
"""How many threads execute such an instruction together."""
MOST_THREADS = 1 << 14
"""How many run side by side."""
MOST_WATCHED = 1 << 11
"""How many where races are looked for."""


def _polls(kernel: Kernel) -> np.ndarray:
    """For each place in a kernel, where the straight piece of code starts whose first load of what others change it is;
    where it is none, a place behind all."""
    found, start, seen = np.full(len(kernel.body) + 1, len(kernel.body) + 1), 0, False
    labels = set(kernel.labels.values())
    for at, instruction in enumerate(kernel.body):
        if at in labels or (at and kernel.body[at - 1].op.startswith("bra")):
            start, seen = at, False
        if instruction.op.startswith("ld.relaxed") and not seen:
            found[at], seen = start, True
    return found


class Threads(WarpOps, MemoryOps, AsyncCopies, BulkBytes, ClusterOps, MatrixOps, Operations):
    """The threads of blocks `first` to `first + count` of a launch.

    memory: the bytes of global memory.  cluster: how many neighbouring blocks read each other's shared memory.
    """

    global_base = GLOBAL_BASE

    def __init__(
        self, kernel: Kernel, memory: np.ndarray, arguments: Sequence[int | MappedTensor], grid: Sequence[int],
        blocks: range, dynamic_bytes: int = 0, seed: int = 0, watched: bool = False,
    ) -> None:  # fmt: skip
        """seed: of the order in which they take turns.  watched: whether races are looked for."""
        self.kernel, self.memory, self.blocks = kernel, memory, blocks
        self.count = len(blocks) * kernel.threads
        threads = np.arange(self.count)
        self.block = threads // kernel.threads
        self.lane = threads % 32
        self.all = np.ones(self.count, bool)
        self.shared_bytes = -(-max(kernel.shared_bytes + dynamic_bytes, 1) // 1024) * 1024
        self.shared = np.full(len(blocks) * self.shared_bytes, 0xFF, np.uint8)
        self.tensors = {MAP_BASE + i: a for i, a in enumerate(arguments) if isinstance(a, MappedTensor)}
        values = [MAP_BASE + i if isinstance(a, MappedTensor) else a for i, a in enumerate(arguments)]
        self.arguments = dict(zip(kernel.parameters, values, strict=True))
        self.registers = self._special(threads, grid)
        self.registers |= {name: np.full(self.count, value, np.uint64) for name, value in self.arguments.items()}
        self.progress, self.rng = Progress(), np.random.default_rng(seed)
        self.stuck, self.awaited = np.zeros(self.count, bool), np.zeros(self.count, np.int64)
        self.unfenced = np.zeros(self.shared.size // 4, np.int32)
        self.races = None
        if watched:
            self.races = Races.of(kernel, self.count // 32, self.shared.size, memory.size)
        self.by_turns = seed > 0 and (watched or any(i.op.startswith("ld.relaxed") for i in kernel.body))
        self.role = self.block if self.by_turns else threads % kernel.threads // 128
        groups = any(i.op.startswith(("wgmma", "setmaxnreg")) for i in kernel.body)
        if watched and groups:
            self.role = threads // 128
        elif watched or any(i.op.startswith("st.async") for i in kernel.body):  # warps have roles
            self.role = threads // 32 if self.by_turns else threads % kernel.threads // 32
        self.patience = int(self.rng.choice([50, 1000, 100000])) if self.by_turns else 50
        self.polled, self.polled_at, self.changes = np.full(self.count, -1), np.full(self.count, -1), 0
        self.polls = _polls(kernel)
        self.begin_copies()
        self.waiting = np.full(self.count, -1)
        self.wanted = np.zeros(self.count, np.int64)
        self.passed = np.zeros(32 * len(blocks), np.int64)

    def _special(self, threads: np.ndarray, grid: Sequence[int]) -> dict[str, np.ndarray]:
        width, cluster = self.kernel.threads, self.kernel.cluster
        number = self.block + self.blocks.start
        values: dict[str, object] = {"%tid.x": threads % width, "%ntid.x": width, "%laneid": self.lane}
        values |= {"%cluster_ctarank": number % cluster, "%cluster_ctaid.x": number % cluster}
        values |= {f"%ctaid.{d}": n for d, n in zip("zyx", np.unravel_index(number, tuple(grid)[::-1]), strict=True)}
        values |= {f"%nctaid.{d}": n for d, n in zip("xyz", grid, strict=True)}
        values |= {"%tid.y": 0, "%tid.z": 0, "%ntid.y": 1, "%ntid.z": 1, **self.kernel.shared}
        return {name: np.broadcast_to(np.asarray(v, np.uint64), self.count) for name, v in values.items()}

    @property
    def cluster(self) -> int:
        return self.kernel.cluster

    def run(self) -> None:
        """Execute to the end; those that are furthest behind go first.

        Where warpgroups have roles, which barriers in shared memory are a sign of, one of them, in any block, goes on
        for a random while; with a seed above 0, one of the blocks where these wait for each other.  Who reads what
        others change goes on when they have changed something; who waits for the rest of its warp, when somebody has
        gone on.
        """
        body = self.kernel.body
        roles = self.by_turns or any(instruction.op.startswith("mbarrier") for instruction in body)
        at, role, turns, alone = np.zeros(self.count, np.int64), -1, 0, np.zeros(self.count, bool)
        while True:
            idle = (at == self.polled_at) & (self.polled == self.changes)
            able = (at < len(body)) & (self.waiting < 0) & ~(self.stuck | idle | alone)
            if not able.any():
                if (at >= len(body)).all() and not self.progress.copies:
                    return
                if not self.land_some(1):
                    assert self._open_barriers(), self._nobody_goes_on(alone, idle, at)
                alone[:] = False
                continue
            if roles:
                self.land_some(0.02)
                turns -= 1
                if turns < 0 or not able[self.role == role].any():
                    role, turns = int(self.rng.choice(self.role[able])), int(self.rng.geometric(1 / self.patience))
                able &= self.role == role
            here, lanes = self._next(able, at)
            if lanes.any():
                self._step(here, lanes, at)
                alone[:] = False
            else:
                alone |= able

    def _nobody_goes_on(self, alone: np.ndarray, idle: np.ndarray, at: np.ndarray) -> str:
        barriers = np.unique(self.waiting[self.waiting >= 0] % 32).tolist()
        told = f"deadlock: {idle.sum()} threads wait for what others store, some at barriers {barriers}"
        if not alone.any():
            return told
        missed = self.kernel.body[int(at[alone].min())]
        return f"{told}\nline {missed.line}: {missed.op}: an instruction of a warp that some of its threads miss"

    def _next(self, able: np.ndarray, at: np.ndarray) -> tuple[int, np.ndarray]:
        """The next instruction and who executes it: what a warp or a warpgroup does together, once all are there."""
        able = able.copy()
        while able.any():
            here = int(at[able].min())
            lanes = able & (at == here)
            instruction = self.kernel.body[here]
            together = next((n for name, n in TOGETHER.items() if instruction.op.startswith(name)), 1)
            groups = (lanes | (at >= len(self.kernel.body))).reshape(-1, together)
            ready = lanes & np.repeat(groups.all(1), together)
            if ready.any():
                return here, ready
            able &= ~lanes
        return 0, able

    def _step(self, here: int, lanes: np.ndarray, at: np.ndarray) -> None:
        """One instruction by those of the threads that its predicate lets."""
        instruction, taken = self.kernel.body[here], lanes
        if instruction.predicate:
            taken = lanes & ((self.registers[instruction.predicate] != 0) != instruction.negated)
        name, *suffixes = instruction.op.split(".")
        at[lanes] += 1
        if self.races:
            self.races.line = here
        if name == "bra":
            at[taken] = self.kernel.labels[instruction.operands[0]]
            back = (self.polls[self.polled_at] <= at) & (at <= self.polled_at)
            self.polled_at[lanes & ~back] = -1
        elif name in ("ret", "exit"):
            self.check_stored(taken)
            at[taken] = len(self.kernel.body)
        elif name in ("bar", "barrier"):
            if name == "bar":  # unlike barrier, of whole warps
                self.whole_warps(taken)
            if "warp" not in suffixes:
                self._wait(suffixes, instruction.operands, taken)
            if self.by_turns:
                self._open_barriers()
        elif name == "fence":
            self._fence(suffixes, np.flatnonzero(taken))
        elif name not in ("griddepcontrol", "pragma", "prefetch", "setmaxnreg") and taken.any():
            with np.errstate(all="ignore"):
                self.execute(name, suffixes, instruction.operands, taken)
            if name == "mbarrier" and self.stuck.any():
                at[lanes & self.stuck] = here
            if self.polls[here] <= here:  # who comes again waits until somebody has changed something
                self.polled[taken], self.polled_at[taken] = self.changes, here
            self.changes += name == "atom" or (name == "st" and "relaxed" in suffixes)

    def _fence(self, suffixes: list[str], threads: np.ndarray) -> None:
        if "proxy" in suffixes:
            self.unfenced[np.isin(self.unfenced, threads + 1)] = 0
        for warp in map(int, np.unique(threads // 32)) if self.races else ():
            if "proxy" in suffixes:
                self.races.clocks.fence_copies(warp)
            elif "mbarrier_init" not in suffixes:
                self.races.clocks.fence(warp)

    def _wait(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """Barriers are known by their number and their block, or their cluster's first block."""
        warps = np.unique(np.flatnonzero(lanes) // 32) if self.races else np.zeros(0, np.int64)
        if "cluster" in suffixes:
            if "arrive" in suffixes and self.races:
                self.races.clocks.hold(warps.tolist(), "relaxed" in suffixes)
            elif "arrive" not in suffixes:
                for warp in warps.tolist():
                    first = int(self.block[32 * warp]) // self.kernel.cluster * self.kernel.cluster
                    self.races.clocks.come(32 * first + 16, [warp])
                number = 32 * (self.block // self.kernel.cluster * self.kernel.cluster) + 16
                self.waiting[lanes], self.wanted[lanes] = number[lanes], self.kernel.cluster * self.kernel.threads
            return
        numbers = self.value(operands[0], "u32").astype(np.int64)
        assert (numbers[lanes] < 16).all()
        counts = self.value(operands[1], "u32") if len(operands) > 1 else np.full(self.count, self.kernel.threads)
        where = (32 * self.block + numbers)[32 * warps]
        for number in np.unique(where).tolist():
            self.races.clocks.arrive(number, warps[where == number].tolist())
        if "arrive" in suffixes:
            np.add.at(self.passed, (32 * self.block + numbers)[lanes], 1)
            return
        self.waiting[lanes] = (32 * self.block + numbers)[lanes]
        self.wanted[lanes] = counts[lanes]

    def _open_barriers(self) -> bool:
        """A barrier opens when as many threads wait at it as it counts; whether one did."""
        here = self.waiting >= 0
        arrived = np.bincount(self.waiting[here], minlength=self.passed.size) + self.passed
        together = arrived[np.maximum(self.waiting, 0)]
        assert (together[here] <= self.wanted[here]).all(), "more threads at a barrier than it counts"
        opened = here & (together == self.wanted)
        for number in np.unique(self.waiting[opened]).tolist() if self.races else ():
            warps = np.unique(np.flatnonzero(opened & (self.waiting == number)) // 32)
            self.races.clocks.open(number, warps.tolist())
        self.passed[self.waiting[opened]] = 0
        self.waiting[opened] = -1
        return bool(opened.any())

    def value(self, operand: str, kind: str) -> np.ndarray:
        """An operand's threads as numbers of a PTX type."""
        if operand.startswith("0f"):
            bits = np.full(self.count, int(operand[2:], 16), np.uint64)
        elif re.match(r"-?\d", operand):
            bits = np.full(self.count, int(operand.rstrip("U"), 0) & (2**64 - 1), np.uint64)
        else:
            bits = self.registers.get(operand)
            if bits is None:  # which no instruction has written
                bits = np.full(self.count, 2**64 - 1, np.uint64)
        if kind == "pred":
            return bits != 0
        if kind == "f32":
            return bits.astype(np.uint32).view(np.float32)
        if kind == "bf16":
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if kind == "f16":
            return bits.astype(np.uint16).view(np.float16)
        size = int(kind[1:])
        unsigned = bits.astype(UNSIGNED[size])
        return unsigned.view(SIGNED[size]) if kind[0] == "s" else unsigned

    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        bits = (values.view(UNSIGNED[values.itemsize * 8]) if values.dtype != bool else values).astype(np.uint64)
        if register == "_":
            return
        old = self.registers.get(register)
        self.registers[register] = np.where(lanes, bits, np.uint64(0) if old is None else old)
