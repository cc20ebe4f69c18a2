"""shard-batch: give each of several devices its part of the batch, and have them add up what are sums over all of it.

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
added up, as soon as they are made, each by a `shard.all_reduce`.  The largest and the least over such a dimension are
found by one, too.  A slice of the batch is that slice of each device's
part, where all of the batch is treated as it is (see `alike_parts`), and an error where not; the number of a row
(linalg.index) is that of the whole batch, for which the entry is told its device's.  A state to which entries add such
sums has each device's part of them (see `kept_sums`), as `summed` of an entry says.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.ir.linalg_ops import filled
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import entry_arguments, entry_functions, entry_results, shape_of, strings
from lispgpt.passes.distribute import accumulated_gradients as accumulated_gradients
from lispgpt.passes.distribute.batch_dims import BatchDim
from lispgpt.passes.distribute.shard_entries import ShardingPass, shard_ops
from lispgpt.passes.distribute.sharded_values import DEVICES, ShardedValues

BATCH = "batch"


@dataclass(frozen=True)
class ShardBatch(ShardingPass):
    def divide(self, module: ir.Module) -> None:
        shape = ir.DenseI64ArrayAttr.get([self.devices])
        with ir.InsertionPoint.at_block_begin(module.body):
            create_op("shard.grid", attributes={"sym_name": DEVICES, "shape": shape})
        entries = entry_functions(module)
        kept = accumulated_gradients.find(entries, self._is_sharded)
        for entry in entries:
            if self._is_sharded(entry):
                self._divide(entry, kept)
            elif kept & entry_arguments(entry).keys():
                _divide_ops(entry, ShardedValues(self.devices), kept)

    def _is_sharded(self, entry: ir.Operation) -> bool:
        """Whether devices can share the batch of an entry: it has one, and keeps nothing for each sequence."""
        if "batched" not in entry.attributes:
            return False
        batched = zip(entry_arguments(entry), ir.DenseI64ArrayAttr(entry.attributes["batched"]), strict=True)
        keeps = any(name.startswith("state:") and dimension >= 0 for name, dimension in batched)
        return not keeps and _sizes(entry)[BATCH] % self.devices == 0

    def _divide(self, entry: ir.Operation, kept: set[str]) -> None:
        values, batch = ShardedValues(self.devices), _sizes(entry)[BATCH]
        batched = dict(zip(entry_arguments(entry), ir.DenseI64ArrayAttr(entry.attributes["batched"]), strict=True))
        for name, argument in entry_arguments(entry).items():
            dimension = batched[name]
            if dimension == -2:
                raise UserError(
                    f"{name.partition(':')[2]} cannot be divided among devices: its size is made of the batch's"
                )
            if dimension >= 0:
                inner = shape_of(argument)[dimension] // batch
                values.divide(argument, {dimension: BatchDim(batch, inner)}, entry)
        _divide_ops(entry, values, kept)
        _describe(entry, batched, batch // self.devices)
        del entry.attributes["batched"]


def _divide_ops(entry: ir.Operation, values: ShardedValues, kept: set[str]) -> None:
    arguments, results = entry_arguments(entry), entry_results(entry)
    own = kept & arguments.keys()
    values.parts.update(arguments[name] for name in own)
    adding = {}
    for name in own & results.keys():
        number = accumulated_gradients.addend_of(results[name], arguments[name])
        if number is not None:
            adding[results[name].owner] = number

    def before(op: ir.Operation) -> None:
        if op in adding:
            addend = op.operands[adding[op]]
            addend = values.summed.get(addend, addend)
            if addend not in values.parts | values.nothing:
                op.operands[adding[op]] = accumulated_gradients.on_one_device(values, addend, op)

    def returned(name: str, value: ir.Value, end: ir.Operation) -> ir.Value:
        if name not in own:
            return values.add_up(value) if value in values.parts else value
        if value in values.nothing:
            return filled(shape_of(value), value.type.element_type, 0.0)
        return value if value in values.parts else accumulated_gradients.on_one_device(values, value, end)

    shard_ops(entry, values, before, returned)
    if own:
        entry.attributes["summed"] = attribute(sorted(own))


def _sizes(entry: ir.Operation) -> dict[str, int]:
    """An entry's free dimensions."""
    extents = ir.DenseI64ArrayAttr(entry.attributes["extents"])
    return dict(zip(strings(entry.attributes["sizes"]), extents, strict=True))


def _describe(entry: ir.Operation, batched: dict[str, int], batch: int) -> None:
    """Have an entry's attributes say what it is by now."""
    entry.attributes["extents"] = ir.DenseI64ArrayAttr.get([*(_sizes(entry) | {BATCH: batch}).values()])
    inputs = {}
    for named in ir.DictAttr(entry.attributes["inputs"]):
        shape, dimension = list(ir.DenseI64ArrayAttr(named.attr)), batched[f"input:{named.name}"]
        if dimension >= 0:
            shape[dimension] = batch
        inputs[named.name] = ir.DenseI64ArrayAttr.get(shape)
    entry.attributes["inputs"] = ir.DictAttr.get(inputs)
