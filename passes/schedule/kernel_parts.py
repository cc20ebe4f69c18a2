"""What a kernel's body falls into when every costly op gets a kernel of its own, and where the parts' values are."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    VIEWS,
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    is_elementwise,
    loop_extents,
    operations,
    shape_of,
)
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.model.kernel_groups import is_inline

ENDS = ("bufferization.to_tensor", "bufferization.materialize_in_destination", "func.return")
MOVES = (
    "tensor.insert_slice",
    "tensor.concat",
    "tensor.pad",
    "tensor.from_elements",
    "tensor.splat",
    "tensor.generate",
)
"""Ops whose elements cost no more than what they are made of."""


class KernelParts:
    """roots: the ops whose results are in memory, in order; costly: for each, the costly op that is computed in it."""

    def __init__(self, kernel: ir.Operation) -> None:
        block = kernel.regions[0].blocks[0]
        self.ops = [op for op in operations(block) if op.name not in ENDS and not is_inline(op)]
        self.outputs = outputs_of(kernel)
        self.buffers = {op.results[0]: op.operands[0] for op in operations(block) if op.name == ENDS[0]}
        self.costly: dict[ir.Operation, ir.Operation] = {}
        self.roots: list[ir.Operation] = []
        written = {defining_op(tensor) for tensor, _ in self.outputs}
        for op in self.ops:
            if not is_elementwise(op) and op.name not in MOVES:
                self.costly[op] = op
            if not any(True for r in op.results for _ in r.uses):
                continue
            reader = self._reader(op)
            if op in written or reader is None or not self._joins(op, reader):
                self.roots.append(op)
            elif op in self.costly:
                self.costly[reader] = self.costly[op]

    def _reader(self, op: ir.Operation) -> ir.Operation | None:
        """The one op that reads an op's one result, at one place for each of its own points."""
        if len(op.results) != 1:
            return None
        found = set(_readers(op.results[0]))
        return next(iter(found))[0] if len(found) == 1 else None

    def _joins(self, op: ir.Operation, reader: ir.Operation) -> bool:
        """Whether the reader may compute the op's elements where it reads them."""
        value = op.results[0]
        if reader.name in ENDS or (value not in list(reader.operands) and op in self.costly):
            return False
        if op in self.costly:
            maps = dict(zip(reader.operands, indexing_maps(reader), strict=True)) if is_elementwise(reader) else {}
            in_place = value in maps and dim_positions(maps[value]) == list(range(maps[value].n_dims))
            return in_place and shape_of(value) == shape_of(reader.results[0]) and reader not in self.costly
        if reader.name in ("scf.for", "scf.if", "scf.while"):
            return False
        points = prod(loop_extents(reader).values()) if reader.name.startswith("linalg.") else prod(shape_of(value))
        return points <= 2 * prod(shape_of(value))

    def homes(self) -> dict[ir.Value, list[ir.Value]]:
        """The kernel's own memory for values: where results go, and on the way to a state that changes in place."""
        homes: dict[ir.Value, list[ir.Value]] = {}
        for tensor, buffer in self.outputs:
            homes.setdefault(tensor, []).append(buffer)
            op = defining_op(tensor)
            while buffer in self.buffers.values() and op is not None and op.name in ("scf.for", "tensor.insert_slice"):
                before = op.operands[3 if op.name == "scf.for" else 1]
                op = defining_op(before)
                if op not in self.roots or len(list(before.uses)) != 1 or before in homes:
                    break
                homes[before] = [buffer]
        return homes

    def reads_what_changed(self, homes: dict[ir.Value, list[ir.Value]]) -> set[ir.Value]:
        """States of which some root wants the old value after another has written the new one."""
        changed: set[ir.Value] = set()
        found: set[ir.Value] = set()
        for root in self.roots:
            found |= {self.buffers[v] for v in self.leaves(root) if self.buffers.get(v) in changed}
            changed |= {buffer for r in root.results for buffer in homes.get(r, [])}
        return found

    def leaves(self, root: ir.Operation) -> set[ir.Value]:
        """The values in memory that a root is computed from."""
        found: set[ir.Value] = set()
        waiting = [*root.operands, *captured_values(root)]
        seen: set[ir.Operation] = set()
        while waiting:
            value = waiting.pop()
            op = defining_op(value)
            if op is None or op in self.roots or value in self.buffers:
                found.add(value)
            elif op not in seen:
                seen.add(op)
                waiting += [*op.operands, *captured_values(op)]
        return found


def _readers(value: ir.Value) -> Iterator[tuple[ir.Operation, str]]:
    """The ops beside a value's own that read it, and how; through views too."""
    made = defining_op(value)
    for use in value.uses:
        op = use.owner.operation
        if op.block != made.block:
            while op.block != made.block:
                op = op.parent.operation
            yield op, "anywhere"
        elif op.name in VIEWS:
            yield from ((reader, f"through {op.results[0].type} {how}") for reader, how in _readers(op.results[0]))
        elif is_inline(op):
            yield op, "a number"
        else:
            maps = indexing_maps(op) if "indexing_maps" in op.attributes else None
            yield op, str(maps[use.operand_number]) if maps else str(use.operand_number)
