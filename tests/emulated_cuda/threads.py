"""Threads that execute PTX on numpy, all of some blocks side by side: enough of the ISA for the compiler's kernels.

After "Parallel Thread Execution ISA", section 9.7.  Blocks of a launch may run in any order, so also in step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from emulated_cuda.async_copies import AsyncCopies
from emulated_cuda.block_barriers import BlockBarriers
from emulated_cuda.bulk_bytes import BulkBytes
from emulated_cuda.bulk_ops import MappedTensor, Progress
from emulated_cuda.cluster_ops import ClusterOps
from emulated_cuda.early_launches import EarlyLaunches
from emulated_cuda.instructions import goes_on, parts, polls, together
from emulated_cuda.matrix_ops import MatrixOps
from emulated_cuda.memory_ops import GLOBAL_BASE, MemoryOps
from emulated_cuda.operations import Operations
from emulated_cuda.ptx import Instruction, Kernel
from emulated_cuda.races import Races
from emulated_cuda.registers import SIGNED, UNSIGNED, same
from emulated_cuda.spans import Spans
from emulated_cuda.warp_ops import WarpOps

MAP_BASE = 1 << 40
"""Where tensor maps would lie, which nobody reads."""
MOST_THREADS = 1 << 14
"""How many run side by side."""
MOST_WATCHED = 1 << 11
"""How many where races are looked for."""


class Threads(
    WarpOps, BlockBarriers, MemoryOps, AsyncCopies, BulkBytes, ClusterOps, MatrixOps, EarlyLaunches, Operations
):
    """The threads of some blocks of a launch, by their numbers; of a cluster all, one after another.

    memory: the bytes of global memory.  cluster: how many neighbouring blocks read each other's shared memory.
    chosen: the threads whose values are read and written, each for itself; None for all of them.
    """

    global_base = GLOBAL_BASE

    def __init__(
        self, kernel: Kernel, memory: np.ndarray, arguments: Sequence[int | MappedTensor], grid: Sequence[int],
        blocks: Sequence[int], dynamic_bytes: int = 0, seed: int = 0, watched: bool = False,
        symbols: Mapping[str, int] = MappingProxyType({}), spans: Spans | None = None,
        before: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """seed: of the order in which they take turns.  watched: whether races are looked for.  symbols: addresses of
        the module's constants.  spans: what they may access of global memory, where that is known.  before: see
        EarlyLaunches."""
        self.kernel, self.memory, self.blocks = kernel, memory, blocks
        self.count = len(blocks) * kernel.threads
        threads = np.arange(self.count)
        self.block = threads // kernel.threads
        self.lane = threads % 32
        self.all = np.ones(self.count, bool)
        self.chosen: np.ndarray | slice | None = None
        self.goes_on = [goes_on(instruction.op) for instruction in kernel.body]
        self.shared_bytes = -(-max(kernel.shared_bytes + dynamic_bytes, 1) // 1024) * 1024
        self.shared = np.full(len(blocks) * self.shared_bytes, 0xFF, np.uint8)
        self.tensors = {MAP_BASE + i: a for i, a in enumerate(arguments) if isinstance(a, MappedTensor)}
        values = [MAP_BASE + i if isinstance(a, MappedTensor) else a for i, a in enumerate(arguments)]
        self.arguments = dict(zip(kernel.parameters, values, strict=True))
        self.registers = self._special(threads, grid)
        named = {**self.arguments, **symbols}
        self.registers |= {name: np.full(self.count, value, np.uint64) for name, value in named.items()}
        self.progress, self.rng = Progress(), np.random.default_rng(seed)
        self.stuck, self.awaited = np.zeros(self.count, bool), np.zeros(self.count, np.int64)
        self.unfenced = np.zeros(self.shared.size // 4, np.int32)
        self.races = None
        if watched:
            self.races = Races.of(kernel, self.count // 32, self.shared.size, memory.size, spans)
        self.by_turns = seed > 0 and (watched or any(i.op.startswith("ld.relaxed") for i in kernel.body))
        self.role = self.block if self.by_turns else threads % kernel.threads // 128
        groups = any(i.op.startswith("wgmma") for i in kernel.body)
        if watched and groups:
            self.role = threads // 128
        elif watched or any(i.op.startswith("st.async") for i in kernel.body):  # warps have roles
            self.role = threads // 32 if self.by_turns else threads % kernel.threads // 32
        self.patience = int(self.rng.choice([50, 1000, 100000])) if self.by_turns else 50
        self.polled, self.polled_at, self.changes = np.full(self.count, -1), np.full(self.count, -1), 0
        self.polls = polls(kernel)
        self.begin_copies()
        self.begin_early(before, len(blocks))
        self.waiting = np.full(self.count, -1)
        self.wanted = np.zeros(self.count, np.int64)
        self.passed = np.zeros(32 * len(blocks), np.int64)

    def _special(self, threads: np.ndarray, grid: Sequence[int]) -> dict[str, np.ndarray]:
        width, cluster = self.kernel.threads, self.kernel.cluster
        number = np.asarray(self.blocks)[self.block]
        values: dict[str, object] = {"%tid.x": threads % width, "%ntid.x": width, "%laneid": self.lane}
        values |= {"%cluster_ctarank": number % cluster, "%cluster_ctaid.x": number % cluster}
        values |= {f"%ctaid.{d}": n for d, n in zip("zyx", np.unravel_index(number, tuple(grid)[::-1]), strict=True)}
        values |= {f"%nctaid.{d}": n for d, n in zip("xyz", grid, strict=True)}
        values |= {"%tid.y": 0, "%tid.z": 0, "%ntid.y": 1, "%ntid.z": 1, **self.kernel.shared}
        return {name: np.broadcast_to(np.asarray(v, np.uint64), self.count) for name, v in values.items()}

    @property
    def cluster(self) -> int:
        return self.kernel.cluster

    @property
    def width(self) -> int:
        """How many threads' values are read and written."""
        return self.chosen.size if isinstance(self.chosen, np.ndarray) else self.count

    def run(self) -> None:
        """Execute to the end; those that are furthest behind go first.

        Where warpgroups have roles, which barriers in shared memory are a sign of, one of them, in any block, goes on
        for a random while; with a seed above 0, one of the blocks where these wait for each other.  Who reads what
        others change goes on when they have changed something; who waits for the rest of its warp, when somebody has
        gone on.
        """
        body, copies = self.kernel.body, self.progress.copies
        roles = self.by_turns or any(instruction.op.startswith("mbarrier") for instruction in body)
        at, role, turns, alone = np.zeros(self.count, np.int64), -1, 0, np.zeros(self.count, bool)
        idle, lonely, polled, own = np.zeros(self.count, bool), False, bool((self.polls <= len(body)).any()), alone
        while True:
            able = (at < len(body)) & (self.waiting < 0) & ~self.stuck
            if polled:
                idle = (at == self.polled_at) & (self.polled == self.changes)
                able &= ~idle
            if lonely:
                able &= ~alone
            if not able.any():
                if (at >= len(body)).all() and not copies:
                    return
                if not self.land_some(1):
                    assert self.open_barriers(), self._nobody_goes_on(alone, idle, at)
                alone[:], lonely = False, False
                continue
            under_way = len(copies)
            if roles:
                self.land_some(0.02)
                turns -= 1
                mine = able & own
                if turns < 0 or not mine.any():
                    role, turns = int(self.rng.choice(self.role[able])), int(self.rng.geometric(1 / self.patience))
                    own = self.role == role
                    mine = able & own
                able = mine
            here, lanes = self._next(able, at)
            if not lanes.any():
                alone |= able
                lonely = True
                continue
            if self.goes_on[here] and len(copies) == under_way and not lonely:
                turns -= self._run_on(here, lanes, able, at, turns if roles else None)
            else:
                self._step(here, lanes, at)
            if lonely:
                alone[:], lonely = False, False

    def _nobody_goes_on(self, alone: np.ndarray, idle: np.ndarray, at: np.ndarray) -> str:
        barriers = np.unique(self.waiting[self.waiting >= 0] % 32).tolist()
        told = f"deadlock: {idle.sum()} threads wait for what others store, some at barriers {barriers}"
        if not alone.any():
            return told
        missed = self.kernel.body[int(at[alone].min())]
        what = f"line {missed.line}{missed.form}: {missed.op}"
        return f"{told}\n{what}: an instruction of a warp that some of its threads miss"

    def _next(self, able: np.ndarray, at: np.ndarray) -> tuple[int, np.ndarray]:
        """The next instruction and who executes it: what a warp or a warpgroup does together, once all are there."""
        able = able.copy()
        while able.any():
            here = int(at[able].min())
            lanes = able & (at == here)
            instruction = self.kernel.body[here]
            needed = together(instruction.op)
            if needed == 1:
                return here, lanes
            groups = (lanes | (at >= len(self.kernel.body))).reshape(-1, needed)
            ready = lanes & np.repeat(groups.all(1), needed)
            if ready.any():
                return here, ready
            able &= ~lanes
        return 0, able

    def _run_on(self, here: int, lanes: np.ndarray, able: np.ndarray, at: np.ndarray, turns: int | None) -> int:
        """Instructions after which threads go on, while those of the able ones that are here meet none of the others
        and as many copies are under way.  turns: how many more instructions are theirs, where they take turns.  How
        many more it were."""
        body, start, copies = self.kernel.body, here, len(self.progress.copies)
        threads, end = slice(None), len(body)
        if not lanes.all():
            threads, others = np.flatnonzero(lanes), at[able & ~lanes]
            end = int(others[others > here].min(initial=end))
        end = end if turns is None else min(end, here + 1 + turns)
        whole = 1  # of how many threads each all are here, as far as is known
        with np.errstate(all="ignore"):
            while True:
                instruction = body[here]
                name, suffixes = parts(instruction.op)
                if self.goes_on[here] == 1:
                    self.chosen = self._taken(instruction, threads)
                    if self.width:
                        self.execute(name, suffixes, instruction.operands, self.all[: self.width])
                else:
                    taken = self._letting(instruction, lanes)
                    if self.races:
                        self.races.line = here
                    if taken.any():
                        self.execute(name, suffixes, instruction.operands, taken)
                self.chosen = None
                here += 1
                if here >= end or not self.goes_on[here] or len(self.progress.copies) != copies:
                    break
                if (needed := together(body[here].op)) > whole:
                    groups = lanes.reshape(-1, needed)
                    if not np.array_equal(groups.all(1), groups.any(1)):
                        break
                    whole = needed
                if turns is not None:
                    self.land_some(0.02)
        at[lanes] = here
        return here - start - 1

    def _letting(self, instruction: Instruction, lanes: np.ndarray) -> np.ndarray:
        """Those of the threads that an instruction's predicate lets."""
        if not instruction.predicate:
            return lanes
        return lanes & ((self.registers[instruction.predicate] != 0) != instruction.negated)

    def _taken(self, instruction: Instruction, threads: np.ndarray | slice) -> np.ndarray | slice:
        """The same, of threads by their numbers."""
        if not instruction.predicate:
            return threads
        lets = (self.registers[instruction.predicate][threads] != 0) != instruction.negated
        if isinstance(threads, slice):
            return threads if lets.all() else np.flatnonzero(lets)
        return threads[lets]

    def _step(self, here: int, lanes: np.ndarray, at: np.ndarray) -> None:
        """One instruction by those of the threads that its predicate lets."""
        instruction = self.kernel.body[here]
        taken = self._letting(instruction, lanes)
        name, suffixes = parts(instruction.op)
        at[lanes] += 1
        if self.races:
            self.races.line = here
        if name in ("bra", "brx"):
            if name == "bra":
                at[taken] = self.kernel.labels[instruction.operands[0]]
            else:
                number, table = instruction.operands
                places = np.array([self.kernel.labels[label] for label in self.kernel.tables[table]])
                at[taken] = places[self.value(number, "u32")[taken]]
            back = (self.polls[self.polled_at] <= at) & (at <= self.polled_at)
            self.polled_at[lanes & ~back] = -1
        elif name in ("ret", "exit"):
            self.check_stored(taken)
            at[taken] = len(self.kernel.body)
        elif name in ("bar", "barrier"):
            if name == "bar":  # unlike barrier, of whole warps
                self.whole_warps(taken)
            if "warp" not in suffixes:
                self.wait(suffixes, instruction.operands, taken)
            if self.by_turns:
                self.open_barriers()
        elif name == "fence":
            self.fence(suffixes, np.flatnonzero(taken))
        elif name not in ("nanosleep", "pragma", "prefetch", "setmaxnreg") and taken.any():
            with np.errstate(all="ignore"):
                self.execute(name, suffixes, instruction.operands, taken)
            if name == "mbarrier" and self.stuck.any():
                at[lanes & self.stuck] = here
            if self.polls[here] <= here:  # who comes again waits until somebody has changed something
                self.polled[taken], self.polled_at[taken] = self.changes, here
            self.changes += name in ("atom", "red") or (name == "st" and "relaxed" in suffixes)

    def value(self, operand: str, kind: str, lanes: np.ndarray | None = None) -> np.ndarray:
        """An operand's threads as numbers of a PTX type; lanes: of these only."""
        chosen, bits = self.chosen if lanes is None else lanes, self.registers.get(operand)
        if bits is None:
            bits = same(operand, self.width)
            chosen = lanes
        if chosen is not None:
            bits = bits[chosen]
        if kind == "pred":
            return bits != 0
        if kind == "f32":
            return bits.astype(np.uint32).view(np.float32)
        if kind == "f64":
            return np.ascontiguousarray(bits, np.uint64).view(np.float64)
        if kind == "bf16":
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if kind == "f16":
            return bits.astype(np.uint16).view(np.float16)
        size = int(kind[1:])
        unsigned = bits.astype(UNSIGNED[size])
        return unsigned.view(SIGNED[size]) if kind[0] == "s" else unsigned

    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None:
        """values: of all threads, or of those in `lanes` where these are not all."""
        if register == "_":
            return
        bits = values.view(UNSIGNED[values.itemsize * 8]) if values.dtype != bool else values
        known = self.registers.get(register)
        if known is None:
            known = self.registers[register] = np.zeros(self.count, np.uint64)
        if self.chosen is not None:
            known[self.chosen] = bits
        elif len(bits) == len(lanes):
            np.copyto(known, bits, where=lanes)
        else:
            known[lanes] = bits
