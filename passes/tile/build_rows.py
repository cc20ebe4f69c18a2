"""Writing rows kernels as tile programs: norms, softmax, sums along rows, and what is computed beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import shape_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.targets import Cpu, Gpu
from lispgpt.passes.tile.build import Launch
from lispgpt.passes.tile.row_kernels import RowsKernel
from lispgpt.passes.tile.types import ROW, THREAD, RegisterTile

At = tuple[Index, Index]
"""A row: its number along the dimension that shares are of, if there are shares, and along all others."""


@dataclass(frozen=True)
class RowTensor:
    """A tensor with a row, or one number, for each row of a kernel; or if it is `alone` with one row, the same for
    all."""

    tensor: ir.Value
    kernel: RowsKernel
    alone: bool = False

    @property
    def has_columns(self) -> bool:
        return self.alone or len(shape_of(self.tensor)) > len(self.kernel.rows)

    @property
    def columns(self) -> int:
        return shape_of(self.tensor)[-1] if self.has_columns else 1

    @cached_property
    def view(self) -> ir.Value:
        """[batch, row, column]."""
        shape = shape_of(self.tensor)
        inner = [len(shape) - 1] if self.has_columns else []
        rows = list(range(len(shape) - len(inner)))
        batch = [] if self.alone else rows[: self.kernel.leading]
        kinds = {"batch": batch, "outer": rows[len(batch) :], "inner": inner}
        extents = [prod(shape[d] for d in dims) for dims in kinds.values()]
        type_ = ir.RankedTensorType.get(extents, self.tensor.type.element_type)
        return create_op("tile.view", [self.tensor], [type_], kinds).results[0]


@dataclass(frozen=True)
class RowsBuilder:
    """Writes one rows kernel's tile program at the insertion point.  launch: what the program asks for."""

    of: ClassVar[str] = "rows"

    rows: RowsKernel
    target: Gpu | Cpu
    launch: Launch = field(default_factory=Launch)
    team: list[int] = field(default_factory=list)
    """Threads of a team, and bytes of the elements by which vectors are as long as the widest load, once known."""

    def seconds_of(self, program: Sequence[ir.Operation]) -> float | None:
        return None

    # ---- what a schedule asks

    @cached_property
    def results(self) -> list[RowTensor]:
        return [RowTensor(tensor, self.rows) for tensor in self.rows.results]

    @cached_property
    def summed(self) -> list[RowTensor]:
        """What is summed along columns."""
        return [RowTensor(one.values, self.rows) for one in self.rows.sums]

    @cached_property
    def constants(self) -> list[RowTensor]:
        return [RowTensor(tensor, self.rows, alone=True) for tensor in self.rows.constants]

    def repeated(self, blocks: int) -> RowTensor | None:
        """What has rows that are worth keeping in shared memory, with room for those of so many blocks of a core."""
        tensor = self.rows.repeated(blocks, self.target)
        return None if tensor is None else RowTensor(tensor, self.rows)

    def vector(self, columns: int, bytes_: int) -> int:
        """Elements of a thread's vector, of rows of so many columns, whose elements have so many bytes."""
        if self.target.in_turns:
            return self.target.vector_bytes // bytes_
        return b.largest_width(columns, bytes_, self.target.vector_bytes)

    def chunk(self, x: RowTensor) -> int:
        """Columns of which each thread of the team has one vector."""
        if not self.team:
            raise Refused("who has which row is said first, by tile.row-task or tile.share-task")
        threads, bytes_ = self.team
        if not x.has_columns:
            return 1
        item = b.item_bytes(x.tensor.type)
        return threads * self.vector(x.columns, item if item > 4 else bytes_)

    def vectors(self, x: RowTensor) -> int:
        """How many of them a thread has of a row."""
        return -(-x.columns // self.chunk(x))

    # ---- who has which row

    def _team(self, threads: int, teams: int, bytes_: int, together: int) -> Index:
        if self.target.in_turns and threads > 1:
            raise Refused(f"a block of {self.target} is one thread, and no team of {threads}")
        for x in (*self.results, *self.summed):
            _ = x.view  # ahead of all loops
        self.team[:] = [threads, bytes_]
        self.launch.threads = threads if self.target.in_turns else threads * teams
        facts = {"threads": threads, "teams": teams, "bytes": bytes_, "together": together}
        return create_op("tile.team", [], [ir.IndexType.get()], facts).results[0]

    def row_task(self, threads: int, teams: int, bytes_: int, together: int) -> At:
        """The row of a thread's team, where each block has so many teams; together: vectors of a long row that a thread
        reads ahead of reducing the first."""
        if self.rows.sums:
            raise Refused("its columns are summed, in shares: tile.share-task says who has which row")
        if self.rows.count % teams:
            raise Refused(f"{teams} teams of a block do not divide {self.rows.count} rows")
        self.launch.grid = [self.rows.count // teams]
        block = b.block_id()
        team = self._team(threads, teams, bytes_, together)
        return 0, b.add(b.mul(block, teams), team) if teams > 1 else block

    def share_task(self, threads: int, bytes_: int) -> At:
        """(share, row): the share of the rows that this block's team takes one after another, and where along the other
        dimensions they are."""
        if not self.rows.sums:
            raise Refused("it sums no columns: tile.row-task says who has which row")
        if not self.rows.sums_are_alike:
            raise Refused("its sums of columns are not over alike rows")
        shares, inner = self.rows.sums[0].shares, prod(self.rows.rows[1:])
        self.launch.grid = [shares * inner]
        self._team(threads, 1, bytes_, 1)
        block = b.block_id()
        return b.div(block, inner), b.mod(block, inner)

    # ---- what a team does

    def keep(self, x: RowTensor, at: At) -> None:
        """Bring the team's row to shared memory, from where it is read from there on."""
        create_op("tile.keep", [x.view, *map(b.as_value, at)])

    def ask(self, x: RowTensor, at: At, early: bool) -> None:
        """Start to read what a row is made of; early: what no launch writes, ahead of waiting for those ahead."""
        chunk = self.chunk(x)
        facts = {"columns": chunk, **({"early": True} if early else {})}
        for number in range(self.vectors(x) if x.has_columns else 0):
            create_op("tile.ask", [x.view, *map(b.as_value, (*at, number))], [], facts)

    def over_row(self, x: RowTensor, at: At, together: int, body: Callable[[tuple[Index, ...]], object]) -> None:
        """body(which vectors) for all of a row's, by their numbers: one by one, or if together is not 0 in a loop over
        so many at once, ahead of which what depends on the row alone is computed."""
        count = self.vectors(x)
        if together == 0:
            for number in range(count):
                body((number,))
            return
        create_op("tile.reduce_rows", [x.view, *map(b.as_value, at)], [], {"rows": 1})
        full = x.columns // self.chunk(x) if self.target.in_turns else count
        whole = full // together * together

        def turn(number: Index) -> None:
            body(tuple(b.add(number, i) for i in range(together)))

        if whole:
            b.each(0, whole, together, turn)
        if whole < count:
            body(tuple(range(whole, count)))

    def numbers(self, x: RowTensor, at: At, which: Sequence[Index], wide: bool = False) -> tuple[ir.Value, ...]:
        """What the team has of a row in each of these vectors; wide: in f32."""
        type_ = self._vector_type(x, b.f32() if wide else x.tensor.type.element_type)
        return tuple(create_op("tile.load", [x.view, *map(b.as_value, (*at, n))], [type_]).results[0] for n in which)

    def _vector_type(self, x: RowTensor, dtype: ir.Type) -> ir.Type:
        return RegisterTile((self.chunk(x),), dtype, ROW, (self.team[0], 1), THREAD).type

    def store(self, numbers: Sequence[ir.Value], x: RowTensor, at: At, which: Sequence[Index]) -> None:
        for one, number in zip(numbers, which, strict=True):
            create_op("tile.store", [one, x.tensor, *map(b.as_value, (*at, number))])

    # ---- sums of columns

    def turns(
        self, count: int, step: int, body: Callable[[ir.Value, tuple[ir.Value, ...]], Sequence[ir.Value]]
    ) -> tuple[ir.Value, ...]:
        """A loop that carries sums of columns, zeros first, through body(number, sums)."""
        zeros = [b.constant(0.0, self._vector_type(x, b.f32())) for x in self.summed]
        return tuple(b.loop(0, count, step, zeros, lambda number, *carried: list(body(number, carried))))

    def added(self, sums: Sequence[ir.Value], at: At) -> tuple[ir.Value, ...]:
        """The sums with a row."""
        rows = [self.numbers(x, at, [0], wide=True)[0] for x in self.summed]
        return tuple(b.emit("arith.addf", [s, row], [s.type]) for s, row in zip(sums, rows, strict=True))

    def store_sums(self, sums: Sequence[ir.Value], at: At) -> None:
        for one, x in zip(sums, self.rows.sums, strict=True):
            create_op("tile.store", [one, x.result, *map(b.as_value, (*at, 0))])
