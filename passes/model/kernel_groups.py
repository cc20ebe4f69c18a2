"""Which ops of an entry become one kernel: a root, and the ops that can be computed beside it.

Roots are contractions, chains of reductions and elementwise ops over the same rows, attention (cache writes, scores,
mask, softmax, weighted sum) and the sums that are its gradients; anything else stands alone.  Slices, reshapes, fills
and constants belong to no kernel: each kernel that needs one has its own copy.  So it is with attention's scores where
there are gradients, and with what is made of them point by point.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from lispgpt.ir.combiners import combiner_of
from lispgpt.ir.loops import is_loop_call
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    VIEWS,
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
    viewed,
)
from lispgpt.passes.model.column_sums import join_column_sums
from lispgpt.passes.model.kernel_group import (
    KernelGroup,
    add_needs,
    in_order,
    into_readers,
    outputs_of,
    top_level,
    users,
)
from lispgpt.passes.model.long_chains import is_long
from lispgpt.passes.model.product_rows import writes_by_products
from lispgpt.passes.model.row_moments import BESIDE
from lispgpt.passes.recognise.attention import Attention, record_attention
from lispgpt.passes.recognise.attention_gradients import record_sums
from lispgpt.passes.recognise.cache_writes import CacheWrite, is_cache_write, is_scatter, is_written_in_place
from lispgpt.passes.recognise.find_attention import find_attentions
from lispgpt.passes.recognise.find_gradients import is_product

INLINE = VIEWS | {"arith.constant", "tensor.empty", "linalg.fill"}

VERY_FEW = 4
"""Rows that products recompute wherever they are kept."""

COLLECTIVES = tuple(f"shard.{operation}" for operation in ("all_reduce", "reduce_scatter", "all_gather", "all_slice"))
"""Ops that all devices of a grid do together, or each by its number."""


def is_collective(op: ir.Operation) -> bool:
    return op.name in COLLECTIVES


def is_inline(op: ir.Operation) -> bool:
    """Whether every kernel that reads the op's results has its own copy of it: views, fills, constants and scalars, and
    what is marked so, as what reads blocks is."""
    return op.name in INLINE or "inline" in op.attributes or _is_scalar(op)


def _is_scalar(op: ir.Operation) -> bool:
    """Whether an op computes numbers of numbers and of elements of tensors, in branches perhaps."""
    if any(isinstance(result.type, ir.RankedTensorType) for result in op.results):
        return False
    if op.name == "scf.if":
        branches = [operations(region.blocks[0]) for region in op.regions if len(region.blocks)]
        return all(_is_scalar(inner) or inner.name == "scf.yield" for branch in branches for inner in branch)
    known = op.name == "tensor.extract" or op.name.partition(".")[0] in ("arith", "math", "index")
    return known and not len(op.regions)


def group_ops(
    ops: list[ir.Operation],
    placements: set[ir.Operation],
    fewest_shares: int = 0,
    cached_rows: int = 0,
    apart: bool = False,
    packed: bool = False,
) -> list[KernelGroup]:
    """Assign every compute op to a group; groups come back in an order in which they can run.

    placements: those of the ops that put parts where they belong, which are no kernel's.  fewest_shares: of sums of
    columns that rows groups are to make; 0: of none.  cached_rows: the fewest of a product whose group writes them to
    caches itself; 0: none does.  apart: whether no ops that compute are put together.  packed: whether attention packs
    and writes the keys and values of rows that are alone in their sequences.
    """
    found = [] if apart else find_attentions(ops, packed)
    homes: dict[ir.Operation, ir.Operation] = {}
    if cached_rows:
        found, homes = writes_by_products(found, ops, placements, cached_rows)
    parts = _parts(found)
    shared = {op for attention in found for sums in attention.gradients for op in sums.shared()}
    member = {op: part for part in parts for op in part.ops if op not in shared}
    groups: list[KernelGroup] = []
    owner: dict[ir.Operation, KernelGroup] = {}
    by_part: dict[_Part, KernelGroup] = {}
    for op in ops[:-1]:
        if is_inline(op) or op in placements or op in shared:
            continue
        sources = {owner[p] for p in _producers(op, owner)}
        part, home = member.get(op), owner.get(homes.get(op))
        if part is not None:
            kind, group = part.kind, by_part.get(part)
        elif home is not None and not any(source.depends_on(home) for source in sources):
            kind, group = home.kind, home
        else:
            kind = root_kind(op, placements)
            group = None if apart and kind == "rows" else _joinable(op, kind, sources, owner)
        if group is None:
            group = KernelGroup(kind, len(groups))
            groups.append(group)
            if part is not None:
                by_part[part] = group
        group.ops.append(op)
        owner[op] = group
        add_needs(group, sources, groups)
    if apart:
        return in_order(groups)
    places = {op: number for number, op in enumerate(ops)}
    for part, group in by_part.items():
        group.copied |= shared & set(part.ops)
        group.ops = sorted({*group.ops, *group.copied}, key=places.__getitem__)
    looked_at = {op for one in found for side in (one.keys, one.values) for op in _producers_of(side.tensor, owner)}
    packing = {op for one in found for write in one.writes for op in _packing(write)}
    groups = _absorb_operands(_merge_rows(groups, owner), owner, looked_at, packing)
    return in_order(join_column_sums(groups, owner, fewest_shares) if fewest_shares else groups)


@dataclass(frozen=True, eq=False)
class _Part:
    """What attention, or some of its gradients, has of ops."""

    kind: str
    ops: list[ir.Operation]


def _parts(found: list[Attention]) -> list[_Part]:
    """What each attention and each kernel of gradients is made of, which is marked."""
    parts: list[_Part] = []
    for attention in found:
        record_attention(attention)
        parts.append(_Part("attention", attention.members()))
        for sums in attention.gradients:
            record_sums(sums)
            parts.append(_Part("attention-gradient", [*sums.shared(), *(op for one in sums.sums for op in one.ops)]))
    return parts


def root_kind(op: ir.Operation, placements: Collection[ir.Operation] = ()) -> str:
    """The kind of a kernel whose root is the op.  placements: those of its entry, where it stands in one."""
    if is_product(op):
        return "contraction"
    if is_elementwise(op) or _is_over_rows(op):
        return "rows"
    if is_scatter(op):
        return "scatter"
    if is_collective(op):
        return "collective"
    if is_loop_call(op):
        return "loop"
    return "cache-write" if is_cache_write(op) and is_written_in_place(op, placements) else "generic"


def _is_over_rows(op: ir.Operation) -> bool:
    """Whether an op reduces, or normalises, the last dimension alone."""
    if op.name == "linalg.softmax":
        return bool(ir.IntegerAttr(op.attributes["dimension"]).value == len(shape_of(op.operands[0])) - 1)
    if op.name != "linalg.reduce" or len(op.results) != 1:
        return False
    return integers(op.attributes["dimensions"]) == [len(shape_of(op.operands[0])) - 1] and combiner_of(op) is not None


def _joinable(op: ir.Operation, kind: str, sources: set[KernelGroup], owner: dict) -> KernelGroup | None:
    """The latest group among the op's producers, where the op can be computed beside them."""
    if kind == "cache-write":
        before = owner.get(defining_op(op.operands[3]))
        alone = before is not None and before.kind == kind and not any(s.depends_on(before) for s in sources)
        return before if alone else None
    if op.name == "tensor.insert_slice":
        before = owner.get(defining_op(op.operands[1]))
        if before is None or before.ops[-1].name != op.name or len(list(op.operands[1].uses)) > 1:
            return None
        return None if any(s.depends_on(before) for s in sources) else before
    if kind != "rows" or not sources:
        return None
    if BESIDE in op.attributes:
        latest = max(sources, key=lambda group: group.index)
        return latest if latest.kind == "contraction" else None
    for candidate in sorted((g for g in sources if not is_long(g)), key=lambda g: -g.index):
        if any(other is not candidate and other.depends_on(candidate) for other in sources):
            continue
        root = candidate.ops[0]
        if candidate.kind == "contraction" and is_elementwise(op):
            same = shape_of(op.results[0]) == shape_of(root.results[0])
            return candidate if same and not _is_summand(op) and _reads_in_place(op, candidate, owner) else None
        if candidate.kind == "rows" and row_shape(op) == row_shape(root) and _reads_in_place(op, candidate, owner):
            return candidate
        return None
    return None


