"""The row's own key and value in a clustered launch: a part of attention, and new rows of the cache."""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import if_there, real, when
from lispgpt.passes.decode_step.attention import LOG2_E
from lispgpt.passes.decode_step.launch import lanes
from lispgpt.passes.decode_step.queries import HeadReader
from lispgpt.passes.kernels.attention import cache_of, own_index, place_of_row, score_at
from lispgpt.passes.recognise.cache_writes import CacheWrite
from lispgpt.passes.targets import ptx


class NewRow(HeadReader):
    @property
    def owns(self) -> Number:
        return self.launch.owns(self.position)

    def attend(self, shared: Number) -> None:
        """By one subgroup for each head of keys and sequence, of the block whose position it is: a part of its own, and
        the cache's rows."""
        launch, layout, depth = self.launch, self.launch.layout, self.depth
        columns = [launch.lane * 2 + first for first in range(0, depth, 64)]
        inside = [
            None if first + 64 <= depth else at < depth for first, at in zip(range(0, depth, 64), columns, strict=True)
        ]
        places = [at if there is None else there.where(at, 0) for at, there in zip(columns, inside, strict=True)]
        stored = [[self.own_row(kind, shared, at) for at in places] for kind in (0, 1)]
        keys, values = ([lanes(b.extend(value)) for value in kind] for kind in stored)

        def member(number: Number) -> None:
            score = real(0.0)
            for at, there, key in zip(places, inside, keys, strict=True):
                query = self.query(shared, number, at, 2)
                both = query[0] * key[0] + query[1] * key[1]
                score = score + (both if there is None else there.where(both, 0.0))
            for distance in (1, 2, 4, 8, 16):
                score = score + score.from_lane(distance)
            with self.made.reader.scope():
                t = self.position.index()
                place = self.place(shared, number)
                weighted = Number(score_at(self.made.reader, self.attention, place, t, score.value))
            part = launch.place("parts") + self.part(self.slot(shared, number)) + layout.head_subgroups * layout.part
            for at, there, value in zip(places, inside, values, strict=True):
                if_there(there, partial(ptx.store_words, part + at * 4, value))
            end = [weighted * LOG2_E, real(1.0)]
            when(launch.lane == 0, lambda: ptx.store_words(part + 4 * depth, end))

        self.members(member)
        for kind, write in enumerate(self.attention.writes):
            for at, there, value in zip(places, inside, stored[kind], strict=True):
                if_there(there, partial(self._write, kind, write, shared, at, value))

    def _write(self, kind: int, write: CacheWrite, shared: Number, column: Number, value: ir.Value) -> None:
        with self.made.reader.scope():
            index = own_index(self.attention, kind, self.place(shared, 0), column.index())
            where = place_of_row(write, self.made.reader, self.row, index)
            b.store(value, cache_of(self.attention), where)
