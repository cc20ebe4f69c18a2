"""What a target is: a chip's capabilities, which schedules read, and the few things only its vendor has.

A new chip is one row in its vendor's file.  A new vendor is one file, named as `--target` has it, with CHIPS (targets
by chips' names), DEFAULT_CHIP and, for a GPU, a subclass of `Gpu`; what runs its code is a file of the same name in
`runtime/devices/`.  Schedules ask for capabilities and call a target's methods; they never ask which target it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.targets.async_copies import AsyncCopies
from lispgpt.passes.targets.matrix import MatrixUnit
from lispgpt.passes.targets.rates import Rates
from lispgpt.passes.targets.tensor_copies import TensorCopies, assembly
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

DEPENDENCY_MARK = "waits_for_launches"
"""An attribute of the op that stands where a body would wait for earlier launches."""
DEPENDENCY = "nvvm.griddepcontrol"
"""The op that does wait, or lets later ones start."""


def waits_for_launches(op: ir.Operation) -> bool:
    """Whether all threads of a body wait there for earlier launches, or would if it had started ahead of their ends."""
    return DEPENDENCY_MARK in op.attributes or (op.name == DEPENDENCY and "wait" in str(op.attributes["kind"]))


@dataclass(frozen=True)
class Target:
    """A chip that code is made for.

    kind: "cpu", "rocm" or "cuda".  chip: LLVM's name for it.  vector_bytes: the widest load of one lane.
    """

    kind: ClassVar[str] = ""
    pipeline: ClassVar[str] = ""
    """The file in `pipelines/`, without its ending, that lowers models for it."""

    code_name: ClassVar[str] = "kernels.bin"
    """The file in an artifact that holds the machine code."""

    line_tables: ClassVar[str] = "LineTablesOnly"
    """What LLVM is to write of places in programs: its name of a kind of debug information."""

    makes_room: ClassVar[bool] = True
    """Whether the compiler makes do with fewer registers than a lane would fill, in order and time of loads."""

    prefill_chunks: ClassVar[tuple[int, ...]] = (1, 16, 128)
    """Positions that a generating program's entry is compiled for, as far as its context reaches."""

    runs_ahead: ClassVar[bool] = False
    """Whether decode steps follow each other on the device, so that tokens have to be drawn there too."""

    narrow_caches: ClassVar[bool] = False
    """Whether models keep keys and values in 16 bits unless told otherwise."""

    in_turns: ClassVar[bool] = False
    """Whether a block is one thread, which does what its teams do one after another, in vectors that reach to the end
    of what there is."""

    aligned_rows: ClassVar[bool] = False
    """Whether every buffer starts where the widest load may, so that rows which such loads divide are aligned."""

    chooses_masked_words_apart: ClassVar[bool] = False
    """Whether LLVM aborts where one of two vectors of words is chosen of which some bits are set, cleared or turned."""

    maximum: ClassVar[str] = "arith.maximumf"
    """The op that is one instruction, where no element is NaN."""

    chip: str
    vector_bytes: int = 16
    intrinsics: dict[str, str] = field(default_factory=dict)
    """LLVM's names for the chip's own approximations of functions of f32; what is not here is arithmetic."""

    rates: Rates | None = None
    """What floors are reckoned with, where the chip's are known."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.chip}" if self.chip else self.kind

    def rough_tanh(self, x: ir.Value) -> ir.Value | None:
        """The chip's own tanh of an f32, or of each of several, where it has one, less exact than an f32."""
        return None

    def serialize(self, module: ir.Module) -> bytes:
        """Machine code of some kernels, from a module that has been through the target's pipeline."""
        raise NotImplementedError

    def join_code(self, pieces: Sequence[bytes]) -> bytes:
        """One file's contents of what `serialize` gave for kernels apart, or for all at once."""
        raise NotImplementedError

    def assembled(self, code: bytes) -> bytes | None:
        """What `serialize` gave, compiled further for this very chip by its vendor's tool; None where that is missing.

        UserError where the tool refuses it; the code runs without.
        """
        return None

    def assembly(self, module: ir.Module) -> str:
        """The text of that machine code."""
        raise NotImplementedError

    def lined_assembly(self, module: ir.Module) -> str:
        """The same with the lines of the program that instructions are made for."""
        return self.assembly(module)

    def capabilities(self) -> dict[str, int]:
        """What `(capability name)` gives while a program for this chip is evaluated, where it is not the usual."""
        return {"runs-ahead": int(self.runs_ahead), "narrow-caches": int(self.narrow_caches)}

    def block_capabilities(self) -> dict[str, int]:
        """The same while a schedule is."""
        return self.capabilities()

    def describe(self) -> str:
        """Capabilities in one line, for listings."""
        raise NotImplementedError

    def quick(self) -> Target:
        """The same, but for how long making machine code takes, and how fast that is."""
        return self

    def host(self) -> str:
        """What else than the target's name machine code depends on, for manifests and cache keys."""
        return ""

    def kernel_facts(self, module: ir.Module, kernel: str) -> dict[str, Any]:
        """What a device has to know of a kernel to launch it, beside what each launch says."""
        return {}