def _is_summand(op: ir.Operation) -> bool:
    """Whether reductions alone read an op's result, so that it is cheaper to compute beside them than to store."""
    readers = [use.owner.operation for use in op.results[0].uses]
    return bool(readers) and all(reader.name == "linalg.reduce" for reader in readers)


def row_shape(op: ir.Operation) -> tuple[int, ...]:
    """The extents of the loops that a rows kernel runs in parallel: all but the last of its widest operand."""
    shape = shape_of(op.results[0])
    if op.name == "linalg.softmax":
        return shape[:-1]
    return shape if op.name == "linalg.reduce" or len(shape) == 1 else shape[:-1]


def _reads_in_place(op: ir.Operation, group: KernelGroup, owner: dict) -> bool:
    """Whether the op reads the group's values directly, at the rows (for a contraction: elements) that it computes."""
    if any(group in _groups_of(value, owner) for value in captured_values(op)):
        return False
    maps = [dim_positions(m) for m in indexing_maps(op)] if op.name == "linalg.generic" else []
    leading = len(row_shape(op)) if group.kind == "rows" else len(shape_of(op.results[0]))
    for number, operand in enumerate(op.operands):
        if group not in _groups_of(operand, owner):
            continue
        producer = defining_op(operand)
        if producer.name in ("linalg.fill", "tensor.empty"):
            continue
        if producer not in owner or (maps and maps[number][:leading] != list(range(min(leading, len(maps[number]))))):
            return False
    return True


