"""Finding a decode step's chain that can be shared among clusters: each of its kernels by what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import callee_of, defining_op, element_type, operations, shape_of, strings, viewed
from lispgpt.passes.decode_step.chain import (
    PACKED,
    Chain,
    HeadNorm,
    Hoisted,
    NextToken,
    NormWeights,
    Part,
    Product,
    Series,
)
from lispgpt.passes.kernels.packed_rows import packed_kind
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.recognise.attention import attention_of
from lispgpt.passes.recognise.in_blocks import bytes_of_blocks, kind_of_blocks
from lispgpt.passes.recognise.row_norms import Norm, norm_of

GREEDY = ["largest of chunks", "largest", "advance"]
DRAWN = ["races of chunks", "drawn", "advance"]


def find_next_token(
    calls: Sequence[ir.Operation], kernels: Sequence[ir.Operation], logits: Series, place: Callable[[ir.Value], Series]
) -> NextToken:
    """place: of a call's operand, Refused where it is none.  Refused where it is not known what the calls do."""
    parts, choose, advance = calls
    meanings = [ir.StringAttr(k.attributes["means"]).value if "means" in k.attributes else "" for k in kernels]
    if meanings not in (GREEDY, DRAWN):
        raise Refused("what comes behind the last product is not known")
    draws = meanings == DRAWN
    if any(place(call.operands[0]) != logits for call in ([parts, choose] if draws else [parts])):
        raise Refused("what is chosen from is not what the last product makes")
    next_ = place(choose.operands[-1 if draws else 1])
    ready, tokens, positions = map(place, advance.operands)
    given = [[place(call.operands[i]) for i in (1, 2)] for call in (parts, choose)] if draws else []
    if ready != next_ or (draws and (given[0] != given[1] or given[0][1] != positions)):
        raise Refused("what comes behind the last product is not known")
    vocab = next(iter(ir.DenseI64ArrayAttr(kernels[0].attributes["numbers"])))
    report, settings = (None, given[0][0]) if draws else (place(choose.operands[2]), None)
    return NextToken(next_, report, settings, tokens.buffer, positions.buffer, vocab)


TAIL = 4
"""Calls behind the layers: the last product, the choice in two steps, and what leaves the next run's inputs."""


def find_chain(entry: ir.Operation, functions: dict[str, ir.Operation]) -> Chain:
    """Refused where an entry is anything else."""
    calls = [op for op in operations(entry.regions[0].blocks[0]) if op.name == "func.call"]
    return _Finder(entry, calls, functions).chain()


