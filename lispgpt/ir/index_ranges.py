"""Which whole numbers an index can be: by intervals, and where it is made of loops' counters alone, number by number.

Arithmetic that may leave its type's range can be anything of that type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lispgpt.ir.index_numbers import counter_of, numbers
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    VIEWS,
    constant_number,
    defining_op,
    filled_with,
    integers,
    operations,
    shape_of,
)

Interval = tuple[int, int]
DYNAMIC = -(1 << 63)


def indices_of(op: ir.Operation) -> Iterator[tuple[int, int]]:
    """For each index at which an op reads or writes a tensor: which operand it is, and the last that there is."""
    if op.name == "tensor.extract":
        yield from ((number + 1, extent - 1) for number, extent in enumerate(shape_of(op.operands[0])))
    elif op.name in ("tensor.extract_slice", "tensor.insert_slice"):
        offsets, sizes, strides = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
        whole = 0 if op.name == "tensor.extract_slice" else 1
        number = whole + 1
        for offset, size, stride, extent in zip(offsets, sizes, strides, shape_of(op.operands[whole]), strict=True):
            if offset == DYNAMIC:
                if size >= 0:
                    yield number, extent - 1 - (size - 1) * stride
                number += 1


def is_conditional(op: ir.Operation) -> bool:
    """Whether an op may not run, or what it reads may not count."""
    uses = [use.owner.operation.name for result in op.results for use in result.uses]
    if uses and all(name == "arith.select" for name in uses):
        return True
    around = op.parent
    while around is not None and around.name != "func.func":
        if around.name in ("scf.if", "scf.while"):
            return True
        around = around.operation.parent
    return False


class IndexRanges:
    """What the values of a function can be; it may grow, but not change, in between."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Interval] = {}

    def within(self, value: ir.Value, last: int) -> bool:
        """Whether an index is 0 to last, for certain."""
        low, high = self.of(value)
        if low >= 0 and high <= last:
            return True
        found = numbers(value)
        return found is not None and not ((found < 0) | (found > last)).any()

    def of(self, value: ir.Value) -> Interval:
        """The least and the most that a scalar can be."""
        if value not in self._known:
            whole = _of_type(value.type)
            self._known[value] = whole  # of a loop that comes back to itself
            low, high = self._interval(value) or whole
            self._known[value] = (low, high) if whole[0] <= low and high <= whole[1] else whole
        return self._known[value]

    def outside(self, value: ir.Value, last: int) -> int | None:
        """A number that an index is for certain and that is not 0 to last; None where there is none, or none known."""
        low, high = self.of(value)
        found = None if low >= 0 and high <= last else numbers(value, ends=True)
        if found is None:
            return None
        bad = found[(found < 0) | (found > last)]
        return max(map(int, bad), key=lambda n: max(n - last, -n), default=None)

    def _interval(self, value: ir.Value) -> Interval | None:
        op = defining_op(value)
        if op is None:
            return self._argument(value)
        if op.name == "arith.constant":
            return _point(constant_number(value)) if isinstance(value.type, (ir.IntegerType, ir.IndexType)) else None
        counter = counter_of(value)
        if counter is not None:
            return (counter[1][0], counter[1][-1]) if counter[1] else (0, 0)
        if op.name == "tensor.extract":
            return self.of_elements(op.operands[0])
        if op.name == "scf.if":
            number = ir.OpResult(value).result_number
            return _union([self.of(operations(r.blocks[0])[-1].operands[number]) for r in op.regions])
        if op.name == "arith.select":
            rest = _wrapped_remainder(op)
            return self.of(rest) if rest is not None and self.of(rest)[0] >= 0 else self._selected(op, rest)
        rule = INTERVALS.get(op.name)
        kinds = (ir.IntegerType, ir.IndexType)
        if rule is None or not all(isinstance(v.type, kinds) for v in op.operands):
            return None
        return rule(*[self.of(v) for v in op.operands])

    def _selected(self, op: ir.Operation, rest: ir.Value | None) -> Interval | None:
        if rest is not None:
            divisor = self.of(defining_op(rest).operands[1])
            if divisor[0] > 0:
                return 0, divisor[1] - 1
        return _union([self.of(v) for v in list(op.operands)[1:]])

    def _argument(self, value: ir.Value) -> Interval | None:
        """Of a block's argument: a loop's counter, or an element of what a comprehension reads."""
        holder = value.owner.owner.operation if isinstance(value.owner, ir.Block) else None
        if holder is None:
            return None
        counter = counter_of(value)
        if counter is not None:
            return (counter[1][0], counter[1][-1]) if counter[1] else (0, 0)
        number = ir.BlockArgument(value).arg_number
        if holder.name == "linalg.generic" and number < len(holder.operands) - len(holder.results):
            return self.of_elements(holder.operands[number])
        return None

    def of_elements(self, tensor: ir.Value) -> Interval | None:
        """What the elements of a tensor can be."""
        op = defining_op(tensor)
        if op is None:
            return None
        if op.name in VIEWS:
            return self.of_elements(op.operands[0])
        if op.name == "linalg.fill":
            number = filled_with(tensor)
            return _point(number) if isinstance(number, int) else None
        if op.name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"]):
            end = operations(op.regions[0].blocks[0])[-1]
            return self.of(end.operands[ir.OpResult(tensor).result_number])
        if op.name == "tensor.insert_slice":
            both = [self.of_elements(v) for v in list(op.operands)[:2]]
            return None if None in both else _union(both)  # type: ignore[arg-type]
        return None


