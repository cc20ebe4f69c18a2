"""What the ops between attention's first product and its softmax make of a tile of scores."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations
from lispgpt.passes.kernels.attention import last_position, score_at
from lispgpt.passes.kernels.matrices import Lanes, flat
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.mask_bounds import known_within


class Mask:
    """places: of the lane's rows in the scores.  least, last: the smallest and the largest position that rows may see.

    ragged: whether tiles reach past the longest context.
    """

    def __init__(
        self,
        attention: Attention,
        reader: Reader,
        lanes: Lanes,
        places: list[list[Index]],
        least: ir.Value,
        last: ir.Value,
        ragged: bool,
    ) -> None:
        self.attention, self.reader, self.lanes, self.places = attention, reader, lanes, places
        self.least, self.last = least, last
        self.compared = attention.upper is None or ragged
        self.factor = factor_of(attention)
        if reader.target.makes_room:  # else read where tiles are compared, not kept for all of them
            for place in places:
                last_position(attention, reader, place)

    def rows(self, scores: list[ir.Value], start: Index) -> list[list[ir.Value]]:
        """Each of the lane's rows, of accumulators for positions from `start` on, over `factor`; uncompared where all
        see all."""
        unit = self.lanes.unit
        vectors = [flat(s) for s in scores]
        raw = [[b.lane_of(v, e) for v in vectors for e in piece.elements] for piece in unit.pieces()]
        run = len(unit.pieces()[0].elements)
        offsets = [n * unit.columns + j for n in range(len(scores)) for j in range(run)]
        count = sum(map(len, raw))

        def masked(whole: bool) -> list[ir.Value]:
            with self.reader.scope():
                return [
                    self._masked(score, place, b.add(start, b.add(self.lanes.result_column, offset)), whole)
                    for row, place in zip(raw, self.places, strict=True)
                    for score, offset in zip(row, offsets, strict=True)
                ]

        whole = b.less(b.add(start, len(scores) * unit.columns - 1), self.least, predicate=7)
        found = b.choose(whole, [b.f32()] * count, lambda: masked(True), lambda: masked(False))
        return [found[i : i + len(offsets)] for i in range(0, count, len(offsets))]

    def _masked(self, score: ir.Value, place: list[Index], t: Index, whole: bool) -> ir.Value:
        attention, inside = self.attention, None
        if whole and self.factor != 1:
            return score
        if self.compared and not whole:
            inside = b.less(t, self.last, predicate=7)
            t = b.select(inside, b.as_value(t), self.last)
        bound = attention.upper
        assumed = frozenset([bound.condition] if whole and bound is not None and bound.holds else [])
        with self.reader.assuming(assumed):
            value = score_at(self.reader, attention, place, t, score)
        if self.factor != 1:
            value = b.binary("arith.mulf", value, b.constant(1 / self.factor, b.f32()))
        return value if inside is None else b.select(inside, value, b.constant(float("-inf"), b.f32()))


def factor_of(attention: Attention) -> float:
    """What every score that a row sees is multiplied by, where nothing else is made of it and the row sees all up to
    some position: a number above 0; else 1."""
    if len(attention.weigh) != 1 or attention.upper is None or attention.lower is not None:
        return 1
    (op,) = attention.weigh
    known = known_within(op, attention.upper, None)
    *_, last = operations(op.regions[0].blocks[0])
    value = last.operands[0]
    while (made := defining_op(value)) is not None and made.name == "arith.select" and made.operands[0] in known:
        value = made.operands[1]
    sides = list(made.operands) if made is not None and made.name == "arith.mulf" else []
    arguments = list(op.regions[0].blocks[0].arguments)
    scores = [v for v in sides if v in arguments and op.operands[arguments.index(v)] == attention.scores.results[0]]
    numbers = [c for v in sides if (c := defining_op(v)) is not None and c.name == "arith.constant"]
    if len(scores) != 1 or len(numbers) != 1:
        return 1
    return max(float(ir.FloatAttr(numbers[0].attributes["value"]).value), 0.0) or 1
