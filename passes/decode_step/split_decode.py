"""split-decode: a decode step becomes one launch of clusters that share its layers out by heads and hidden units.

Before:                                          After:
  func.func @entry(%tokens, …, %next) {            func.func private @entry_shared(%tokens, …, %exchange, …)
    call @rows(%tokens, …, %x)                         {kernel = "persistent", grid = [blocks, 1, 1], cluster = 8} {
    call @contraction(%x, %qkv, …)                   each subgroup by its role: bring weights | multiply | exchange | …
    call @attention(%cache, …)                     func.func @entry(%tokens, …, %next, %exchange, …) {
    …                                                call @entry_shared(%tokens, …, %exchange, …)
    call @choose_top(…, %next)

The rule by which work is shared is that of tensor-parallel training: what a product has in rows the next one sums over,
so that a cluster has a head's rows of one and its columns of the other, and only the sums cross clusters, twice a
layer: in memory, in whole numbers that count who has added to them (fixed_point_sums.py).  kernel.py names the
subgroups' roles: who copies weights, multiplies, finishes and exchanges; one subgroup keeps the matrix units clocked
(keep_clocked.py).  A step of several sequences, 8 at most, has the same chain, but other roles (batch_*.py): subgroups
multiply the weights they hold by all sequences at once, rank r of a cluster attends for sequence r, and what clusters
add is summed up once for all.  Norms come behind the products, by sums that are made of weights once (norm_sums.py).

Requires: kernels whose bodies are tensors still.  Ensures: an entry is left as it was where it is no such chain, where
the chip has no clusters and bulk copies, and where that is modelled to be as fast or to save little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.base.access import READ, READ_WRITE, WRITE
from lispgpt.ir import build as b
from lispgpt.ir.loops import functions_without_body
from lispgpt.ir.mlir import ir
from lispgpt.ir.places import together
from lispgpt.ir.structure import callee_of, entry_functions, kernel_functions, operations, shape_of, strings, symbol_of
from lispgpt.passes.base import Pass, or_zero
from lispgpt.passes.decode_step.attention_heads import heads_of
from lispgpt.passes.decode_step.batch_layers import BatchKernel
from lispgpt.passes.decode_step.batch_layout import BatchLayout
from lispgpt.passes.decode_step.chain import Chain
from lispgpt.passes.decode_step.find_chain import find_chain
from lispgpt.passes.decode_step.kernel import StepKernel
from lispgpt.passes.decode_step.layout import RANKS, Layout
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.memory.kernel_buffers import add_argument
from lispgpt.passes.model.kernel_work import KernelWork, record_work, recorded_work
from lispgpt.passes.recognise.attention import attention_of
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.rates import Rates

MORE = "control:more"
WORTH = 0.95
"""One launch is taken where it is modelled to take at most this much of the launches' time: Llama of 1.2B on an H200 is
modelled to take 0.90 of it, and takes 0.94."""
LEAST_SAVED = 20e-6
"""Seconds of a step that are worth compiling so long a kernel, which takes some seconds."""


@dataclass(frozen=True)
class SplitDecode(Pass):
    """when: "modelled", where it is faster by what the target knows of its costs; "always", wherever it can be done; or
    "never".  runs: of an entry in one launch, at most.  clusters: of a launch, at most; 0: as many as the chip holds.
    steps: of two products, 16 of their depth each, whose weights wait in a subgroup's registers where they fit; 0: none
    do.  numbers: of keys, and of values, that a lane has at once.  rows: of a head's keys and values, that lie in a
    block's memory, at most; 0: none do."""

    only_faster = True
    when: str = "modelled"
    runs: int = 16
    clusters: int = 0
    steps: int = or_zero(16)
    numbers: int = 24
    rows: int = or_zero(1024)

    def run(self, module: ir.Module, target: Gpu) -> None:
        if self.when == "never" or target.copies is None or not target.intrinsics:
            return
        functions = {symbol_of(kernel): kernel for kernel in kernel_functions(module)} | functions_without_body(module)
        called = _called(module)
        for entry in entry_functions(module):
            names = strings(entry.attributes["arguments"])
            if "repeatable" not in entry.attributes or "input:tokens" not in names:
                continue
            try:
                self._share(module, entry, functions, target)
            except Refused as refused:
                if self.when == "always":
                    _remark(entry, f"it is not shared among clusters: {refused}")
        replaced = called - _called(module)
        for kernel in kernel_functions(module):
            if symbol_of(kernel) in replaced:
                kernel.erase()

    def _share(self, module: ir.Module, entry: ir.Operation, functions: dict[str, ir.Operation], target: Gpu) -> None:
        chain = find_chain(entry, functions)
        attention = attention_of(chain.attention.kernel)
        assert attention is not None
        heads = heads_of(chain, target)
        blocks = target.cores_for(RANKS) // RANKS * RANKS
        if self.clusters:
            blocks = min(blocks, RANKS * self.clusters)
        layouts, kernel_of = (Layout, StepKernel) if chain.sequences == 1 else (BatchLayout, BatchKernel)
        layout = layouts(chain, heads, attention.context, blocks, self.steps, self.numbers, self.rows)
        kernels = [functions[callee_of(call)] for call in chain.calls]
        apart, together = _seconds(kernels, layout, target)
        worth = target.cluster_seconds and together <= WORTH * apart and apart - together >= LEAST_SAVED
        if self.when != "always" and not worth:
            return
        name = f"{symbol_of(entry)}_shared"
        buffers = _buffers(entry, layout)
        made = kernel_of(entry, name, chain, layout, buffers, self.runs, target)
        _record(made.function, kernels)
        _replace(module, entry, layout, made, name, self.runs)
        said = f"{len(kernels)} launches are one, of {blocks // RANKS} clusters"
        said += f", {layout.layer_clusters} with {layout.each} heads and {layout.hidden} hidden units each"
        if target.cluster_seconds:
            said += f": modelled {apart * 1e6:.0f} us apart, {together * 1e6:.0f} us as one"
        _remark(entry, said)


