"""Arithmetic, comparisons and conversions of PTX, on the registers of many threads at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from emulated_cuda.registers import SIGNED, UNSIGNED, bf16, bytes_of, names

from lispgpt.runtime.checkpoints.floats_of_8_bits import floats_of_8_bits

COMPARE = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.fmin, "max": np.fmax,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
UNARY = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "rsqrt": lambda x: np.reciprocal(np.sqrt(x)), "abs": np.abs, "neg": np.negative,
}  # fmt: skip
ROUNDINGS = {"rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc, "rni": np.rint}
WIDE = {"s16": np.int32, "u16": np.uint32, "s32": np.int64, "u32": np.uint64}


def of_registers(name: str) -> bool:
    """Whether an instruction touches registers only, each thread its own."""
    return name in BINARY or name in UNARY or hasattr(Operations, f"op_{name}")


def bf16_as_f32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f16_bits(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).view(np.uint16)


HALVES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "bf16": (bf16_as_f32, bf16),
    "f16": (lambda bits: bits.view(np.float16).astype(np.float32), f16_bits),
    "s16x2": (lambda bits: bits.view(np.int16), lambda numbers: numbers.astype(np.int16).view(np.uint16)),
    "u16x2": (lambda bits: bits, lambda numbers: numbers.astype(np.uint16)),
}
HALVES |= {f"{kind}x2": HALVES[kind] for kind in ("bf16", "f16")}
"""How numbers are made of 16 bits, and these of what is computed, by the type of an instruction."""


class Operations(ABC):
    """Instructions that touch registers only; width: how many threads' values there are, each for itself.  clock: goes
    on when it is read."""

    width: int
    clock = 0

    @abstractmethod
    def value(self, operand: str, kind: str, lanes: np.ndarray | None = None) -> np.ndarray: ...

    @abstractmethod
    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None: ...

    def execute(self, name: str, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        kind = suffixes[-1] if suffixes else ""
        handler = getattr(self, f"op_{name}", None)
        if kind in HALVES and (name in BINARY or name in UNARY or name == "fma"):
            self._of_halves(name, suffixes, operands, lanes)
        elif handler is not None:
            handler(suffixes, operands, lanes)
        elif name in BINARY:
            a, b = (self.value(o, kind) for o in operands[1:])
            found = BINARY[name](a, b).astype(a.dtype)
            if "NaN" in suffixes:
                found = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), found)
            self.write(operands[0], found, lanes)
        elif name in UNARY:
            value = self.value(operands[1], kind)
            self.write(operands[0], UNARY[name](value).astype(value.dtype), lanes)
        else:
            raise NotImplementedError(name + "." + ".".join(suffixes))

    def _of_halves(self, name: str, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """Arithmetic on a number of 16 bits, or on both of a register: of floats, rounded once."""
        compute = (BINARY | UNARY | {"fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32)})[name]
        words, found = [self.value(o, "u32") for o in operands[1:]], np.zeros(self.width, np.uint64)
        taken, given = HALVES[suffixes[-1]]
        for place in range(2 if suffixes[-1].endswith("x2") else 1):
            values = [taken((w >> np.uint32(16 * place)).astype(np.uint16)) for w in words]
            made = compute(*values)
            if "NaN" in suffixes:
                made = np.where(np.any([np.isnan(v) for v in values], axis=0), np.float32(np.nan), made)
            found |= given(made).astype(np.uint64) << np.uint64(16 * place)
        self.write(operands[0], found, lanes)

    def op_mul(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        kind = suffixes[-1]
        a, b = (self.value(o, kind) for o in operands[1:])
        if "wide" in suffixes:
            a, b = (v.astype(WIDE[kind]) for v in (a, b))
        if "hi" in suffixes:
            high = (a.astype(object) * b.astype(object)) >> (a.itemsize * 8)
            self.write(operands[0], high.astype(a.dtype), lanes)
        else:
            self.write(operands[0], a * b, lanes)

    def op_mad(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:3])
        c = self.value(operands[3], suffixes[-1])
        if suffixes[0] == "wide":
            a, b = (v.astype(WIDE[suffixes[-1]]) for v in (a, b))
            c = self.value(operands[3], f"{suffixes[-1][0]}{a.itemsize * 8}")
        self.write(operands[0], a * b + c, lanes)

    def op_dp4a(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """A word and four products of bytes, those of either operand as its type says."""
        kinds = [np.int8 if kind == "s32" else np.uint8 for kind in suffixes]
        sides = zip(operands[1:3], kinds, strict=True)
        a, b = (bytes_of(self.value(o, "u32")).view(kind).astype(np.int64) for o, kind in sides)
        total = self.value(operands[3], "s32").astype(np.int64) + (a * b).sum(axis=1)
        self.write(operands[0], total.astype(np.int32), lanes)

    def op_fma(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        kind = suffixes[-1]
        a, b, c = (self.value(o, kind).astype(np.float64) for o in operands[1:])  # an f64's product is rounded, too
        self.write(operands[0], (a * b + c).astype(_integer(kind)), lanes)

    def op_div(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:])
        if suffixes[-1] in ("f32", "f64"):
            self.write(operands[0], a / b, lanes)
            return
        wide = a.astype(np.float64) / np.where(b == 0, 1, b) if a.itemsize < 8 else None
        quotient = np.trunc(wide) if wide is not None else _divided(a, b)
        self.write(operands[0], np.asarray(quotient).astype(a.dtype), lanes)

    def op_rem(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:])
        self.write(operands[0], np.fmod(a, np.where(b == 0, b.dtype.type(1), b)), lanes)

    def op_copysign(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        sign, size = (self.value(o, suffixes[-1]) for o in operands[1:])
        self.write(operands[0], np.copysign(size, sign), lanes)

    def op_not(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        value = self.value(operands[1], suffixes[-1])
        self.write(operands[0], ~value, lanes)

    def op_popc(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], np.bitwise_count(self.value(operands[1], suffixes[-1])).astype(np.uint32), lanes)

    def op_shl(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, by = self.value(operands[1], suffixes[-1]), self.value(operands[2], "u32")
        shifted = a << by.astype(a.dtype)
        self.write(operands[0], np.where(by < a.itemsize * 8, shifted, a.dtype.type(0)), lanes)

    def op_shr(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, by = self.value(operands[1], suffixes[-1]), self.value(operands[2], "u32")
        by = np.minimum(by, a.itemsize * 8 - 1) if a.dtype.kind == "i" else by
        shifted = a >> by.astype(a.dtype)
        self.write(operands[0], np.where(by < a.itemsize * 8, shifted, a.dtype.type(0)), lanes)

    def op_shf(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """Two words shifted as one: the upper word to the left, the lower one to the right."""
        assert suffixes[1:] == ["wrap", "b32"], suffixes
        low, high, by = (self.value(o, "u32").astype(np.uint64) for o in operands[1:])
        whole, by = high << np.uint64(32) | low, by & np.uint64(31)
        found = (whole << by) >> np.uint64(32) if suffixes[0] == "l" else whole >> by
        self.write(operands[0], found.astype(np.uint32), lanes)

    def op_bfe(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a = self.value(operands[1], suffixes[-1])
        start, length = (self.value(o, "u32").astype(a.dtype) for o in operands[2:])
        one = a.dtype.type(1)
        field = (a >> start) & ((one << length) - one)
        if np.issubdtype(a.dtype, np.signedinteger):  # the field's first bit is its sign
            sign = (one << length) >> one
            field = (field ^ sign) - sign
        self.write(operands[0], field, lanes)

    def op_setp(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        if suffixes[-1] != "bf16x2":
            a, b = (self.value(o, suffixes[-1]) for o in operands[1:3])
            self.write(operands[0], compared(suffixes[0], a, b), lanes)
            return
        words = [self.value(o, "u32") for o in operands[1:3]]
        for place, register in enumerate(operands[0].split("|")):  # the lower half's, and the upper's
            a, b = ((w >> np.uint32(16 * place) << np.uint32(16)).view(np.float32) for w in words)
            self.write(register, compared(suffixes[0], a, b), lanes)

    def op_selp(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, b = (self.value(o, suffixes[-1]) for o in operands[1:3])
        self.write(operands[0], np.where(self.value(operands[3], "pred"), a, b), lanes)

    def op_mov(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        to, source = operands
        if source == "%clock":
            self.clock += 1000
            self.write(to, np.full(self.width, self.clock, np.uint64), lanes)
        elif suffixes[-1] == "b128":
            pairs = [names(o) if o.startswith("{") else names(self.halves(o)) for o in operands]
            for one, other in zip(*pairs, strict=True):
                self.write(one, self.value(other, "u64"), lanes)
        elif to.startswith("{"):
            size = int(suffixes[-1][1:]) // len(names(to))
            whole = self.value(source, "u64")
            for i, register in enumerate(names(to)):
                self.write(register, whole >> np.uint64(i * size) & np.uint64(2**size - 1), lanes)
        elif source.startswith("{"):
            registers = names(source)
            size = int(suffixes[-1][1:]) // len(registers)
            values = [self.value(register, f"u{size}").astype(np.uint64) for register in registers]
            parts = [value << np.uint64(i * size) for i, value in enumerate(values)]
            self.write(to, np.bitwise_or.reduce(parts), lanes)
        else:
            self.write(to, self.value(source, "u64"), lanes)

    @staticmethod
    def halves(register: str) -> str:
        """A register of 128 bits as two."""
        return f"{{{register}.low, {register}.high}}"

    def op_createpolicy(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], np.zeros(self.width, np.uint64), lanes)

    def op_cvta(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        self.write(operands[0], self.value(operands[1], "u64"), lanes)

    def op_cvt(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        to, source = suffixes[-2:]
        if to == "bf16x2":
            high, low = (bf16(self.value(o, "f32")).astype(np.uint64) for o in operands[1:])
            self.write(operands[0], high << np.uint64(16) | low, lanes)
        elif source == "e4m3x2":
            low, high = bytes_of(self.value(operands[1], "u32"))[:, :2].T
            halves = [floats_of_8_bits("f8e4m3")[half].astype(np.float16).view(np.uint16) for half in (high, low)]
            high, low = (half.astype(np.uint64) for half in halves)
            self.write(operands[0], high << np.uint64(16) | low, lanes)
        elif to == "f16x2":
            with np.errstate(over="ignore"):
                halves = [self.value(o, "f32").astype(np.float16).view(np.uint16) for o in operands[1:]]
            high, low = (half.astype(np.uint64) for half in halves)
            self.write(operands[0], high << np.uint64(16) | low, lanes)
        elif to == source == "bf16":
            bits = self.value(operands[1], "u16").astype(np.uint32) << np.uint32(16)
            self.write(operands[0], bf16(ROUNDINGS[suffixes[0]](bits.view(np.float32))), lanes)
        elif to == "bf16":
            self.write(operands[0], bf16(self.value(operands[1], source).astype(np.float32)), lanes)
        elif to == "f64":
            number = self._real(operands[1], source) if source[0] in "bf" else self.value(operands[1], source)
            number = ROUNDINGS[suffixes[0]](number) if source == to else number
            self.write(operands[0], number.astype(np.float64), lanes)
        elif to == "f32" and source == "f64":
            with np.errstate(over="ignore"):
                self.write(operands[0], self.value(operands[1], source).astype(np.float32), lanes)
        elif to == "f16":
            with np.errstate(over="ignore"):
                self.write(operands[0], self.value(operands[1], "f32").astype(np.float16).view(np.uint16), lanes)
        elif source in ("bf16", "f16", "f32", "f64"):
            number = self._real(operands[1], source)
            if to == "f32":
                self.write(operands[0], ROUNDINGS[suffixes[0]](number) if source == to else number, lanes)
                return
            round_ = {"rzi": np.trunc, "rni": np.rint}[suffixes[0]]
            limits = np.iinfo(_integer(to))
            whole = np.nan_to_num(round_(number.astype(np.float64)), nan=0.0)
            self.write(operands[0], np.clip(whole, limits.min, limits.max).astype(_integer(to)), lanes)
        else:
            found = self.value(operands[1], source).astype(_integer(to))
            self.write(operands[0], found.astype(np.int16) if to == "s8" else found, lanes)  # it fills its register

    def _real(self, operand: str, kind: str) -> np.ndarray:
        """An operand of 16 or 32 bits, as f32."""
        if kind == "bf16":
            return (self.value(operand, "u16").astype(np.uint32) << np.uint32(16)).view(np.float32)
        if kind == "f16":
            return self.value(operand, "u16").view(np.float16).astype(np.float32)
        return self.value(operand, kind)

    def op_lop3(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """Any function of a bit of each: the last operand has a bit for each of their values."""
        bits, found = [self.value(o, "u32") for o in operands[1:4]], np.zeros(self.width, np.uint32)
        for value in (v for v in range(8) if int(operands[4], 0) >> v & 1):
            here = [x if value >> place & 1 else ~x for place, x in zip((2, 1, 0), bits, strict=True)]
            found |= here[0] & here[1] & here[2]
        self.write(operands[0], found, lanes)

    def op_prmt(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        a, c, selector = (self.value(o, "u32") for o in operands[1:])
        source = np.concatenate([bytes_of(a), bytes_of(c)], axis=1)
        every = np.arange(self.width)
        fields = self._byte_numbers(suffixes, selector)
        chosen = [source[every, (field & np.uint32(7)).astype(np.int64)] for field in fields]
        signs = [np.where(byte >> np.uint8(7), np.uint8(255), np.uint8(0)) for byte in chosen]
        chosen = [np.where(f >> np.uint32(3), s, byte) for f, s, byte in zip(fields, signs, chosen, strict=True)]
        self.write(operands[0], np.ascontiguousarray(np.stack(chosen, axis=1)).view(np.uint32)[:, 0], lanes)

    @staticmethod
    def _byte_numbers(suffixes: list[str], selector: np.ndarray) -> list[np.ndarray]:
        """For each byte of a result its number in both operands: as the selector says, or four in a row from it on,
        forward or backward."""
        if suffixes == ["b32"]:
            return [selector >> np.uint32(4 * i) & np.uint32(15) for i in range(4)]
        (step,) = [{"f4e": 1, "b4e": -1}[mode] for mode in suffixes[1:]]
        return [((selector & 3).astype(np.int64) + step * i).astype(np.uint32) & np.uint32(7) for i in range(4)]


def compared(relation: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A comparison; the unordered ones of floats end in u, and num and nan ask whether there is a NaN."""
    if a.dtype.kind != "f":
        return COMPARE[relation](a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if relation in ("num", "nan"):
        return unordered == (relation == "nan")
    found = COMPARE[relation[:2]](a, b)
    return found | unordered if relation.endswith("u") else found & ~unordered


def _integer(kind: str) -> type:
    if kind in ("f32", "f64"):
        return np.float32 if kind == "f32" else np.float64
    return (SIGNED if kind[0] == "s" else UNSIGNED)[int(kind[1:])]


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """64-bit quotients, toward zero."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    return quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
