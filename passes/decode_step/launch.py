"""What the roles of a clustered launch have in common: who a thread is, where memory lies, and which run this is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import operations
from lispgpt.ir.tensor_maps import address_of_map
from lispgpt.ir.threads import chosen, given, lesser, word
from lispgpt.passes.decode_step.attention_heads import tensors_of
from lispgpt.passes.decode_step.chain import Chain, Part, Product, Series
from lispgpt.passes.decode_step.layout import MULTIPLIERS, RANKS, THREADS, Layout
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.targets import Gpu, ptx


@dataclass
class Launch:
    """memories: the kernel's argument for each buffer of the entry.  exchange: memory for what clusters hand on. start:
    the address of the block's memory.  block, cluster, rank, subgroup, lane: who this thread is.  layered: whether its
    cluster has layers.  times: runs of this launch.  before: runs of earlier ones.  token, position: of the first,
    where there is one sequence. first_lm_chunk, lm_chunk_step, heads: of the lm head's chunks, this block's: the first,
    how far the next ones are, how many. kept: where each run's results go, if the launch may have several.  maps: of
    BF16 weights, by the product's name, for bulk copies.  copies: of kernels, which are read from while the launch is
    emitted."""

    chain: Chain
    layout: Layout
    target: Gpu
    memories: dict[int, ir.Value]
    exchange: ir.Value
    kept: list[ir.Value]
    start: Number
    block: Number
    cluster: Number
    rank: Number
    subgroup: Number
    lane: Number
    layered: Number
    times: Number
    before: Number
    token: Number
    position: Number
    first_lm_chunk: Number
    lm_chunk_step: Number
    heads: Number
    maps: dict[str, ir.Value] = field(default_factory=dict)
    copies: list[ir.Operation] = field(default_factory=list)

    def again(self) -> Self:
        """The same, with what depends on the thread's number to be computed where it is needed: not ahead of a loop,
        where all of it at once would be more than registers hold."""
        subgroup, lane = (ptx.opaque(w) for w in (self.subgroup, self.lane))
        return replace(self, subgroup=subgroup, lane=lane)

    @property
    def reports(self) -> Number:
        """Whether the block finds out how clearly a choice wins, and leaves results: the last one."""
        return self.block == self.layout.blocks - 1

    def place(self, name: str) -> Number:
        """The address of a part of the block's memory."""
        return self.start + self.layout.at[name]

    def barrier(self, name: str) -> Number:
        return self.start + self.layout.barrier[name]

    def full(self, slot: Number) -> Number:
        return self.start + self.layout.full + slot * 8

    def empty(self, slot: Number) -> Number:
        return self.start + self.layout.empty + slot * 8

    def brought(self, number: Number) -> Number:
        """The barrier of a chunk of the lm head that a subgroup brings, by its number among the block's."""
        return self.place("brought") + number * 8

    def once_read(self) -> AbstractContextManager[None]:
        """By one lane, once its subgroup has read what copies may be put in the place of."""
        ptx.fence_copies()
        ptx.subgroup_barrier()
        return given(self.lane == 0)

    def slot(self, number: Number) -> tuple[Number, Number]:
        """(slot of a chunk, parity of the phase in which it is there)."""
        return number % self.layout.stages, (number // self.layout.stages) & 1

    def at_layer(self, run: Number, layer: Number) -> Number:
        """The parity of what happens once a layer."""
        return (run * self.layout.layers + layer) & 1

    def position_of(self, sequence: Number | int) -> Number:
        """A sequence's, in the first run."""
        if self.layout.sequences == 1:
            return self.position
        return ptx.load_words(self.place("positions") + word(sequence) * 4, 1)[0]

    def row_of(self, sequence: Number) -> Index:
        """A sequence's row in what is made of all."""
        return 0 if self.layout.sequences == 1 else sequence.index()

    @property
    def thread(self) -> Number:
        """The number of a thread that multiplies."""
        return self.subgroup * 32 + self.lane

    def synchronize(self) -> None:
        """All threads that multiply."""
        ptx.wait_at(MULTIPLIERS, THREADS)

    @property
    def sequence(self) -> Number:
        """The block's of several sequences, or, where it has none, the last one."""
        sequences = self.layout.sequences
        return self.rank if sequences == RANKS else lesser(self.rank, word(sequences - 1))

    @property
    def has_sequence(self) -> Number | None:
        """Whether the block has one of several; None: all have."""
        sequences = self.layout.sequences
        return None if sequences == RANKS else self.rank < sequences

    def position_at(self, run: Number) -> Number:
        """The position of the block's of several sequences in a run of the launch, 0 where it has none."""
        return chosen(self.has_sequence, self.position_of(self.sequence) + run, 0)

    def moments_place(self, sequence: Number) -> Number:
        """Where a subgroup has those of one of several sequences' residual stream."""
        return self.place("moments") + (self.subgroup * self.layout.sequences + sequence) * 8

    @property
    def share(self) -> Number:
        """Which of the clusters' heads this one has: those past the last have its heads, too, and count for nothing."""
        return lesser(self.cluster, word(self.layout.head_clusters - 1))

    @property
    def first_shared(self) -> Number:
        """The first of the cluster's heads of keys and values."""
        return self.share * self.layout.each // self.layout.heads.group

    def head_of_keys(self, shared: Number) -> Number:
        """Which of all heads of keys and values a cluster's is; the last one where there are no more."""
        layout, heads, number = self.layout, self.layout.heads, self.first_shared + shared
        if layout.head_clusters * layout.each > heads.count:
            return lesser(number, word(heads.kept - 1))
        return number

    def of_neighbours(self, values: Sequence[Number], among: int) -> list[Number]:
        """The values of so many neighbouring lanes, in their order."""
        first = self.lane & -among
        return [value.of_lane(first + i) for i in range(among) for value in values]

    def send(self, name: str, parts: Sequence[tuple[Number, list[Number]]], among: int) -> None:
        """To a place in all ranks' memories, whose barrier counts it, what so many neighbouring lanes have: (bytes from
        there on, words), by each lane to some of the ranks."""
        for first in range(0, RANKS, among):
            remote = self.remote(self.lane % among + first)
            for place, words in parts:
                ptx.send(remote + place + self.layout.at[name], words, remote + self.layout.barrier[name])

    def await_ranks(self, name: str, nbytes: int, parity: Number) -> None:
        """By the subgroups that multiply: wait for what ranks send; one subgroup says how much."""
        with given(self.subgroup == 0), given(self.lane == 0):
            ptx.expect(self.barrier(name), nbytes)
        ptx.wait(self.barrier(name), parity)

    def past(self, position: Number) -> Number:
        """How many of the positions ahead of one are this block's."""
        spread = self.layout.spread
        return position if spread == 1 else (position + (spread - 1) - self.rank) // spread

    def position_of_row(self, number: Number) -> Number:
        """The number-th of the block's positions."""
        spread = self.layout.spread
        return number if spread == 1 else number * spread + self.rank

    def owns(self, position: Number) -> Number:
        """Whether a position is the block's."""
        return position % self.layout.spread == self.rank

    def row_of_heads(self, number: Number) -> Number:
        """The row of a layer's first product that is a cluster's of that number; behind all where it is none."""
        layout = self.layout
        queries, keys, values = layout.rows_of_kinds
        shared = self.first_shared * layout.depth
        at = [self.share * (layout.each * layout.depth), shared, shared]
        q, k, v = (first + more + number for first, more in zip(layout.heads.firsts, at, strict=True))
        inside = (number < queries + keys).where(k - queries, v - (queries + keys))
        found = (number < queries).where(q, inside)
        return (number < queries + keys + values).where(found, self.chain.qkv.rows)

    def row_of_lm_head(self, number: Number) -> Number:
        """The row of the lm head that is this block's of that number."""
        return (self.first_lm_chunk + (number >> 3) * self.lm_chunk_step) * 8 + (number & 7)

    def view(self, series: Series, layer: Number | int, type_: ir.Type) -> ir.Value:
        offset = word(layer) * series.stride + series.first if series.stride else word(series.first)
        return b.emit("memref.view", [self.memories[series.buffer], offset.index()], [type_])

    def remote(self, rank: Number | int) -> Number:
        """The address of a rank's memory."""
        return ptx.address_at(self.start, rank)


class Role:
    """What some of a block's threads do in all runs of the launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch


Dimension = tuple[int, int, int]
"""Of a map: its numbers, bytes from one to the next, and a box's numbers."""


def box_map(
    kernel: ir.Operation, argument: int, offset: int, line: tuple[int, int], own: Sequence[Dimension],
    outer: Sequence[Dimension],
) -> ir.Value:  # fmt: skip
    """The address of a map of a kernel's argument from a byte on, as numbers of 16 bits.  line: of the innermost
    dimension, and of a box.  outer: dimensions that are left out where they have one number."""
    extents, strides, box = zip(*own, *(dim for dim in outer if dim[0] > 1), strict=True)
    fields = {
        "argument": argument, "offset": offset, "dtype": "bf16", "extents": [line[0], *extents],
        "strides": list(strides), "box": [line[1], *box],
    }  # fmt: skip
    return address_of_map(kernel, attribute(fields))


@dataclass
class Copied:
    """A kernel's body to read from, while a launch's own code is emitted.  tensors: of its arguments, by number."""

    op: ir.Operation
    reader: Reader
    tensors: dict[int, list[ir.Value]]

    @property
    def result(self) -> ir.Value:
        """What it leaves last."""
        return outputs_of(self.op)[-1][0]

    @property
    def product(self) -> ir.Value:
        body = operations(self.op.regions[0].blocks[0])
        return next(op for op in body if op.name == "linalg.contract").results[0]

    def bind(self, argument: int, read: Callable[..., ir.Value]) -> None:
        """Take an argument's elements from read(index, width)."""
        for tensor in self.tensors[argument]:
            self.reader.bind(tensor, read)

    def hold(self, argument: int, value: ir.Value, place: Sequence[Index] | None = None) -> None:
        """Take an argument's elements to be this value; at a place: Refused where others are asked for."""
        self.bind(argument, partial(_held, value, place))

    def hold_product(self, value: ir.Value, place: Sequence[Index]) -> None:
        self.reader.bind(self.product, partial(_held, value, place))


def _held(value: ir.Value, place: Sequence[Index] | None, index: Sequence[Index], width: int) -> ir.Value:
    if place is not None and (index[-1] != place[-1] or width != b.width_of(value)):
        raise Refused("what comes behind a product takes its results from elsewhere")
    return value


def copied(launch: Launch, part: Part, layer: Number | int) -> Copied:
    """A kernel's body, with its arguments in place for a layer."""
    copy, series = part.kernel.clone().operation, part.arguments
    arguments = list(copy.regions[0].blocks[0].arguments)
    tensors = {i: tensors_of(copy, i) for i in range(len(arguments))}
    with ir.InsertionPoint(copy):
        for i, argument in enumerate(arguments):
            if i in series:
                argument.replace_all_uses_with(launch.view(series[i], layer, argument.type))
    launch.copies.append(copy)
    return Copied(copy, Reader(launch.target), tensors)


def embedded(launch: Launch, made: Copied, sequence: Number, column: Number, run: Number, width: int) -> list[Number]:
    """So many numbers of a sequence's residual stream ahead of the layers, once tokens are known.  made: the kernel
    that makes it."""
    chain = launch.chain
    token = ptx.load_words(launch.place("tokens") + sequence * 4, 1)[0]
    given = {chain.tokens: token, chain.positions: launch.position_of(sequence) + run}
    for argument, series in chain.embedding.arguments.items():
        if series.buffer in given:
            made.hold(argument, given[series.buffer].value)
    tensor = next(t for t, m in outputs_of(made.op) if ir.BlockArgument(m).arg_number == chain.residual_stream)
    with made.reader.scope():
        return lanes(made.reader.read(tensor, [launch.row_of(sequence), column.index()], width))


def added_to(
    made: Copied, product: Product, place: list[Index], total: Sequence[Number], before: Sequence[Number]
) -> list[Number]:
    """Neighbouring numbers of a sequence's residual stream, to which a product's sums are added.  made: its kernel."""
    assert product.residual_stream is not None
    made.hold_product(joined(total), place)
    made.hold(product.residual_stream, joined(before), place)
    return lanes(made.reader.read(made.result, place, len(total)))


def preload(made: Copied, place: Sequence[object], width: int) -> None:
    """Load now what is beside a product in its result."""
    made.reader.preload(made.result, list(place), width, lambda memory: not isinstance(memory, ir.BlockArgument))


def dealt(thread: Number, threads: int, total: int) -> list[tuple[Number, Number | None]]:
    """A thread's share of so many numbers: each, or the last one where there is none, and whether there is one; None:
    always."""
    found = []
    for first in range(0, total, threads):
        number, there = thread + first, None
        if first + threads > total:
            there, number = number < total, lesser(number, word(total - 1))
        found.append((number, there))
    return found


def over_lanes(values: Sequence[Number], distances: Sequence[int] = (16, 8, 4, 2, 1)) -> list[Number]:
    """Values, each added up over the lanes at such distances: all of a subgroup's."""
    for distance in distances:
        values = [value + value.from_lane(distance) for value in values]
    return list(values)


def joined(values: Sequence[Number]) -> ir.Value:
    return b.vector_of([v.value for v in values])


def lanes(vector: ir.Value) -> list[Number]:
    return [Number(b.lane_of(vector, i)) for i in range(b.width_of(vector))]


def moments_of(launch: Launch, total: Number, square: Number, centred: bool, epsilon: float) -> tuple[Number, Number]:
    """(mean, 1 / deviation) of a row of the residual stream, whose sum and whose squares' sum are known."""
    width = launch.layout.width
    mean = total * (1 / width)
    variance = square * (1 / width)
    if centred:
        variance = variance - mean * mean
        variance = (variance > 0.0).where(variance, 0.0)
    raised = (variance + epsilon).value
    return mean, Number(b.intrinsic(launch.target.intrinsics["rsqrt"], [raised], raised.type))
