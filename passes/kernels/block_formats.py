"""What the bytes of a block are: which bits a number's are, what it stands for, and what scales it.

The formats are those of lib/blocks.lisp, which says it in Lisp; here they are read a vector of numbers at a time by
CPUs, and a few words at a time by the lanes of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.team import tree

PART = 32
"""Numbers that share a scale in most formats."""

K_BLOCK = 256
"""Numbers in a block whose parts have scales that share one."""

Load = Callable[[Index, int], ir.Value]
"""Bytes of a block from one on, so many: as a vector of bytes for CPUs, and of i32, or one of i16, for GPUs."""

Both = tuple[ir.Value, ir.Value | None]
"""A scale, and what a number has less."""


@dataclass(frozen=True)
class Bits:
    """Some bits of each number of a block.

    first: the byte where they start.  count: how many a number has.  reach: how many bytes have neighbours' at the same
    place, the next place of these being that of the next as many.
    """

    first: int
    count: int = 8
    reach: int = 1

    @property
    def places(self) -> int:
        """How many numbers' are in a byte."""
        return 8 // self.count

    def byte_of(self, k: Index) -> Index:
        """The byte with those of a block's k-th number."""
        if self.places > 1:
            k = b.add(b.mul(b.div(k, self.places * self.reach), self.reach), b.mod(k, self.reach))
        return b.add(self.first, k)

    def place_of(self, k: Index) -> Index:
        """Where in a byte they are."""
        return b.mul(b.mod(b.div(k, self.reach), self.places), self.count)

    def taken(self, words: ir.Value, k: Index) -> ir.Value:
        """A vector of i32, each byte of which has those of one number, the first of which is the k-th."""
        if self.places == 1:
            return words
        shift = b.splat(narrow(self.place_of(k)), b.width_of(words))
        words = b.binary("arith.shrui", words, shift)
        return b.binary("arith.andi", words, b.constant(0x01010101 * self._mask, words.type))

    def read(self, loads: Sequence[Load], start: int, count: int) -> ir.Value:
        """A vector of so many bytes with those of one number each: of each of these blocks from one number on, those
        at one place in a byte after those at the one before."""
        each = min(count, self.reach)
        pieces = [(load, k) for load in loads for k in range(start, start + count, each)]
        known: dict[tuple[int, Index], ir.Value] = {}

        def loaded(load: Load, k: int) -> ir.Value:
            at = (id(load), self.byte_of(k))
            if at not in known:
                known[at] = load(at[1], each)
            return known[at]

        places = [self.place_of(k) for _, k in pieces]
        by_place = {p: [loaded(*one) for one, at in zip(pieces, places, strict=True) if at == p] for p in places}
        return b.joined([self._at(place, b.joined(values)) for place, values in sorted(by_place.items())])

    @property
    def _mask(self) -> int:
        return (1 << self.count) - 1

    def _at(self, place: int, values: ir.Value) -> ir.Value:
        if place:
            values = b.binary("arith.shrui", values, b.constant(place, values.type))
        last = place + self.count == 8
        return values if last else b.binary("arith.andi", values, b.constant(self._mask, values.type))


@dataclass(frozen=True)
class Scales:
    """What a block's numbers are multiplied by.  part: how many share it; 0 for all of a block.

    least: whether something is taken away from them.  words: how many of i32 a lane loads of it.  alike: whether these
    are the same for all of a block's numbers.
    """

    part: int = 0
    least: bool = False
    words: int = 1
    alike: ClassVar[bool] = True

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        """What a lane loads to scale the k-th number."""
        raise NotImplementedError

    def head(self, loads: Sequence[ir.Value]) -> ir.Value:
        """That as one vector."""
        (found,) = loads
        return found

    def scale(self, head: ir.Value, k: Index) -> Both:
        """That of the k-th number."""
        raise NotImplementedError

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        """Those of some blocks, of all their parts, in f32."""
        raise NotImplementedError

    def minima(self, load: Load) -> ir.Value | None:
        """What a block's parts have less, each, in f32."""
        return None


