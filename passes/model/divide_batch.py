"""divide-batch: give each of several devices its part of the batch, and have them add up what are sums over all of it.

Before (devices=2):                                  After:
  func.func @train(%x: tensor<8x4xf32>, …) {           func.func @train(%x: tensor<4x4xf32>, …) {
    %g = linalg.contract … ins(%dy, %x …)                %p = linalg.contract … ins(%dy, %x …)
      -> tensor<2x4xf32>                                   -> tensor<2x4xf32>
    %n = linalg.generic … ins(%g …) {mulf %in, %in}      %g = shard.all_reduce %p on @devices …
                                                         %n = linalg.generic … ins(%g …) {mulf %in, %in}

Requires: entries on tensors, whose `batched` says which dimension of each argument counts sequences.
Ensures: each such dimension, and those made of them, has what one device has of it; whatever an entry gives, and what
it leaves in weights and states, is on every device what the whole batch makes of it, but for rows of its own sequences.
An entry whose batch devices cannot share alike, or that keeps something for each sequence, is whole on each.

The program means what it means on the whole batch; that devices share it is said nowhere in it.  A sum over a dimension
that counts sequences is at first the sum of a device's own: a part of the sum.  What is linear in parts (sums of them,
multiples, slices) makes parts, and where something else reads them (a square, a root, the update of a weight) they are
added up, as soon as they are made, each by a `shard.all_reduce`.  A slice of the batch is that slice of each device's
part, where all of the batch is treated as it is (see `alike_parts`), and an error where not; the number of a row
(linalg.index) is that of the whole batch, for which the entry is told its device's.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import entry_functions, operations, shape_of, strings
from lispgpt.passes.base import Pass
from lispgpt.passes.model.batch_dims import BatchDim
from lispgpt.passes.model.divided_ops import visit
from lispgpt.passes.model.divided_values import DEVICES, DividedValues
from lispgpt.passes.states import UNPLACED

BATCH = "batch"


@dataclass(frozen=True)
class DivideBatch(Pass):
    """devices: how many share the batch; with one there is nothing to do."""

    starts_from = (UNPLACED,)
    devices: int = 1

    def run(self, module: ir.Module, target: object) -> None:
        if self.devices == 1:
            return
        shape = ir.DenseI64ArrayAttr.get([self.devices])
        with ir.InsertionPoint.at_block_begin(module.body):
            create_op("shard.grid", attributes={"sym_name": ir.StringAttr.get(DEVICES), "shape": shape})
        for entry in entry_functions(module):
            if "batched" in entry.attributes and _can_be_divided(entry, self.devices):
                _divide(entry, self.devices)


def _can_be_divided(entry: ir.Operation, devices: int) -> bool:
    kinds = [name.partition(":")[0] for name in strings(entry.attributes["arguments"])]
    batched = ir.DenseI64ArrayAttr(entry.attributes["batched"])
    keeps = any(kind == "state" and dimension >= 0 for kind, dimension in zip(kinds, batched, strict=True))
    return not keeps and _size(entry, BATCH) % devices == 0


def _divide(entry: ir.Operation, devices: int) -> None:
    values = DividedValues(devices)
    block = entry.regions[0].blocks[0]
    names = strings(entry.attributes["arguments"])
    batch = _size(entry, BATCH)
    batched = list(ir.DenseI64ArrayAttr(entry.attributes["batched"]))
    for argument, dimension, name in zip(block.arguments, batched, names, strict=True):
        if dimension == -2:
            raise UserError(
                f"{name.partition(':')[2]} cannot be divided among devices: its size is made of the batch's"
            )
        if dimension >= 0:
            inner = shape_of(argument)[dimension] // batch
            values.divide(argument, {dimension: BatchDim(batch, inner)}, entry)
    for op in operations(block):
        visit(values, op)
    _describe(entry, dict(zip(names, batched, strict=True)), batch // devices)
    del entry.attributes["batched"]


def _size(entry: ir.Operation, name: str) -> int:
    """The size of a free dimension."""
    sizes = dict(
        zip(strings(entry.attributes["sizes"]), ir.DenseI64ArrayAttr(entry.attributes["extents"]), strict=True)
    )
    return int(sizes[name])


def _describe(entry: ir.Operation, batched: dict[str, int], batch: int) -> None:
    """Have an entry's attributes say what it is by now."""
    block = entry.regions[0].blocks[0]
    types = [[a.type for a in block.arguments], [v.type for v in operations(block)[-1].operands]]
    entry.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
    sizes, extents = strings(entry.attributes["sizes"]), list(ir.DenseI64ArrayAttr(entry.attributes["extents"]))
    extents[sizes.index(BATCH)] = batch
    entry.attributes["extents"] = ir.DenseI64ArrayAttr.get(extents)
    inputs = {}
    for named in ir.DictAttr(entry.attributes["inputs"]):
        shape, dimension = list(ir.DenseI64ArrayAttr(named.attr)), batched[f"input:{named.name}"]
        if dimension >= 0:
            shape[dimension] = batch
        inputs[named.name] = ir.DenseI64ArrayAttr.get(shape)
    entry.attributes["inputs"] = ir.DictAttr.get(inputs)
