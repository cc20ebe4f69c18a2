"""shard-states: have each device keep, and update, its part of what the optimizer remembers (ZeRO's first stage).

Before (two devices):                                  After:
  func.func @train(…, %m: tensor<8x4xf32>) {             func.func @train(…, %m: tensor<4x4xf32>) {
    %g = shard.all_reduce %p …                             %g = shard.reduce_scatter %p … scatter_dim = 0 …
                                                           %o = shard.all_slice %w … slice_axis = 0 …
    %n = linalg.generic … ins(%m, %g …) …                  %n = linalg.generic … ins(%m, %g …) …
    %next = linalg.generic … ins(%w, %n …) …               %own = linalg.generic … ins(%o, %n …) …
    return %next, %n                                       %next = shard.all_gather %own … gather_axis = 0 …
                                                           return %next, %n

Requires: what shard-batch ensures.
Ensures: a state that is element by element made of a sum over the batch, and what is made with it, has on each device
its part along one dimension, as `wholes` of the entry says with the shape of all of it; weights are whole on every
device.  A state that devices cannot share alike, and weights that are updated with it, are left as they are.

"ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", Rajbhandari et al. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import entry_arguments, entry_functions, shape_of, strings
from lispgpt.passes.distribute.batch_dims import BatchDim
from lispgpt.passes.distribute.optimizer_states import Updates, parts_of, sums_of
from lispgpt.passes.distribute.shard_entries import ShardingPass, shard_ops
from lispgpt.passes.distribute.sharded_values import grid_attributes
from lispgpt.passes.distribute.shared_values import SharedValues


@dataclass(frozen=True)
class ShardStates(ShardingPass):
    def divide(self, module: ir.Module) -> None:
        entries = [entry for entry in entry_functions(module) if _updates(entry)]
        found = Updates(entries)
        axes = {name: axis for name, axis in found.axes().items() if found.shapes[name][axis] % self.devices == 0}
        for entry in entries:
            _divide(entry, axes, found, self.devices)


def _updates(entry: ir.Operation) -> bool:
    return any(name.startswith("state:") for name in strings(entry.attributes["results"]))


def _divide(entry: ir.Operation, axes: dict[str, int], found: Updates, devices: int) -> None:
    values, arguments = SharedValues(devices), entry_arguments(entry)
    own = {name: argument for name, argument in arguments.items() if name in axes}
    wholes = {name.partition(":")[2]: ir.DenseI64ArrayAttr.get(list(shape_of(a))) for name, a in own.items()}
    for value in _sums_to_scatter(entry, own, axes, found):
        for op in sums_of(value):
            _scatter(values, op, entry)
    for name, argument in own.items():
        values.divide(argument, {axes[name]: BatchDim(shape_of(argument)[axes[name]])}, entry)

    def returned(name: str, value: ir.Value, end: ir.Operation) -> ir.Value:
        value = values.add_up(value) if value in values.parts else value
        if name not in own:
            return values.gathered(value, arguments.get(name))
        return values.fitted(value, {axes[name]: BatchDim(values.shape(value)[axes[name]])}, end)

    shard_ops(entry, values, lambda op: None, returned)
    if wholes:
        entry.attributes["wholes"] = ir.DictAttr.get(wholes)


def _sums_to_scatter(
    entry: ir.Operation, own: dict[str, ir.Value], axes: dict[str, int], found: Updates
) -> list[ir.Value]:
    """The sums over the batch of which each device needs its part alone."""
    needed: list[ir.Value] = []
    for name in own:
        for value in found.sums(entry, name):
            fits = bool(parts_of(value)) == (axes[name] == 1) and bool(sums_of(value))
            if fits and value not in needed:
                needed.append(value)
    return needed


def _scatter(values: SharedValues, op: ir.Operation, entry: ir.Operation) -> None:
    """Make one device's part of a sum in place of the sum."""
    result = op.results[0]
    dims = {0: BatchDim(shape_of(result)[0])}
    with ir.InsertionPoint(op), op.location:
        dimension = ir.IntegerAttr.get(ir.IndexType.get(), 0)
        attributes = {**grid_attributes(), "reduction": op.attributes["reduction"], "scatter_dim": dimension}
        type_ = values.local_type(result, dims, entry)
        made = create_op("shard.reduce_scatter", [op.operands[0]], [type_], attributes).results[0]
    values.shapes[made], values.dims[made] = shape_of(result), dims
    result.replace_all_uses_with(made)
    op.erase()