@dataclass(frozen=True)
class OneScale(Scales):
    """One for a block, ahead of its numbers.  size: its bytes.  times: what it is multiplied by first."""

    size: int = 2
    times: float = 1.0

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        return [load(0, self.size)]

    def scale(self, head: ir.Value, k: Index) -> Both:
        found = b.extend(b.emit("arith.bitcast", [b.lane_of(head, 0)], [self._type]))
        return found if self.times == 1 else b.binary("arith.mulf", found, b.constant(self.times, b.f32())), None

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        """Halves go from a register of 64 bits to vectors four at a time, since vectors' ports have the most to do."""
        if self.size == 4:
            return b.vector_of([word_of(load(0, 4), b.f32()) for load in loads])
        i64, halves = b.i64(), [word_of(load(0, 2), b.integer(16)) for load in loads]
        if len(halves) % 4:
            scales = b.vector_of([b.emit("arith.bitcast", [half], [ir.F16Type.get()]) for half in halves])
            return b.extend(scales)
        words = []
        for start in range(0, len(halves), 4):
            wide = [b.emit("arith.extui", [half], [i64]) for half in halves[start : start + 4]]
            moved = [b.binary("arith.shli", v, b.constant(16 * i, i64)) if i else v for i, v in enumerate(wide)]
            words.append(tree("arith.ori", moved))
        pairs = b.emit("vector.bitcast", [elements(words)], [ir.VectorType.get([len(halves)], ir.F16Type.get())])
        return b.extend(pairs)

    @property
    def _type(self) -> ir.Type:
        return b.f32() if self.size == 4 else ir.F16Type.get()


@dataclass(frozen=True)
class PowerScale(Scales):
    """Half a power of two for a block, ahead of its numbers: the exponent, of which 127 are subtracted, in a byte."""

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        return [load(0, 1)]

    def scale(self, head: ir.Value, k: Index) -> Both:
        return self._half(b.lane_of(head, 0)), None

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        return b.vector_of([self._half(b.lane_of(load(0, 1), 0)) for load in loads])

    @staticmethod
    def _half(exponent: ir.Value) -> ir.Value:
        """Of the two least ones the number is below those that have an exponent of f32."""
        place = b.emit("arith.extui", [exponent], [b.i32()])
        usual = b.binary("arith.shli", b.binary("arith.subi", place, b.constant(1, b.i32())), b.constant(23, b.i32()))
        small = b.binary("arith.shli", b.constant(1 << 21, b.i32()), masked(place, 0, 1))
        return b.emit("arith.bitcast", [b.select(b.less(place, b.constant(2, b.i32())), small, usual)], [b.f32()])


@dataclass(frozen=True)
class SixBitScales(Scales):
    """Of eight parts a scale and a minimum: six bits each, times an f16 that all of them share.

    Of the first four parts' they are in four bytes each; of the others', the lower four bits of both are in a byte and
    the upper two above the first parts'.
    """

    part: int = PART
    least: bool = True
    words: int = 4

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        return [load(0, 16)]

    def scale(self, head: ir.Value, k: Index) -> Both:
        part = b.mod(b.div(k, PART), 8)
        place, early = narrow(b.mul(b.mod(part, 4), 8)), b.less(part, 4)
        scales, minima, late = (b.binary("arith.shrui", b.lane_of(head, 1 + i), place) for i in range(3))

        def six(first: ir.Value, shift: int) -> ir.Value:
            upper = masked(first, 2, 0x30)
            number = b.select(early, masked(first, 0, 0x3F), b.binary("arith.ori", masked(late, shift, 0x0F), upper))
            return b.emit("arith.uitofp", [number], [b.f32()])

        halves = b.emit("vector.bitcast", [head], [ir.VectorType.get([8], ir.F16Type.get())])
        scale, least = (b.extend(b.lane_of(halves, i)) for i in range(2))
        return b.binary("arith.mulf", scale, six(scales, 0)), b.binary("arith.mulf", least, six(minima, 4))

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        return self._both(loads[0])[0]

    def minima(self, load: Load) -> ir.Value:
        return self._both(load)[1]

    @staticmethod
    def _both(load: Load) -> tuple[ir.Value, ir.Value]:
        i32 = b.i32()
        early, minima, late = (word_of(load(4 + 4 * i, 4), i32) for i in range(3))

        def joint(first: ir.Value, shift: int) -> ir.Value:
            upper = masked(first, 2, 0x30303030)
            last = b.binary("arith.ori", masked(late, shift, 0x0F0F0F0F), upper)
            words = b.vector_of([masked(first, 0, 0x3F3F3F3F), last])
            sixes = b.emit("vector.bitcast", [words], [ir.VectorType.get([8], b.integer(8))])
            return b.emit("arith.uitofp", [sixes], [ir.VectorType.get([8], b.f32())])

        shared = b.emit("vector.bitcast", [load(0, 4)], [ir.VectorType.get([2], ir.F16Type.get())])
        scale, least = (b.splat(b.lane_of(b.extend(shared), i), 8) for i in range(2))
        return b.binary("arith.mulf", joint(early, 0), scale), b.binary("arith.mulf", joint(minima, 4), least)


