"""The kernel of a clustered launch: its arguments, who its threads are, and their roles."""

from __future__ import annotations

from lispgpt.base.access import READ, READ_WRITE
from lispgpt.ir import build as b
from lispgpt.ir.access import set_access
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.threads import turns, when, word
from lispgpt.passes.decode_step.chain import OF_COLUMNS, Chain
from lispgpt.passes.decode_step.keep_clocked import keep_clocked
from lispgpt.passes.decode_step.kv_cache import ARRIVALS, row_maps
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import (
    CLOCKED_BY,
    EXCHANGER,
    FINISHER,
    LINE,
    RANKS,
    SUBGROUPS,
    WEIGHT_COPIER,
    Layout,
)
from lispgpt.passes.decode_step.one_sequence import Exchanger, Finisher, Multipliers
from lispgpt.passes.decode_step.weight_copies import WeightCopier, chunks_ahead, weight_map
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.kernel import contract, set_launch
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.targets import Gpu, ptx
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES


class StepKernel:
    """Made in front of `before` as `name`.  buffers: the entry's arguments that it gets, by their numbers, as (bytes,
    what is done to them); behind them memory for exchanges, the number of more runs, and each run's results."""

    def __init__(
        self,
        before: ir.Operation,
        name: str,
        chain: Chain,
        layout: Layout,
        buffers: dict[int, tuple[int, str]],
        most: int,
        target: Gpu,
    ) -> None:
        self.chain, self.layout, self.target, self.buffers = chain, layout, target, buffers
        kept = [([most, n * chain.sequences], READ_WRITE) for n in (1, 3)][: len(chain.chosen)]
        own = [([layout.lines["end"] // 4], READ_WRITE), *([([1], READ), *kept] if most > 1 else [])]
        self.types = [ir.MemRefType.get([nbytes], b.integer(8)) for nbytes, _ in buffers.values()]
        self.types += [ir.MemRefType.get(shape, b.i32()) for shape, _ in own]
        attributes = {
            "sym_name": name, "function_type": ir.FunctionType.get(self.types, []), "sym_visibility": "private",
            "kernel": "persistent", "persistent": RANKS,
        }  # fmt: skip
        where, place = before.location, ir.InsertionPoint(before)
        self.function = create_op("func.func", attributes=attributes, regions=1, loc=where, ip=place)
        self.body = self.function.regions[0].blocks.append(*self.types, arg_locs=[where] * len(self.types))
        set_launch(self.function, [layout.blocks], [layout.threads])
        set_access(self.function, [how for _, how in (*buffers.values(), *own)])
        target.set_residency(self.function, 1)
        target.set_cluster(self.function, RANKS)
        try:
            with ir.InsertionPoint(self.body), where:
                self._emit(most)
                create_op("func.return")
        except Refused:
            self.function.erase()
            raise
        contract(self.function)

    def _emit(self, most: int) -> None:
        layout, chain = self.layout, self.chain
        arguments = list(self.body.arguments)
        memories = dict(zip(self.buffers, arguments, strict=False))
        memory = BlockMemory(self.target, layout.bytes, aligned=True)
        view = memory.view(0, [layout.bytes], b.integer(8))
        start = word(b.emit("memref.extract_aligned_pointer_as_index", [view], [ir.IndexType.get()]))
        memory.record(self.function)
        maps = self._maps()
        thread, block = word(b.thread_id()), word(b.block_id())
        exchange, more = arguments[len(self.buffers)], arguments[len(self.buffers) + 1 :]
        times = word(b.load(more[0], [0], 1)) + 1 if most > 1 else word(1)
        first, step, heads = self._heads(block)
        launch = Launch(
            chain, layout, self.target, memories, exchange, more[1:], start, block,
            block // RANKS, block % RANKS, thread // 32, thread % 32, block < RANKS * layout.layer_clusters,
            times, word(b.load(exchange, [0], 1)), input_of(memories[chain.tokens]),
            input_of(memories[chain.positions]), first, step, heads, maps,
        )  # fmt: skip
        self._clear(launch, thread)
        when(thread == 0, lambda: self._barriers(launch))
        b.barrier()
        ptx.cluster_barrier()
        self._roles(launch)
        b.barrier()
        ptx.cluster_barrier()
        for copy in launch.copies:
            copy.erase()

    def _roles(self, launch: Launch) -> None:
        """What subgroups do."""
        when(launch.subgroup == WEIGHT_COPIER, lambda: when(launch.lane == 0, WeightCopier(launch).emit))
        when(launch.subgroup == EXCHANGER, Exchanger(launch).emit)
        when(launch.subgroup == FINISHER, Finisher(launch).emit)
        when(launch.subgroup < SUBGROUPS, Multipliers(launch).emit)
        clocked, rest = launch.subgroup == CLOCKED_BY, launch.target.matrix_rest
        when(clocked, lambda: keep_clocked(launch.barrier("ended"), word(0), rest))

    def _clear(self, launch: Launch, thread: Number) -> None:
        """Zeros where operands have no part."""
        layout = self.layout
        for name in ("x", "hidden_units", "attended"):
            clear(launch.place(name), layout.sizes[name] // 4, thread, layout.threads)

    def _heads(self, block: Number) -> tuple[Number, Number, Number]:
        """(first, how far the next one is, how many) of the lm head's chunks that a block has.  Neighbours are of
        different blocks, as are tokens that a vocabulary has side by side because they are as frequent: so those that
        are probable are not one block's."""
        layout = self.layout
        share = layout.lm_head_share
        if not layout.others:
            return block, word(layout.blocks), _dealt(layout.lm_head_chunks, layout.blocks, block)
        layered, clustered = block < RANKS * layout.layer_clusters, RANKS * layout.layer_clusters
        number = layered.where(0, block - clustered)
        first = layered.where(block, number + share.each * clustered)
        step = layered.where(word(clustered), layout.others)
        return first, step, layered.where(word(share.each), _dealt(share.rest, layout.others, number))

    def _maps(self) -> dict[str, ir.Value]:
        layout, chain = self.layout, self.chain
        numbers, found = list(self.buffers), {}
        for name, product in chain.products.items():
            rows, lines = (layout.columns, 0) if name in OF_COLUMNS else (8, layout.width // LINE)
            if not product.packed:
                argument = numbers.index(product.weights.buffer)
                found[name] = weight_map(self.function, product, layout.layers_of(name), argument, rows, lines)
        if layout.near:
            found |= row_maps(self.function, chain, layout, numbers.index(chain.cache.buffer))
        return found

    def _barriers(self, launch: Launch) -> None:
        layout = self.layout
        with turns(0, layout.stages) as slot:
            TENSOR_COPIES.make_barrier(launch.full(slot).value, 1)
            TENSOR_COPIES.make_barrier(launch.empty(slot).value, layout.arrivals)
        if layout.brings:
            with turns(chunks_ahead(launch), launch.heads) as number:
                TENSOR_COPIES.make_barrier(launch.brought(number).value, 1)
        for name in layout.barrier:
            TENSOR_COPIES.make_barrier(launch.barrier(name).value, ARRIVALS.get(name, 1))
        TENSOR_COPIES.publish_barriers()


def input_of(memory: ir.Value, sequences: int = 1, sequence: Index = 0) -> Number:
    """A sequence's number of an input."""
    type_ = ir.MemRefType.get([sequences], b.i32())
    return word(b.load(b.emit("memref.view", [memory, b.as_value(0)], [type_]), [sequence], 1))


def clear(start: Number, count: int, thread: Number, threads: int) -> None:
    """So many words, by all threads."""
    with turns(thread, count, threads) as number:
        ptx.store_words(start + number * 4, [word(0)])


def _dealt(count: int, players: int, number: Number) -> Number:
    """How many of some things one gets to whom they are dealt in turn."""
    return (word(count + players - 1) - number) // players
