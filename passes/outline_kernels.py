"""outline-kernels: group each entry's ops into kernels, once for all layers that need the same one.

Before:                                            After:
  func.func @logits(%x, %w, %b, …) {                 func.func private @contraction_1x2304(%x, %w, %b) {kernel = …}
    %s = linalg.contract ins(%x, %w) …                 func.func @logits(%x, %w, %b, …) {
    %y = linalg.generic ins(%s, %b) {addf}               %y = call @contraction_1x2304(%x, %w, %b)
    …                                                    …

Requires: entries on tensors (functions with an `entry` attribute), one block, static shapes.
Ensures: an entry is slices of its arguments, calls, insertions into states, and a return; every kernel has
`kernel` = "contraction" | "rows" | "attention" | "generic" and `tied` = for each result the argument that it updates in
place, or -1.

A kernel is a root and the elementwise ops that follow it.  Roots are contractions, chains of reductions over the same
rows, and attention (cache write, scores, mask, softmax, weighted sum).  With `prologue-rows` a rows kernel that only
contractions read moves into each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from lispgpt.errors import InternalError
from lispgpt.mlir import create_op, ir
from lispgpt.passes.base import Pass
from lispgpt.passes.structure import (
    captured_values,
    defining_op,
    entry_functions,
    is_elementwise,
    operations,
    replace_captured,
    shape_of,
)

INLINE = {
    "arith.constant",
    "tensor.empty",
    "linalg.fill",
    "tensor.extract_slice",
    "tensor.expand_shape",
    "tensor.collapse_shape",
    "tensor.cast",
}
VIEWS = {"tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"}


@dataclass(frozen=True)
class OutlineKernels(Pass):
    """prologue_rows: recompute a rows kernel in each contraction that reads it, when nothing else does and it has at
    most this many rows (0: never)."""

    name: ClassVar[str] = "outline-kernels"
    prologue_rows: int = 0

    def run(self, module: ir.Module, target: object) -> None:
        kernels = _Kernels(module)
        for entry in entry_functions(module):
            groups = _group(operations(entry.regions[0].blocks[0]))
            if self.prologue_rows:
                groups = _absorb_prologues(groups, self.prologue_rows)
            _rebuild(entry, groups, kernels)


@dataclass(eq=False)
class _Group:
    kind: str
    index: int
    ops: list = field(default_factory=list)
    needs: set = field(default_factory=set)

    def depends_on(self, other: _Group) -> bool:
        return other in self.needs


def _group(ops: list[ir.Operation]) -> list[_Group]:
    """Assign every compute op to a group; groups come back in an order in which they can run."""
    attention = _attention_members(ops)
    groups: list[_Group] = []
    owner: dict[ir.Operation, _Group] = {}
    by_softmax: dict[int, _Group] = {}
    for op in ops[:-1]:
        if op.name in INLINE or op.name == "tensor.insert_slice":
            continue
        sources = {owner[p] for p in _producers(op, owner)}
        number = attention.get(op)
        if number is not None:
            group = by_softmax.get(number)
            kind = "attention"
        else:
            kind = _root_kind(op)
            group = _joinable(op, kind, sources, owner)
        if group is None:
            group = _Group(kind, len(groups))
            groups.append(group)
            if number is not None:
                by_softmax[number] = group
        group.ops.append(op)
        owner[op] = group
        _add_needs(group, sources, groups)
    return _in_order(_merge_rows(groups, owner))


def _root_kind(op: ir.Operation) -> str:
    if op.name == "linalg.contract":
        return "contraction"
    if is_elementwise(op) or op.name in ("linalg.reduce", "linalg.softmax"):
        return "rows"
    return "generic"


def _joinable(op: ir.Operation, kind: str, sources: set[_Group], owner: dict) -> _Group | None:
    """The latest group among the op's producers, where the op can be computed beside them."""
    if kind != "rows" or not sources:
        return None
    for candidate in sorted(sources, key=lambda g: -g.index):
        if any(other is not candidate and other.depends_on(candidate) for other in sources):
            continue
        root = candidate.ops[0]
        if candidate.kind == "contraction" and is_elementwise(op):
            same = shape_of(op.results[0]) == shape_of(root.results[0])
            return candidate if same and _reads_in_place(op, candidate, owner) else None
        if candidate.kind == "rows" and _row_shape(op) == _row_shape(root) and _reads_in_place(op, candidate, owner):
            return candidate
        return None
    return None


def _row_shape(op: ir.Operation) -> tuple[int, ...]:
    """The extents of the loops that a rows kernel runs in parallel: all but the last of its widest operand."""
    if op.name == "linalg.reduce":
        return shape_of(op.results[0])
    shape = shape_of(op.results[0])
    return shape if len(shape) == 1 else shape[:-1]


def _reads_in_place(op: ir.Operation, group: _Group, owner: dict) -> bool:
    """Whether the op reads the group's values directly, at the rows that it computes itself."""
    for operand in op.operands:
        producers = {owner[p] for p in _producers_of(operand, owner)}
        producer = defining_op(operand)
        if group in producers and producer not in owner and producer.name not in ("linalg.fill", "tensor.empty"):
            return False
    return True