@dataclass(frozen=True)
class ByteScales(Scales):
    """Of parts of 16 a signed byte each, times an f16 that all of them share and that is behind them.

    first: the byte where they start.
    """

    part: int = 16
    first: int = 0
    alike: ClassVar[bool] = False

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        pair = b.mod(b.div(k, 2 * self.part), K_BLOCK // (2 * self.part))
        return [load(b.add(self.first, b.mul(pair, 2)), 2), load(self._last, 2)]

    def head(self, loads: Sequence[ir.Value]) -> ir.Value:
        joined = elements([b.lane_of(half, 0) for half in loads])
        return b.emit("vector.bitcast", [joined], [ir.VectorType.get([1], b.i32())])

    def scale(self, head: ir.Value, k: Index) -> Both:
        word, odd = b.lane_of(head, 0), b.mod(b.div(k, self.part), 2)
        up = b.binary("arith.shli", word, narrow(b.sub(24, b.mul(odd, 8))))
        byte = b.emit("arith.sitofp", [b.binary("arith.shrsi", up, b.constant(24, b.i32()))], [b.f32()])
        halves = b.emit("vector.bitcast", [head], [ir.VectorType.get([2], ir.F16Type.get())])
        return b.binary("arith.mulf", b.extend(b.lane_of(halves, 1)), byte), None

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        count = K_BLOCK // self.part
        numbers = b.emit("arith.sitofp", [loads[0](self.first, count)], [ir.VectorType.get([count], b.f32())])
        shared = b.extend(word_of(loads[0](self._last, 2), ir.F16Type.get()))
        return b.binary("arith.mulf", numbers, b.splat(shared, count))

    @property
    def _last(self) -> int:
        return self.first + K_BLOCK // self.part


@dataclass(frozen=True)
class MixedScales(Scales):
    """Of parts of 16 a signed byte each, from byte 12 on, and of parts of 32 a minimum, from byte 4 on, each times an
    f16 that all of them share: the first two."""

    part: int = 16
    least: bool = True
    words: int = 2
    alike: ClassVar[bool] = False

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        scales = load(b.add(12, b.mul(b.mod(b.div(k, 32), 8), 2)), 2)
        minima = load(b.add(4, b.mul(b.mod(b.div(k, 64), 4), 2)), 2)
        return [scales, minima, load(0, 4)]

    def head(self, loads: Sequence[ir.Value]) -> ir.Value:
        scales, minima, shared = loads
        pairs = elements([b.lane_of(scales, 0), b.lane_of(minima, 0)])
        pairs = b.emit("vector.bitcast", [pairs], [ir.VectorType.get([1], b.i32())])
        return elements([b.lane_of(shared, 0), b.lane_of(pairs, 0)])

    def scale(self, head: ir.Value, k: Index) -> Both:
        bytes_ = b.lane_of(head, 1)
        up = b.binary("arith.shli", bytes_, narrow(b.sub(24, b.mul(b.mod(b.div(k, 16), 2), 8))))
        scale = b.emit("arith.sitofp", [b.binary("arith.shrsi", up, b.constant(24, b.i32()))], [b.f32()])
        place = narrow(b.add(16, b.mul(b.mod(b.div(k, 32), 2), 8)))
        least = b.emit("arith.uitofp", [masked(b.binary("arith.shrui", bytes_, place), 0, 255)], [b.f32()])
        halves = b.emit("vector.bitcast", [head], [ir.VectorType.get([4], ir.F16Type.get())])
        shared = [b.extend(b.lane_of(halves, i)) for i in range(2)]
        return b.binary("arith.mulf", shared[0], scale), b.binary("arith.mulf", shared[1], least)

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        numbers = b.emit("arith.sitofp", [loads[0](12, 16)], [ir.VectorType.get([16], b.f32())])
        return b.binary("arith.mulf", numbers, b.splat(b.extend(word_of(loads[0](0, 2), ir.F16Type.get())), 16))

    def minima(self, load: Load) -> ir.Value:
        numbers = b.emit("arith.uitofp", [load(4, 8)], [ir.VectorType.get([8], b.f32())])
        return b.binary("arith.mulf", numbers, b.splat(b.extend(word_of(load(2, 2), ir.F16Type.get())), 8))


@dataclass(frozen=True)
class SplitScales(Scales):
    """Of eight parts six bits each, of which 32 are subtracted, times an f16 that all of them share and that stands
    first: behind it two bytes have the upper two bits, and four have the lower four."""

    part: int = PART
    words: int = 2

    def loads(self, load: Load, k: Index) -> list[ir.Value]:
        return [load(0, 8)]

    def scale(self, head: ir.Value, k: Index) -> Both:
        part = b.mod(b.div(k, PART), 8)
        place = narrow(b.mul(part, 2))
        lower = masked(b.binary("arith.shrui", b.lane_of(head, 1), narrow(b.mul(part, 4))), 0, 15)
        upper = masked(b.binary("arith.shrui", masked(b.lane_of(head, 0), 16, 0xFFFF), place), 0, 3)
        halves = b.emit("vector.bitcast", [head], [ir.VectorType.get([4], ir.F16Type.get())])
        return b.binary("arith.mulf", b.extend(b.lane_of(halves, 0)), self._real(lower, upper)), None

    def of_blocks(self, loads: Sequence[Load]) -> ir.Value:
        first, later = (b.splat(word_of(loads[0](4 * i, 4), b.i32()), 8) for i in range(2))
        parts = [
            b.binary("arith.shrui", word, b.vector_of([b.constant(at + each * i, b.i32()) for i in range(8)]))
            for word, at, each in ((later, 0, 4), (first, 16, 2))
        ]
        lower, upper = (
            b.binary("arith.andi", v, b.constant(mask, v.type)) for v, mask in zip(parts, (15, 3), strict=True)
        )
        shared = b.extend(word_of(loads[0](0, 2), ir.F16Type.get()))
        return b.binary("arith.mulf", b.splat(shared, 8), self._real(lower, upper))

    @staticmethod
    def _real(lower: ir.Value, upper: ir.Value) -> ir.Value:
        number = b.binary("arith.ori", lower, b.binary("arith.shli", upper, b.constant(4, upper.type)))
        number = b.binary("arith.subi", number, b.constant(32, number.type))
        real = b.f32() if not isinstance(number.type, ir.VectorType) else b.with_width(b.f32(), b.width_of(number))
        return b.emit("arith.sitofp", [number], [real])


@dataclass(frozen=True)
class Format:
    """bits: of its numbers, the lowest first.  signed: whether a byte is a number with a sign; otherwise numbers have
    none.  least: what a number of 0 stands for.  values: what numbers stand for, each less `least`, where they are
    places in a table."""

    bits: tuple[Bits, ...]
    scales: Scales
    signed: bool = False
    least: int = 0
    values: tuple[int, ...] = ()

    def numbers(self, words: ir.Value, k: Index) -> ir.Value:
        """From the words of all bits, those with the lowest first, a vector of i32 whose bytes are one number each."""
        count = b.width_of(words) // len(self.bits)
        found, shift = None, 0
        for i, bits in enumerate(self.bits):
            own = words if len(self.bits) == 1 else b.shuffled(words, words, range(i * count, (i + 1) * count))
            value = bits.taken(own, k)
            if found is not None:
                value = b.binary("arith.ori", found, b.binary("arith.shli", value, b.constant(shift, value.type)))
            found, shift = value, shift + bits.count
        assert found is not None
        return found

    def read(self, loads: Sequence[Load], start: int, count: int) -> ir.Value:
        """A vector of bytes that are one number each: so many of each of these blocks from one on, in the order that
        `Bits.read` gives those of the lowest."""
        if self.signed:
            return b.joined([load(b.add(self.bits[0].first, start), count) for load in loads])
        found, shift = self.bits[0].read(loads, start, count), self.bits[0].count
        for bits in self.bits[1:]:
            more = bits.read(loads, start, count)
            found = b.binary("arith.ori", found, b.binary("arith.shli", more, b.constant(shift, more.type)))
            shift += bits.count
        return found


EXCESS = 256.0
"""How many times the f16 with E4M3's bits for exponent and mantissa an E4M3 number is: its exponents lack 8."""

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice what floats of 4 bits are."""

FORMATS = {
    "q8_0": Format((Bits(2),), OneScale(), signed=True, least=-128),
    "int8": Format((Bits(4),), OneScale(size=4), signed=True, least=-128),
    "fp8": Format((Bits(4),), OneScale(size=4, times=EXCESS), signed=True, least=-128),
    "q4_0": Format((Bits(2, 4, 16),), OneScale(), least=-8),
    "q4_k": Format((Bits(16, 4, 32),), SixBitScales()),
    "q5_k": Format((Bits(48, 4, 32), Bits(16, 1, 32)), SixBitScales()),
    "q6_k": Format((Bits(0, 4, 64), Bits(128, 2, 32)), ByteScales(first=192), least=-32),
    "k_mix": Format((Bits(28, 4, 64), Bits(156, 2, 32)), MixedScales(), least=-32),
    "mxfp4": Format((Bits(1, 4, 16),), PowerScale(), least=-12, values=tuple(v + 12 for v in E2M1)),
    "iq4_xs": Format((Bits(8, 4, 16),), SplitScales(), least=-128, values=tuple(v + 128 for v in IQ4)),
}


def words_of(load: Load, start: Index, count: int, size: int) -> ir.Value:
    """`count` bytes in loads of `size` each, a power of two or all of them: a vector of i32, or of one i16."""
    bits = 8 * min(size, 4)
    parts = ir.VectorType.get([8 * size // bits], b.integer(bits))
    loads = [load(b.add(start, i), size) for i in range(0, count, size)]
    found = joined([b.emit("vector.bitcast", [v if size > 1 else elements([v])], [parts]) for v in loads])
    if count % 4 or bits == 32:
        return found
    return b.emit("vector.bitcast", [found], [ir.VectorType.get([count // 4], b.i32())])


def word_of(vector: ir.Value, type_: ir.Type) -> ir.Value:
    """A vector of bytes as one number."""
    return b.lane_of(b.emit("vector.bitcast", [vector], [ir.VectorType.get([1], type_)]), 0)


def masked(value: ir.Value, shift: int, mask: int) -> ir.Value:
    """Some bits of an i32."""
    value = b.binary("arith.shrui", value, b.constant(shift, b.i32())) if shift else value
    return b.binary("arith.andi", value, b.constant(mask, b.i32()))


def narrow(index: Index) -> ir.Value:
    return b.emit("arith.index_cast", [b.as_value(index)], [b.i32()])


def elements(values: Sequence[ir.Value]) -> ir.Value:
    return b.emit("vector.from_elements", list(values), [ir.VectorType.get([len(values)], values[0].type)])


def joined(words: Sequence[ir.Value]) -> ir.Value:
    """Vectors one behind the other, as many as there are."""
    return words[0] if len(words) == 1 else elements([b.lane_of(v, i) for v in words for i in range(b.width_of(v))])


def as_floats(words: ir.Value) -> ir.Value:
    """An EXCESS-th of the E4M3 numbers that are the bytes of a vector of i32, in f32: by f16, which has all of them."""
    count = 4 * b.width_of(words)
    own = b.emit("vector.bitcast", [words], [ir.VectorType.get([count], b.integer(8))])
    nothing = b.constant(0, own.type)
    wide = b.shuffled(own, nothing, [place for i in range(count) for place in (count, i)])
    wide = b.emit("vector.bitcast", [wide], [ir.VectorType.get([count // 2], b.i32())])
    sizes = b.binary("arith.shrui", wide, b.constant(1, wide.type))
    sizes = b.binary("arith.andi", sizes, b.constant(0x3F803F80, wide.type))
    signs = b.binary("arith.andi", wide, b.constant(0x80008000, wide.type))
    found = b.binary("arith.ori", sizes, signs)
    return b.extend(b.emit("vector.bitcast", [found], [ir.VectorType.get([count], ir.F16Type.get())]))


def raised(words: ir.Value, power: int) -> ir.Value:
    """The bytes of a vector of i32, each plus 2^power, in f32, whose mantissa they are put into; power: 7, where bytes
    are below 128, 15 or 23."""
    four, one = ir.VectorType.get([4], b.integer(8)), ir.VectorType.get([1], b.f32())
    bits = (127 + power) << 23
    exponent = b.emit("vector.bitcast", [b.constant(bits, ir.VectorType.get([1], b.i32()))], [four])
    own = (23 - power) // 8
    lanes = []
    for number in range(b.width_of(words)):
        word = b.emit("vector.bitcast", [b.shuffled(words, words, [number])], [four])
        found = [b.shuffled(word, exponent, [place if i == own else 4 + i for i in range(4)]) for place in range(4)]
        lanes += [b.lane_of(b.emit("vector.bitcast", [v], [one]), 0) for v in found]
    return b.vector_of(lanes)
