"""What passes share that divide what entries compute among devices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import entry_results, operations, retype
from lispgpt.passes.base import Pass
from lispgpt.passes.distribute.sharded_ops import visit
from lispgpt.passes.distribute.sharded_values import ShardedValues
from lispgpt.passes.states import UNPLACED


@dataclass(frozen=True)
class ShardingPass(Pass):
    """devices: how many share the entries; with one there is nothing to do."""

    starts_from = (UNPLACED,)
    devices: int = 1

    def run(self, module: ir.Module, target: object) -> None:
        if self.devices > 1:
            self.divide(module)

    @abstractmethod
    def divide(self, module: ir.Module) -> None:
        """Divide what a module's entries compute."""


def shard_ops(
    entry: ir.Operation,
    values: ShardedValues,
    before: Callable[[ir.Operation], None],
    returned: Callable[[str, ir.Value, ir.Operation], ir.Value],
) -> None:
    """Divide an entry's ops, whose arguments are divided by now.

    before: called with each op before it is.  returned: from what the entry gives, its name and the op that returns it
    to what each device is to give.
    """
    *ops, end = operations(entry.regions[0].blocks[0])
    for op in ops:
        before(op)
        visit(values, op)
    for number, (name, value) in enumerate(entry_results(entry).items()):
        value = values.summed.get(value, value)
        values.uniform.check(value)
        with ir.InsertionPoint(end), end.location:
            end.operands[number] = returned(name, value, end)
    retype(entry, [v.type for v in end.operands])