def _groups_of(value: ir.Value, owner: dict) -> set[KernelGroup]:
    return {owner[p] for p in _producers_of(value, owner)}


def _producers(op: ir.Operation, owner: dict) -> list[ir.Operation]:
    values = [*op.operands, *captured_values(op)]
    return [p for value in values for p in _producers_of(value, owner)]


def _producers_of(value: ir.Value, owner: dict) -> list[ir.Operation]:
    op = defining_op(value)
    if op is None:
        return []
    return [op] if op in owner else _producers(op, owner)


def _merge_rows(groups: list[KernelGroup], owner: dict) -> list[KernelGroup]:
    """Move rows groups that only one other rows group over the same rows reads into that group."""

    def reader_of(group: KernelGroup) -> KernelGroup | None:
        found = {top_level(use.owner, op) for op in group.ops for r in op.results for use in r.uses}
        readers = {owner.get(user) for user in found if user.name != "func.return"} - {group}
        reader = readers.pop() if len(readers) == 1 else None
        if reader is None or {group.kind, reader.kind} != {"rows"} or is_long(group, reader):
            return None
        same = row_shape(group.ops[0]) == row_shape(reader.ops[0])
        return reader if same and all(_reads_in_place(op, group, owner) for op in reader.ops) else None

    return into_readers(groups, owner, reader_of)


def _packing(write: CacheWrite) -> list[ir.Operation]:
    """The op that packs what is written, where one does, and those that find its scales."""
    op = defining_op(viewed(write.source))
    if op is None or "packs" not in op.attributes:
        return []
    scales = defining_op(viewed(op.operands[0]))
    return [op, scales, *(defining_op(viewed(value)) for value in list(scales.operands)[:1])]


def _absorb_operands(
    groups: list[KernelGroup], owner: dict, looked_at: set[ir.Operation], packing: set[ir.Operation]
) -> list[KernelGroup]:
    """Move elementwise ops that one attention alone reads (rotary positions of queries, and of keys that it writes)
    into it, and with them those that they alone read (what is rounded to the cache's type).  looked_at: what each row
    reads of all positions, and would compute anew.  packing: ops that pack what attention writes, which it has too."""

    def reader_of(group: KernelGroup) -> KernelGroup | None:
        readers = {owner.get(user) for op in group.ops for r in op.results for user in users(r, op)} - {group}
        reader = readers.pop() if len(readers) == 1 else None
        inside = all(op in packing or (is_elementwise(op) and op not in looked_at) for op in group.ops)
        return reader if inside and reader is not None and reader.kind == "attention" else None

    return into_readers(groups[::-1], owner, reader_of)[::-1]


def _bytes_of(group: KernelGroup) -> int:
    """Of a group's largest result, in f32."""
    return 4 * max(math.prod(shape_of(result)) for op in group.ops for result in op.results)


def absorb_prologues(groups: list[KernelGroup], most_rows: int, room: int | None) -> list[KernelGroup]:
    """Copy rows groups of at most `most_rows` rows into the contractions that read them, where nothing else does.

    room: bytes that more than `VERY_FEW` rows may take in f32.
    """
    owner = {op: group for group in groups for op in group.ops}
    kept = []
    for group in groups:
        readers: set[Any] = {owner.get(use.owner.operation) for op in group.ops for r in op.results for use in r.uses}
        readers -= {group}
        count = math.prod(row_shape(group.ops[0])) if group.kind == "rows" else 0
        few = 0 < count <= most_rows and (count <= VERY_FEW or room is None or _bytes_of(group) <= room)
        # One that also carries the residual would be computed by its readers too.
        few = few and len(outputs_of(group)) == 1
        if few and readers and all(r is not None and r.kind == "contraction" for r in readers):
            for reader in readers:
                reader.ops[:0] = group.ops
                reader.needs |= group.needs
                reader.copied |= set(group.ops)
            for other in groups:
                other.needs &= ~group.bit
        else:
            kept.append(group)
    return kept