@dataclass(frozen=True)
class Gpu(Target):
    """A GPU.

    subgroup: lanes that run together.  shared_bytes: on-chip memory of one block without asking for more, and
    dynamic_shared_bytes what it can have if it asks; 0 where that is no more.  cores: compute units or multiprocessors,
    which grids are sized for (code runs on any number), and cluster_cores those of them that clusters of more than two
    large blocks can use at once; 0: all.  A cluster stays within a group of twice as many cores as its blocks may be.
    matrix: its matrix instruction for bf16.  early_launch: whether a kernel may start, and load what no launch writes,
    before the launch ahead of it has finished.  cluster: blocks that can read each other's shared memory.  warpgroup:
    its matrix instruction of several subgroups, which comes with bulk `copies` of tensors.  async_copies: those that
    threads start by pieces.  l2_bytes: of the cache of all cores.  Measured seconds, or 0: launch_, that a launch waits
    for the one ahead of it; cluster_, from one exchange among clusters that share layers to the next.  matrix_rest:
    nanoseconds that a subgroup may sleep between two matrix instructions while a core's units keep their clock
    (decode_step/keep_clocked.py); 0: they do not keep it.  widens_e4m3: whether an instruction has E4M3 numbers in F16.
    attention_keys: positions of a tile of f32 keys and values
    at most, of which a lane's registers have room for all operands that the compiler loads early; 0: any.  registers:
    that the lanes of a core have together, and most_registers one of them.
    """

    pipeline: ClassVar[str] = "gpu"
    object_suffix: ClassVar[str] = ".bin"
    """Of a file with a program's kernels."""

    device_scope: ClassVar[str] = ""
    """LLVM's name for all threads of the device, among which atomic accesses are to be ordered."""

    adds_bytes: ClassVar[bool] = False
    """Whether it has an instruction for four products of bytes."""

    adds_short_pairs: ClassVar[bool] = False
    """Whether it has an instruction that adds two BF16 numbers to two others."""

    register_constraints: ClassVar[tuple[str, str]] = ("r", "r")
    """LLVM's letters for registers of inline assembly: those that lanes have each their own in, and uniform ones."""

    object_is_text: ClassVar[bool] = False
    attach_pass: ClassVar[str] = ""
    """MLIR's pass that says which chip a gpu.module is for."""

    convert_pass: ClassVar[str] = ""
    """MLIR's pass from the gpu dialect to the vendor's."""

    own_options: ClassVar[frozenset[str]] = frozenset()
    """Options of those two passes that say nothing to other vendors' ones."""

    loop_annotation: ClassVar[str] = ""
    """LLVM's attribute of the loops of tile programs, where it should do other than it would."""

    makes_room: ClassVar[bool] = True
    """Whether the compiler makes do with fewer registers than a lane would fill, in order and time of loads."""

    prefill_chunks: ClassVar[tuple[int, ...]] = (1, 16, 128, 512, 1024)
    runs_ahead: ClassVar[bool] = True
    narrow_caches: ClassVar[bool] = True
    aligned_rows: ClassVar[bool] = True
    maximum: ClassVar[str] = "arith.maxnumf"

    subgroup: int = 32
    shared_bytes: int = 48 * 1024
    max_threads: int = 1024
    cores: int = 64
    matrix: MatrixUnit | None = None
    warpgroup: WarpgroupUnit | None = None
    copies: TensorCopies | None = None
    async_copies: AsyncCopies | None = None
    dynamic_shared_bytes: int = 0
    early_launch: bool = False
    cluster: int = 1
    cluster_cores: int = 0
    l2_bytes: int = 0
    launch_seconds: float = 0.0
    cluster_seconds: float = 0.0
    matrix_rest: int = 0
    widens_e4m3: bool = False
    attention_keys: int = 0
    registers: int = 64 * 1024
    most_registers: int = 255

    def lane_registers(self, threads: int, blocks: int) -> int:
        """Registers of a lane in blocks of so many threads, of which so many were given to `set_residency`."""
        return min(self.most_registers, self.registers // threads)

    def capabilities(self) -> dict[str, int]:
        return {
            **super().capabilities(),
            "subgroup-size": self.subgroup,
            "vector-bytes": self.vector_bytes,
            "shared-bytes": self.shared_bytes,
            "max-threads": self.max_threads,
            "cores": self.cores,
            "lane-registers": self.most_registers,
        }

    def join_code(self, pieces: Sequence[bytes]) -> bytes:
        """One after another, each of which says where it ends: the driver is given them one by one."""
        return b"".join(pieces)

    def cores_for(self, cluster: int) -> int:
        """The cores that blocks in clusters of that size can use at once, one block to a core."""
        if cluster <= 2 or not self.cluster_cores:
            return self.cores
        group = 2 * self.cluster
        groups = [group] * (self.cluster_cores // group) + [self.cluster_cores % group]
        return sum(cores // cluster * cluster for cores in groups)

    def dependency_wait(self) -> None:
        """Emit what must stand before the first access to memory that an earlier launch writes.

        Where launches do not start early this is a mark, a cast of nothing that lowering drops.
        """
        index = [ir.IndexType.get()]
        create_op("builtin.unrealized_conversion_cast", [], index, {DEPENDENCY_MARK: ir.UnitAttr.get()})

    def dependency_release(self) -> None:
        """Emit what lets the next launch start early."""

    def dependency_passed_on(self) -> None:
        """Emit both, for a kernel that loads nothing before it waits."""
        self.dependency_release()
        self.dependency_wait()

    def set_cluster(self, kernel: ir.Operation, blocks: int) -> None:
        """Record on a kernel's function that each `blocks` neighbouring blocks run together."""
        raise NotImplementedError

    def set_residency(self, kernel: ir.Operation, blocks: int) -> None:
        """Record on a kernel's function that this many of its blocks should fit a core at once."""

    def team_barrier(self, threads: int) -> None:
        """Emit a barrier of so many of a block's threads, which the others do not wait at."""
        raise NotImplementedError

    def fresh(self, value: ir.Value, uniform: bool) -> ir.Value:
        """Emit an index below 2^31 as one that the back end knows nothing of, so that it keeps no sums made of it from
        one piece of code to the next.  uniform: whether a block has it alike."""
        word = b.emit("arith.index_cast", [value], [b.i32()])
        made = assembly("", [f"={self.register_constraints[uniform]}", "0"], [word], [b.i32()])
        return b.emit("arith.index_castui", made, [ir.IndexType.get()])

    def add_bytes(self, a: ir.Value, other: ir.Value, total: ir.Value) -> ir.Value:
        """Emit an i32 and the sum of the products of the signed bytes of two, where it `adds_bytes`."""
        raise NotImplementedError

    def add_short_pair(self, a: ir.Value, other: ir.Value) -> ir.Value:
        """Emit the sums of two vectors of two BF16 numbers, where it `adds_short_pairs`."""
        raise NotImplementedError

    def widened_e4m3(self, words: ir.Value) -> ir.Value:
        """Emit the E4M3 numbers that are the bytes of a vector of i32, in F16, where it `widens_e4m3`."""
        raise NotImplementedError

    def looked_up(self, table: Sequence[int], words: ir.Value) -> ir.Value:
        """Emit the bytes of a table of 16 at the places that the bytes of a vector of i32 are."""
        quarters = [b.constant(int.from_bytes(bytes(table[i : i + 4]), "little"), b.i32()) for i in range(0, 16, 4)]
        return b.vector_of([self._looked_up(quarters, b.lane_of(words, i)) for i in range(b.width_of(words))])

    def _looked_up(self, quarters: Sequence[ir.Value], word: ir.Value) -> ir.Value:
        """Of each half of the table the byte at the lower three bits of a place, and by the fourth one of the two."""
        places, upper = self._places(word)
        lower, higher = (self._picked(quarters[i], quarters[i + 1], places) for i in (0, 2))
        return self._picked(lower, higher, upper)

    def _places(self, word: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Emit, as `_picked` takes them, the lower three bits of each of a word's bytes; and the number of the byte, or
        four more than that where its fourth bit is set."""
        raise NotImplementedError

    def _picked(self, low: ir.Value, high: ir.Value, places: ir.Value) -> ir.Value:
        """Emit the bytes at such places of two words, the low one's first."""
        raise NotImplementedError

    def loads_started(self) -> None:
        """Emit what keeps loads ahead of it: else each may start when its number is wanted, and is waited for."""

    def worker_count(self) -> ir.Value:
        """Emit how many blocks the launch has along its first side."""
        extent = ir.Attribute.parse("#gpu<dim x>")
        return create_op("gpu.grid_dim", [], [ir.IndexType.get()], {"dimension": extent}).results[0]

    def cluster_barrier(self) -> None:
        """Emit a barrier of all threads of a cluster, which also makes shared memory visible."""
        raise NotImplementedError

    def cluster_leave(self) -> None:
        """Emit a barrier of all threads of a cluster that makes no memory visible, behind loads from it."""
        raise NotImplementedError

    def cluster_load(self, shared: ir.Value, index: Any, rank: Any, width: int = 1) -> ir.Value:
        """Emit a load of `width` neighbouring f32 from another block's shared memory."""
        raise NotImplementedError

    def attach_options(self) -> dict[str, Any]:
        """Options of `attach_pass`, where a program's own pipeline does not say otherwise."""
        return {}

    def convert_options(self) -> dict[str, Any]:
        """Options of `convert_pass` that a program's own pipeline cannot know."""
        return {}

    def binary_options(self) -> dict[str, Any]:
        """Options of gpu-module-to-binary; UserError where a tool is missing."""
        raise NotImplementedError

    def lowering(self) -> str:
        """The MLIR passes, as a textual pipeline on the module, from gpu.func to LLVM, and the target's attribute."""
        raise NotImplementedError

    def kernel_facts(self, module: ir.Module, kernel: str) -> dict[str, Any]:
        """Whether a kernel waits for the launch ahead of it by itself."""
        return {"early_launch": self.early_launch}

    def describe(self) -> str:
        tile = f"matrix tiles of {self.matrix.rows}x{self.matrix.columns}" if self.matrix else "no matrix instructions"
        if self.warpgroup:
            tile += f", of {self.warpgroup.rows} rows by warpgroups with {self.dynamic_shared_bytes // 1024} KiB"
        return f"subgroups of {self.subgroup}, {self.shared_bytes // 1024} KiB of shared memory, {tile}"