def _floor_seconds(kernel: ir.Operation, rates: Rates) -> float:
    """The least that a kernel takes by what it reads, writes and computes."""
    work = recorded_work(kernel) or {}
    looked = work.get("context", 0)
    nbytes = work.get("bytes", 0) + looked * work.get("position_bytes", 0)
    operations = work.get("operations", 0) + looked * work.get("position_operations", 0)
    return max(nbytes / rates.bandwidth, operations / rates.vector)


def _seconds(kernels: Sequence[ir.Operation], layout: Layout, target: Gpu) -> tuple[float, float]:
    """(what launches take one by one, what the clusters take) by what is known of a chip, or zeros."""
    if target.rates is None:
        return 0.0, 0.0
    floors = [_floor_seconds(kernel, target.rates) for kernel in kernels]
    chain = layout.chain
    first, steps = len(chain.hoisted) + 1, 4 + len(chain.gate_up) + len(chain.head_norms)
    end = first + steps * chain.layers
    brought = layout.layer_bytes * layout.blocks / target.rates.bandwidth
    exchange = target.cluster_seconds * layout.exchange_cost
    least = max(brought, 2 * exchange)
    rounds = [max(sum(floors[i : i + steps]), least) for i in range(first, end, steps)]
    rest = sum(floors[:first]) + sum(floors[end:])
    return sum(floors) + len(floors) * target.launch_seconds, sum(rounds) + rest + 2 * exchange


def _called(module: ir.Module) -> set[str]:
    """The functions that entries call: none once the plan has been written down."""
    return {callee_of(call) for entry in entry_functions(module) for call in _calls(entry)}


def _calls(entry: ir.Operation) -> list[ir.Operation]:
    return [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]


def _remark(entry: ir.Operation, text: str) -> None:
    entry.attributes["remarks"] = ir.ArrayAttr.get([ir.StringAttr.get(text)])