def _producers(op: ir.Operation, owner: dict) -> list[ir.Operation]:
    values = [*op.operands, *captured_values(op)]
    return [p for value in values for p in _producers_of(value, owner)]


def _producers_of(value: ir.Value, owner: dict) -> list[ir.Operation]:
    op = defining_op(value)
    if op is None:
        return []
    if op in owner:
        return [op]
    return [p for operand in op.operands for p in _producers_of(operand, owner)]


def _attention_members(ops: list[ir.Operation]) -> dict[ir.Operation, int]:
    """Ops of every scores → elementwise → softmax → weighted-sum chain and the cache writes it reads."""
    members: dict[ir.Operation, int] = {}
    for number, softmax in enumerate(op for op in ops if op.name == "linalg.softmax"):
        users = [use.owner for use in softmax.results[0].uses]
        chain = [softmax]
        scores = defining_op(softmax.operands[0])
        while scores is not None and is_elementwise(scores):
            chain.append(scores)
            scores = _same_shape_source(scores)
        if scores is None or scores.name != "linalg.contract" or len(users) != 1 or users[0].name != "linalg.contract":
            continue
        chain += [scores, users[0].operation]
        for contraction in (scores, users[0]):
            chain += _cache_writes(contraction.operands[1])
        for op in chain:
            members[op] = number
    return members


def _same_shape_source(op: ir.Operation) -> ir.Operation | None:
    """The producer of the first operand that has an elementwise op's own shape."""
    shape = shape_of(op.results[0])
    return next((defining_op(v) for v in op.operands if shape_of(v) == shape), None)


def _cache_writes(value: ir.Value) -> list[ir.Operation]:
    op = defining_op(value)
    writes = []
    while op is not None and (op.name in VIEWS or op.name == "scf.for"):
        if op.name == "scf.for":
            writes.append(op)
            op = defining_op(op.operands[3])
        else:
            op = defining_op(op.operands[0])
    return writes


def _merge_rows(groups: list[_Group], owner: dict) -> list[_Group]:
    """Move rows groups that only one other rows group over the same rows reads into that group."""
    kept = []
    for group in groups:
        readers = {owner.get(_top_level(use.owner, op)) for op in group.ops for r in op.results for use in r.uses}
        readers.discard(group)
        reader = next(iter(readers)) if len(readers) == 1 else None
        if (
            reader is None
            or {group.kind, reader.kind} != {"rows"}
            or _row_shape(group.ops[0]) != _row_shape(reader.ops[0])
        ):
            kept.append(group)
            continue
        reader.ops[:0] = group.ops
        for op in group.ops:
            owner[op] = reader
        for other in groups:
            if group in other.needs:
                other.needs.discard(group)
                if other is not reader:
                    other.needs.add(reader)
    return kept


def _add_needs(group: _Group, sources: set[_Group], groups: list[_Group]) -> None:
    added = {s for s in sources if s is not group}
    for source in list(added):
        added |= source.needs
    group.needs |= added
    for other in groups:
        if group in other.needs:
            other.needs |= added


def _in_order(groups: list[_Group]) -> list[_Group]:
    """A topological order that keeps the program's own where it can."""
    done: list[_Group] = []
    placed: set[_Group] = set()
    waiting = list(groups)
    while waiting:
        ready = next((g for g in waiting if g.needs <= placed), None)
        if ready is None:
            raise InternalError("outline-kernels: kernels depend on each other in a circle")
        waiting.remove(ready)
        placed.add(ready)
        done.append(ready)
    return done


def _absorb_prologues(groups: list[_Group], most_rows: int) -> list[_Group]:
    owner = {op: group for group in groups for op in group.ops}
    kept = []
    for group in groups:
        readers = {owner.get(use.owner.operation) for op in group.ops for r in op.results for use in r.uses} - {group}
        few = group.kind == "rows" and math.prod(_row_shape(group.ops[0])) <= most_rows
        few = few and len(_outputs(group)) == 1  # one that also carries the residual would be computed by its readers too
        if few and readers and all(r is not None and r.kind == "contraction" for r in readers):
            for reader in readers:
                reader.ops[:0] = group.ops
                reader.needs |= group.needs
            for other in groups:
                other.needs.discard(group)
        else:
            kept.append(group)
    return kept


