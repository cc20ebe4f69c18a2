"""Batches of a stream of tokens: which tokens a step sees depends on the seed and the step's number alone.

A stream is cut into windows of `length` tokens, whose targets are the tokens one further on.  An epoch takes each
window once, in an order of its own, and cuts the stream at other places than the epochs before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.data.shards import Shard

TOKENS, TARGETS = "tokens", "targets"
"""What entries call them."""

IGNORED = -1
"""A target that neither loss nor counts look at."""

FEW_WINDOWS = 8
"""Up to so many windows of a stream, none is given up to cut it elsewhere each epoch."""


class Stream:
    """The tokens of some shards, one after another, from `begin` up to `end` of all."""

    def __init__(self, shards: Sequence[Shard], begin: int = 0, end: int | None = None) -> None:
        self._shards = tuple(shards)
        self._starts = np.cumsum([0, *(len(shard.tokens) for shard in shards)])
        self._begin = begin
        self.count = int(self._starts[-1] if end is None else end) - begin

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens from a place on, as i32."""
        parts, place, end = [], start + self._begin, start + self._begin + count
        while place < end:
            number = int(np.searchsorted(self._starts, place, "right")) - 1
            first = place - int(self._starts[number])
            parts.append(self._shards[number].tokens[first : first + end - place])
            place += len(parts[-1])
        return np.concatenate(parts).astype(np.int32) if parts else np.empty(0, np.int32)

    def largest(self) -> int:
        """The largest token of the shards; -1 where they have none."""
        return max((shard.largest() for shard in self._shards), default=-1)

    def part(self, begin: int, end: int) -> Stream:
        """The tokens from one place up to another."""
        return Stream(self._shards, self._begin + begin, self._begin + end)


class Batches:
    """Shuffled batches without an end; UserError where the stream has no window.

    rank, world: which of so many processes reads; together they read what one would with `world` times the batch.
    """

    def __init__(self, stream: Stream, batch: int, length: int, seed: int, rank: int = 0, world: int = 1) -> None:
        self._stream, self._batch, self._length, self._seed = stream, batch, length, seed
        self._rank, self._world = rank, world
        self.windows = (stream.count - 1) // length
        self._orders: dict[int, tuple[int, np.ndarray]] = {}
        if self.windows < 1:
            raise UserError(
                f"the data has {stream.count} tokens to train on, and a window of {length} needs {length + 1}"
            )
        if self.windows > FEW_WINDOWS:
            self.windows -= 1
        self._slack = stream.count - 1 - self.windows * length

    def at(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """This process's tokens and targets [batch length] of the batch of that number, from 0, as i32."""
        first = (number * self._world + self._rank) * self._batch
        rows = np.empty((self._batch, self._length + 1), np.int32)
        for row in range(self._batch):
            epoch, place = divmod(first + row, self.windows)
            shift, order = self._order(epoch)
            rows[row] = self._stream.read(shift + int(order[place]) * self._length, self._length + 1)
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])

    def inputs(self, number: int) -> dict[str, np.ndarray]:
        """The same by the names of entries' inputs."""
        return dict(zip((TOKENS, TARGETS), self.at(number), strict=True))

    def _order(self, epoch: int) -> tuple[int, np.ndarray]:
        """Where an epoch's first window begins, and the order of its windows."""
        if epoch not in self._orders:
            drawn = np.random.Generator(np.random.Philox(key=np.array([self._seed, epoch], np.uint64)))
            self._orders = {e: known for e, known in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = int(drawn.integers(self._slack + 1)), drawn.permutation(self.windows)
        return self._orders[epoch]


def sweep(stream: Stream, batch: int, length: int, most: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The stream once, from its start, as tokens and targets [batch length]; what fills them up has no target.

    most: batches at most, of windows spread over the stream.
    """
    windows = -(-max(0, stream.count - 1) // length)
    chosen = np.arange(windows)
    if most is not None and windows > most * batch:
        chosen = np.linspace(0, windows - 1, most * batch).astype(int)
    for start in range(0, len(chosen), batch):
        tokens, targets = np.zeros((batch, length), np.int32), np.full((batch, length), IGNORED, np.int32)
        for row, window in enumerate(chosen[start : start + batch]):
            place = int(window) * length
            found = stream.read(place, min(length + 1, stream.count - place))
            tokens[row, : len(found) - 1], targets[row, : len(found) - 1] = found[:-1], found[1:]
        yield tokens, targets
