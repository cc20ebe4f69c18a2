"""Scalars of a kernel that is written out thread by thread: i32, f32 and conditions with Python's operators.

Integers are below 2^31 and not negative where they are divided or compared.  A plain int or float takes the other
operand's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.lower.arithmetic import Number, where
from lispgpt.passes.targets import tensor_copies


class Word(Number):
    """One value of a thread."""

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Word:
        return self if isinstance(other, int) and other == 0 else super().__add__(other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Word:
        return self if isinstance(other, int) and other == 1 else super().__mul__(other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Word:
        return self if isinstance(other, int) and other == 1 else super().__floordiv__(other)

    def __rshift__(self, other: Any) -> Word:
        return self.emit("arith.shrui", other)

    def __lt__(self, other: Any) -> Word:
        return self.is_("<", other)

    def __le__(self, other: Any) -> Word:
        return self.is_("<=", other)

    def __gt__(self, other: Any) -> Word:
        return self.is_(">", other)

    def __ge__(self, other: Any) -> Word:
        return self.is_(">=", other)

    def __eq__(self, other: Any) -> Word:  # type: ignore[override]
        return self.is_("==", other)

    def __ne__(self, other: Any) -> Word:  # type: ignore[override]
        return self.is_("!=", other)

    def where(self, a: Any, other: Any) -> Word:
        """a where this condition holds, else other; at least one of them is a Word."""
        return Word(where(self, a, other).value)

    def signed_shift(self, by: int) -> Word:
        return self.emit("arith.shrsi", by)

    def bits(self) -> Word:
        """A real's bits, or the real of these bits."""
        return super().bits() if self.is_real else self.as_real()

    def index(self) -> ir.Value:
        return b.emit("arith.index_castui", [self.value], [ir.IndexType.get()])

    def from_lane(self, distance: int) -> Word:
        """The value of the lane whose number differs by this in exclusive or."""
        return Word(b.shuffle_xor(self.value, distance, 32))

    def of_lane(self, lane: Word) -> Word:
        """The value of the lane of that number."""
        return Word(b.shuffle_from(self.value, lane.value, 32))


def word(value: Any) -> Word:
    """An int, an index or an SSA value as i32, or a value that is no integer as it is."""
    if isinstance(value, Word):
        return value
    if isinstance(value, int):
        return Word(b.constant(value, b.i32()))
    if isinstance(value.type, ir.IndexType):
        return Word(b.emit("arith.index_cast", [value], [b.i32()]))
    return Word(value)


def real(value: float) -> Word:
    return Word(b.constant(value, b.f32()))


def greater(a: Word, c: Word) -> Word:
    """The larger of two reals or signed integers."""
    return Word(b.binary("arith.maxnumf" if a.is_real else "arith.maxsi", a.value, c.value))


def lesser(a: Word, c: Word) -> Word:
    """The smaller of two signed integers."""
    return a.emit("arith.minsi", c)


def added(numbers: Sequence[Word]) -> Word:
    """Reals, added up by halves, which do not wait for each other."""
    half = len(numbers) // 2
    return added(numbers[:half]) + added(numbers[half:]) if half else numbers[0]


def fused(a: Word, c: Word, d: Word) -> Word:
    return Word(b.fma(a.value, c.value, d.value))


def loop(low: Any, high: Any, inits: Sequence[Word], body: Callable[..., Sequence[Word]], step: Any = 1) -> list[Word]:
    """scf.for by i32; body(number, *carried) returns what is carried on."""
    first, last, by = (word(x).value for x in (low, high, step))
    found = b.loop(
        first, last, by, [i.value for i in inits], lambda *values: [w.value for w in body(*map(Word, values))]
    )
    return list(map(Word, found))


def each(low: Any, high: Any, body: Callable[[Word], Any], step: Any = 1) -> None:
    first, last, by = (word(x).value for x in (low, high, step))
    b.each(first, last, by, lambda number: body(Word(number)))


def again(inits: Sequence[Word], body: Callable[..., tuple[Word, Sequence[Word]]]) -> list[Word]:
    """body(*carried) gives whether to go on and what is carried on; it is run at least once."""
    types = [i.value.type for i in inits]
    op = create_op("scf.while", [i.value for i in inits], types, regions=2)
    with ir.InsertionPoint(block := op.regions[0].blocks.append(*types)):
        condition, carried = body(*map(Word, block.arguments))
        create_op("scf.condition", [condition.value, *(c.value for c in carried)])
    with ir.InsertionPoint(block := op.regions[1].blocks.append(*types)):
        create_op("scf.yield", list(block.arguments))
    return [Word(result) for result in op.results]


def when(condition: Word, body: Callable[[], Any]) -> None:
    b.if_then(condition.value, body)


def if_there(condition: Word | None, body: Callable[[], Any]) -> None:
    """The same where there is a condition at all; None: it always holds."""
    if condition is None:
        body()
    else:
        when(condition, body)


def either(
    condition: Word, kinds: str, then: Callable[[], Sequence[Word]], otherwise: Callable[[], Sequence[Word]]
) -> list[Word]:
    """The values of one side or of the other.  kinds: r (i32), f (f32) or l (i64) for each."""
    types = [{"r": b.i32, "f": b.f32, "l": b.i64}[kind]() for kind in kinds]
    found = b.choose(condition.value, types, lambda: [w.value for w in then()], lambda: [w.value for w in otherwise()])
    return list(map(Word, found))


def assembly(
    text: str,
    operands: Sequence[Any],
    results: str = "",
    inputs: str | None = None,
    memory: bool = True,
    pure: bool = False,
) -> list[Word]:
    """The same with letters of constraints.  results, inputs: one for each (r, f, l, h); results' types follow.

    memory: whether it may read or write any.
    """
    values = [o.value if isinstance(o, Word) else word(o).value if isinstance(o, int) else o for o in operands]
    kinds = {"r": b.i32(), "f": b.f32(), "l": b.i64()}
    types = [kinds[r] for r in results]
    letters = list(inputs) if inputs is not None else [_letter(v.type) for v in values]
    constraints = [f"={r}" for r in results] + letters + (["~{memory}"] if memory and not pure else [])
    return list(map(Word, tensor_copies.assembly(text, constraints, values, types, pure)))


def _letter(type_: ir.Type) -> str:
    if isinstance(type_, ir.F32Type):
        return "f"
    if isinstance(type_, ir.IntegerType):
        return {16: "h", 32: "r", 64: "l"}[type_.width]
    return "l"
