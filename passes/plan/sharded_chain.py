"""A decode step as a chain that can be shared among clusters: what is recognised of it, from its kernels' bodies.

A stream x of one row goes through layers.  In each a norm of x meets a product whose rows are the heads' queries, keys
and values, attention over a cache, and a product that sums over the heads and is added to x; then a norm, a product
whose rows are hidden units, elementwise ops, and a product that sums over the hidden units and is added to x.  Behind
the layers come a norm, a product whose rows are tokens, and the choice of the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import callee_of, defining_op, element_type, operations, shape_of, strings, viewed
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.model.attention import attention_of
from lispgpt.passes.plan.row_norms import Norm, norm_of
from lispgpt.passes.plan.sharded_tail import Series, chosen_by

STEPS = 5
"""Calls of a layer."""


@dataclass(frozen=True)
class Product:
    """A product with weights [rows, depth] in a kernel.  arguments: of the kernel, where they are parts of the entry's
    buffers.  left: the kernel's argument that it sums over, and norm: what it does to that ahead, if anything.
    stream: the argument that the sums are added to, if any."""

    kernel: ir.Operation
    arguments: dict[int, Series]
    weights: Series
    rows: int
    depth: int
    left: int
    stream: int | None


@dataclass(frozen=True)
class NormWeights:
    """gamma, beta: one f32 for each column, in each layer; beta: None where there is none."""

    gamma: Series
    beta: Series | None
    centred: bool
    epsilon: float


@dataclass(frozen=True)
class Chain:
    """The tokens' and positions' arguments are inputs that a run leaves for the next; embedding: the kernel that makes
    the stream, `stream` the number of its result, embedded: its arguments.  vocab: tokens that may be chosen.
    settings: by which the next token is drawn; report: how clearly the largest is that, where that is taken."""

    calls: Sequence[ir.Operation]
    embedding: ir.Operation
    stream: int
    embedded: dict[int, Series]
    layers: int
    norms: tuple[NormWeights, NormWeights, NormWeights]
    into: Product
    attention: ir.Operation
    attended: dict[int, Series]
    cached: int
    rows_argument: int
    out: Product
    up: Product
    down: Product
    head: Product
    logits: Series
    next: Series
    report: Series | None
    settings: Series | None
    tokens: int
    positions: int
    vocab: int

    @property
    def width(self) -> int:
        return self.into.depth

    @property
    def chosen(self) -> list[Series]:
        """Where a run leaves what it has chosen."""
        return [self.next] if self.report is None else [self.next, self.report]


def find_chain(entry: ir.Operation, functions: dict[str, ir.Operation]) -> Chain:
    """Refused where an entry is anything else."""
    calls = [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]
    count, rest = divmod(len(calls) - 5, STEPS)
    if count < 1 or rest:
        raise Refused("it is no chain of layers")
    return _Finder(entry, calls, functions, count).chain()


class _Finder:
    def __init__(
        self, entry: ir.Operation, calls: list[ir.Operation], functions: dict[str, ir.Operation], layers: int
    ) -> None:
        self.calls, self.functions, self.layers = calls, functions, layers
        self.names = strings(entry.attributes["arguments"])

    def kernel(self, call: ir.Operation) -> ir.Operation:
        return self.functions[callee_of(call)]

    def chain(self) -> Chain:
        layers = [self.calls[1 + STEPS * i : 1 + STEPS * (i + 1)] for i in range(self.layers)]
        first, head, *tail = self.calls[0], *self.calls[-4:]
        kinds = [ir.StringAttr(self.kernel(call).attributes["kernel"]).value for call in layers[0]]
        if kinds != ["contraction", "attention", "contraction", "contraction", "contraction"]:
            raise Refused(f"its layers are {', '.join(kinds)}")
        stream = layers[0][2].operands[self._stream_argument(self.kernel(layers[0][2]))]
        made = [i for i, value in enumerate(first.operands) if value == stream]
        if len(made) != 1:
            raise Refused("its first kernel does not make the stream")
        now, norms = stream, ([], [])  # type: ignore[var-annotated]
        for layer in layers:
            now = self._layer(layer, now, norms)
        final = self._norm(head, now)
        into, out, up, down = (self._product([layer[i] for layer in layers]) for i in (0, 2, 3, 4))
        attended = self._series([layer[1] for layer in layers])
        attention = attention_of(self.kernel(layers[-1][1]))
        if attention is None or attention.own is None:
            raise Refused("its attention does not write its own rows")
        cached = [i for i, s in attended.items() if self.names[s.buffer].startswith("state:")]
        rows = [i for i, v in enumerate(layers[-1][1].operands) if v == layers[-1][0].operands[-1]]
        wanted = [(layers[-1][0], 2), (layers[-1][1], 2), (layers[-1][2], 3), (layers[-1][3], 2), (layers[-1][4], 3)]
        if any(self._handed(call) != count for call, count in [*wanted, (head, 1)]) or len(cached) != 1:
            raise Refused("a kernel reads more than the chain has")
        if attention.rounding != (None, None) or attention.log_sum or attention.gradients:
            raise Refused("its attention rounds or leaves more than its result")
        product = self._product([head])
        logits = self._place(head.operands[-1])
        chosen = chosen_by(tail, [self.kernel(call) for call in tail], self._place(head.operands[-1]), self._place)
        return Chain(
            self.calls, self.kernel(first), made[0], self._series([first]), self.layers,
            (self._joined(norms[0]), self._joined(norms[1]), self._joined([final])), into, self.kernel(layers[-1][1]),
            attended, cached[0], rows[0], out, up, down, product, logits, *chosen,
        )  # fmt: skip

    def _layer(self, layer: list[ir.Operation], stream: ir.Value, norms: tuple[list, list]) -> ir.Value:
        """The stream behind a layer."""
        into, attention, out, up, down = layer
        norms[0].append(self._norm(into, stream))
        norms[1].append(self._norm(up, out.operands[-1]))
        for call, source, before in ((out, attention.operands[-1], stream), (down, up.operands[-1], out.operands[-1])):
            kernel = self.kernel(call)
            left, added = self._left(kernel), self._stream_argument(kernel)
            if call.operands[left] != source or call.operands[added] != before:
                raise Refused("a product is not added to the stream")
        if into.operands[-1] not in list(attention.operands):
            raise Refused("attention does not read what the product before it makes")
        return down.operands[-1]

    def _handed(self, call: ir.Operation) -> int:
        """How many of a call's operands kernels hand on to each other."""
        return sum(defining_op(value).name != "memref.view" for value in call.operands)

    def _contract(self, kernel: ir.Operation) -> ir.Operation:
        found = [op for op in operations(kernel.regions[0].blocks[0]) if op.name == "linalg.contract"]
        if len(found) != 1:
            raise Refused("a kernel is no single product")
        return found[0]

    def _left(self, kernel: ir.Operation) -> int:
        """The argument that a product without a norm sums over."""
        return self._argument(viewed(self._contract(kernel).operands[0]))

    def _argument(self, tensor: ir.Value) -> int:
        op = defining_op(tensor)
        if op is None or op.name != "bufferization.to_tensor":
            raise Refused("a product's operand is no buffer")
        return ir.BlockArgument(op.operands[0]).arg_number

    def _stream_argument(self, kernel: ir.Operation) -> int:
        """The argument of a result's shape that is neither the result nor summed over."""
        shape, left = shape_of(kernel.regions[0].blocks[0].arguments[-1]), self._left(kernel)
        arguments = list(kernel.regions[0].blocks[0].arguments)[:-1]
        found = [i for i, a in enumerate(arguments) if shape_of(a) == shape and i != left]
        if len(found) != 1:
            raise Refused("a product is not added to one stream")
        return found[0]

    def _norm(self, call: ir.Operation, stream: ir.Value) -> tuple[Norm, dict[int, tuple[int, int]]]:
        """The norm of the stream that a product sums over, with the places of what it reads."""
        kernel = self.kernel(call)
        left = viewed(self._contract(kernel).operands[0])
        if defining_op(left).name == "bufferization.to_tensor":  # an earlier kernel has normed it
            value = call.operands[self._argument(left)]
            call = self.calls[0]
            kernel, at = self.kernel(call), [i for i, v in enumerate(call.operands) if v == value]
            if not at or stream not in list(call.operands):
                raise Refused("a product's operand is no norm of the stream")
            buffer = kernel.regions[0].blocks[0].arguments[at[0]]
            streams = [t for t, m in outputs_of(kernel) if call.operands[ir.BlockArgument(m).arg_number] == stream]
            norm = norm_of(next(tensor for tensor, memory in outputs_of(kernel) if memory == buffer))
            good = norm is not None and viewed(norm.source) == streams[0]
        else:
            norm = norm_of(left)
            good = norm is not None and call.operands[self._argument(viewed(norm.source))] == stream
        if norm is None or not good:
            raise Refused("a product's operand is no norm of the stream")
        weights = [w for w in (norm.gamma, norm.beta) if w is not None]
        arguments = [self._argument(w) for w in weights]
        return norm, {n: (p.buffer, p.first) for n, a in enumerate(arguments) for p in [self._place(call.operands[a])]}

    def _joined(self, found: Sequence[tuple[Norm, dict[int, tuple[int, int]]]]) -> NormWeights:
        norms = {(n.centred, n.epsilon, n.beta is None) for n, _ in found}
        if len(norms) != 1:
            raise Refused("its layers' norms are not alike")
        series = [self._steps([places[i] for _, places in found]) for i in found[0][1]]
        centred, epsilon, plain = norms.pop()
        return NormWeights(series[0], None if plain else series[1], centred, epsilon)

    def _product(self, calls: list[ir.Operation]) -> Product:
        kernel = self.kernel(calls[-1])
        contract = self._contract(kernel)
        if any(self._contract(self.kernel(call)).operands[1].type != contract.operands[1].type for call in calls):
            raise Refused("its layers' products are not alike")
        rows, depth = shape_of(contract.operands[1])
        if str(element_type(contract.operands[1])) != "bf16" or shape_of(contract.results[0]) != (1, rows):
            raise Refused("a product is not of one row with BF16 weights")
        arguments = self._series(calls)
        weights = self._steps([self._at(call, self._right(call)) for call in calls])
        left = viewed(contract.operands[0])
        made = defining_op(left)
        if prod(shape_of(left)) != depth or str(element_type(contract.results[0])) != "f32":
            raise Refused("a product sums over a part of what it reads, or not in F32")
        number = self._argument(left) if made.name == "bufferization.to_tensor" else -1
        added = [i for i, a in enumerate(list(kernel.regions[0].blocks[0].arguments)[:-1])
                 if i not in arguments and i != number and shape_of(a) == (1, rows)]  # fmt: skip
        return Product(kernel, arguments, weights, rows, depth, number, added[0] if len(added) == 1 else None)

    def _right(self, call: ir.Operation) -> int:
        return self._argument(self._contract(self.kernel(call)).operands[1])

    def _at(self, call: ir.Operation, argument: int) -> tuple[int, int]:
        place = self._place(call.operands[argument])
        return place.buffer, place.first

    def _series(self, calls: list[ir.Operation]) -> dict[int, Series]:
        """Of the last call's arguments that are parts of the entry's buffers, where the first one's kernel, perhaps
        another than all others', has a part of that buffer, too."""
        if len({callee_of(call) for call in calls[1:]}) > 1:
            raise Refused("its layers are not alike")
        found = {}
        for i, value in enumerate(calls[-1].operands):
            if defining_op(value).name != "memref.view":
                continue
            buffer = self._at(calls[-1], i)[0]
            first = [j for j, v in enumerate(calls[0].operands) if self._buffer(v) == buffer]
            if len(first) == 1 or callee_of(calls[0]) == callee_of(calls[-1]):
                number = i if callee_of(calls[0]) == callee_of(calls[-1]) else first[0]
                found[i] = self._steps([self._at(calls[0], number), *(self._at(call, i) for call in calls[1:])])
        return found

    def _buffer(self, value: ir.Value) -> int:
        view = defining_op(value)
        return self._place(value).buffer if view.name == "memref.view" else -1

    def _steps(self, places: list[tuple[int, int]]) -> Series:
        stride = places[1][1] - places[0][1] if len(places) > 1 else 0
        want = [(places[0][0], places[0][1] + i * stride) for i in range(len(places))]
        if places != want:
            raise Refused("its layers' weights do not lie one behind the other")
        return Series(*places[0], stride)

    def _place(self, value: ir.Value) -> Series:
        view = defining_op(value)
        if view is None or view.name != "memref.view":
            raise Refused("it reads or leaves something beside the chain")
        offset = ir.IntegerAttr(defining_op(view.operands[1]).attributes["value"]).value
        return Series(ir.BlockArgument(view.operands[0]).arg_number, offset, 0)