def _record(made: ir.Operation, kernels: Sequence[ir.Operation]) -> None:
    """What the one launch does: all that the kernels do."""
    works = [work for kernel in kernels if (work := recorded_work(kernel)) is not None]
    names = ("bytes", "operations", "position_bytes", "position_operations")
    context = max((work["context"] for work in works), default=0)
    record_work(made, KernelWork(**{n: sum(w[n] for w in works) for n in names}, context=context))


def _buffers(entry: ir.Operation, layout: Layout) -> dict[int, tuple[int, str]]:
    """The entry's arguments that the chain's calls touch: (bytes, what is done to them); those with packed weights and
    with what is made of weights, which it is still to get, behind all others."""
    chain = layout.chain
    arguments = list(entry.regions[0].blocks[0].arguments)
    kinds = [name.partition(":")[0] for name in strings(entry.attributes["arguments"])]
    changed = {
        chain.tokens: READ_WRITE,
        chain.positions: READ_WRITE,
        chain.logits.buffer: WRITE,
        **{series.buffer: WRITE for series in chain.chosen},
    }
    changed |= {chain.cache.buffer: READ_WRITE}
    used = {i for i, argument in enumerate(arguments) if _is_read(argument, chain)}
    for i in used:
        if kinds[i] in ("result", "state") and i not in changed:
            raise Refused(f"it leaves more than the choice: {kinds[i]}")
    found = {i: (shape_of(arguments[i])[0], changed.get(i, READ)) for i in sorted(used)}
    layout.packed_at = {name: len(arguments) + i for i, name in enumerate(layout.packed)}
    for name, packed in layout.packed.items():
        found[layout.packed_at[name]] = layout.layers_of(name) * packed.parts * packed.part, READ
    layout.sums_at = dict(enumerate(layout.norm_sums, len(arguments) + len(layout.packed)))
    found |= {number: (sums.nbytes, READ) for number, sums in layout.sums_at.items()}
    return found


def _is_read(argument: ir.Value, chain: Chain) -> bool:
    """Whether calls have more of an entry's argument than weights that are packed."""
    sites = {(call, number) for one in chain.products.values() if one.packed for call, number in one.sites}
    views = [use.owner.operation for use in argument.uses]
    uses = [(use.owner.operation, use.operand_number) for view in views for use in view.results[0].uses]
    return any(use not in sites for use in uses)


def _replace(module: ir.Module, entry: ir.Operation, layout: Layout, made: StepKernel, name: str, most: int) -> None:
    """One call in place of all."""
    chain = layout.chain
    for packed_name, packed in layout.packed.items():
        packed.add_to(entry, layout.layers_of(packed_name))
    for sums in layout.sums_at.values():
        sums.add_to(module, entry)
    names, types = strings(entry.attributes["arguments"]), list(entry.attributes["types"])
    results = [series.buffer for series in chain.chosen]
    wanted = [(f"signals:{name}/exchange", made.types[len(made.buffers)].shape)]
    if most > 1:
        wanted.append((MORE, [1]))
        for result in results:
            type_ = ir.TypeAttr(types[result]).value
            wanted.append((names[result].replace("result:", "kept:"), [most, *type_.shape]))
        count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), most)
        of = ir.ArrayAttr.get([ir.StringAttr.get(names[result].partition(":")[2]) for result in results])
        entry.attributes["repeats"] = ir.DictAttr.get({"most": count, "kept": of})
    own = [add_argument(entry, name, ir.RankedTensorType.get(shape, b.i32())) for name, shape in wanted]
    block = entry.regions[0].blocks[0]
    sources = [*(block.arguments[i] for i in made.buffers), *own]
    with ir.InsertionPoint(chain.calls[-1]), together(chain.calls):
        views = [
            b.emit("memref.view", [source, b.as_value(0)], [type_])
            for source, type_ in zip(sources, made.types, strict=True)
        ]
        b.call(name, views)
    for call in chain.calls:
        call.erase()
    for op in reversed(operations(block)):
        if op.name in ("memref.alloc", "memref.view") and not list(op.results[0].uses):
            op.erase()
