"""`fold`, `map` and `scf.for` over layers, and sums over a list made by `for`."""

from __future__ import annotations

import numpy as np
from fuzz import exact
from fuzz.exact import Exact, monotone
from fuzz.generate import Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run


def _cell_text(node: Node, names: list[str]) -> str:
    (x, stack), width = names, node.kind.shape[1]
    layer = f"(linear h (slice {stack} [l 0 0] [nil {width} {width}]))"
    return f"(fold (fn [h l] (tanh (+ {layer} {x}))) {x} (range {node.facts['times']}))"


def _cell(node: Node, operands: list[Exact], run: Run) -> Exact:
    x, w = operands
    h = x
    for layer in range(node.facts["times"]):
        h = monotone(np.tanh, exact.product("nk,ok->no", h, w[layer], run.precision) + x)
    return h


OPS["fold"] = Op(_cell_text, _cell)


def _loop_text(node: Node, names: list[str]) -> str:
    kind = f"tensor<{'x'.join(map(str, node.kind.shape))}xf32>"
    return (
        f"(scf.for {{:result {kind}}} (: 0 index) (: {node.facts['times']} index) (: 1 index) {names[0]}"
        f" (region (block [(: i index) (: y {kind})] (scf.yield (tanh (+ (linear y {names[1]}) {names[0]}))))))"
    )


def _loop(node: Node, operands: list[Exact], run: Run) -> Exact:
    x, w = operands
    y = x
    for _ in range(node.facts["times"]):
        y = monotone(np.tanh, exact.product("nk,ok->no", y, w, run.precision) + x)
    return y


OPS["loop"] = Op(_loop_text, _loop)


@offers("f32", weight=1.0)
def make_loop(builder: Builder, kind: Kind) -> Node | None:
    if len(kind.shape) != 2 or kind.shape[1] > 40:
        return None
    times, width = builder.random.randint(1, 3), kind.shape[1]
    if builder.chance(0.5):
        return builder.add("loop", kind, builder.need(kind.shape), builder.need((width, width)), times=times)
    stack = builder.need((times, width, width), builder.random.choice(["f32", "bf16"]))
    return builder.add("fold", kind, builder.need(kind.shape), stack, times=times)


def _sum_text(node: Node, names: list[str]) -> str:
    x, (rows, *rest) = names[0], node.operands[0].kind.shape
    offsets, sizes = " ".join(["i", *["0"] * len(rest)]), " ".join(["nil", *map(str, rest)])
    return f"(fold + 0.0 (for [i (range {rows})] (* (slice {x} [{offsets}] [{sizes}]) (+ i 1))))"


def _sum(node: Node, operands: list[Exact], _: Run) -> Exact:
    (x,) = operands
    found = Exact.of(np.zeros(node.kind.shape))
    for i in range(x.shape[0]):
        found = found + x[i] * float(i + 1)
    return found


OPS["weighted-sum"] = Op(_sum_text, _sum)


@offers("f32", weight=0.6)
def make_sum(builder: Builder, kind: Kind) -> Node:
    return builder.add("weighted-sum", kind, builder.need((builder.random.randint(1, 4), *kind.shape)))
