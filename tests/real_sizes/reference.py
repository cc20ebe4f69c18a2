"""Single elements of what a kernel computes, in float64, from the linalg group that it was outlined from.

Nothing is computed but what an element is made of, so that a product with a matrix of gigabytes costs one of its rows.
A value of the group is a function from places to numbers: it asks its operands at the places that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fuzz.mutated.interpret import DYNAMIC, Unknown, _at
from real_sizes.elements import MOST, Place, Tensor, TooMuch, decoded, scalar

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import indexing_maps, integers, kept_dimensions, operations, shape_of

JOINS = {
    "arith.addf": np.sum, "arith.addi": np.sum, "arith.mulf": np.prod, "arith.maximumf": np.max,
    "arith.maxnumf": np.max, "arith.minimumf": np.min, "arith.maxsi": np.max, "arith.minsi": np.min,
}  # fmt: skip


class Kernel:
    """A kernel on memrefs of which each is taken as a tensor, or made of one (see destination-passing).

    given: the arrays of its arguments, by number, as they are before a launch.
    """

    def __init__(self, function: ir.Operation, given: Mapping[int, np.ndarray]) -> None:
        self.values: dict[Any, Any] = {}
        self.results: dict[int, Tensor] = {}
        block = function.regions[0].blocks[0]
        self.numbers = {argument: number for number, argument in enumerate(block.arguments)}
        for op in operations(block)[:-1]:
            if op.name == "bufferization.to_tensor":
                number = self._root(op.operands[0])
                array = given[number]
                kind = str(op.results[0].type.element_type)
                self.values[op.results[0]] = Tensor(array.shape, decoded(array, kind))
            elif op.name == "bufferization.materialize_in_destination":
                number = self._root(op.operands[1])
                self.results[number] = self.values[op.operands[0]]
            else:
                self._do(op, self.values)

    def _root(self, value: ir.Value) -> int:
        if value not in self.numbers:
            raise Unknown("a view of an argument")
        return self.numbers[value]

    # ---- ops on tensors

    def _do(self, op: ir.Operation, values: dict[Any, Any]) -> None:
        handler = getattr(self, "_" + op.name.replace(".", "_"), None)
        found = handler(op, values) if handler else scalar(op, [values[v] for v in op.operands])
        values.update(zip(op.results, found if isinstance(found, list) else [found], strict=True))

    def _arith_constant(self, op: ir.Operation, values: dict[Any, Any]) -> Any:
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            if attribute.is_splat:
                value = attribute.get_splat_value()
                number = ir.FloatAttr(value).value if isinstance(value, ir.FloatAttr) else ir.IntegerAttr(value).value
                return _filled(shape_of(op.results[0]), number)
            array = np.array(attribute).reshape(shape_of(op.results[0]))
            return Tensor(array.shape, lambda place: array[tuple(place)])
        return scalar(op, [])

    def _tensor_empty(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        return _filled(shape_of(op.results[0]), np.nan)

    def _linalg_fill(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        return _filled(shape_of(op.results[0]), values[op.operands[0]])

    def _tensor_cast(self, op: ir.Operation, values: dict[Any, Any]) -> Any:
        return values[op.operands[0]]

    def _reshaped(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        source, shape = values[op.operands[0]], shape_of(op.results[0])

        def at(place: Place) -> Any:
            flat = np.zeros((), np.int64)
            for part, extent in zip(place, shape, strict=True):
                flat = flat * extent + part
            found = []
            for extent in reversed(source.shape):
                found.append(flat % extent)
                flat = flat // extent
            return source.at(tuple(reversed(found)))

        return Tensor(shape, at)

    _tensor_expand_shape = _tensor_collapse_shape = _tensor_reshape = _reshaped

    def _window(self, op: ir.Operation, dynamic: Sequence[Any]) -> tuple[list[Any], list[int], list[int]]:
        offsets, sizes, strides = (
            list(integers(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
        )
        more = iter(dynamic)
        return [next(more) if o == DYNAMIC else o for o in offsets], sizes, strides

    def _tensor_extract_slice(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        source, shape = values[op.operands[0]], shape_of(op.results[0])
        offsets, sizes, strides = self._window(op, [values[v] for v in list(op.operands)[1:]])
        kept = kept_dimensions(sizes, shape)

        def at(place: Place) -> Any:
            parts = iter(place)
            inner = [next(parts) if keep else np.int64(0) for keep in kept]
            return source.at(tuple(o + i * s for o, i, s in zip(offsets, inner, strides, strict=True)))

        return Tensor(shape, at)

    def _tensor_insert_slice(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        part, whole = (values[v] for v in list(op.operands)[:2])
        offsets, sizes, strides = self._window(op, [values[v] for v in list(op.operands)[2:]])
        kept = kept_dimensions(sizes, part.shape)

        def at(place: Place) -> Any:
            inside, inner = np.bool_(True), []
            for p, o, size, step, keep in zip(place, offsets, sizes, strides, kept, strict=True):
                away = np.asarray(p) - o
                here = (away >= 0) & (away < size * step) & (away % step == 0)
                if not here.any():
                    return whole.once(place)
                inside = inside & here
                inner += [np.clip(away // step, 0, size - 1)] if keep else []
            if not np.any(inside):
                return whole.once(place)
            found = part.at(tuple(inner)) if inner else part.at(())
            return found if np.all(inside) else np.where(inside, found, whole.at(place))

        return Tensor(whole.shape, at)

    def _tensor_extract(self, op: ir.Operation, values: dict[Any, Any]) -> Any:
        tensor, *place = (values[v] for v in op.operands)
        return tensor.at(tuple(np.asarray(part) for part in place))

    def _scf_for(self, op: ir.Operation, values: dict[Any, Any]) -> list[Any]:
        low, high, step, *carried = (values[v] for v in op.operands)
        body = op.regions[0].blocks[0]
        for counter in range(int(low), int(high), int(step)):
            inner = dict(values)
            inner.update(zip(body.arguments, [np.int64(counter), *carried], strict=True))
            *ops, last = operations(body)
            for each in ops:
                self._do(each, inner)
            carried = [inner[v] for v in last.operands]
        return carried

    # ---- loops of linalg

    def _linalg_generic(self, op: ir.Operation, values: dict[Any, Any]) -> list[Tensor]:
        maps, count = indexing_maps(op), len(op.results)
        operands = [values[v] for v in op.operands]
        extents: dict[int, int] = {}
        for map_, operand in zip(maps, operands, strict=True):
            for expression, extent in zip(map_.results, getattr(operand, "shape", ()), strict=False):
                if isinstance(expression, ir.AffineDimExpr):
                    extents[expression.position] = extent
        kinds = ["parallel" in str(kind) for kind in op.attributes["iterator_types"]]
        summed = [d for d, parallel in enumerate(kinds) if not parallel]

        def result(number: int) -> Tensor:
            map_, start = maps[len(maps) - count + number], operands[len(maps) - count + number]

            def at(place: Place) -> Any:
                return self._points(op, values, maps, operands, number, place, extents, summed)

            return Tensor(start.shape, at) if map_.results or hasattr(start, "shape") else start

        return [result(number) for number in range(count)]

    def _points(
        self, op: ir.Operation, values: dict[Any, Any], maps: Sequence[Any], operands: Sequence[Any], number: int,
        place: Place, extents: Mapping[int, int], summed: Sequence[int],
    ) -> Any:  # fmt: skip
        """One result of a linalg op at some places; each loop that sums has an axis of its own behind theirs."""
        first = len(maps) - len(op.results)
        point: list[Any] = [np.int64(0)] * len(op.attributes["iterator_types"])
        place = tuple(np.asarray(part)[(..., *[None] * len(summed))] for part in place)
        for expression, part in zip(maps[first + number].results, place, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                point[expression.position] = part
            elif not isinstance(expression, ir.AffineConstantExpr):
                raise Unknown(str(expression))
        for axis, d in enumerate(summed):
            point[d] = np.arange(extents[d]).reshape([extents[d] if n == axis else 1 for n in range(len(summed))])
        block = op.regions[0].blocks[0]
        inner = dict(values)
        starts = list(block.arguments)[first:]
        for argument, map_, operand in zip(list(block.arguments)[:first], maps, operands, strict=False):
            inner[argument] = _taken(operand, map_, point)
        start = None
        if list(starts[number].uses) or not summed:
            inner[starts[number]] = start = _taken(operands[first + number], maps[first + number], point)
        if not summed:
            return self._body(block, inner, point, number)
        return self._summed(block, inner, point, number, starts, start, len(summed))

    def _body(self, block: ir.Block, inner: dict[Any, Any], point: Sequence[Any], number: int) -> Any:
        *ops, last = operations(block)
        for each in ops:
            if each.name == "linalg.index":
                inner[each.results[0]] = np.asarray(point[ir.IntegerAttr(each.attributes["dim"]).value])
            else:
                self._do(each, inner)
        return inner[last.operands[number]]

    def _summed(
        self, block: ir.Block, inner: dict[Any, Any], point: Sequence[Any], number: int, starts: Sequence[Any],
        start: Any, axes: int,
    ) -> Any:  # fmt: skip
        """Where the body's last op joins what is there with a value that depends on nothing there."""
        *ops, last = operations(block)
        final = last.operands[number].owner
        final = final if isinstance(final, ir.Operation) else getattr(final, "operation", final)
        own = starts[number]
        uses = [use.owner.operation for use in own.uses]
        if final.name not in JOINS or uses != [final] or any(list(s.uses) for s in starts if s != own):
            raise Unknown(f"a loop that joins by {final.name}")
        for each in ops:
            if each == final:
                continue
            if each.name == "linalg.index":
                inner[each.results[0]] = np.asarray(point[ir.IntegerAttr(each.attributes["dim"]).value])
            else:
                self._do(each, inner)
        (other,) = (v for v in final.operands if v != own)
        value = inner[other]
        shape = np.broadcast_shapes(*(np.shape(part) for part in point))
        if np.prod(shape, dtype=np.int64) > MOST:
            raise TooMuch("a sum")
        total = JOINS[final.name](np.broadcast_to(value, shape), axis=tuple(range(-axes, 0)))
        start = np.asarray(start)
        start = start.reshape(start.shape[: start.ndim - axes]) if start.ndim >= axes else start
        return scalar(final, [start, total])

    def _linalg_contract(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        maps = indexing_maps(op)
        a, b, c = (values[v] for v in op.operands)
        positions = [[e.position for e in map_.results] for map_ in maps]
        extents = {
            d: n for where, t in zip(positions, (a, b, c), strict=True) for d, n in zip(where, t.shape, strict=True)
        }
        summed = [d for d in extents if d not in positions[2]]

        def at(place: Place) -> Any:
            point: dict[int, Any] = {
                d: np.asarray(part)[(..., *[None] * len(summed))] for d, part in zip(positions[2], place, strict=True)
            }
            for axis, d in enumerate(summed):
                point[d] = np.arange(extents[d]).reshape([-1 if n == axis else 1 for n in range(len(summed))])
            shape = np.broadcast_shapes(*(np.shape(part) for part in point.values()))
            if np.prod(shape, dtype=np.int64) > MOST:
                raise TooMuch("a product")
            product = a.at(tuple(point[d] for d in positions[0])) * b.at(tuple(point[d] for d in positions[1]))
            return np.broadcast_to(product, shape).sum(axis=tuple(range(-len(summed), 0))) + c.at(place)

        return Tensor(c.shape, at)

    def _linalg_reduce(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        if len(op.results) != 1 or len(operations(op.regions[0].blocks[0])) != 2:
            raise Unknown("a reduction of several")
        source, start = (values[v] for v in op.operands)
        (dimension,), (join, _) = integers(op.attributes["dimensions"]), operations(op.regions[0].blocks[0])
        if join.name not in JOINS:
            raise Unknown(f"a reduction by {join.name}")

        def at(place: Place) -> Any:
            parts = [np.asarray(part)[..., None] for part in place]
            parts.insert(dimension, np.arange(source.shape[dimension]))
            count = source.shape[dimension]
            found = source.at(tuple(parts))
            shape = (*np.broadcast_shapes(*(np.shape(part)[:-1] for part in parts if part.ndim > 1), ()), count)
            return scalar(join, [start.at(place), JOINS[join.name](np.broadcast_to(found, shape), axis=-1)])

        return Tensor(start.shape, at)

    def _linalg_softmax(self, op: ir.Operation, values: dict[Any, Any]) -> Tensor:
        source, dimension = values[op.operands[0]], ir.IntegerAttr(op.attributes["dimension"]).value

        def at(place: Place) -> Any:
            parts = [np.asarray(part)[..., None] for part in place]
            parts[dimension] = np.arange(source.shape[dimension])
            scores = source.at(tuple(parts))
            largest = np.max(scores, axis=-1)
            return np.exp(source.at(place) - largest) / np.exp(scores - largest[..., None]).sum(-1)

        return Tensor(source.shape, at)


def _filled(shape: Sequence[int], number: Any) -> Tensor:
    return Tensor(shape, lambda place: number)


def _taken(operand: Any, map_: Any, point: Sequence[Any]) -> Any:
    """What an operand is at points of loops."""
    if not isinstance(operand, Tensor):
        return operand
    return operand.at(tuple(np.asarray(_at(expression, point)) for expression in map_.results))
