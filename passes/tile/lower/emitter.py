"""What all lowerings of tile programs share: going through a program's ops, each by itself, in their order.

A value of the program becomes a Python object that says where it lies; what an op becomes is the method of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.places import written_by
from lispgpt.ir.structure import constant_number, operations
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused


def _quotient(a: Index, n: Index) -> Index:
    return b.div(a, n) if isinstance(n, int) else b.emit("arith.divui", [b.as_value(a), n], [n.type])


ARITHMETIC: dict[str, Callable[..., Index]] = {
    "arith.addi": b.add,
    "arith.subi": b.sub,
    "arith.muli": b.mul,
    "arith.divui": b.div,
    "arith.remui": b.mod,
    "arith.minui": b.at_most,
    "arith.divsi": _quotient,
    "arith.select": lambda c, a, n: b.select(c, b.as_value(a), b.as_value(n)),
    "arith.minsi": b.at_most,
    "arith.maxsi": lambda a, n: b.select(b.less(a, n), b.as_value(n), b.as_value(a)),
    "arith.ceildivsi": lambda a, n: b.div(b.add(a, n - 1), n),
}


class Emitter:
    """Emits a kernel's tile program at the insertion point.  values: what those of the program have become."""

    reader: Reader

    def __init__(self, kernel: ir.Operation, target: Any) -> None:
        self.kernel, self.target = kernel, target
        self.values: dict[ir.Value, Any] = {}

    def emit(self) -> None:
        raise NotImplementedError

    def record(self) -> None:
        """Note on the kernel what its launches need, once it is emitted."""

    def _block(self, block: ir.Block) -> list[Any]:
        """The ops of a block; what its last one hands on."""
        with self.reader.scope():
            *ops, last = operations(block)
            for op in ops:
                self._op(op)
            return [self.values[v] for v in last.operands]

    def _op(self, op: ir.Operation) -> None:
        with written_by(op, self.kernel):
            found = self._made(op)
        for result, value in zip(op.results, found if isinstance(found, list) else [found], strict=False):
            self.values[result] = value

    def _made(self, op: ir.Operation) -> Any:
        """What an op's results, one or a list of them, become."""
        if op.name in ARITHMETIC:
            return ARITHMETIC[op.name](*self._of(op))
        if is_index(op):
            return constant_number(op.results[0])
        if op.name == "arith.constant":
            return self._filled(op)
        if op.name == "arith.cmpi":
            return self._cmpi(op)
        if op.name.startswith(("arith.", "math.")):
            return self._mapped(op)
        return getattr(self, "_" + op.name.partition(".")[2].replace(".", "_"), self._unknown)(op)

    def _unknown(self, op: ir.Operation) -> Any:
        raise Refused(f"{self.target} has no {op.name} in programs of this kind")

    _filled = _cmpi = _mapped = _unknown

    def _of(self, op: ir.Operation, first: int = 0) -> list[Any]:
        return [self.values.get(v, v) for v in list(op.operands)[first:]]


def is_index(op: ir.Operation) -> bool:
    """Whether an op is an index that is known."""
    return op.name == "arith.constant" and isinstance(op.results[0].type, ir.IndexType)
