"""States: read before and after they are written."""

from __future__ import annotations

from fuzz.exact import Exact
from fuzz.generate import Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run, with_batch


def _write(node: Node, operands: list[Exact], run: Run) -> Exact:
    run.states[node.facts["name"]] = operands[0]
    return operands[0]


OPS["read-state"] = Op(
    lambda node, _: f"(read-state {node.facts['name']})", lambda node, _, run: run.states[node.facts["name"]]
)
OPS["write-state"] = Op(lambda node, names: f"(write-state {node.facts['name']} {names[0]})", _write)


@offers("f32", "bf16", weight=0.25)
def make_read(builder: Builder, kind: Kind) -> Node | None:
    shape = kind.shape
    known = [name for name, k in builder.states.items() if k.dtype == kind.dtype and with_batch(k.shape) == shape]
    if known:
        return builder.add("read-state", kind, name=builder.random.choice(known))
    if len(shape) == 2 and shape[0] == 1:
        own: tuple[int, ...] = shape[1:]
    elif len(shape) > 2 and shape[1] == 1:
        own = (shape[0], *shape[2:])
    else:
        return None
    name = f"s{len(builder.states)}"
    builder.states[name] = Kind(own, kind.dtype)
    return builder.add("read-state", kind, name=name)


@offers("f32", weight=0.6)
def make_view_of_state(builder: Builder, kind: Kind) -> Node | None:
    """A state's elements in a wanted shape."""
    if not kind.shape:
        return None
    name = f"s{len(builder.states)}"
    own = kind.shape if builder.chance(0.7) else (*kind.shape, 1)
    builder.states[name] = Kind(own)
    read = builder.add("read-state", Kind(with_batch(own)), name=name)
    return builder.add("reshape", kind, read)
