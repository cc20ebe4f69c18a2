"""A random program: entries on inputs with free dimensions, named results, updates, gradients of a scalar."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from fuzz.wide import layers, odd, products, scalars, views
from fuzz.wide.graph import Node, Noise, Unfit, computed, fit
from fuzz.wide.maker import Maker

Make = Callable[[Maker], Node]
Samples = list[np.ndarray]

SMOOTH: list[tuple[Make, float]] = [
    (scalars.unary, 3),
    (scalars.binary, 3),
    (scalars.scalar_function, 3),
    (views.permuted, 1.5),
    (views.moved, 1.5),
    (views.masked, 1),
    (views.outer, 1),
    (views.gathered, 2),
    (views.convolved, 1),
    (views.sliced, 1.5),
    (views.inserted, 1),
    (views.reduced, 2),
    (views.joined, 1),
    (views.chained, 1),
    (products.contracted, 4),
    (products.linear, 2),
    (products.gated, 1),
    (products.normed, 2),
    (products.softmax, 1),
    (products.cross_entropy, 1),
    (layers.attention, 1.5),
    (layers.rotated, 1),
    (layers.experts, 0.7),
    (layers.block, 0.7),
    (layers.one_layer, 0.5),
    (layers.called, 1),
    (odd.chosen, 0.7),
    (odd.masks, 0.7),
    (odd.placed, 1),
    (odd.named_op, 1),
    (odd.gram, 1),
    (odd.long_rows, 0.4),
    (odd.many_dimensions, 0.7),
    (odd.recomputed, 0.7),
    (odd.own_gradient, 0.5),
    (odd.head_loss, 1),
]
OTHERS: list[tuple[Make, float]] = [
    (scalars.through_type, 2),
    (scalars.whole_numbers, 1),
    (views.largest, 1),
    (views.looped, 0.7),
    (products.both_narrow, 1),
    (odd.iterated, 0.5),
    (odd.counted, 0.7),
]
"""What has no finite differences, or, as loops over tensors, no gradient."""


@dataclass
class Wide:
    """A program and what is right of it.  updates: a weight or state, and its value behind a run."""

    seed: int
    maker: Maker
    results: dict[str, Node]
    updates: list[tuple[Node, Node]]
    loss: Node | None = None
    by: list[Node] = field(default_factory=list)
    text: str = ""

    @property
    def leaves(self) -> list[Node]:
        """What the text reads and does not compute."""
        return [n for n in self.used if n.kind != "let"]

    @property
    def used(self) -> list[Node]:
        """What results depend on, in order."""
        wanted = {*self.results.values(), *(n for pair in self.updates for n in pair), *self.by}
        wanted |= {self.loss} if self.loss else set()
        for node in reversed(self.maker.nodes):
            if node in wanted:
                wanted |= {*node.parents}
        return [n for n in self.maker.nodes if n in wanted]

    def right(self, product: float, runs: int) -> list[tuple[dict[str, Samples], dict[Node, Samples]]]:
        """For each run: every result's samples, and those of weights and states behind it."""
        nodes, found = self.used, []
        noises = [Noise(smooth=self.maker.smooth)]
        noises += [Noise(np.random.default_rng([self.seed, i]), product, self.maker.smooth) for i in (11, 12, 13, 14)]
        held: list[dict[Node, np.ndarray]] = [{} for _ in noises]
        for _ in range(runs):
            results: dict[str, Samples] = {name: [] for name in self.results}
            for noise, own in zip(noises, held, strict=True):
                start = {n: own.get(n, noise.moved(n.leaf, 2.0**-24)) for n in nodes if n.leaf is not None}
                values = computed(nodes, start, noise)
                for name, node in self.results.items():
                    results[name].append(values[node])
                own.update({target: values[value] for target, value in self.updates})
            found.append((results, {t: [own[t] for own in held] for t, _ in self.updates}))
        return found


