"""join-products: products of the same rows whose results meet element by element become one kernel.

Before: call @gate(%x, %gate, %g)                  After: call @products_8x8192(%x, %gate, %up, %y)
        call @up(%x, %up, %g, %y)

As a gate and what it is times: the rows, and what a norm makes of them, are read once, what one product gives the other
stays in registers, and a launch is spared.  Kernels are joined where a schedule of the user's takes what becomes of
them, or one of the library's does that should take clearly less time than both of them and a launch.

Requires: what destination-passing and recognise-products ensure, and no arena yet.
Ensures: the same; a kernel of several products has them in one layout, which stands for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lispgpt.base.access import READ, WRITE
from lispgpt.ir import build as b
from lispgpt.ir.access import access_of, set_access, tensor_access
from lispgpt.ir.mlir import create_op, ir, passmanager
from lispgpt.ir.places import together
from lispgpt.ir.structure import (
    callee_of,
    clone_with,
    constant_number,
    defining_op,
    dim_positions,
    entry_functions,
    indexing_maps,
    is_elementwise,
    kernel_functions,
    operations,
    retype,
    shape_of,
    symbol_of,
    viewed,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.kernel import refusable
from lispgpt.passes.kernels.products import Product, product_in
from lispgpt.passes.library import NO_SCHEDULES, Library
from lispgpt.passes.model.kernel_work import kernel_work, record_work
from lispgpt.passes.schedule.choose import Choose
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.build import Builder, Launch
from lispgpt.passes.tile.lower.lower_tiles import withdraw

VIEWED = ("memref.view", "memref.subview")
"""Ops that show a part of an entry's memory."""

WORTH = 0.75
"""Kernels are joined where the one is modelled to take at most this much of their time: on an H200 gate and up of 1024
by 3072 for 8 rows are modelled to take 0.60 of it, and a step of 28 such layers takes 0.96; of 2048 by 8192 they are
modelled to take 0.86, and a step gains nothing."""

Place = tuple[ir.Value, int | None, str]
"""What is called with: memory, where in it, and the type that it is seen as."""


