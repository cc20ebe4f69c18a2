"""Sums of a norm's weights along a product's rows, made of weights once: what it takes to put a norm off.

Of a product with weights W that reads a norm with gamma and beta, G = W gamma and B = W beta.  A row's result is
(S - mean * G) / deviation + B, where S is what the product makes of the stream times gamma.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import kernel_functions, operations, strings, symbol_of
from lispgpt.passes.memory.kernel_buffers import add_argument
from lispgpt.passes.model.make_weights import maker_of
from lispgpt.passes.model.weight_recipes import MADE
from lispgpt.passes.plan.sharded_chain import NormWeights, Product, Series


@dataclass(frozen=True)
class NormSums:
    product: Product
    norm: NormWeights
    layers: int

    @property
    def of(self) -> list[Series]:
        """Weights of the norm that have sums."""
        return [self.norm.gamma] if self.norm.beta is None else [self.norm.gamma, self.norm.beta]

    @property
    def shape(self) -> list[int]:
        """[layers, weights of the norm, rows]; of F32."""
        return [self.layers, len(self.of), self.product.rows]

    @property
    def nbytes(self) -> int:
        return 4 * prod(self.shape)

    def add_to(self, module: ir.Module, entry: ir.Operation) -> ir.Value:
        """The entry's argument that has them, which the module's function that makes weights makes."""
        names, types = strings(entry.attributes["arguments"]), list(entry.attributes["types"])
        sources = [self.product.weights, *self.of]
        about = [names[s.buffer].partition(":")[2] + (f" from byte {s.first}" if s.first else "") for s in sources]
        name, type_ = f"{MADE}:{'+'.join(about)}, sums of rows", ir.RankedTensorType.get(self.shape, b.f32())
        maker = maker_of(module)
        if name not in strings(maker.attributes["results"]):
            maker.attributes["results"] = attribute([*strings(maker.attributes["results"]), name])
            weights = [add_argument(maker, names[s.buffer], ir.TypeAttr(types[s.buffer]).value) for s in sources]
            self._call(module, maker, weights, add_argument(maker, name, type_))
        return add_argument(entry, name, type_)

    def _call(self, module: ir.Module, maker: ir.Operation, weights: list[ir.Value], made: ir.Value) -> None:
        rows, depth = self.product.rows, self.product.depth
        types = [ir.MemRefType.get(shape, kind) for shape, kind in
                 (([rows, depth], ir.BF16Type.get()), ([depth], b.f32()), ([rows], b.f32()))]  # fmt: skip
        callee = _kernel(module, *types)
        own = self.product.weights
        with ir.InsertionPoint(operations(maker.regions[0].blocks[0])[-1]), maker.location:
            for layer in range(self.layers):
                for i, (series, memory) in enumerate(zip(self.of, weights[1:], strict=True)):
                    starts = [s.first + layer * s.stride for s in (own, series)]
                    starts.append((layer * len(self.of) + i) * 4 * rows)
                    places = zip((weights[0], memory, made), starts, types, strict=True)
                    views = [b.emit("memref.view", [m, b.as_value(start)], [type_]) for m, start, type_ in places]
                    create_op("func.call", views, [], {"callee": ir.FlatSymbolRefAttr.get(callee)})


def _kernel(module: ir.Module, weights: ir.Type, vector: ir.Type, sums: ir.Type) -> str:
    """The name of the kernel that makes sums of rows, which the module gets where it has none."""
    name = f"sums_of_rows_{'x'.join(map(str, weights.shape))}"
    if all(symbol_of(kernel) != name for kernel in kernel_functions(module)):
        w, v, s = (ir.RankedTensorType.get(t.shape, t.element_type) for t in (weights, vector, sums))
        maps = "affine_map<(r, k) -> (r, k)>, affine_map<(r, k) -> (k)>, affine_map<(r, k) -> (r)>"
        kernel = ir.Operation.parse(
            f"""func.func private @{name}(%w: {weights}, %v: {vector}, %s: {sums})
                attributes {{kernel = "contraction", tied = [-1], access = ["read", "read", "write"]}} {{
              %0 = bufferization.to_tensor %w restrict : {weights} to {w}
              %1 = bufferization.to_tensor %v restrict : {vector} to {v}
              %zero = arith.constant 0.0 : f32
              %2 = tensor.empty() : {s}
              %3 = linalg.fill ins(%zero : f32) outs(%2 : {s}) -> {s}
              %4 = linalg.contract indexing_maps = [{maps}] ins(%0, %1 : {w}, {v}) outs(%3 : {s}) -> {s}
              bufferization.materialize_in_destination %4 in restrict writable %s : ({s}, {sums}) -> ()
              return
            }}"""
        )
        ir.InsertionPoint.at_block_begin(module.body).insert(kernel)
    return name
