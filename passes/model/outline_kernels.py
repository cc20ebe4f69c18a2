"""outline-kernels: group each entry's ops into kernels, once for all layers that need the same one.

Before:                                            After:
  func.func @logits(%x, %w, %b, …) {                 func.func private @contraction_1x2304(%x, %w, %b) {kernel = …}
    %s = linalg.contract ins(%x, %w) …                 func.func @logits(%x, %w, %b, …) {
    %y = linalg.generic ins(%s, %b) {addf}               %y = call @contraction_1x2304(%x, %w, %b)
    …                                                    …

Requires: entries on tensors (functions with an `entry` attribute), one block, static shapes.
Ensures: an entry is slices of its arguments, calls, insertions into states, and a return; every kernel has
`kernel` = "contraction" | "rows" | "attention" | "attention-gradient" | "cache-write" | "generic" and `tied` = for each
result the argument that it updates in place, or -1.  What all devices do together is a call of a function without a
body, whose `collective` says what.  Attention has what was recognised in `attention` and in its ops'
roles, its gradients in `sums` and in theirs.

`kernel_groups` says which ops become one kernel.  With `prologue-rows` a rows kernel that only contractions read moves
into each of them, with `cached-rows` a contraction puts columns of its own into caches (`product_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.base.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.collectives import declare_collective, operation_of
from lispgpt.ir.loops import loop_functions
from lispgpt.ir.mlir import create_op, ir, numbers
from lispgpt.ir.places import place, together
from lispgpt.ir.structure import (
    callee_of,
    captured_values,
    clone_with,
    defining_op,
    element_type,
    entry_functions,
    nested_operations,
    operations,
    retype,
    shape_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.model.column_sums import column_sum
from lispgpt.passes.model.gathers import absorb_gathers
from lispgpt.passes.model.in_place import is_by_element, read_arguments, replaced_by_element, tied_argument
from lispgpt.passes.model.kernel_group import KernelGroup, outputs_of
from lispgpt.passes.model.kernel_groups import absorb_prologues, group_ops, is_inline
from lispgpt.passes.model.long_chains import cut_views
from lispgpt.passes.model.loop_numbers import put_numbers_in_tensors
from lispgpt.passes.model.own_memory import compute_views, is_entry_view
from lispgpt.passes.model.product_rows import CACHED_ONLY, are_only_cached
from lispgpt.passes.model.quick_ops import absorb_quick
from lispgpt.passes.model.row_moments import BESIDE
from lispgpt.passes.recognise.placements import placements_among
from lispgpt.passes.states import NOT_OUTLINED, UNPLACED
from lispgpt.passes.targets import Cpu, Gpu

FLOAT_BYTES = 4

SUMS_BYTES = 1 << 15
"""Of a block's shared memory that rows are not to take."""


