"""linalg's named ops as linalg.generic: their loops and bodies, which the names stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lispgpt.ir.mlir import create_op, ir, passmanager
from lispgpt.ir.structure import operations

SEGMENTS = "operandSegmentSizes"
WITHOUT_SEGMENTS = ("linalg.transpose", "linalg.broadcast", "linalg.map", "linalg.reduce", "linalg.softmax")


def drop_segments(op: ir.Operation) -> None:
    """Drop what a program may write on an op without use for it: MLIR's generalisation would give it to it twice."""
    if op.name in WITHOUT_SEGMENTS and SEGMENTS in op.attributes:
        del op.attributes[SEGMENTS]


@contextmanager
def generalized(op: ir.Operation) -> Iterator[ir.Operation]:
    """The linalg.generic that computes what a named op does, in a module of its own for as long as this is open; a copy
    of the op where MLIR has none."""
    with ir.Location.unknown(op.context):
        module = ir.Module.create()
        types = ir.FunctionType.get([v.type for v in op.operands], [v.type for v in op.results])
        attributes = {"sym_name": ir.StringAttr.get("only"), "function_type": ir.TypeAttr.get(types)}
        with ir.InsertionPoint(module.body):
            block = create_op("func.func", attributes=attributes, regions=1).regions[0].blocks.append(*types.inputs)
        with ir.InsertionPoint(block):
            copy = op.clone().operation
            drop_segments(copy)
            create_op("func.return", copy.results)
        for number, argument in enumerate(block.arguments):
            copy.operands[number] = argument
        passmanager.PassManager.parse("builtin.module(linalg-generalize-named-ops)").run(module.operation)
    yield operations(block)[0]