def generate(seed: int, smooth: bool | None = None) -> Wide:
    """The program of a seed.  smooth: whether it is one of gradients; drawn where it is None."""
    drawn = bool(np.random.default_rng([seed, 1]).random() < 0.3) if smooth is None else smooth
    for attempt in range(100):
        try:
            return _drawn(seed, Maker([seed, attempt], drawn))
        except Unfit:
            continue
    raise AssertionError(f"no program of seed {seed} is fit")


def _drawn(seed: int, m: Maker) -> Wide:
    menu = SMOOTH + ([] if m.smooth else OTHERS)
    shares = np.array([share for _, share in menu])
    shares /= shares.sum()
    states = _states(m)
    for _ in range(m.whole(3, 20)):
        for _ in range(6):
            try:
                menu[int(m.rng.choice(len(menu), p=shares))][0](m)
                break
            except Unfit:
                continue
    made = learning(seed, m, _sinks(m)[-3:]) if m.smooth else _plain(seed, m, states)
    for results, held in [] if made.by else made.right(2.0**-15, 2):
        for samples in [*results.values(), *held.values()]:
            fit(samples)
    made.text = written(made)
    return made


def smaller(made: Wide) -> Iterator[Wide]:
    """Programs of one value of a program's, those first that need least."""
    for node in made.used:
        if node.kind != "let" or node.dtype == "bf16" or node in made.results.values():
            continue
        try:
            alone = Wide(made.seed, made.maker, {"r0": node}, [])
            fewer = learning(made.seed, made.maker, [node]) if made.by else alone
        except Unfit:
            continue
        fewer.text = written(fewer)
        yield fewer


def _states(m: Maker) -> list[Node]:
    if m.smooth or m.chance(0.7):
        return []
    shape = m.shape(m.whole(1, 3), 600)
    return [m.leaf("state", shape, "f32", np.zeros(shape))]


def _sinks(m: Maker) -> list[Node]:
    lets = [n for n in m.nodes if n.kind == "let"]
    if not lets:
        raise AssertionError("nothing was computed")
    return [n for n in lets if not n.uses] or lets[-1:]


def _plain(seed: int, m: Maker, states: list[Node]) -> Wide:
    updates = []
    for state in states:
        fitting = [n for n in m.some(state.rank, most=600) if n.shape == state.shape and n is not state]
        other = fitting[0] if fitting else m.weight(*state.shape, dtype="f32")
        updates.append((state, m.add("(+ (* 0.5 {0}) {1})", [state, other], lambda n, a, b: 0.5 * a + b)))
    if m.chance(0.25):
        pairs = [
            (w, v)
            for w in m.nodes
            if w.kind == "weight" and w.dtype == "f32"
            for v in m.some(w.rank)
            if v.shape == w.shape and v.kind == "let" and v is not w
        ]
        if pairs:
            w, v = m.one_of(pairs)
            updates.append((w, m.add("(+ (* 0.5 {0}) (* 0.1 {1}))", [w, v], lambda n, a, b: 0.5 * a + 0.1 * b)))
    held = {value for _, value in updates}
    sinks = [n for n in _sinks(m) if n not in held] or [n for n in m.nodes if n.kind == "let"][-1:]
    m.rng.shuffle(sinks)  # type: ignore[arg-type]
    chosen = [_narrowed(m, sink) for sink in sinks[: m.whole(1, 4)]]
    return Wide(seed, m, {f"r{i}": n for i, n in enumerate(chosen)}, updates)


def _narrowed(m: Maker, node: Node) -> Node:
    """A result, now and then in bf16."""
    narrow = node.dtype == "f32" and m.chance(0.15)
    return m.add("(cast {0} bf16)", [node], lambda n, a: a, "bf16") if narrow else node