@dataclass(frozen=True)
class OutlineKernels(Pass):
    """prologue_rows: recompute a rows kernel in each contraction that reads it, when nothing else does and it has at
    most this many rows (0: never), which a GPU's block has room for in shared memory.  column_sums: have rows kernels
    make sums of columns in at least so many shares for each of a GPU's cores (0: never).  cached_rows: have products of
    so many rows, which the target multiplies by warpgroups, write rows to caches that are their columns (0: never).
    gathers: have products of a CPU read what only moves elements, as patches of images do, from where they are, and
    kernels what is quickly made of one tensor, or for sums of columns alone, from what it is made of.
    apart: make each op that computes a kernel of its own, and recompute none."""

    starts_from = (UNPLACED, NOT_OUTLINED)
    prologue_rows: int = 0
    column_sums: int = 0
    cached_rows: int = 0
    gathers: bool = False
    apart: bool = False

    def run(self, module: ir.Module, target: object) -> None:
        kernels, cores = _Kernels(module), getattr(target, "cores", 0)
        warpgroups = isinstance(target, Gpu) and target.warpgroup is not None and target.copies is not None
        loops = loop_functions(module)
        for entry in entry_functions(module):
            _drop_unread(entry)
            put_numbers_in_tensors(entry)
            _share_constants(entry)
            cut_views(entry)
            compute_views(entry, loops)
            ops = operations(entry.regions[0].blocks[0])
            placements = placements_among(ops)
            cached = self.cached_rows if warpgroups else 0
            groups = group_ops(ops, placements, self.column_sums * cores, cached, self.apart, isinstance(target, Gpu))
            if self.prologue_rows and not self.apart:
                groups = absorb_prologues(groups, self.prologue_rows, _room(target))
            if self.gathers and isinstance(target, Cpu) and not self.apart:
                groups = absorb_gathers(groups, target.vector_bytes // FLOAT_BYTES)
                groups = absorb_quick(groups, placements)
            _rebuild(entry, groups, kernels, placements)


def _room(target: object) -> int | None:
    """Bytes of rows that a block can keep beside its sums; None where blocks keep none."""
    most = max(getattr(target, "shared_bytes", 0), getattr(target, "dynamic_shared_bytes", 0))
    return most - SUMS_BYTES if most else None


def _drop_unread(entry: ir.Operation) -> None:
    """Erase what neither a result nor a state is made from: a kernel of it would have nothing to return."""
    for op in reversed(operations(entry.regions[0].blocks[0])):
        if len(op.results) and not any(True for result in op.results for _ in result.uses):
            op.erase()


def _share_constants(entry: ir.Operation) -> None:
    """Leave one op for each constant, at the entry's start: else the first layer's kernels would differ from later
    ones', which reuse its constants."""
    known: dict[tuple[str, str], ir.Value] = {}
    for op in list(nested_operations(entry)):
        if op.name != "arith.constant":
            continue
        key = (str(op.attributes["value"]), str(op.results[0].type))
        if key not in known:
            with ir.InsertionPoint.at_block_begin(entry.regions[0].blocks[0]):
                known[key] = op.clone().results[0]
        op.results[0].replace_all_uses_with(known[key])
        op.erase()


class _Kernels:
    """The module's kernels by their bodies, so that equal ones exist once."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.by_body: dict[str, str] = {}
        self.names: set[str] = set()

    def add(self, func: ir.Operation, stem: str) -> str:
        """Keep or drop a just-built kernel function; the symbol to call.  The ops of one that is kept stand where line
        tables say."""
        body = func.get_asm(assume_verified=True, use_local_scope=True)
        known = self.by_body.get(body)
        if known is not None:
            func.erase()
            return known
        name, number = stem, 1
        while name in self.names:
            number += 1
            name = f"{stem}_{number}"
        self.names.add(name)
        self.by_body[body] = name
        func.attributes["sym_name"] = ir.StringAttr.get(name)
        place(func)
        return name

    def collective(self, op: ir.Operation) -> str:
        """The symbol to call for what all devices do together."""
        word = operation_of(op)
        name = "_".join([word, str(element_type(op.operands[0])), *["x".join(map(str, shape_of(op.operands[0])))]])
        given, made = [v.type for v in op.operands], [v.type for v in op.results]
        return declare_collective(self.module, name.rstrip("_"), word, given, made)


def _rebuild(entry: ir.Operation, groups: list[KernelGroup], kernels: _Kernels, placements: set[ir.Operation]) -> None:
    """Replace an entry's body by calls."""
    block = entry.regions[0].blocks[0]
    old = operations(block)
    terminator = old[-1]
    outputs = {group: outputs_of(group) for group in groups}
    values: dict[ir.Value, ir.Value] = {}

    def resolve(value: ir.Value) -> ir.Value:
        """The value at entry level, after kernels have run: an argument, a result of a call, or a slice of one."""
        if value in values:
            return values[value]
        op = defining_op(value)
        if op is None:
            return value
        if not is_inline(op) and op not in placements:
            raise InternalError(f"outline-kernels: {op.name} is used before its kernel has run")
        for operand in (*op.operands, *captured_values(op)):
            resolve(operand)
        with ir.InsertionPoint(terminator), op.location:
            clone_with(op, values)
        return values[value]

    last = {argument: group for group in groups for argument in read_arguments(group, placements)}
    for group in groups:
        results = outputs[group]
        replaceable = [argument for argument, reader in last.items() if reader is group]
        if group.kind == "collective":
            results = list(group.ops[0].results)
            symbol, arguments = kernels.collective(group.ops[0]), list(group.ops[0].operands)
        elif group.kind == "loop":
            results = list(group.ops[0].results)
            symbol, arguments = callee_of(group.ops[0]), list(group.ops[0].operands)
        else:
            symbol, arguments = _build_kernel(group, results, replaceable, placements, entry, kernels)
        with ir.InsertionPoint(terminator), together(group.ops):
            call = b.call(symbol, [resolve(a) for a in arguments], [r.type for r in results])
        values.update(zip(results, call.results, strict=True))
    for i, operand in enumerate(terminator.operands):
        terminator.operands[i] = resolve(operand)
    for op in reversed(old[:-1]):
        op.erase()


def _build_kernel(
    group: KernelGroup,
    outputs: list[ir.Value],
    replaceable: list[ir.Value],
    placements: set[ir.Operation],
    entry: ir.Operation,
    kernels: _Kernels,
) -> tuple[str, list[ir.Value]]:
    """Make the kernel's function before the entry; its symbol and the entry-level values to call it with.
    replaceable: the entry's arguments that nothing reads after the kernel."""
    arguments: list[ir.Value] = []
    mapping: dict[ir.Value, ir.Value] = {}
    with ir.InsertionPoint(entry), group.ops[0].location:
        region_owner = b.private_function("kernel", kernel=group.kind)
    body = region_owner.regions[0].blocks.append()

    def bring(value: ir.Value) -> ir.Value:
        if value in mapping:
            return mapping[value]
        op = defining_op(value)
        if op is None or not is_inline(op) or is_entry_view(op, placements):
            mapping[value] = body.add_argument(value.type, ir.Location.unknown())
            arguments.append(value)
        else:
            mapping.update(zip(op.results, copy(op).results, strict=True))
        return mapping[value]

    def copy(op: ir.Operation) -> ir.Operation:
        for value in (*op.operands, *captured_values(op)):
            bring(value)
        with ir.InsertionPoint(body):
            return clone_with(op, mapping)

    for op in group.ops:
        clone = copy(op)
        for description in ("attention", "sums"):
            if description in clone.attributes:
                region_owner.attributes[description] = clone.attributes[description]
                del clone.attributes[description]
        mapping.update(zip(op.results, clone.results, strict=True))
    if group.kind == "contraction" and are_only_cached(group.ops, outputs):
        region_owner.attributes[CACHED_ONLY] = ir.UnitAttr.get()
    results = [mapping[o] for o in outputs]
    create_op("func.return", results, ip=ir.InsertionPoint(body))
    retype(region_owner, [r.type for r in results])
    tied = [tied_argument(r, o, arguments, placements, kernels.module) for r, o in zip(results, outputs, strict=True)]
    if group.kind == "rows" and is_by_element(group):
        tied = replaced_by_element(outputs, arguments, list(body.arguments), replaceable, placements)
        if max(tied) >= 0:
            region_owner.attributes["kernel"] = ir.StringAttr.get("elementwise")
    region_owner.attributes["tied"] = numbers(tied)
    made = [(output, defining_op(output)) for output in outputs]
    named = [v for v, op in made if column_sum(op) is None and BESIDE not in op.attributes] or outputs
    if group.kind == "contraction":
        named = [output for output in named if defining_op(output).name != "scf.for"] or [group.ops[0].results[0]]
    extents = shape_of(named[-1] if group.kind != "attention" else group.ops[-1].results[0])
    stem = "_".join([group.kind.replace("-", "_"), *(["x".join(map(str, extents))] if extents else [])])
    return kernels.add(region_owner, stem), arguments
