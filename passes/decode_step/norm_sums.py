"""Sums of a norm's weights along a product's rows, made of weights once: what it takes to put a norm off.

Of a product with weights W that reads a norm with gamma and beta, G = W gamma and B = W beta.  A row's result is
(S - mean * G) / deviation + B, where S is what the product makes of the residual stream times gamma.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import (
    captured_values,
    clone_with,
    defining_op,
    kernel_functions,
    operations,
    strings,
    symbol_of,
)
from lispgpt.passes.decode_step.chain import NormWeights, Product
from lispgpt.passes.memory.kernel_buffers import add_argument
from lispgpt.passes.model.make_weights import maker_of
from lispgpt.passes.model.weight_recipes import MADE


@dataclass(frozen=True)
class NormSums:
    product: Product
    norm: NormWeights
    layers: int

    @property
    def shape(self) -> list[int]:
        """[layers, weights of the norm, rows]; of F32."""
        return [self.layers, len(self.norm.series), self.product.rows]

    @property
    def nbytes(self) -> int:
        return 4 * prod(self.shape)

    def add_to(self, module: ir.Module, entry: ir.Operation) -> ir.Value:
        """The entry's argument that has them, which the module's function that makes weights makes."""
        names, types = strings(entry.attributes["arguments"]), list(entry.attributes["types"])
        sources = [self.product.weights, *self.norm.series]
        about = [names[s.buffer].partition(":")[2] + (f" from byte {s.first}" if s.first else "") for s in sources]
        name, type_ = f"{MADE}:{'+'.join(about)}, sums of rows", ir.RankedTensorType.get(self.shape, b.f32())
        maker = maker_of(module)
        if name not in strings(maker.attributes["results"]):
            maker.attributes["results"] = attribute([*strings(maker.attributes["results"]), name])
            weights = [add_argument(maker, names[s.buffer], ir.TypeAttr(types[s.buffer]).value) for s in sources]
            self._call(module, maker, weights, add_argument(maker, name, type_))
        return add_argument(entry, name, type_)

    def _call(self, module: ir.Module, maker: ir.Operation, weights: list[ir.Value], made: ir.Value) -> None:
        rows, callee = self.product.rows, self._kernel(module)
        types = [ir.MemRefType.get([count], b.f32()) for count in (self.product.depth, rows)]
        types.insert(0, self._weights.type)
        own = self.product.weights
        with ir.InsertionPoint(operations(maker.regions[0].blocks[0])[-1]), maker.location:
            for layer in range(self.layers):
                for i, (series, memory) in enumerate(zip(self.norm.series, weights[1:], strict=True)):
                    starts = [s.first + layer * s.stride for s in (own, series)]
                    starts.append((layer * len(self.norm.series) + i) * 4 * rows)
                    places = zip((weights[0], memory, made), starts, types, strict=True)
                    views = [b.emit("memref.view", [m, b.as_value(start)], [type_]) for m, start, type_ in places]
                    b.call(callee, views)

    @property
    def _weights(self) -> ir.Value:
        """The product's kernel's argument that has its weights."""
        *_, (_, number) = self.product.sites
        return self.product.kernel.regions[0].blocks[0].arguments[number]

    def _kernel(self, module: ir.Module) -> str:
        """The name of the kernel that makes sums of rows, which the module gets where it has none."""
        product = self.product
        name = f"sums_of_rows_{product.rows}x{product.depth}_{product.kind}"
        if any(symbol_of(kernel) == name for kernel in kernel_functions(module)):
            return name
        found = next(op for op in operations(product.kernel.regions[0].blocks[0]) if op.name == "linalg.contract")
        memory, numbers = self._weights.type, found.operands[1]
        vector, sums = f"{product.depth}xf32", f"{product.rows}xf32"
        maps = "affine_map<(r, k) -> (r, k)>, affine_map<(r, k) -> (k)>, affine_map<(r, k) -> (r)>"
        kernel = ir.Operation.parse(
            f"""func.func private @{name}(%w: {memory}, %v: memref<{vector}>, %s: memref<{sums}>)
                attributes {{kernel = "contraction", tied = [-1], access = ["read", "read", "write"]}} {{
              %0 = tensor.empty() : {numbers.type}
              %1 = bufferization.to_tensor %v restrict : memref<{vector}> to tensor<{vector}>
              %zero = arith.constant 0.0 : f32
              %2 = tensor.empty() : tensor<{sums}>
              %3 = linalg.fill ins(%zero : f32) outs(%2 : tensor<{sums}>) -> tensor<{sums}>
              %4 = linalg.contract indexing_maps = [{maps}] ins(%0, %1 : {numbers.type}, tensor<{vector}>)
                outs(%3 : tensor<{sums}>) -> tensor<{sums}>
              bufferization.materialize_in_destination %4 in restrict writable %s
                : (tensor<{sums}>, memref<{sums}>) -> ()
              return
            }}"""
        )
        body = kernel.regions[0].blocks[0]
        first, mapping = operations(body)[0], {self._weights: body.arguments[0]}
        with ir.InsertionPoint(first), found.location:
            _copy(numbers, mapping)
        first.results[0].replace_all_uses_with(mapping[numbers])
        first.erase()
        ir.InsertionPoint.at_block_begin(module.body).insert(kernel)
        return name


def _copy(value: ir.Value, mapping: dict[ir.Value, ir.Value]) -> None:
    """Emit what computes a value in another body.  mapping: what is there already; gets the value."""
    if value in mapping:
        return
    op = defining_op(value)
    for read in (*op.operands, *captured_values(op)):
        _copy(read, mapping)
    clone_with(op, mapping)