def learning(seed: int, m: Maker, sinks: list[Node]) -> Wide:
    """A weighed sum of some values, and its gradients."""
    total: Node | None = None
    for sink in sinks:
        flat = m.reshape_to(sink, (sink.size,))
        scale = round(1 / math.sqrt(sink.size), 4)
        weights = m.weight(sink.size, scale=1.0, dtype="f32")
        part = m.add("(sum (* {0} {1}))", [flat, weights], lambda n, a, b: (a * b).sum())
        part = m.add(f"(* {scale} {{0}})", [part], lambda n, a, scale=scale: scale * a)
        total = part if total is None else m.add("(+ {0} {1})", [total, part], lambda n, a, b: a + b)
    assert total is not None
    made = Wide(seed, m, {"loss": total}, [], loss=total)
    leaves = [
        n
        for n in made.used
        if (n.kind in ("weight", "layers") and n.dtype == "f32") or (n.kind == "input" and n.dtype == "f32")
    ]
    m.rng.shuffle(leaves)  # type: ignore[arg-type]
    made.by = leaves[:5]
    return made


def written(made: Wide) -> str:
    m, nodes = made.maker, made.used
    rng = np.random.default_rng([made.seed, 2])
    symbols: dict[str, int] = {}
    lines = ["(require nn)", "(require attention)", "(require experts)", "(require gradients)", "(require training)"]
    lines += ["(require-dialect arith math tensor linalg scf)", f"(config layers {m.layers})"]
    inputs = []
    for n in made.leaves:
        sizes = " ".join(map(str, n.shape))
        if n.kind == "weight":
            lines.append(f"(weights ({n.name} [{sizes}] {n.dtype}))")
        elif n.kind == "layers":
            lines.append(f"(weights (per layers ({n.name} [{' '.join(map(str, n.shape[1:]))}] {n.dtype})))")
        elif n.kind == "state":
            lines.append(f"(state ({n.name} [{sizes}] {n.dtype}))")
        else:
            dims = [_dim(size, symbols, rng) for size in n.shape]
            inputs.append(f"({n.name} [{' '.join(dims)}] {n.dtype})")
    used = {w for n in nodes for w in re.findall(r"[\w-]+", n.text)}
    functions = [f for f in m.functions if f.split()[1] in used]
    lines += functions
    text: dict[Node, str] = {}
    bound: list[str] = []
    readers = {n: [(other, i) for other in nodes for i, p in enumerate(other.parents) if p is n] for n in nodes}
    pinned = {*made.results.values(), *(v for _, v in made.updates)}
    for n in nodes:
        if n.kind != "let":
            text[n] = f"(read-state {n.name})" if n.kind == "state" else n.name
            continue
        whole = n.text
        for i, parent in enumerate(n.parents):
            whole = whole.replace(f"{{{i}}}", text[parent])
        once = n not in pinned and sum(other.text.count(f"{{{i}}}") for other, i in readers[n]) == 1
        if once and rng.random() < 0.35 and len(whole) < 400:
            text[n] = whole
            continue
        bound += [f"{n.name} {whole}"]
        text[n] = n.name
    results = {name: text[n] for name, n in made.results.items()}
    read = {w for line in (*functions, *bound, *results.values()) for w in re.findall(r"[\w-]+", line)}
    made.by = [n for n in made.by if n.name in read]  # a layer's function need not read all of its weights
    if made.by:
        names = " ".join(f"(whole {n.name})" if n.kind == "layers" else n.name for n in made.by)
        bound.append(f"slopes (gradients {text[made.loss]} [{names}])")  # type: ignore[index]
        results |= {f"g-{n.name}": f"(nth slopes {i})" for i, n in enumerate(made.by)}
    updates = "".join(f"\n    (update! {t.name} {text[v]})" for t, v in made.updates)
    if len(results) == 1 and rng.random() < 0.5:
        body = next(iter(results.values()))
        made.results = {"f": next(iter(made.results.values()))}
    else:
        body = "{" + " ".join(f":{name} {value}" for name, value in results.items()) + "}"
    shapes = f" {{:shapes [{{{' '.join(f'{k} {v}' for k, v in symbols.items())}}}]}}" if symbols else ""
    joined = "\n        ".join(bound)
    lines.append(f"(entry f [{' '.join(inputs)}]{shapes}\n  (let [{joined}]{updates}\n    {body}))")
    return "\n".join(lines) + "\n"


def _dim(size: int, symbols: dict[str, int], rng: np.random.Generator) -> str:
    if rng.random() < 0.6:
        return str(size)
    symbols[f"free{size}"] = size
    return f"free{size}"
