"""PTX on numpy: enough of the ISA for prefill's kernels, a warp at a time, lanes side by side.

After "Parallel Thread Execution ISA": section 9.7 for instructions, 9.7.14 for matrix fragments.  bf16 results of
matrix instructions are summed in f32, k by k.  Registers hold bits, 64 for every width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

LANES = np.arange(32)
GLOBAL_BASE = 1 << 20
"""Where global memory starts; what is below it is shared."""

FLOATS = {"f32": (np.uint32, np.float32)}
SIGNED = {16: np.int16, 32: np.int32, 64: np.int64}
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.fmin, "max": np.fmax,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    predicate: str
    negated: bool
    op: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    parameters: tuple[str, ...]
    threads: int
    shared: dict[str, int]
    shared_bytes: int
    body: tuple[Instruction, ...]
    labels: dict[str, int]


def parse(text: str, name: str) -> Kernel:
    """The entry `name` of a module's PTX."""
    match = re.search(rf"\.entry {name}\((.*?)\)(.*?)\n\{{\n(.*?)\n\}}", text, re.DOTALL)
    assert match is not None, name
    parameters = tuple(re.findall(r"(\w+)[,\s]*$", match[1], re.MULTILINE))
    shared, size, body, labels = {}, 0, [], {}
    for statement in re.sub(r"//.*", "", match[3]).split(";"):
        *before, statement = re.split(r"(\$\w+):\s*", statement.strip())
        labels |= {label: len(body) for label in before if label}
        if found := re.match(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", statement):
            size = -(-size // int(found[1])) * int(found[1])
            shared[found[2]] = size
            size += int(found[3])
        elif found := re.match(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*)", statement, re.DOTALL):
            operands = tuple(o.strip() for o in re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s{[][^,]*", found[4]))
            body.append(Instruction(found[2] or "", found[1] == "!", found[3], operands))
    threads = int(re.search(r"\.maxntid (\d+)", match[2])[1])  # type: ignore[index]
    return Kernel(parameters, threads, shared, size, tuple(body), labels)


class Memory:
    """Global memory: arrays one after the other, each between guards; all that is not an array's is 0xA5."""

    def __init__(self, arrays: Sequence[np.ndarray], guard: int = 256) -> None:
        self.addresses, end = [], GLOBAL_BASE + guard
        for array in arrays:
            self.addresses.append(end)
            end += -(-array.nbytes // 256) * 256 + guard
        self.bytes = np.full(end - GLOBAL_BASE, 0xA5, np.uint8)
        self.free = np.ones(self.bytes.size, bool)
        for array, address in zip(arrays, self.addresses, strict=True):
            at = address - GLOBAL_BASE
            self.bytes[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
            self.free[at : at + array.nbytes] = False

    def read(self, number: int, like: np.ndarray) -> np.ndarray:
        at = self.addresses[number] - GLOBAL_BASE
        return self.bytes[at : at + like.nbytes].view(like.dtype).reshape(like.shape)

    def broken(self) -> int:
        return int((self.bytes[self.free] != 0xA5).sum())


def launch(kernel: Kernel, memory: Memory, arguments: Sequence[int], grid: Sequence[int]) -> None:
    """Run every block, one after the other."""
    for z, y, x in np.ndindex(*reversed(tuple(grid))):
        shared = np.full(max(kernel.shared_bytes, 1), 0xFF, np.uint8)
        block = {"%ctaid.x": x, "%ctaid.y": y, "%ctaid.z": z}
        warps = [Warp(kernel, memory, shared, arguments, block, n) for n in range(kernel.threads // 32)]
        run_block(warps)


def run_block(warps: list[Warp]) -> None:
    """Warps run to their next barrier in turn; a barrier opens when as many threads wait at it as it counts."""
    running = {warp: warp.run() for warp in warps}
    waiting: dict[Warp, tuple[int, int]] = {}
    while running:
        for warp, steps in list(running.items()):
            if warp not in waiting:
                barrier = next(steps, None)
                if barrier is None:
                    del running[warp]
                else:
                    waiting[warp] = barrier
        for barrier in set(waiting.values()):
            here = [warp for warp, other in waiting.items() if other == barrier]
            if len(here) * 32 == barrier[1]:
                for warp in here:
                    del waiting[warp]
        assert len(waiting) < len(running) or not running, f"deadlock at barriers {set(waiting.values())}"


class Warp:
    def __init__(
        self,
        kernel: Kernel,
        memory: Memory,
        shared: np.ndarray,
        arguments: Sequence[int],
        block: dict[str, int],
        number: int,
    ) -> None:
        self.kernel, self.memory, self.shared = kernel, memory, shared
        self.registers: dict[str, np.ndarray] = {"%tid.x": (LANES + 32 * number).astype(np.uint64)}
        for name, value in {**block, **kernel.shared}.items():
            self.registers[name] = np.full(32, value, np.uint64)
        self.arguments = dict(zip(kernel.parameters, arguments, strict=True))
        self.threads = kernel.threads

    def run(self) -> Iterator[tuple[int, int]]:
        """Execute; yields (barrier, threads) at each barrier.  Lanes that are furthest behind go first."""
        body, labels = self.kernel.body, self.kernel.labels
        at = np.zeros(32, np.int64)
        while (at < len(body)).any():
            here = int(at.min())
            lanes = at == here
            instruction = body[here]
            taken = lanes
            if instruction.predicate:
                taken = lanes & ((self.registers[instruction.predicate] != 0) != instruction.negated)
            name, *suffixes = instruction.op.split(".")
            at[lanes] += 1
            if name == "bra":
                at[taken] = labels[instruction.operands[0]]
            elif name == "ret":
                at[taken] = len(body)
            elif name in ("bar", "barrier"):
                assert lanes.all(), "a barrier that some lanes do not reach"
                numbers = [int(self.value(o, "u32")[0]) for o in instruction.operands]
                yield numbers[0], numbers[1] if len(numbers) > 1 else self.threads
            elif name != "griddepcontrol" and taken.any():
                with np.errstate(all="ignore"):
                    self.execute(name, suffixes, instruction.operands, taken)

    def value(self, operand: str, kind: str) -> np.ndarray:
        """An operand's lanes as numbers of a PTX type."""
        if operand.startswith("0f"):
            bits = np.full(32, int(operand[2:], 16), np.uint64)
        elif re.match(r"-?\d", operand):
            bits = np.full(32, int(operand, 0) & (2**64 - 1), np.uint64)
        else:
            bits = self.registers[operand]
        if kind == "pred":
            return bits != 0
        if kind in FLOATS:
            return bits.astype(np.uint32).view(np.float32)
        size = int(kind[1:])
        return bits.astype(UNSIGNED[size]).view((SIGNED if kind[0] == "s" else UNSIGNED)[size])

    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        bits = values.view(UNSIGNED[values.itemsize * 8]) if values.dtype != bool else values
        old = self.registers.setdefault(register, np.zeros(32, np.uint64)).copy()
        old[lanes] = bits.astype(np.uint64)[lanes]
        self.registers[register] = old

    def execute(self, name: str, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        kind = suffixes[-1] if suffixes else ""
        handler = getattr(self, f"op_{name}", None)
        if handler is not None:
            handler(suffixes, operands, lanes)
        elif name in BINARY and suffixes[0] != "wide":
            a, b = (self.value(o, kind) for o in operands[1:])
            self.write(operands[0], BINARY[name](a, b).astype(a.dtype), lanes)
        else:
            raise NotImplementedError(name + "." + ".".join(suffixes))

    def op_mul(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:])
        wide = {np.dtype(np.int32): np.int64, np.dtype(np.uint32): np.uint64, np.dtype(np.uint16): np.uint32}
        if suffixes[0] == "wide":
            a, b = (v.astype(wide[v.dtype]) for v in (a, b))
        if suffixes[0] == "hi":
            size = a.itemsize * 8
            high = [(int(x) * int(y)) >> size for x, y in zip(a, b, strict=True)]
            self.write(operands[0], np.array(high, a.dtype), lanes)
        else:
            self.write(operands[0], a * b, lanes)

    def op_mad(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        assert suffixes[0] == "lo"
        a, b, c = (self.value(o, suffixes[-1]) for o in operands[1:])
        self.write(operands[0], a * b + c, lanes)

    def op_fma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b, c = (self.value(o, "f32").astype(np.float64) for o in operands[1:])
        self.write(operands[0], (a * b + c).astype(np.float32), lanes)

    def op_ex2(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], np.exp2(self.value(operands[1], "f32")), lanes)

    def op_rcp(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], np.float32(1) / self.value(operands[1], "f32"), lanes)

    def op_neg(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], -self.value(operands[1], suffixes[-1]), lanes)

    def op_shl(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a = self.value(operands[1], suffixes[-1])
        self.write(operands[0], a << self.value(operands[2], "u32").astype(a.dtype), lanes)

    def op_shr(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a = self.value(operands[1], suffixes[-1])
        self.write(operands[0], a >> self.value(operands[2], "u32").astype(a.dtype), lanes)

    def op_bfe(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a = self.value(operands[1], suffixes[-1])
        start, length = (self.value(o, "u32").astype(a.dtype) for o in operands[2:])
        one = a.dtype.type(1)
        self.write(operands[0], (a >> start) & ((one << length) - one), lanes)

    def op_setp(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:])
        self.write(operands[0], COMPARE[suffixes[0]](a, b), lanes)

    def op_selp(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:3])
        self.write(operands[0], np.where(self.value(operands[3], "pred"), a, b), lanes)

    def op_mov(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        to, source = operands
        if to.startswith("{"):
            size = int(suffixes[-1][1:]) // len(_names(to))
            for i, register in enumerate(_names(to)):
                bits = self.value(source, "u64") >> np.uint64(i * size)
                self.write(register, bits & np.uint64(2**size - 1), lanes)
        elif source.startswith("{"):
            names = _names(source)
            size = int(suffixes[-1][1:]) // len(names)
            parts = [self.value(n, f"u{size}").astype(np.uint64) << np.uint64(i * size) for i, n in enumerate(names)]
            self.write(to, np.bitwise_or.reduce(parts), lanes)
        else:
            self.write(to, self.value(source, "u64"), lanes)

    def op_cvta(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], self.value(operands[1], "u64"), lanes)

    def op_cvt(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        to, source = suffixes[-2:]
        if to == "bf16x2":
            high, low = (bf16(self.value(o, "f32")).astype(np.uint64) for o in operands[1:])
            self.write(operands[0], high << np.uint64(16) | low, lanes)
        elif to == "bf16":
            self.write(operands[0], bf16(self.value(operands[1], "f32")), lanes)
        elif source == "bf16":
            bits = self.value(operands[1], "u16").astype(np.uint32) << np.uint32(16)
            self.write(operands[0], bits.view(np.float32), lanes)
        else:
            value = self.value(operands[1], source)
            size = int(to[1:])
            self.write(operands[0], value.astype((SIGNED if to[0] == "s" else UNSIGNED)[size]), lanes)

    def op_shfl(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        assert suffixes[:2] == ["sync", "bfly"] and lanes.all()
        other = LANES ^ self.value(operands[2], "u32").astype(np.int64)
        self.write(operands[0].split("|")[0], self.value(operands[1], "u32")[other], lanes)

    def _where(self, operand: str) -> np.ndarray:
        base, _, offset = operand.strip("[]").partition("+")
        return self.value(base, "u64").astype(np.int64) + int(offset or 0)

    def _bytes(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The memory that addresses lie in, and the places of `size` bytes from each."""
        assert (addresses % size == 0).all(), "a misaligned access"
        is_global = addresses[0] >= GLOBAL_BASE
        memory = self.memory.bytes if is_global else self.shared
        places = addresses[:, None] - (GLOBAL_BASE if is_global else 0) + np.arange(size)
        assert places.min() >= 0 and places.max() < memory.size, "an access outside memory"
        return memory, places

    def op_ld(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        if "param" in suffixes:
            self.write(operands[0], np.full(32, self.arguments[operands[1].strip("[]")], np.uint64), lanes)
            return
        names, size = _names(operands[0]), int(suffixes[-1][1:]) // 8
        memory, places = self._bytes(self._where(operands[1])[lanes], size * len(names))
        values = np.zeros((32, len(names)), UNSIGNED[size * 8])
        values[lanes] = memory[places].view(UNSIGNED[size * 8])
        for i, register in enumerate(names):
            self.write(register, values[:, i].copy(), lanes)

    def op_st(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        names, size = _names(operands[1]), int(suffixes[-1][1:]) // 8
        memory, places = self._bytes(self._where(operands[0])[lanes], size * len(names))
        values = np.stack([self.value(n, f"u{size * 8}")[lanes] for n in names], axis=1)
        memory[places] = np.ascontiguousarray(values).view(np.uint8)

    def op_ldmatrix(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.15: lane 8 i + r names row r of matrix i; lane l gets two elements of its row (or column) l / 4."""
        assert lanes.all() and "m8n8" in suffixes
        names = _names(operands[0])
        memory, places = self._bytes(self._where(operands[1])[: 8 * len(names)], 16)
        matrices = memory[places].view(np.uint16).reshape(len(names), 8, 8)
        for matrix, register in zip(matrices, names, strict=True):
            own = (matrix.T if "trans" in suffixes else matrix).reshape(32, 2).astype(np.uint64)
            self.write(register, own[:, 0] | own[:, 1] << np.uint64(16), lanes)

    def op_mma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.14.5.8: fragments of m16n8k16."""
        assert lanes.all() and "m16n8k16" in suffixes and suffixes[-3:] == ["bf16", "bf16", "f32"]
        group, inner = LANES // 4, LANES % 4
        a, b, c = np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float32), np.zeros((16, 8), np.float32)
        for i, register in enumerate(_names(operands[1])):
            for half, values in enumerate(_halves(self.value(register, "u32"))):
                a[group + 8 * (i % 2), 2 * inner + half + 8 * (i // 2)] = values
        for i, register in enumerate(_names(operands[2])):
            for half, values in enumerate(_halves(self.value(register, "u32"))):
                b[2 * inner + half + 8 * i, group] = values
        places = [(group + 8 * (i // 2), 2 * inner + i % 2) for i in range(4)]
        for place, register in zip(places, _names(operands[3]), strict=True):
            c[place] = self.value(register, "f32")
        total = a @ b + c
        for place, register in zip(places, _names(operands[0]), strict=True):
            self.write(register, total[place], lanes)


def _names(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{}").split(",")]


def bf16(values: np.ndarray) -> np.ndarray:
    """To the nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(values), np.uint64(0x7FFF), rounded).astype(np.uint16)


def _halves(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two bf16 numbers of each 32-bit word, the low one first."""
    return (words << np.uint32(16)).view(np.float32), (words & np.uint32(0xFFFF0000)).view(np.float32)