def _of_type(kind: ir.Type) -> Interval:
    width = kind.width if isinstance(kind, ir.IntegerType) else 64
    return (0, 1) if width == 1 else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def _point(number: int | None) -> Interval | None:
    return None if number is None else (number, number)


def _union(intervals: list[Interval]) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def _wrapped_remainder(op: ir.Operation) -> ir.Value | None:
    """The remainder of a select that makes it one of the divisor's sign, as `mod` does."""
    moved, rest = defining_op(op.operands[1]), op.operands[2]
    made = defining_op(rest)
    if moved is None or made is None or moved.name != "arith.addi" or made.name != "arith.remsi":
        return None
    return rest if list(moved.operands) == [rest, made.operands[1]] else None


# ---- intervals


def _corners(compute: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    def rule(a: Interval, b: Interval) -> Interval:
        found = [compute(x, y) for x in a for y in b]
        return min(found), max(found)

    return rule


def _divided(rounded: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval | None]:
    return lambda a, b: _corners(rounded)(a, b) if b[0] > 0 else None


def _towards_zero(a: int, b: int) -> int:
    return -(-a // b) if a < 0 else a // b


def _remainder(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0:
        return None
    most = b[1] - 1
    return (0 if a[0] >= 0 else -most, min(a[1], most) if a[0] >= 0 else most)


def _natural(rule: Callable[[Interval, Interval], Interval | None]) -> Callable[[Interval, Interval], Interval | None]:
    """A rule that holds where nothing is below 0."""
    return lambda a, b: rule(a, b) if a[0] >= 0 and b[0] >= 0 else None


def _bits(a: Interval, b: Interval) -> Interval:
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


INTERVALS: dict[str, Callable[..., Interval | None]] = {
    "arith.addi": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "arith.subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "arith.muli": _corners(lambda x, y: x * y),
    "arith.divsi": _divided(_towards_zero),
    "arith.floordivsi": _divided(lambda x, y: x // y),
    "arith.ceildivsi": _divided(lambda x, y: -(-x // y)),
    "arith.divui": _natural(_divided(_towards_zero)),
    "arith.remsi": _remainder,
    "arith.remui": _natural(_remainder),
    "arith.minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "arith.maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "arith.minui": _natural(lambda a, b: (min(a[0], b[0]), min(a[1], b[1]))),
    "arith.andi": lambda a, b: (0, min(h for low, h in (a, b) if low >= 0)) if a[0] >= 0 or b[0] >= 0 else None,
    "arith.ori": _natural(_bits),
    "arith.xori": _natural(_bits),
    "arith.shrui": _natural(lambda a, b: (a[0] >> min(b[1], 64), a[1] >> min(b[0], 64))),
    "arith.shrsi": lambda a, b: (a[0] >> b[0], a[1] >> b[0]) if b[0] == b[1] and b[0] in range(64) else None,
    "arith.shli": lambda a, b: (a[0] << b[0], a[1] << b[0]) if b[0] == b[1] and b[0] in range(64) else None,
    **dict.fromkeys(("arith.index_cast", "arith.extsi", "arith.trunci"), lambda a: a),
    **dict.fromkeys(("arith.index_castui", "arith.extui"), lambda a: a if a[0] >= 0 else None),
}
"""From the intervals of an op's operands to that of its result, as if types had no ends; None where it is unknown."""