class _Kernels:
    """The module's kernels by their bodies, so that equal ones exist once."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.by_body: dict[str, str] = {}
        self.names: set[str] = set()

    def add(self, func: ir.Operation, stem: str) -> str:
        """Keep or drop a just-built kernel function; the symbol to call."""
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
        return name


def _rebuild(entry: ir.Operation, groups: list[_Group], kernels: _Kernels) -> None:
    """Replace an entry's body by calls."""
    block = entry.regions[0].blocks[0]
    old = operations(block)
    terminator = old[-1]
    outputs_of = {group: _outputs(group) for group in groups}
    values: dict[ir.Value, ir.Value] = {}

    def resolve(value: ir.Value) -> ir.Value:
        """The value at entry level, after kernels have run: an argument, a result of a call, or a slice of one."""
        if value in values:
            return values[value]
        op = defining_op(value)
        if op is None:
            return value
        if op.name not in INLINE and op.name != "tensor.insert_slice":
            raise InternalError(f"outline-kernels: {op.name} is used before its kernel has run")
        with ir.InsertionPoint(terminator), op.location:
            operands = [resolve(v) for v in op.operands]
            copy = op.clone()
            for i, operand in enumerate(operands):
                copy.operands[i] = operand
        values[value] = copy.results[0]
        return copy.results[0]

    for group in groups:
        outputs = outputs_of[group]
        symbol, arguments = _build_kernel(group, outputs, entry, kernels)
        with ir.InsertionPoint(terminator), group.ops[0].location:
            call = create_op(
                "func.call",
                [resolve(a) for a in arguments],
                [o.type for o in outputs],
                {"callee": ir.FlatSymbolRefAttr.get(symbol)},
            )
        values.update(zip(outputs, call.results, strict=True))
    for i, operand in enumerate(terminator.operands):
        terminator.operands[i] = resolve(operand)
    for op in reversed(old[:-1]):
        op.erase()


def _outputs(group: _Group) -> list[ir.Value]:
    """The group's values that something outside it reads, through slices too."""
    members = set(group.ops)
    outputs = []
    for op in group.ops:
        for result in op.results:
            if any(_top_level(use.owner, op) not in members for use in result.uses):
                outputs.append(result)
    return outputs


def _top_level(op: ir.Operation, sibling: ir.Operation) -> ir.Operation:
    op = op.operation
    while op.block != sibling.block:
        op = op.parent.operation
    return op


def _build_kernel(
    group: _Group, outputs: list[ir.Value], entry: ir.Operation, kernels: _Kernels
) -> tuple[str, list[ir.Value]]:
    """Make the kernel's function before the entry; its symbol and the entry-level values to call it with."""
    arguments: list[ir.Value] = []
    mapping: dict[ir.Value, ir.Value] = {}
    region_owner = create_op(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get("kernel"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([], [])),
            "sym_visibility": ir.StringAttr.get("private"),
            "kernel": ir.StringAttr.get(group.kind),
        },
        regions=1,
        loc=group.ops[0].location,
        ip=ir.InsertionPoint(entry),
    )
    body = region_owner.regions[0].blocks.append()

    def bring(value: ir.Value) -> ir.Value:
        if value in mapping:
            return mapping[value]
        op = defining_op(value)
        if op is None or op.name not in INLINE or _is_entry_view(op):
            mapping[value] = body.add_argument(value.type, ir.Location.unknown())
            arguments.append(value)
        else:
            mapping[value] = copy(op).results[0]
        return mapping[value]

    def copy(op: ir.Operation) -> ir.Operation:
        operands = [bring(v) for v in op.operands]
        captured = {v: bring(v) for v in captured_values(op)}
        with ir.InsertionPoint(body):
            clone = op.clone().operation
        for i, operand in enumerate(operands):
            clone.operands[i] = operand
        replace_captured(clone, captured)
        return clone

    for op in group.ops:
        for old, new in zip(op.results, copy(op).results, strict=True):
            mapping[old] = new
    results = [mapping[o] for o in outputs]
    with ir.InsertionPoint(body):
        create_op("func.return", results)
    types = ir.FunctionType.get([a.type for a in body.arguments], [r.type for r in results])
    region_owner.attributes["function_type"] = ir.TypeAttr.get(types)
    tied = [_tied_argument(r) for r in results]
    region_owner.attributes["tied"] = ir.ArrayAttr.get(
        [ir.IntegerAttr.get(ir.IntegerType.get_signless(64), t) for t in tied]
    )
    extents = shape_of(outputs[-1] if group.kind != "attention" else group.ops[-1].results[0])
    stem = "_".join([group.kind, "x".join(map(str, extents))]) if extents else group.kind
    return kernels.add(region_owner, stem), arguments


def _is_entry_view(op: ir.Operation) -> bool:
    """Whether the op is a contiguous slice of an entry's argument, so that it is only an offset."""
    if op.name != "tensor.extract_slice" or len(op.operands) != 1:
        return False
    source = defining_op(op.operands[0])
    if source is not None and source.name != "tensor.insert_slice":
        return False
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
    whole = shape_of(op.operands[0])
    partial = [i for i, (size, extent) in enumerate(zip(sizes, whole, strict=True)) if size != extent]
    return not partial or all(size == 1 for size in sizes[: partial[-1]])


def _tied_argument(value: ir.Value) -> int:
    """The index of the kernel's argument that a loop updates in place to make this value, or -1."""
    op = defining_op(value)
    if op is None or op.name != "scf.for":
        return -1
    while op is not None and op.name == "scf.for":
        value = op.operands[3]
        op = defining_op(value)
    return ir.BlockArgument(value).arg_number if op is None else -1
