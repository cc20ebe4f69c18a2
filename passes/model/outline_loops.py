"""outline-loops: have the rounds of an entry's loops be entries of their own, which are compiled once.

Before:                                            After:
  func.func @e(%h, %xs, %w) {entry = …} {            func.func private @e_loop1_rounds(%x, %w, %n, %h) {entry = …} {
    %r:2 = scf.for %i = 0 to 100                       … contract %h, %w …    return %new, %row
        iter_args(%a = %h, %ys = %none) {            }
      %x = tensor.extract_slice %xs[%i, 0] …         func.func private @e_loop1(…)   {loop = {rounds = 100, …}}
      … contract %a, %w …                            func.func @e(%h, %xs, %w) {entry = …} {
      %z = insert_slice %row into %ys[%i, 0]           %r:2 = call @e_loop1(%h, %xs, %w, %numbers)
      scf.yield %new, %z } }

What is carried is a state of the body's.  Of a tensor that rounds read or write row by row the body has one row, which
lies further on from round to round; what is written row by row, each row once, begins with nothing.  Loops of which an
element needs that element alone stay where they are: one kernel runs all of their rounds.  So do loops of programs for
several devices.

Requires: entries on tensors that no kernels have been outlined from.
Ensures: the same; what loops over tensors have in their bodies is an entry with the attribute `rounds`, whose arguments
are "given:N" and "state:N" and whose results are "result:N".  `ir/loops.py` says what a loop's function has.
"""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import elementwise
from lispgpt.ir.loops import LOOP, LoopFacts, Move, declare_loop
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import (
    captured_values,
    clone_with,
    defining_op,
    entry_functions,
    operations,
    retype,
    symbol_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.model.loop_numbers import put_numbers_in_tensors
from lispgpt.passes.model.loop_rows import LoopRows, Row, byte_count, in_shape, row_type
from lispgpt.passes.model.pointwise_loops import is_pointwise, rounds_of
from lispgpt.passes.recognise.cache_writes import is_cache_write, is_scatter
from lispgpt.passes.states import UNPLACED


class OutlineLoops(Pass):
    starts_from = (UNPLACED,)

    def run(self, module: ir.Module, target: object) -> None:
        if any(op.name == "shard.grid" for op in operations(module.body)):
            return  # what devices do together is no part of a loop's rounds
        waiting = entry_functions(module)
        while waiting:
            entry, number = waiting.pop(), 0
            put_numbers_in_tensors(entry, every=True)
            for op in operations(entry.regions[0].blocks[0]):
                rounds = rounds_of(op) if op.name == "scf.for" and len(op.results) else None
                if rounds and _is_outlined(op):
                    number += 1
                    waiting.append(_Loop(entry, op, rounds, f"{symbol_of(entry)}_loop{number}").outline())


def _is_outlined(op: ir.Operation) -> bool:
    """Whether a loop carries tensors, of whose elements each needs others, and is none that kernels are made for."""
    on_tensors = all(isinstance(result.type, ir.RankedTensorType) for result in op.results)
    return on_tensors and not is_cache_write(op) and not is_scatter(op) and not is_pointwise(op)


class _Loop:
    """One loop on its way to a body and a call.

    given: the call's operands.  moves: where each argument of the body is.  values: the body's, by the loop's.
    """

    def __init__(self, entry: ir.Operation, op: ir.Operation, rounds: range, name: str) -> None:
        self.entry, self.op, self.rounds, self.name = entry, op, rounds, name
        self.block = op.regions[0].blocks[0]
        self.counter, *self.carried = self.block.arguments
        self.starts = list(op.operands)[3:]
        *self.ops, self.end = operations(self.block)
        self.rows = LoopRows(op, rounds)
        self.given: list[ir.Value] = []
        self.moves: dict[str, Move] = {}
        self.values: dict[ir.Value, ir.Value] = {}
        self.numbers: ir.Value | None = None
        self.kept: dict[int, ir.Value] = {}

    def outline(self) -> ir.Operation:
        """Put the body before the entry and a call in the loop's place; the body."""
        none = ir.ArrayAttr.get([])
        attributes = {
            "sym_name": ir.StringAttr.get(f"{self.name}_rounds"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([], [])),
            "sym_visibility": ir.StringAttr.get("private"),
            "entry": ir.StringAttr.get(self.name),
            "rounds": ir.UnitAttr.get(),
            "sizes": none,
            "extents": ir.DenseI64ArrayAttr.get([]),
            "inputs": ir.DictAttr.get({}),
        }
        with ir.InsertionPoint(self.entry), self.op.location:
            self.body = create_op("func.func", attributes=attributes, regions=1)
        self.inside = self.body.regions[0].blocks.append()
        rows = [self.rows.of(i) for i in range(len(self.carried))]
        made = [i for i, row in enumerate(rows) if row is not None and self.rows.is_made(i, row)]
        ties = {i: number for number, i in enumerate(i for i in range(len(self.carried)) if i not in made)}
        self.given = [self.starts[i] for i in ties]
        for i, row in enumerate(rows):
            self._take(i, row, ties.get(i), made)
        self._copy_ops(rows)
        returned = {f"{'state' if i in ties else 'result'}:{i}": value for i, value in self.kept.items()}
        create_op("func.return", list(returned.values()), ip=ir.InsertionPoint(self.inside))
        self.body.attributes["arguments"] = attribute([n for n in self.moves if not n.startswith("result:")])
        self.body.attributes["results"] = attribute(list(returned))
        retype(self.body, [value.type for value in returned.values()])
        self._call([ties.get(i, -1) for i in range(len(self.carried))])
        return self.body

    def _call(self, ties: list[int]) -> None:
        fresh = [i for i, tie in enumerate(ties) if tie < 0]
        for number, i in enumerate(fresh):
            name, move = f"result:{i}", self.moves[f"result:{i}"]
            self.moves[name] = Move(len(self.given) + number, move.start, move.stride)
        facts = LoopFacts(symbol_of(self.body), len(self.rounds), self.moves, ties)
        types = [value.type for value in self.op.results]
        declare_loop(self.entry, self.name, facts, self.given, types)
        callee = {"callee": ir.FlatSymbolRefAttr.get(self.name), LOOP: ir.UnitAttr.get()}
        with ir.InsertionPoint(self.op), self.op.location:
            call = create_op("func.call", self.given, types, callee)
        for old, new in zip(self.op.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        self.op.erase()

    def _take(self, i: int, row: Row | None, operand: int | None, made: list[int]) -> None:
        """Have the body take what is carried, or a row of it."""
        argument = self.carried[i]
        if row is None:
            assert operand is not None
            self.values[argument] = self._argument(f"state:{i}", argument.type, Move(operand, 0, 0))
            return
        kind = row_type(argument)
        nbytes = byte_count(kind)
        move = Move(operand or 0, row.first * nbytes, row.step * nbytes)
        if i in made:
            self.moves[f"result:{i}"] = move
        else:
            self.kept[i] = self._argument(f"state:{i}", kind, move)

    def _argument(self, name: str, type_: ir.Type, move: Move) -> ir.Value:
        self.moves[name] = move
        return self.inside.add_argument(type_, ir.Location.unknown())

    def _copy_ops(self, rows: list[Row | None]) -> None:
        """Fill the body."""
        wholes = {value: i for i, value in enumerate(self.carried) if rows[i] is not None}
        with ir.InsertionPoint(self.inside):
            for op in (op for op in self.ops if not _is_copied(op)):
                source = op.operands[1 if op.name == "tensor.insert_slice" else 0] if len(op.operands) else None
                if source in wholes and op.name == "tensor.insert_slice":
                    i = wholes[op.results[0]] = wholes[source]
                    part = self._bring(op.operands[0])
                    self.kept[i] = in_shape(part, row_type(self.carried[i]))
                elif source in wholes and op.name == "tensor.extract_slice":
                    self.values[op.results[0]] = in_shape(self.kept[wholes[source]], op.results[0].type)
                elif op.name == "tensor.extract_slice" and (row := self._given_row(op)) is not None:
                    self.values[op.results[0]] = in_shape(row, op.results[0].type)
                else:
                    for value in (*op.operands, *captured_values(op)):
                        self._bring(value)
                    with op.location:
                        clone_with(op, self.values)
            for i, value in enumerate(self.end.operands):
                if rows[i] is None:
                    self.kept[i] = self._bring(value)

    def _given_row(self, op: ir.Operation) -> ir.Value | None:
        """The body's argument that is a row of a tensor from outside."""
        whole = op.operands[0]
        inner = defining_op(whole)
        if whole in self.carried or (inner is not None and inner.block == self.block):
            return None
        row = self.rows.row(op, whole)
        if row is None or not row.step or (inner is not None and _is_copied(inner)):
            return None
        operand = self._operand(whole)
        kind = row_type(whole)
        name = f"given:{operand}.{row.first}.{row.step}"
        if name in self.moves:
            return self.inside.arguments[[n for n in self.moves if not n.startswith("result:")].index(name)]
        return self._argument(name, kind, Move(operand, row.first * byte_count(kind), row.step * byte_count(kind)))

    def _operand(self, value: ir.Value) -> int:
        """The call's operand that a value from outside is."""
        own = len([n for n in self.moves if n.startswith("state:")])
        if value not in self.given[own:]:
            self.given.append(value)
        return own + self.given[own:].index(value)

    def _bring(self, value: ir.Value) -> ir.Value:
        """A value of the loop's, or from outside, in the body."""
        if value in self.values:
            return self.values[value]
        op = defining_op(value)
        if value == self.counter:
            self.values[value] = self._number()
        elif op is not None and _is_copied(op):
            for operand in (*op.operands, *captured_values(op)):
                self._bring(operand)
            clone_with(op, self.values)
        else:
            operand = self._operand(value)
            self.values[value] = self._argument(f"given:{operand}", value.type, Move(operand, 0, 0))
        return self.values[value]

    def _number(self) -> ir.Value:
        """The counter, of which the call gives a number for each round."""
        i64 = ir.IntegerType.get_signless(64)
        with ir.InsertionPoint(self.op), self.op.location:
            numbers = _numbers_of(self.rounds, i64)
        kind = ir.RankedTensorType.get([], i64)
        argument = self._argument("given:round", kind, Move(self._operand(numbers), 0, byte_count(kind)))
        number = create_op("tensor.extract", [argument], [i64]).results[0]
        return (
            number
            if self.counter.type == i64
            else create_op("arith.index_cast", [number], [self.counter.type]).results[0]
        )


def _numbers_of(rounds: range, kind: ir.Type) -> ir.Value:
    """What the counter is in each round."""

    def number() -> ir.Value:
        place = b.emit("linalg.index", [], [ir.IndexType.get()], dim=ir.IntegerAttr.get(kind, 0))
        return b.emit("arith.index_cast", [b.add(b.mul(place, rounds.step), rounds.start)], [kind])

    return elementwise([], ir.RankedTensorType.get([len(rounds)], kind), number)


def _is_copied(op: ir.Operation) -> bool:
    """Whether the body computes it itself rather than being given it: constants, and numbers."""
    return is_inline(op) and op.name not in (
        "tensor.extract_slice",
        "tensor.expand_shape",
        "tensor.collapse_shape",
        "tensor.cast",
    )