@dataclass(frozen=True)
class JoinProducts(Pass):
    """when: "modelled", where it should take clearly less time; or "always", wherever a schedule takes it.  use: names
    of the library's schedules that may write such kernels, with spaces between; "": none.  copies, parts: as of
    choose-tiles, for the user's."""

    only_faster = True
    when: str = "modelled"
    use: str = "direct skinny"
    copies: str = "bulk"
    parts: int = 2

    def run(self, module: ir.Module, target: Gpu, library: Library = NO_SCHEDULES) -> None:
        if target.matrix is None:
            return
        wanted = _Wanted(self, target, library)
        functions = {symbol_of(kernel): kernel for kernel in kernel_functions(module)}
        known: dict[tuple, ir.Operation | None] = {}
        called: set[str] = set()
        for entry in entry_functions(module):
            for pair in _pairs(entry, functions):
                made = known.get(pair.key, pair)
                if made is pair:
                    function = pair.joined()
                    made = function if function is not None and wanted.is_better(function, pair) else None
                    if function is not None and made is None:
                        function.erase()
                    known[pair.key] = made
                if made is not None:
                    functions[symbol_of(made)] = made
                    called |= {callee_of(pair.first), callee_of(pair.second)}
                    pair.call(made)
        for entry in entry_functions(module):
            called -= {callee_of(op) for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"}
        for name in called:
            functions[name].erase()


@dataclass(frozen=True)
class _Wanted:
    """Whether a kernel of several products is better than those that it was made of."""

    options: JoinProducts
    target: Gpu
    library: Library
    times: dict[str, float | None] = field(default_factory=dict)

    def is_better(self, joined: ir.Operation, pair: _Pair) -> bool:
        if any(map(self._is_own, pair.kernels)):
            return False
        return self._is_own(joined) or self._is_faster(joined, pair)

    def _is_own(self, kernel: ir.Operation) -> bool:
        """Whether a schedule of the user's takes it."""
        product = product_in(kernel)
        if product is None:
            return False
        for schedule in self.library.own:
            builder = Builder(product, self.target, self.options.parts, self.options.copies, launch=Launch())
            if not schedule.suits(builder) or schedule.takes(builder) is not None:
                continue
            block = kernel.regions[0].blocks[0]
            before = set(operations(block))
            with refusable(kernel) as left:
                with ir.InsertionPoint(operations(block)[-1]), kernel.location:
                    schedule.write(builder)
                withdraw([op for op in operations(block) if op not in before])
            if not left:
                return True
        return False

    def _is_faster(self, joined: ir.Operation, pair: _Pair) -> bool:
        if not self.options.use or self.target.rates is None:
            return False
        time = self._seconds(joined, self.options.use)
        if time is None or self.options.when == "always":
            return time is not None
        apart = [self._seconds(kernel) for kernel in pair.kernels]
        known = all(one is not None for one in apart)
        return known and time <= WORTH * (sum(filter(None, apart)) + self.target.launch_seconds)

    def _seconds(self, kernel: ir.Operation, use: str = "") -> float | None:
        """Of the schedule that should take least time, by the library's choice or of those that `use` names."""
        name = symbol_of(kernel)
        if name not in self.times:
            choose = Choose(use=use) if use else Choose()
            offers = choose.offers_of(kernel, self.library, self.target)
            self.times[name] = min((o.seconds for o in offers if o.seconds is not None), default=None)
        return self.times[name]


@dataclass(frozen=True)
class _Pair:
    """Calls of two products' kernels, of which the second alone reads what the first writes.  kernels: theirs.
    same: for each argument of the second the first's that is the same memory, -1 where it is none."""

    first: ir.Operation
    second: ir.Operation
    kernels: tuple[ir.Operation, ir.Operation]
    written: int
    same: tuple[int, ...]

    @property
    def key(self) -> tuple:
        return callee_of(self.first), callee_of(self.second), self.written, self.same

    def joined(self) -> ir.Operation | None:
        """A function of both, before the second's; None where their results do not meet element by element, or they
        share no operand."""
        one, two = (Product.of_kernel(kernel) for kernel in self.kernels)
        assert one is not None and two is not None
        name = f"products_{'x'.join(map(str, shape_of(two.result)))}"
        with ir.InsertionPoint(self.kernels[1]), together([one.op, two.op]):
            function = b.private_function(_free(self.kernels[1], name), kernel="contraction")
        body = function.regions[0].blocks.append()
        first, second = (list(kernel.regions[0].blocks[0].arguments) for kernel in self.kernels)
        values = {x: body.add_argument(x.type, ir.Location.unknown()) for n, x in enumerate(first) if n != self.written}
        between = _copied(self.kernels[0], values, body, first[self.written])
        for argument, number in zip(second, self.same, strict=True):
            if number < 0:
                values[argument] = body.add_argument(argument.type, ir.Location.unknown())
            elif number != self.written:
                values[argument] = values[first[number]]
        passed = {second[n]: between for n, number in enumerate(self.same) if number == self.written}
        _copied(self.kernels[1], values, body, None, passed)
        create_op("func.return", ip=ir.InsertionPoint(body))
        retype(function)
        passmanager.PassManager.parse("func.func(cse)").run(function)
        for attribute in ("product", "tied"):
            function.attributes[attribute] = self.kernels[1].attributes[attribute]
        set_access(function, tensor_access(function))
        record_work(function, kernel_work(function))
        product = product_in(function)
        if product is None or not _meet(function, product):
            function.erase()
            return None
        return function

    def call(self, function: ir.Operation) -> None:
        """Have it called in place of both."""
        given = [v for n, v in enumerate(self.first.operands) if n != self.written]
        given += [v for v, number in zip(self.second.operands, self.same, strict=True) if number < 0]
        memory = self.first.operands[self.written].owner.operation
        with ir.InsertionPoint(self.second), together([self.first, self.second]):
            b.call(symbol_of(function), given)
        for op in (self.second, self.first, memory):
            op.erase()


def _copied(
    kernel: ir.Operation,
    values: dict[ir.Value, ir.Value],
    body: ir.Block,
    kept: ir.Value | None,
    passed: dict[ir.Value, ir.Value | None] | None = None,
) -> ir.Value | None:
    """Copy a kernel's ops; what is written to the argument `kept`, which the copy does not write.  passed: tensors that
    arguments of it have."""
    found, passed = None, passed or {}
    for op in operations(kernel.regions[0].blocks[0])[:-1]:
        if op.name == "bufferization.to_tensor" and op.operands[0] in passed:
            values[op.results[0]] = passed[op.operands[0]]
        elif op.name == "bufferization.materialize_in_destination" and kept is not None and op.operands[1] == kept:
            found = values[op.operands[0]]
        else:
            with ir.InsertionPoint(body):
                clone_with(op, values)
    return found


def _pairs(entry: ir.Operation, functions: dict[str, ir.Operation]) -> Iterator[_Pair]:
    """Those of an entry that may be joined, as they are by then: a pair's call may be of another pair."""
    calls = [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]
    for second in calls:
        kernel = functions.get(callee_of(second))
        if kernel is None or not _is_product(kernel):
            continue
        for first in [x for v in second.operands if (x := _writer(v, second)) is not None]:
            pair = _pair(first, second, functions)
            if pair is not None and not _changes(first, second, functions):
                yield pair
                break


def _is_product(kernel: ir.Operation) -> bool:
    return ir.StringAttr(kernel.attributes["kernel"]).value == "contraction" and product_in(kernel) is not None


def _writer(value: ir.Value, reader: ir.Operation) -> ir.Operation | None:
    """The call that writes memory which only it and a reader are given."""
    op = defining_op(value)
    users = [use.owner.operation for use in value.uses]
    if op is None or op.name != "memref.alloc" or len(users) != 2:
        return None
    others = [user for user in users if user != reader]
    return others[0] if len(others) == 1 and others[0].name == "func.call" else None


def _pair(first: ir.Operation, second: ir.Operation, functions: dict[str, ir.Operation]) -> _Pair | None:
    kernels = [functions.get(callee_of(call)) for call in (first, second)]
    if any(kernel is None or not _is_product(kernel) for kernel in kernels):
        return None
    one, two = kernels
    assert one is not None and two is not None
    writes = [n for n, word in enumerate(access_of(one)) if word != READ]
    layouts = [Product.of_kernel(kernel).layout for kernel in (one, two)]  # type: ignore[union-attr]
    if len(writes) != 1 or access_of(one)[writes[0]] != WRITE or layouts[0] != layouts[1]:
        return None
    places = [_place(value) for value in first.operands]
    given = [_place(value) for value in second.operands]
    same = tuple(places.index(x) if x in places and x[1] is not None else -1 for x in given)
    reads = [word for word, number in zip(access_of(two), same, strict=True) if number >= 0]
    return _Pair(first, second, (one, two), writes[0], same) if writes[0] in same and set(reads) == {READ} else None


def _place(value: ir.Value) -> Place:
    op = defining_op(value)
    if op is None or op.name != "memref.view":
        return value, 0, str(value.type)
    return op.operands[0], constant_number(op.operands[1]), str(value.type)


def _changes(first: ir.Operation, second: ir.Operation, functions: dict[str, ir.Operation]) -> bool:
    """Whether something between two calls may write what the first reads."""
    read = {viewed(value, VIEWED) for value in first.operands}
    ops = operations(first.block)
    for op in ops[ops.index(first) + 1 : ops.index(second)]:
        if op.name != "func.call":
            continue
        kernel = functions.get(callee_of(op))
        access = access_of(kernel) if kernel is not None else [WRITE] * len(op.operands)
        if any(word != READ and viewed(v, VIEWED) in read for v, word in zip(op.operands, access, strict=True)):
            return True
    return False


def _meet(function: ir.Operation, product: Product) -> bool:
    """Whether all results are made of a function's products element by element, and these share an operand."""
    operands = [(each.left.tensor, each.right.tensor) for each in product.all]
    if not product.joined or all(len(set(side)) > 1 for side in zip(*operands, strict=True)):
        return False
    made = [op.operands[0] for op in operations(function.regions[0].blocks[0]) if "materialize" in op.name]
    return all(_is_in_place(tensor, product.joined) for tensor in made)


def _is_in_place(value: ir.Value, products: Sequence[ir.Operation]) -> bool:
    """Whether elementwise ops make a tensor of products' results at its own places, and of what none of them makes."""
    op = defining_op(value)
    if op in products or not _reaches(value, products):
        return True
    if not is_elementwise(op):
        return False
    for operand, map_ in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
        own = dim_positions(map_) == list(range(map_.n_dims))
        if _reaches(operand, products) and not (own and _is_in_place(operand, products)):
            return False
    return True


def _reaches(value: ir.Value, products: Sequence[ir.Operation]) -> bool:
    op = defining_op(value)
    return op is not None and (op in products or any(_reaches(operand, products) for operand in op.operands))


def _free(kernel: ir.Operation, name: str) -> str:
    """A name that no function of the module has, such as this one with a number."""
    known = {symbol_of(op) for op in operations(kernel.block) if op.name == "func.func"}
    number, found = 1, name
    while found in known:
        number += 1
        found = f"{name}_{number}"
    return found