class _Finder:
    def __init__(self, entry: ir.Operation, calls: list[ir.Operation], functions: dict[str, ir.Operation]) -> None:
        self.calls, self.functions = calls, functions
        self.names, self.sequences = strings(entry.attributes["arguments"]), set[int]()

    def kernel(self, call: ir.Operation) -> ir.Operation:
        return self.functions[callee_of(call)]

    def _kind(self, call: ir.Operation) -> str:
        kernel = self.kernel(call)
        return ir.StringAttr(kernel.attributes["kernel"]).value if "kernel" in kernel.attributes else kernel.name

    def _layers(self) -> tuple[list[ir.Operation], list[list[ir.Operation]]]:
        """(the calls ahead of the layers, each layer's)."""
        kinds = list(map(self._kind, self.calls))
        attended = [i for i, kind in enumerate(kinds) if kind == "attention"]
        first = attended[0] - 1 if attended else 0
        while first > 1 and kinds[first] == "rows":
            first -= 1
        if first < 1 or len(self.calls) < first + TAIL:
            raise Refused("it is no chain of layers")
        steps = attended[1] - attended[0] if len(attended) > 1 else len(self.calls) - TAIL - first
        layers = [self.calls[first + steps * i : first + steps * (i + 1)] for i in range(len(attended))]
        norms = attended[0] - first - 1
        others = steps - norms - 2
        known = ["contraction", *["rows"] * norms, "attention", *["contraction"] * others]
        for layer in layers:
            if others not in (3, 4) or list(map(self._kind, layer)) != known:
                raise Refused(f"its layers are {', '.join(map(self._kind, layer))}")
        if first + steps * len(layers) + TAIL != len(self.calls):
            raise Refused("it is no chain of layers")
        self.normed = [layer[1 : norms + 1] for layer in layers]
        return self.calls[:first], [[layer[0], *layer[norms + 1 :]] for layer in layers]

    def chain(self) -> Chain:
        before, layers = self._layers()
        lm_head, *tail = self.calls[-TAIL:]
        residual_stream = layers[0][2].operands[self._residual_argument(self.kernel(layers[0][2]))]
        makers = [call for call in before if residual_stream in list(call.operands)]
        if len(makers) != 1:
            raise Refused("no one kernel makes the residual stream")
        (first,) = makers
        self.first = first
        made = list(first.operands).index(residual_stream)
        hoisted = tuple(self._hoisted(call, layers) for call in before if call != first)
        self.ahead = [layers[-1][1].operands[i] for ahead in hoisted for i in ahead.results.values()]
        now, norms = residual_stream, ([], [])  # type: ignore[var-annotated]
        for layer in layers:
            now = self._layer(layer, now, norms)
        final = self._norm(lm_head, now)
        qkv, out_projection, *gate_up, down = (
            self._product([layer[i] for layer in layers]) for i in range(len(layers[0])) if i != 1
        )
        if len(gate_up) > 1:
            if gate_up[0].kind != gate_up[1].kind:
                raise Refused("two products of hidden units have weights of two types")
            *_, gate, up, _ = layers[-1]
            gate_up[1] = replace(gate_up[1], residual_stream=list(up.operands).index(gate.operands[-1]))
        attended = Part(self.kernel(layers[-1][1]), self._series([layer[1] for layer in layers]))
        attention = attention_of(attended.kernel)
        if attention is None or attention.own is None:
            raise Refused("its attention does not write its own rows")
        if packed_kind(attention.keys.tensor):
            raise Refused("its keys and values are packed")
        cached = [i for i, s in attended.arguments.items() if self.names[s.buffer].startswith("state:")]
        rows = [i for i, v in enumerate(layers[-1][1].operands) if v == layers[-1][0].operands[-1]]
        normed = tuple(self._head_norm(calls, layers) for calls in zip(*self.normed, strict=True))
        wanted = [2, 2 + len(normed), 3, *range(2, len(gate_up) + 2), 3, 1]
        if len(cached) != 1 or list(map(self._handed, [*layers[-1], lm_head])) != wanted:
            raise Refused("a kernel reads more than the chain has")
        if attention.rounding != (None, None) or attention.log_sum or attention.gradients:
            raise Refused("its attention rounds or leaves more than its result")
        product = self._product([lm_head])
        if len(self.sequences) != 1:
            raise Refused("its products are of different numbers of rows")
        (sequences,) = self.sequences
        logits = self._place(lm_head.operands[-1])
        choice = find_next_token(tail, list(map(self.kernel, tail)), logits, self._place)
        if choice.settings is not None and sequences > 1:
            raise Refused("the next tokens of several sequences are drawn")
        return Chain(
            choice.next, choice.report, choice.settings, choice.tokens, choice.positions, choice.vocab, self.calls,
            Part(self.kernel(first), self._series([first])), made, hoisted, normed, len(layers),
            (self._joined(norms[0]), self._joined(norms[1]), self._joined([final])), qkv, attended, cached[0], rows[0],
            out_projection, tuple(gate_up), down, product, logits, sequences,
        )  # fmt: skip

    def _layer(self, layer: list[ir.Operation], residual_stream: ir.Value, norms: tuple[list, list]) -> ir.Value:
        """The residual stream behind a layer."""
        qkv, attention, out_projection, *gate_up, down = layer
        norms[0].append(self._norm(qkv, residual_stream))
        norms[1].append(self._norm(gate_up[0], out_projection.operands[-1]))
        made = gate_up[-1].operands[-1]
        for call, source, before in (
            (out_projection, attention.operands[-1], residual_stream),
            (down, made, out_projection.operands[-1]),
        ):
            kernel = self.kernel(call)
            left, added = self._left(kernel), self._residual_argument(kernel)
            if call.operands[left] != source or call.operands[added] != before:
                raise Refused("a product is not added to the residual stream")
        if len(gate_up) > 1:
            norm, places = self._norm(gate_up[1], out_projection.operands[-1])
            other, theirs = norms[1][-1]
            if (
                gate_up[0].operands[-1] not in list(gate_up[1].operands)[:-1]
                or places != theirs
                or not norm.resembles(other)
            ):
                raise Refused("two products of hidden units are not of one norm")
        if qkv.operands[-1] not in list(attention.operands):
            raise Refused("attention does not read what the product before it makes")
        return down.operands[-1]

    def _hoisted(self, call: ir.Operation, layers: list[list[ir.Operation]]) -> Hoisted:
        """A kernel ahead of the layers, which attention alone reads."""
        handed = [i for i, v in enumerate(call.operands) if not _is_view(v)]
        results = {}
        for i in handed:
            value = call.operands[i]
            if len(list(value.uses)) != len(layers) + 1 or str(element_type(value)) != "f32":
                raise Refused("what a kernel ahead of the layers makes goes elsewhere than into attention")
            results[i] = self._attended_as([value] * len(layers), layers)
        return Hoisted(self.kernel(call), self._series([call]), results)

    def _head_norm(self, calls: Sequence[ir.Operation], layers: list[list[ir.Operation]]) -> HeadNorm:
        """A norm of heads' rows between the first product and attention, which alone reads it."""
        kernel = self.kernel(calls[-1])
        norm = norm_of(outputs_of(kernel)[-1][0])
        if norm is None:
            raise Refused("what lies between a layer's first product and attention is no norm")
        source, made = self._argument(viewed(norm.source)), [call.operands[-1] for call in calls]
        for call, layer in zip(calls, layers, strict=True):
            uses = len(list(call.operands[-1].uses))
            if call.operands[source] != layer[0].operands[-1] or uses != 2 or self._handed(call) != 2:
                raise Refused("a norm between a layer's first product and attention is not of heads")
        gamma, read = self._argument(viewed(norm.gamma)), self._attended_as(made, layers)
        return HeadNorm(kernel, self._series(list(calls)), source, gamma, read)

    def _attended_as(self, values: Sequence[ir.Value], layers: list[list[ir.Operation]]) -> int:
        """The number of attention's argument that in each layer is such a value."""
        found = zip(values, layers, strict=True)
        places = {tuple(n for n, v in enumerate(layer[1].operands) if v == value) for value, layer in found}
        (place,) = places if len(places) == 1 else [()]
        if len(place) != 1:
            raise Refused("attention does not read once what is made for it")
        return place[0]

    def _handed(self, call: ir.Operation) -> int:
        """How many of a call's operands the chain's kernels hand on to each other."""
        return sum(not _is_view(value) and value not in self.ahead for value in call.operands)

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

    def _residual_argument(self, kernel: ir.Operation) -> int:
        """The argument of a result's shape that is neither the result nor summed over."""
        shape, left = shape_of(kernel.regions[0].blocks[0].arguments[-1]), self._left(kernel)
        arguments = list(kernel.regions[0].blocks[0].arguments)[:-1]
        found = [i for i, a in enumerate(arguments) if shape_of(a) == shape and i != left]
        if len(found) != 1:
            raise Refused("a product is not added to one residual stream")
        return found[0]

    def _norm(self, call: ir.Operation, residual_stream: ir.Value) -> tuple[Norm, list[Series]]:
        """The norm of the residual stream that a product sums over, with the places of what it reads."""
        kernel = self.kernel(call)
        left = viewed(self._contract(kernel).operands[0])
        if defining_op(left).name == "bufferization.to_tensor":  # an earlier kernel has normed it
            value = call.operands[self._argument(left)]
            call = self.first
            kernel, at = self.kernel(call), [i for i, v in enumerate(call.operands) if v == value]
            if not at or residual_stream not in list(call.operands):
                raise Refused("a product's operand is no norm of the residual stream")
            buffer = kernel.regions[0].blocks[0].arguments[at[0]]
            residual_streams = [
                t for t, m in outputs_of(kernel) if call.operands[ir.BlockArgument(m).arg_number] == residual_stream
            ]
            norm = norm_of(next(tensor for tensor, memory in outputs_of(kernel) if memory == buffer))
            good = norm is not None and viewed(norm.source) == residual_streams[0]
        else:
            norm = norm_of(left)
            good = norm is not None and call.operands[self._argument(viewed(norm.source))] == residual_stream
        if norm is None or not good:
            raise Refused("a product's operand is no norm of the residual stream")
        weights = [w for w in (norm.gamma, norm.beta) if w is not None]
        return norm, [self._place(call.operands[self._argument(w)]) for w in weights]

    def _joined(self, found: Sequence[tuple[Norm, list[Series]]]) -> NormWeights:
        norms = {(n.centred, n.epsilon, n.beta is None) for n, _ in found}
        if len(norms) != 1:
            raise Refused("its layers' norms are not alike")
        series = [self._steps(places) for places in zip(*(places for _, places in found), strict=True)]
        centred, epsilon, plain = norms.pop()
        return NormWeights(series[0], None if plain else series[1], centred, epsilon)

    def _product(self, calls: list[ir.Operation]) -> Product:
        kernel = self.kernel(calls[-1])
        contract = self._contract(kernel)
        rights = [self._contract(self.kernel(call)).operands[1] for call in calls]
        (rows, depth), sequences = shape_of(contract.operands[1]), shape_of(contract.results[0])[0]
        self.sequences |= {shape_of(self._contract(self.kernel(call)).results[0])[0] for call in calls}
        if len({(right.type, kind_of_blocks(right)) for right in rights}) > 1:
            raise Refused("its layers' products are not alike")
        kind = kind_of_blocks(contract.operands[1]) or str(element_type(contract.operands[1]))
        if kind not in ("bf16", *PACKED) or shape_of(contract.results[0]) != (sequences, rows):
            raise Refused(f"a product is not of rows with BF16 weights, {' or '.join(PACKED)}")
        if kind != "bf16" and sequences > 1:
            raise Refused("weights in blocks are shared out for one sequence")
        numbers = [self._argument(bytes_of_blocks(right) or right) for right in rights]
        arguments, sites = self._series(calls), tuple(zip(calls, numbers, strict=True))
        if kind != "bf16":
            arguments.pop(numbers[-1])
        weights = self._steps([self._place(call.operands[number]) for call, number in sites])
        left = viewed(contract.operands[0])
        if prod(shape_of(left)) != sequences * depth or str(element_type(contract.results[0])) != "f32":
            raise Refused("a product sums over a part of what it reads, or not in F32")
        number = self._argument(left) if defining_op(left).name == "bufferization.to_tensor" else -1
        added = [i for i, a in enumerate(list(kernel.regions[0].blocks[0].arguments)[:-1])
                 if i not in (*arguments, number, numbers[-1]) and shape_of(a) == (sequences, rows)]  # fmt: skip
        residual_stream = added[0] if len(added) == 1 else None
        return Product(kernel, arguments, weights, rows, depth, residual_stream, kind, sites)

    def _series(self, calls: list[ir.Operation]) -> dict[int, Series]:
        """Of the last call's arguments that are parts of the entry's buffers, where the first one's kernel, perhaps
        another than all others', has a part of that buffer, too."""
        if len({callee_of(call) for call in calls[1:]}) > 1:
            raise Refused("its layers are not alike")
        found, alike = {}, callee_of(calls[0]) == callee_of(calls[-1])
        for i, value in enumerate(calls[-1].operands):
            if _is_view(value):
                buffer = self._place(value).buffer
                first = [v for v in calls[0].operands if _is_view(v) and self._place(v).buffer == buffer]
                if alike or len(first) == 1:
                    values = [calls[0].operands[i] if alike else first[0], *(call.operands[i] for call in calls[1:])]
                    found[i] = self._steps(list(map(self._place, values)))
        return found

    def _steps(self, places: Sequence[Series]) -> Series:
        first = places[0]
        made = replace(first, stride=places[1].first - first.first if len(places) > 1 else 0)
        if list(places) != [Series(first.buffer, first.first + i * made.stride) for i in range(len(places))]:
            raise Refused("its layers' weights do not lie one behind the other")
        return made

    def _place(self, value: ir.Value) -> Series:
        if not _is_view(value):
            raise Refused("it reads or leaves something beside the chain")
        memory, offset = defining_op(value).operands
        first = ir.IntegerAttr(defining_op(offset).attributes["value"]).value
        return Series(ir.BlockArgument(memory).arg_number, first)


def _is_view(value: ir.Value) -> bool:
    """Whether a call's operand is a part of an entry's buffer."""
    op = defining_op(value)
    return op is not None and op.name == "memref.view"
