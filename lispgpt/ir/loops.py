"""Loops over kernels: functions without a body, whose `loop` says which entry is run how often, and on what.

`loop = {body = "f_loop1", rounds = 100, names = […], operands = […], starts = […], strides = […], ties = […]}`: for
each of the body's arguments the operand of the call that it is in, where in that it starts, in bytes, and by how many
bytes it moves from round to round.  Operands are what the call is given, and behind that what it makes of its own; ties
says for each of its results the operand that it is made of in place, or -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.base.access import READ_WRITE, WRITE
from lispgpt.ir.access import access_of, set_access
from lispgpt.ir.collectives import collective_functions
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import integers, operations, strings, symbol_of

LOOP = "loop"


@dataclass(frozen=True)
class Move:
    """Where an argument of a body is: in which operand of the call, from which byte on, and how far on each round."""

    operand: int
    start: int
    stride: int


@dataclass(frozen=True)
class LoopFacts:
    """body: the entry's symbol.  moves: of its arguments, by their names."""

    body: str
    rounds: int
    moves: dict[str, Move]
    ties: list[int]


def loop_functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions that are loops, by their names."""
    found = [op for op in operations(module.body) if op.name == "func.func" and LOOP in op.attributes]
    return {symbol_of(op): op for op in found}


def functions_without_body(module: ir.Module) -> dict[str, ir.Operation]:
    """What entries call beside kernels: collectives and loops."""
    return collective_functions(module) | loop_functions(module)


def is_loop_call(op: ir.Operation) -> bool:
    """Whether an op of tensors calls a loop: such calls have the attribute, too."""
    return op.name == "func.call" and LOOP in op.attributes


def declare_loop(
    before: ir.Operation, name: str, facts: LoopFacts, given: Sequence[ir.Value], results: Sequence[ir.Type]
) -> None:
    """Add a loop's function before an entry."""
    i64 = ir.IntegerType.get_signless(64)
    moves = list(facts.moves.values())
    fields = {
        "body": ir.StringAttr.get(facts.body),
        "rounds": ir.IntegerAttr.get(i64, facts.rounds),
        "names": ir.ArrayAttr.get([ir.StringAttr.get(n) for n in facts.moves]),
        "operands": ir.DenseI64ArrayAttr.get([move.operand for move in moves]),
        "starts": ir.DenseI64ArrayAttr.get([move.start for move in moves]),
        "strides": ir.DenseI64ArrayAttr.get([move.stride for move in moves]),
        "ties": ir.DenseI64ArrayAttr.get(facts.ties),
    }
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get([value.type for value in given], list(results))),
        "sym_visibility": ir.StringAttr.get("private"),
        LOOP: ir.DictAttr.get(fields),
    }
    function = create_op("func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(before))
    access = [READ_WRITE if i in facts.ties else "read" for i in range(len(given))]
    set_access(function, [*access, *(WRITE for tie in facts.ties if tie < 0)])


def loop_facts(function: ir.Operation) -> LoopFacts:
    fields = ir.DictAttr(function.attributes[LOOP])
    parts = [integers(fields[key]) for key in ("operands", "starts", "strides")]
    moves = dict(zip(strings(fields["names"]), map(Move, *parts), strict=True))
    rounds = ir.IntegerAttr(fields["rounds"]).value
    return LoopFacts(ir.StringAttr(fields["body"]).value, rounds, moves, integers(fields["ties"]))


def loop_to_memory(function: ir.Operation, memory: Callable[[ir.Type], ir.Type]) -> list[int]:
    """Have a loop of tensors take memory; for each of its results the operand in whose place it is, or -1."""
    type_, ties = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value), loop_facts(function).ties
    made = [result for result, tie in zip(type_.results, ties, strict=True) if tie < 0]
    taken = [memory(t) for t in (*type_.inputs, *made)]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(taken, []))
    return ties


def give_scratch(function: ir.Operation, memory: ir.Type) -> None:
    """Have a loop take one more operand, which is its rounds' own memory."""
    type_ = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*type_.inputs, memory], []))
    set_access(function, [*access_of(function), "scratch"])
