"""A warp that executes PTX on numpy, lanes side by side: enough of the ISA for prefill's kernels.

After "Parallel Thread Execution ISA", section 9.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from emulated_cuda.matrix_ops import MatrixOps
from emulated_cuda.ptx import Kernel
from emulated_cuda.registers import LANES, bf16, bytes_of, names

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


class Warp(MatrixOps):
    def __init__(
        self,
        kernel: Kernel,
        memory: np.ndarray,
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
            elif name not in ("griddepcontrol", "fence") and taken.any():
                with np.errstate(all="ignore"):
                    self.execute(name, suffixes, instruction.operands, taken)

    def value(self, operand: str, kind: str) -> np.ndarray:
        """An operand's lanes as numbers of a PTX type."""
        if operand.startswith("0f"):
            bits = np.full(32, int(operand[2:], 16), np.uint64)
        elif re.match(r"-?\d", operand):
            bits = np.full(32, int(operand.rstrip("U"), 0) & (2**64 - 1), np.uint64)
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
            size = int(suffixes[-1][1:]) // len(names(to))
            for i, register in enumerate(names(to)):
                bits = self.value(source, "u64") >> np.uint64(i * size)
                self.write(register, bits & np.uint64(2**size - 1), lanes)
        elif source.startswith("{"):
            registers = names(source)
            size = int(suffixes[-1][1:]) // len(registers)
            values = [self.value(register, f"u{size}").astype(np.uint64) for register in registers]
            parts = [value << np.uint64(i * size) for i, value in enumerate(values)]
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
        elif to == "f32":
            self.write(operands[0], self.value(operands[1], source).astype(np.float32), lanes)
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
        memory = self.memory if is_global else self.shared
        places = addresses[:, None] - (GLOBAL_BASE if is_global else 0) + np.arange(size)
        assert places.min() >= 0 and places.max() < memory.size, "an access outside memory"
        return memory, places

    def op_ld(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        if "param" in suffixes:
            self.write(operands[0], np.full(32, self.arguments[operands[1].strip("[]")], np.uint64), lanes)
            return
        registers, size = names(operands[0]), int(suffixes[-1][1:]) // 8
        memory, places = self._bytes(self._where(operands[1])[lanes], size * len(registers))
        values = np.zeros((32, len(registers)), UNSIGNED[size * 8])
        values[lanes] = memory[places].view(UNSIGNED[size * 8])
        for i, register in enumerate(registers):
            self.write(register, values[:, i].copy(), lanes)

    def op_st(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        registers, size = names(operands[1]), int(suffixes[-1][1:]) // 8
        memory, places = self._bytes(self._where(operands[0])[lanes], size * len(registers))
        values = np.stack([self.value(n, f"u{size * 8}")[lanes] for n in registers], axis=1)
        memory[places] = np.ascontiguousarray(values).view(np.uint8)

    def op_prmt(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, c, selector = (self.value(o, "u32") for o in operands[1:])
        source = np.concatenate([bytes_of(a), bytes_of(c)], axis=1)
        chosen = [source[LANES, (selector >> np.uint32(4 * i) & np.uint32(7)).astype(np.int64)] for i in range(4)]
        self.write(operands[0], np.ascontiguousarray(np.stack(chosen, axis=1)).view(np.uint32)[:, 0], lanes)

    def rows_at(self, operand: str, count: int) -> np.ndarray:
        memory, places = self._bytes(self._where(operand)[:count], 16)
        return memory[places]
